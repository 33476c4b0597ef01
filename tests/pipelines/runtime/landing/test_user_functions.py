"""Functions of a script's own in a run: what they give is stored, and one that fails commits nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.cases import at_length
from tests.pipelines.runtime import tape
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.lake import Lake, WatermarkRow
from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.lake.delta_log import committed
from tidegate.pipelines.runtime.landing.advances import Advance
from tidegate.pipelines.runtime.runner import Runner
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.testing import Harness

SAMPLES = "tests.pipelines.functions.samples"
NOW = 1_700_000_000_000

DECLARED = "\n".join(
    f"CREATE FUNCTION {name} AS '{SAMPLES}.{name}' LANGUAGE PYTHON;"
    for name in ("parsed", "half_an_hour_before", "inverse", "watermark_on_flag", "fails_while", "never_mind", "answer")
)


def events(columns: str, *options: str) -> str:
    """A generated probe of which 200 rows are due at once and more to come (an end would tell MAX), and an INSERT."""
    return f"""
    {DECLARED}
    CREATE TABLE events ({columns}) WITH ('connector' = 'datagen', 'number-of-rows' = '1000', 'rows-at-start' = '200'
        {"".join(f", {option}" for option in options)});
    CREATE TABLE sink (id INT) WITH ('connector' = 'scripted');
    INSERT INTO sink SELECT id FROM events;
    """


def landed(harness: Harness, table: str) -> WatermarkRow:
    row = harness.lake.watermarks.last(table, 1)
    assert row is not None
    return row


def rows_of(harness: Harness, table: str):
    return lake_rows.read(harness.spark, harness.lake.table_path(table))


def test_computed_columns_call_functions_over_every_type(spark: SparkSession, tmp_path: Path) -> None:
    harness = Harness(
        f"""
        {DECLARED}
        CREATE TABLE events (
            id INT, text STRING, number DECIMAL(4, 2), at TIMESTAMP(3), moment TIMESTAMP_LTZ(3),
            n AS PARSED(text), d AS parsed(text, id), share AS inverse(number), before AS half_an_hour_before(at),
            earlier AS half_an_hour_before(moment), twice AS inverse(inverse(number)), words AS never_mind(NULL, text),
            always AS answer() + parsed('8')
        ) WITH ('connector' = 'scripted');
        CREATE TABLE sink (id INT, n BIGINT, words STRING) WITH ('connector' = 'scripted');
        INSERT INTO sink SELECT id, n, words FROM events WHERE share IS NULL OR share > 0;
        """,
        spark,
        tmp_path,
    )
    noon = datetime(2024, 1, 31, 12)
    harness.push("events", [{"id": 1, "text": "7", "number": 4, "at": noon, "moment": noon.replace(tzinfo=UTC)}])
    harness.push("events", [{"id": 2, "text": "x"}, {"id": 3}])
    published = {row["id"]: (row["n"], row["words"]) for row in harness.advance()}
    assert published == {1: (7, "7"), 2: (-1, "x"), 3: (None, "nothing")}
    names = ("n", "d", "share", "before", "earlier", "twice", "always")
    stored = {row["id"]: tuple(row[name] for name in names) for row in rows_of(harness, "events").collect()}
    before = noon - timedelta(minutes=30)
    assert stored == {
        1: (7, 7, 0.25, before, before, 4.0, 50),
        2: (-1, 2, None, None, None, None, 50),
        3: (None, None, None, None, None, None, 50),
    }


def test_the_example_of_flip_66_moves_the_watermark_at_the_end_of_each_sequence(
    spark: SparkSession, tmp_path: Path
) -> None:
    columns = "id INT, log_ts TIMESTAMP(3), flag BOOLEAN, WATERMARK FOR log_ts AS watermark_on_flag(log_ts, flag)"
    options = ("'fields.log_ts.max-past' = '1 h'", "'fields.flag.null-rate' = '0.2'")
    harness = Harness(events(columns, *options), spark, tmp_path, clock=lambda: NOW)
    harness.run()
    rows = rows_of(harness, "events").select(F.unix_millis(F.col("log_ts").cast("timestamp")), "flag").collect()
    assert len(rows) == 200
    flagged = [at for at, flag in rows if flag]
    assert max(at for at, _ in rows) > max(flagged)
    assert landed(harness, "events").timestamp == max(flagged)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ("id INT, at AS SYSTEM_ROWTIME(), WATERMARK FOR at AS SYSTEM_WATERMARK()", NOW - 1),
        ("id INT, at AS SYSTEM_ROWTIME(), WATERMARK FOR at AS SYSTEM_WATERMARK() - '5' SECOND", NOW - 5001),
        (
            "id INT, `log-ts` AS CURRENT_TIMESTAMP, WATERMARK FOR `log-ts` AS `log-ts` - INTERVAL '1' MINUTE",
            NOW - 60_000,
        ),
        (
            "id INT, e ROW<`when-it-was` TIMESTAMP(3)>, WATERMARK FOR e.`when-it-was` AS e.`when-it-was` - '1' HOUR",
            NOW - 3_600_000,
        ),
        ("id INT, at TIMESTAMP(3), WATERMARK FOR at AS CURRENT_TIMESTAMP - INTERVAL '2' SECOND", NOW - 2000),
    ],
    ids=["the source's own", "the source's own, delayed", "an odd name", "nested", "the plan's instant"],
)
def test_a_watermark_of_each_form_runs(spark: SparkSession, tmp_path: Path, columns: str, expected: int) -> None:
    harness = Harness(events(columns), spark, tmp_path, clock=lambda: NOW)
    harness.run()
    assert landed(harness, "events").rows == 200
    assert landed(harness, "events").timestamp == expected


@pytest.mark.parametrize(
    "columns",
    at_length(
        [
            "tenfold AS id * 10, WATERMARK FOR at AS fails_while(path, id)",
            "tenfold AS fails_while(path, id)",
        ]
    ),
    ids=["a watermark", "a computed column"],
)
def test_a_function_that_fails_in_one_of_several_splits_names_that_one_and_commits_nothing_of_any(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    tape.install(monkeypatch)
    lake, stop = Lake(tmp_path / "lake"), tmp_path / "stop"
    pipeline = compile_script(
        f"""
        {DECLARED}
        CREATE TABLE events (id INT, path STRING, at_ms BIGINT, at AS TO_TIMESTAMP_LTZ(at_ms, 3), {columns})
        WITH ('connector' = 'tape');
        CREATE TABLE sink (id INT) WITH ('connector' = 'delta');
        INSERT INTO sink SELECT id FROM events;
        """
    )
    rows: dict[str, list[dict[str, object]]] = {}

    def run(**ids: tuple[int, ...]) -> Advance:
        for split, more in ids.items():
            rows.setdefault(split, []).extend({"id": id, "path": str(stop), "at_ms": id} for id in more)
        tape.write(lake, "events", rows)
        with Runner(pipeline, lake, spark=lambda: spark, clock=lambda: NOW, environment={}) as runner:
            return runner.advance("events", max_epochs=1)

    run(a=(1, 2), b=(4,), c=(5, 6))
    stop.touch()
    application, path = lake.application("events", "data", 1), lake.table_path("events")
    before = committed(path, application), lake_rows.read(spark, path).count()
    with pytest.raises(SourceError) as caught:
        run(a=(7, 8), b=(9, 10, 3, 11), c=(12,))
    assert caught.value.what.startswith(
        "events: function fails_while failed at split b, offset 3: RuntimeError: not yet"
    )
    assert "(samples.py:" in caught.value.what
    assert "epoch 2" in caught.value.where
    assert "none of its rows are committed" in caught.value.state
    assert (committed(path, application), lake_rows.read(spark, path).count()) == before == (1, 5)
    assert [row.epoch for row in lake.watermarks.rows("events")] == [1]
    stop.unlink()
    assert run().rows == 7
    tenfold = {row["id"]: row["tenfold"] for row in lake_rows.read(spark, path).select("id", "tenfold").collect()}
    assert tenfold == {id: 10 * id for id in range(1, 13)}
