"""A tick and its parts: 10,000 landed probes to a published commit against 3M build rows; and one large release."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

import duckdb
from pyspark.sql import SparkSession

from benchmarks.measure import Figure, seconds
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.runtime.continuous import Continuous, Tick
from tidegate.pipelines.runtime.epochs.position import Waiting
from tidegate.pipelines.runtime.runner import Runner
from tidegate.pipelines.runtime.session import start_session
from tidegate.pipelines.runtime.upkeep import Upkeep
from tidegate.pipelines.sql import compile_script

JOINED = """
CREATE TABLE enriched (user_id BIGINT, item_id BIGINT, gender STRING, score INT) WITH ('connector' = 'delta');
INSERT INTO enriched SELECT c.user_id, item_id, gender, score FROM click_event AS c
LEFT JOIN user_info FOR SYSTEM_TIME AS OF c.{time} ON c.user_id = user_info.user_id
"""
SCRIPT = """
CREATE TABLE user_info (user_id BIGINT PRIMARY KEY NOT ENFORCED, gender STRING, score INT) WITH (
    'connector' = 'datagen', 'number-of-rows' = '{build}', 'rows-at-start' = '{build}',
    'fields.user_id.kind' = 'sequence', 'fields.user_id.start' = '1', 'fields.user_id.end' = '{build}',
    'fields.gender.length' = '8');
CREATE TABLE click_event (user_id BIGINT, item_id BIGINT, proctime AS PROCTIME()) WITH (
    'connector' = 'datagen', '{limit}' = '{probe}', 'rows-at-start' = '{probe}',
    'fields.user_id.min' = '1', 'fields.user_id.max' = '{build}');
""" + JOINED.format(time="proctime")
AT_ROW_TIME = """
CREATE TABLE user_info (user_id BIGINT PRIMARY KEY NOT ENFORCED, gender STRING, score INT,
    since TIMESTAMP_LTZ(3), WATERMARK FOR since AS since) WITH (
    'connector' = 'datagen', 'number-of-rows' = '{build}', 'rows-at-start' = '{build}',
    'fields.user_id.kind' = 'sequence', 'fields.user_id.start' = '1', 'fields.user_id.end' = '{build}',
    'fields.gender.length' = '8');
CREATE TABLE click_event (user_id BIGINT, item_id BIGINT, at TIMESTAMP_LTZ(3), WATERMARK FOR at AS at) WITH (
    'connector' = 'datagen', '{limit}' = '{probe}', 'rows-at-start' = '{probe}',
    'fields.user_id.min' = '1', 'fields.user_id.max' = '{build}');
""" + JOINED.format(time="at")
TWO_SOURCES = """
CREATE TABLE user_info (user_id BIGINT PRIMARY KEY NOT ENFORCED, gender STRING, score INT) WITH (
    'connector' = 'datagen', 'rows-per-second' = '1000', 'rows-at-start' = '1000',
    'fields.user_id.min' = '1', 'fields.user_id.max' = '100000', 'fields.gender.length' = '8');
CREATE TABLE click_event (user_id BIGINT, item_id BIGINT, proctime AS PROCTIME()) WITH (
    'connector' = 'datagen', 'rows-per-second' = '1000', 'rows-at-start' = '1000',
    'fields.user_id.min' = '1', 'fields.user_id.max' = '100000');
""" + JOINED.format(time="proctime")
"""A second of each source is 1,000 rows."""
CHAINED = (
    TWO_SOURCES.replace("score INT) WITH ('", "score INT, proctime AS PROCTIME()) WITH ('")
    + """
;
CREATE TABLE above (user_id BIGINT, item_id BIGINT, gender STRING, score INT) WITH ('connector' = 'delta');
INSERT INTO above SELECT e.user_id, item_id, e.gender, u.score FROM enriched AS e
LEFT JOIN user_info FOR SYSTEM_TIME AS OF e.proctime AS u ON e.user_id = u.user_id;
"""
)
JOB = "a warm job: mapInArrow, SELECT, files"
BUILD, TICK, LARGE = 3_000_000, 10_000, 2_000_000
WARM_TICKS, COUNTED_TICKS, KEEP = 30, 60, timedelta(minutes=5)


def tick() -> list[Figure]:
    """Ticks of one runner, as `tidegate run --continuous` has it, part by part; then the same with ten times the build
    rows, beside the first."""
    spark = start_session()
    few, many = _ticks(spark, SCRIPT, BUILD), _ticks(spark, SCRIPT, 10 * BUILD)
    return [
        Figure(f"tick: 10,000 landed probes to published commit, {BUILD:,} build rows", few.whole,
               peer=few.warm["job"], peer_name=JOB, aim="2.3"),
        Figure("tick: plan, join and stage", few.warm["join"], aim="under 1 s"),
        Figure("tick: checks", few.warm["checks"]),
        Figure("tick: publish", few.warm["publish"], aim="under 0.2 s"),
        Figure("tick: landing the probes (another asset)", few.warm["land"]),
        Figure(f"tick against {10 * BUILD:,} build rows", many.whole, peer=few.whole, peer_name=f"against {BUILD:,}",
               aim="1.1"),
        Figure("its join", many.warm["join"], peer=few.warm["join"], peer_name=f"against {BUILD:,}"),
        Figure("the join of a runner's first tick", many.first, peer=few.first, peer_name=f"against {BUILD:,}",
               aim="at most 4"),
    ]  # fmt: skip


def cold_tick() -> list[Figure]:
    """The first tick of a process of its own, after Spark's start; its files have to be read from the disk. The index
    of the build is there (a release before has made it), and is not."""
    few, many, anew = _cold(BUILD), _cold(10 * BUILD), _cold(BUILD, index=False)
    return [
        Figure(f"join of a process' first tick, nothing in memory, {10 * BUILD:,} build rows", many, peer=few,
               peer_name=f"against {BUILD:,}", aim="at most 4"),
        Figure(f"the same, {BUILD:,} build rows, the index made meanwhile", anew, peer=few, peer_name="made before"),
    ]  # fmt: skip


def event_tick() -> list[Figure]:
    """The tick of a join at the rows' own time."""
    spark = start_session()
    few, many = _ticks(spark, AT_ROW_TIME, BUILD), _ticks(spark, AT_ROW_TIME, 10 * BUILD)
    return [
        Figure(f"tick in event time: 10,000 landed probes to published commit, {BUILD:,} versions", few.whole),
        Figure("its plan, join and stage", few.warm["join"]),
        Figure(f"tick in event time against {10 * BUILD:,} versions", many.whole, peer=few.whole,
               peer_name=f"against {BUILD:,}"),
    ]  # fmt: skip


def whole_tick() -> list[Figure]:
    """A whole tick of `tidegate run --continuous`, and its piece of upkeep: 1,000 new rows of each of two sources
    landed, joined, judged and published; in turns with a warm job of Spark that does nothing else."""
    spark, now = start_session(), [1_767_225_600_000]
    took: dict[str, list[float]] = {name: [] for name in ("tick", "upkeep", "job")}
    with tempfile.TemporaryDirectory() as folder:
        pipeline, lake = compile_script(TWO_SOURCES), Lake(Path(folder) / "lake")
        with Runner(pipeline, lake, spark=lambda: spark, clock=lambda: now[0]) as runner:
            upkeep = Upkeep(lake, pipeline, runner.leases, runner.clock, KEEP)
            loop = Continuous(runner, every=0, on_tick=lambda tick: took["tick"].append(tick.seconds))
            for _ in range(WARM_TICKS + COUNTED_TICKS):
                loop.run(max_ticks=1)
                took["upkeep"].append(seconds(upkeep.piece))
                took["job"].append(seconds(lambda: _bare_job(spark, lake, folder)))
                now[0] += 1_000
    tick, piece, job = (statistics.median(values[WARM_TICKS:]) for values in took.values())
    what = "a whole tick of --continuous, two sources and an INSERT, 1,000 rows of each"
    return [Figure(what, tick, peer=job, peer_name=JOB, aim="4"), Figure("its piece of upkeep", piece)]


def chain() -> list[Figure]:
    """A whole tick of two statements, of which the second joins what the first has published, in turns with that of the
    first one alone: from where rows lie at their source to the last target, landing included."""
    spark, now = start_session(), [1_767_225_600_000]
    took: dict[str, list[float]] = {TWO_SOURCES: [], CHAINED: []}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as runners:
        loops = list[Continuous]()
        for number, script in enumerate(took):
            lake = Lake(Path(folder) / str(number))
            runner = Runner(compile_script(script), lake, spark=lambda: spark, clock=lambda: now[0])
            on_tick = partial(_seconds_of, took[script])
            loops.append(Continuous(runners.enter_context(runner), every=0, on_tick=on_tick))
        for _ in range(WARM_TICKS + COUNTED_TICKS):
            for loop in loops:
                loop.run(max_ticks=1)
            now[0] += 1_000
    one, two = (statistics.median(values[WARM_TICKS:]) for values in took.values())
    return [Figure("a whole tick of a chain of two INSERTs", two, peer=one, peer_name="of one INSERT", aim="1.6")]


def _seconds_of(found: list[float], tick: Tick) -> None:
    found.append(tick.seconds)


def _bare_job(spark: SparkSession, lake: Lake, folder: str) -> None:
    file = max(Path(lake.table_path("click_event")).glob("**/*.parquet"), key=lambda path: path.stat().st_mtime)
    rows = spark.read.schema("user_id BIGINT, item_id BIGINT").parquet(str(file))
    rows = rows.mapInArrow(lambda batches: batches, "user_id BIGINT, item_id BIGINT")
    rows.selectExpr("user_id", "item_id + 1 AS item_id").write.mode("overwrite").parquet(f"{folder}/job")


@dataclass(frozen=True)
class Ticks:
    """The seconds of the first tick's join, and the medians of the warm ticks' parts."""

    first: float
    warm: Mapping[str, float]

    @property
    def whole(self) -> float:
        return self.warm["join"] + self.warm["checks"] + self.warm["publish"]


def _ticks(spark: SparkSession, script: str, build: int, ticks: int = 10, warm: int = 15) -> Ticks:
    """`ticks` of them after `warm` that do not count. A tick's probes are landed by an epoch of their own, a second's
    worth of them."""
    parts: dict[str, list[float]] = {name: [] for name in ("land", "join", "checks", "publish", "job")}
    now = 1_767_225_600_000
    with tempfile.TemporaryDirectory() as folder:
        pipeline = compile_script(script.format(build=build, probe=TICK, limit="rows-per-second"))
        lake = Lake(Path(folder) / "lake")
        with Runner(pipeline, lake, spark=lambda: spark, clock=lambda: now) as runner:
            runner.advance("user_info")
            for _ in range(warm + ticks):
                runner.advance("user_info")
                parts["land"].append(seconds(lambda: runner.advance("click_event")))
                parts["join"].append(seconds(lambda: runner.stage("enriched")))
                parts["checks"].append(seconds(lambda: runner.judge("enriched")))
                parts["publish"].append(seconds(lambda: runner.publish("enriched")))
                parts["job"].append(seconds(lambda: _bare_job(spark, lake, folder)))
                now += 1_000
    return Ticks(parts["join"][0], {name: statistics.median(values[warm:]) for name, values in parts.items()})


def _cold(build: int, *, index: bool = True) -> float:
    with tempfile.TemporaryDirectory() as folder:
        compiled = SCRIPT.format(build=build, probe=TICK, limit="rows-per-second")
        _in_a_process(_landed, compiled, folder)
        if not index:
            shutil.rmtree(f"{folder}/_scratch", ignore_errors=True)
        os.sync()
        for file in [path for path in Path(folder).rglob("*") if path.is_file()]:
            with file.open("rb") as opened:
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return _in_a_process(_first_join, compiled, folder)


def _in_a_process(body: Callable[[str, str], float], script: str, folder: str) -> float:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(body, script, folder).result()


def _landed(script: str, folder: str) -> float:
    with Runner(compile_script(script), Lake(Path(folder)), spark=start_session) as runner:
        runner.advance("user_info")
        runner.advance("click_event")
        took = seconds(lambda: runner.release("enriched"))
        time.sleep(1.0)  # another second's probes
        runner.advance("click_event")
    return took


def _first_join(script: str, folder: str) -> float:
    spark = start_session()
    with Runner(compile_script(script), Lake(Path(folder)), spark=lambda: spark) as runner:
        return seconds(lambda: runner.stage("enriched"))


def large() -> list[Figure]:
    """2M probes against 3M build rows in one release: the bare join, the gate, then DuckDB on the same files."""
    spark = start_session()
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake(Path(folder) / "lake")
        pipeline = compile_script(SCRIPT.format(build=BUILD, probe=LARGE, limit="number-of-rows"))
        with Runner(pipeline, lake, spark=lambda: spark) as runner:
            runner.advance("user_info")
            runner.advance("click_event")
            releasing = runner.releasing("enriched")
            plan = releasing.plan()
            assert not isinstance(plan, Waiting)
            made = seconds(lambda: releasing.write(plan))
            floor = seconds(lambda: _scan_and_write(spark, lake, folder))
            staged = seconds(lambda: runner.stage("enriched"))
            checks = seconds(lambda: runner.judge("enriched"))
            publish = seconds(lambda: runner.publish("enriched"))
        duck = seconds(lambda: _duckdb(lake, Path(folder)))
    return [
        Figure("join and staging, 2M probes x 3M build rows, the index made meanwhile", made, peer=duck,
               peer_name="DuckDB, the same files to Parquet"),
        Figure("join and staging, the index kept", staged, peer=duck, peer_name="DuckDB, the same files to Parquet"),
        Figure("join and staging", staged, peer=floor, peer_name="Spark scans the probes and writes them"),
        Figure("checks of that release", checks, peer=staged, peer_name="the join", aim="under 0.15"),
        Figure("publishing 2M rows", publish, aim="under 0.2 s"),
    ]  # fmt: skip


def _scan_and_write(spark: object, lake: Lake, folder: str) -> None:
    from tidegate.pipelines.lake import rows as lake_rows

    rows = lake_rows.read(spark, lake.table_path("click_event"))  # type: ignore[arg-type]
    rows.write.mode("overwrite").parquet(f"{folder}/floor")


def _duckdb(lake: Lake, folder: Path) -> None:
    probe, build = (lake.table_path(name) / "**" / "*.parquet" for name in ("click_event", "user_info"))
    out = folder / "duck.parquet"
    query = """
        COPY (SELECT p.user_id, p.item_id, b.gender, b.score FROM read_parquet($probe) p LEFT JOIN
              (SELECT * FROM read_parquet($build)
               QUALIFY row_number() OVER (PARTITION BY user_id ORDER BY _seq DESC) = 1) b USING (user_id)
        ) TO '{out}' (FORMAT parquet)
    """
    with duckdb.connect() as database:
        database.execute(query.replace("{out}", str(out)), {"probe": str(probe), "build": str(build)})
