"""A pipeline that has run for 100,000 epochs (TIDEGATE_EPOCHS): its ticks, its status and its memory beside those of
its first hundred.

The years between are written by hand, by a process of its own: control rows as ticks leave them, a row an epoch in
files of a thousand, the checkpoints of the ledger, and 20,000 versions in the log of each table. Ticks before and after
are real, upkeep included. Commits alone are measured beside those of delta-rs, on logs of up to 100,000 versions.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from itertools import count
from multiprocessing import get_context
from pathlib import Path

import psutil
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.transaction import AddAction

from benchmarks.measure import Figure, seconds
from tidegate.pipelines.clock import system_clock
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.lake.adopt import there
from tidegate.pipelines.lake.commits import NO_CLEANING, Removal, commit
from tidegate.pipelines.lake.owner_log import GROUP
from tidegate.pipelines.runtime.epochs import all_of, insert_owner, stored_plan
from tidegate.pipelines.runtime.ledger import checkpoint
from tidegate.pipelines.runtime.session import start_session
from tidegate.pipelines.runtime.status import status
from tidegate.pipelines.runtime.upkeep import Upkeep
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.testing import Harness

SCRIPT = """
CREATE TABLE users (id INT PRIMARY KEY NOT ENFORCED, name STRING) WITH ('connector' = 'scripted', 'phases' = 'true',
    'signals' = 'true');
CREATE TABLE clicks (id INT, n INT, proctime AS PROCTIME()) WITH ('connector' = 'scripted');
CREATE TABLE enriched (id INT, n INT, name STRING) WITH ('connector' = 'scripted');
INSERT INTO enriched SELECT c.id, c.n, u.name FROM clicks AS c
LEFT JOIN users FOR SYSTEM_TIME AS OF c.proctime AS u ON c.id = u.id
"""
TICKS, WARM, VERSIONS = 100, 20, 20_000
LOGS = (0, 20_000, 100_000)
"""Versions in the logs of the tables that commits are measured on."""
KEEP = timedelta(minutes=5)


def measure(epochs: int = int(os.environ.get("TIDEGATE_EPOCHS") or 100_000)) -> list[Figure]:
    """The median tick, one status in a process of its own, and the driver's memory."""
    spark = start_session()
    with tempfile.TemporaryDirectory() as folder:
        harness = Harness(SCRIPT, spark, folder)
        harness.push("users", [{"id": number, "name": "x"} for number in range(100)])
        harness.end_of_snapshot("users")
        harness.advance()
        young, look, memory = _ticks(harness), _look(harness), _memory()
        growing = get_context("spawn").Process(target=_grow, args=(str(harness.lake.root), epochs))
        growing.start()
        growing.join()
        assert growing.exitcode == 0
        old, later, after = _ticks(harness), _look(harness), _memory()
        assert status(harness.lake, harness.pipeline).imbalanced == ()
    beside = f"in the first {TICKS}"
    return [
        Figure(f"a tick after {epochs:,} epochs", old, "s", young, beside, "1.1"),
        Figure(f"a status after {epochs:,} epochs", later, "s", look, "of the young lake", "1"),
        Figure(f"memory of the driver's Python after {epochs:,} epochs", after, "MB", memory, beside, "1"),
        *map(_commit, LOGS),
    ]


def _commit(versions: int) -> Figure:
    """Processor time of a look, a commit of a file and its reading back."""
    with tempfile.TemporaryDirectory() as folder:
        path, number = Path(folder), count()
        write_deltalake(path, pa.table({"n": [1]}))
        _lengthen_log(path, versions)

        def added() -> list[AddAction | Removal]:
            return [AddAction(f"{next(number)}.parquet", 1, {}, 0, True, '{"numRecords": 1}')]

        def by_name() -> None:
            commit(there(path), added(), marks={"own": next(number)})
            assert "own" in there(path).applications

        def by_delta_rs() -> None:
            table, marks = DeltaTable(path), [Transaction("other", next(number))]
            properties = CommitProperties(app_transactions=marks)
            table.create_write_transaction(
                added(),  # pyright: ignore[reportArgumentType] no file is removed
                "append",
                table.schema(),
                commit_properties=properties,
                post_commithook_properties=NO_CLEANING,
            )
            assert DeltaTable(path).transaction_version("other") is not None

        name = f"processor time of a commit, {versions:,} versions in the log"
        return Figure(name, _processor_ms(by_name), "ms", _processor_ms(by_delta_rs), "of delta-rs", "0.1")


def _processor_ms(body: Callable[[], None]) -> float:
    took = []
    for _ in range(20):
        begun = time.process_time()
        body()
        took.append(1000 * (time.process_time() - begun))
    return statistics.median(took)


def _ticks(harness: Harness) -> float:
    """The median of ticks, each with its piece of upkeep; what is left of it is done after them."""
    runner, took = harness.runner, []
    upkeep = Upkeep(harness.lake, harness.pipeline, runner.leases, runner.clock, KEEP)

    def tick(number: int) -> None:
        harness.push("clicks", [{"id": number % 100, "n": row} for row in range(100)])
        harness.push("users", [{"id": number % 100, "name": str(number)}])
        for table in ("users", "clicks"):
            runner.advance(table, max_epochs=1)
        runner.release("enriched")
        upkeep.piece()

    for number in range(WARM + TICKS):
        took.append(seconds(lambda number=number: tick(number)))
    for _ in range(2):  # the round that is under way, and a whole one
        upkeep.until(time.monotonic() + 120)
    return statistics.median(took[WARM:])


def _look(harness: Harness) -> float:
    """One look at the lake by who has not looked before."""
    return min(seconds(lambda: status(Lake(harness.lake.root), harness.pipeline)) for _ in range(3))


def _memory() -> float:
    return psutil.Process().memory_info().rss / 1e6


def _grow(root: str, epochs: int) -> None:
    lake, owner, pipeline = Lake(root), insert_owner("enriched"), compile_script(SCRIPT)
    for table in lake.logs.there():
        _lengthen_log(Path(table.path), VERSIONS)
        for file in (Path(table.path) / "_delta_log").glob("*"):  # upkeep would have had its time
            os.utime(file, (0, 0))
    target = lake.target_path(pipeline.table("enriched"))
    for path in (target, *map(lake.table_path, ("users", "clicks"))):
        _lengthen_log(Path(path), VERSIONS)
    while epochs > 0:
        count = min(GROUP, epochs)
        epochs -= count
        last = {name: _landed(lake, name, count) for name in ("users", "clicks")}
        row = lake.epochs.last(owner)
        assert row is not None
        plan, staged, verdict = stored_plan(row), lake.staged.last(owner), lake.verdicts.last(owner)
        assert staged is not None
        assert verdict is not None
        counts = {name: 1 if name in ("rows", "matched", "to:publish") else 0 for name in staged.counts}
        plans = [
            replace(
                plan,
                epoch=plan.epoch + number,
                takes=(
                    replace(
                        plan.first,
                        after=plan.first.upto + number - 1,
                        upto=plan.first.upto + number,
                        rows=1,
                        earlier=plan.first.taken + number - 1,
                        fresh=all_of(plan.first.upto + number - 1, plan.first.upto + number),
                    ),
                ),
                pins=tuple(replace(pin, epoch=last["users"] - count + number) for pin in plan.pins),
            )
            for number in range(1, count + 1)
        ]
        _store(lake, "plan", owner, [each.row() for each in plans])
        rows = [replace(staged, epoch=each.epoch, plan_digest=each.digest, counts=counts, files=[]) for each in plans]
        _store(lake, "stage", owner, rows)
        rows = [replace(verdict, epoch=each.epoch, plan_digest=each.digest) for each in plans]
        _store(lake, "verdict", owner, rows)
        _append(Path(target), lake.application(owner, "publish", 1), plan.epoch, count)
        while checkpoint(lake, "enriched", target, system_clock()):
            pass


def _landed(lake: Lake, name: str, count: int) -> int:
    """Epochs of a source, a row each; the last of them."""
    plan, log = lake.epochs.last(name), lake.watermarks.last(name)
    assert plan is not None
    assert log is not None
    numbers = range(1, count + 1)
    _store(lake, "plan", name, [replace(plan, epoch=plan.epoch + number) for number in numbers])
    sums = [replace(log.sums, epochs=log.epoch + number, rows=log.sums.rows + number) for number in numbers]
    rows = [
        replace(log, epoch=log.epoch + number, rows=1, sums=each) for number, each in zip(numbers, sums, strict=True)
    ]
    _store(lake, "watermark", name, rows)
    _append(Path(lake.table_path(name)), lake.application(name, "data", 1), log.epoch, count)
    return log.epoch + count


def _store(lake: Lake, role: str, owner: str, rows: list) -> None:
    table = {"plan": lake.epochs, "watermark": lake.watermarks, "stage": lake.staged, "verdict": lake.verdicts}[role]
    table.append(rows, application=lake.application(owner, role, 1), version=rows[-1].epoch)  # type: ignore[arg-type]


def _append(path: Path, application: str, epoch: int, count: int) -> None:
    """`count` epochs after `epoch`, each with a row like one that is there."""
    table = DeltaTable(path)
    one = table.to_pyarrow_table().slice(0, 1)
    many = pa.concat_tables([one] * count).drop_columns("_epoch")
    many = many.append_column("_epoch", pa.array(range(epoch + 1, epoch + count + 1), pa.int64()))
    write_deltalake(
        table,
        many.select(one.column_names),
        mode="append",
        commit_properties=CommitProperties(app_transactions=[Transaction(application, epoch + count)]),
    )


def _lengthen_log(path: Path, versions: int) -> None:
    """Versions that change nothing, and a checkpoint after them."""
    if not DeltaTable.is_deltatable(str(path)):
        return
    table = DeltaTable(path)
    table.create_checkpoint()
    first = table.version() + 1
    for version in range(first, first + versions):
        (path / "_delta_log" / f"{version:020}.json").write_text('{"commitInfo":{"timestamp":0}}\n')
    DeltaTable(path).create_checkpoint()
