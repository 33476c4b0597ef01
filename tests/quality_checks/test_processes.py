"""What the gate asks of an epoch of a process: of both outputs, and of its state."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.pipelines.runtime.handmade import store, verdict_of
from tests.pipelines.runtime.plans import STATE, release, taken
from tests.pipelines.runtime.processes import functions as fn
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.lake import Lake, StagedRow, WatermarkRow
from tidegate.pipelines.lake.adopt import adopt, survey
from tidegate.pipelines.process import EventTimeExtension
from tidegate.pipelines.runtime.gate import StagedEpoch
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.sql.canonical import computes
from tidegate.pipelines.sql.model import Insert
from tidegate.quality_checks.checks import CHECKS, processes, prove
from tidegate.quality_checks.evidence import gather
from tidegate.quality_checks.reconcile import reconcile

SCRIPT = """
CREATE TABLE events (k STRING, number BIGINT, name STRING) WITH ('connector' = 'scripted');
CREATE TABLE evens (k STRING, number BIGINT) WITH ('connector' = 'scripted');
CREATE TABLE odds (k STRING, number BIGINT, PRIMARY KEY (k) NOT ENFORCED,
    CONSTRAINT small EXPECT (number < 100) ON VIOLATION QUARANTINE,
    CONSTRAINT liked EXPECT (number <> 5)) WITH ('connector' = 'scripted');
"""
OWN = [("k", pa.string()), ("number", pa.int64())]
LAKE = [("_op", pa.string()), ("_generation", pa.int32()), ("_epoch", pa.int64())]
EXTRA = [("_probe_epoch", pa.int64()), ("_split", pa.string()), ("_offset", pa.int64()), ("_reason", pa.string())]
MASK = [("_violated", pa.int64())]
SMALL, LIKED = 2, 1
"""The bits of the second output's constraints."""


def rows(path: Path, schema: list, numbers: list[int | None], violated: int = 0) -> None:
    """A staged file whose keys are null where the number is; every row has the same mask."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    columns = {name: pa.nulls(len(numbers), kind) for name, kind in schema}
    columns["number"] = pa.array([number or 0 for number in numbers], pa.int64())
    columns["k"] = pa.array([None if number is None else "k" for number in numbers], pa.string())
    if MASK[0] in schema:
        columns["_violated"] = pa.array([violated] * len(numbers), pa.int64())
    pq.write_table(pa.table(columns), path)


def staged_file(lake: Lake, target: Table, insert: Insert, disposition: str = "publish") -> Path:
    """Where the one file of a disposition is staged."""
    folder = lake.new_attempt(target, insert, "g1-e1-x")[disposition]
    return Path(folder / f"_disposition={disposition}" / "part-0.parquet")


def staged_files(lake: Lake, target: Table, insert: Insert) -> list[dict[str, Any]]:
    """What is staged of a target, as a row of staged files has it."""
    folders = lake.new_attempt(target, insert, "g1-e1-x").values()
    return [vars(file) for folder in folders if folder.is_there() for file in survey(folder)]


def staged(folder: Path) -> StagedEpoch:
    """Two rows to the first output; two to the second, of which one is quarantined by its constraint; state of a
    key."""
    function = EventTimeExtension.wrap_process_function(fn.Halved())
    pipeline = compile_script(SCRIPT).process(["evens", "odds"], "events", "k", function)
    lake, insert = Lake(folder), pipeline.insert("evens")
    for name in ("evens", "odds"):
        target = pipeline.table(name)
        for path, extra in ((lake.target_path(target), []), (lake.quarantine_path(target, insert), EXTRA)):
            Path(path).mkdir(parents=True)
            DeltaTable.create(str(path), schema=pa.schema([*OWN, *LAKE, *extra]))
    evens, odds = pipeline.table("evens"), pipeline.table("odds")
    rows(staged_file(lake, evens, insert), [*OWN, *LAKE, *EXTRA], [2, 4])
    rows(staged_file(lake, odds, insert), [*OWN, *LAKE, *EXTRA, *MASK], [5], LIKED)
    rows(staged_file(lake, odds, insert, "quarantine"), [*OWN, *LAKE, *EXTRA, *MASK], [105], SMALL)
    state = lake.state_path(insert) / "g1-e1-x" / "part-0.parquet"
    rows(Path(state), OWN, [1])
    files = [staged_files(lake, target, insert) for target in (evens, odds)]
    plan = release("evens", 1, taken("events", 0, 1, 4), computes=computes(pipeline, insert), state=STATE)
    second = {"files": files[1], "to:publish": 1, "to:quarantine": 1, "violated:small": 1, "discarded": 0, "emitted": 2}
    facts: dict[str, Any] = {
        "late@events": 0,
        "emitted": 2,
        "watermark": [5, False, False, {}],
        "broadcast": "x",
        "state": {"folder": "g1-e1-x", "files": [{"path": state.name, "size": Path(state).stat().st_size, "rows": 1}]},
        "second": second,
    }
    counts = {"rows": 4, "processed": 4, "discarded": 0, "to:publish": 2, "to:quarantine": 0, "to:drop": 0}
    row = StagedRow("insert evens", 1, 1, plan.digest, 0, "g1-e1-x", files[0], counts, facts)
    return StagedEpoch(pipeline, insert, pipeline.table("evens"), plan, row, 4, {}, lake)


def failed(epoch: StagedEpoch) -> dict[str, str]:
    """The checks that fail, and why; those of the files."""
    names = {
        "one-place",
        "staged-files",
        "unmatched-policy",
        "columns",
        "key-not-null",
        "counts-complete",
        "constraints",
    }
    return {result.name: result.detail for result in prove(gather(epoch)) if not result.passed and result.name in names}


def test_an_epoch_as_it_should_be(tmp_path: Path) -> None:
    epoch = staged(tmp_path)
    assert failed(epoch) == {}
    assert [result.name for result in prove(gather(epoch))] == [check.name for check in CHECKS]
    second = processes.second_output(gather(epoch))
    assert (second.rows("publish"), second.rows("quarantine"), second.staged.target.name) == (1, 1, "odds")
    (found,) = [result for result in prove(gather(epoch)) if result.name == "one-place"]
    assert found.observed["odds"] == {"emitted": 2, "publish": 1, "quarantine": 1, "quarantined for a reason": 1}
    (warned,) = [result for result in prove(gather(epoch)) if result.name == "constraints"]
    assert (
        warned.warning == 'second output odds: 1 row violates the constraint liked (number <> 5), among them {"k": "k"}'
    )


def test_a_row_that_is_quarantined_without_a_reason_holds_the_epoch(tmp_path: Path) -> None:
    epoch = staged(tmp_path)
    _second(epoch).update({"violated:small": 0})
    found = failed(epoch)
    assert set(found) == {"one-place", "constraints"}
    assert "and 0 have a reason" in found["one-place"]


def _second(epoch: StagedEpoch) -> dict[str, Any]:
    return epoch.staged.facts["second"]


def _file(epoch: StagedEpoch, disposition: str = "publish") -> Path:
    return staged_file(epoch.lake, epoch.pipeline.table("odds"), epoch.insert, disposition)


def _rewritten(schema: list, numbers: list[int | None], violated: int = 0) -> Callable[[StagedEpoch], None]:
    def change(epoch: StagedEpoch) -> None:
        rows(_file(epoch), [*schema, *MASK], numbers, violated)
        _second(epoch)["files"] = staged_files(epoch.lake, epoch.pipeline.table("odds"), epoch.insert)

    return change


@pytest.mark.parametrize(
    ("change", "check", "message"),
    [
        (
            lambda epoch: _second(epoch).update(emitted=3),
            "one-place",
            "second output odds: .* the function gave 3 rows",
        ),
        (_rewritten([*OWN, *LAKE, *EXTRA], [5], SMALL), "constraints", "may hold rows that a constraint quarantines"),
        (lambda epoch: _file(epoch).unlink(), "staged-files", "second output odds: .*part-0.parquet is gone"),
        (lambda epoch: rows(_file(epoch), [*OWN, *LAKE, *EXTRA, *MASK], [5, 7]), "staged-files", "has 2 rows"),
        (
            _rewritten([*OWN, *LAKE, *EXTRA, ("odd", pa.int64())], [5]),
            "columns",
            "second output odds: .*odd is no column",
        ),
        (
            _rewritten([*OWN, *LAKE, *EXTRA], [None]),
            "key-not-null",
            "the primary key of odds is null in rows to publish",
        ),
        (
            lambda epoch: epoch.staged.facts.update(emitted=3),
            "one-place",
            "^INSERT evens, epoch 1: the function gave 3",
        ),
    ],
)
def test_what_is_wrong_with_one_of_the_outputs_holds_the_epoch(
    tmp_path: Path, change: Callable[[StagedEpoch], None], check: str, message: str
) -> None:
    epoch = staged(tmp_path)
    change(epoch)
    found = failed(epoch)
    assert set(found) == {check}
    assert re.search(message, found[check])


WINDOWS = """
CREATE TABLE events (k STRING, number BIGINT, p AS PROCTIME()) WITH ('connector' = 'scripted');
CREATE TABLE counted (k STRING, number BIGINT) WITH ('connector' = 'scripted');
INSERT INTO counted SELECT k, COUNT(*) FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(p), INTERVAL '1' DAY)) AS e
WHERE number > 0 GROUP BY window_start, window_end, k HAVING COUNT(*) > 1;
"""


def windowed(folder: Path) -> StagedEpoch:
    """Seven rows were read, four of them taken; three windows emitted, of which HAVING leaves one out."""
    pipeline, lake = compile_script(WINDOWS), Lake(folder)
    insert, target = pipeline.insert("counted"), pipeline.table("counted")
    for path, extra in ((lake.target_path(target), []), (lake.quarantine_path(target, insert), EXTRA)):
        Path(path).mkdir(parents=True)
        DeltaTable.create(str(path), schema=pa.schema([*OWN, *LAKE, *extra]))
    rows(staged_file(lake, target, insert), [*OWN, *LAKE, *EXTRA], [2, 2])
    plan = release("counted", 1, taken("events", 0, 1, 7), computes=computes(pipeline, insert), state=STATE)
    facts = {"late@e": 1, "emitted": 3, "watermark": [5, False, False, {}], "broadcast": "x", "not-having": 1}
    facts["state"] = {"folder": "g1-e1-x", "files": []}
    left_out = {"dropped:where": 2, "dropped:late": 1, "dropped:time-null": 0}
    counts = {"rows": 7, "processed": 4, "discarded": 0, "to:publish": 2, "to:quarantine": 0, "to:drop": 3, **left_out}
    files = staged_files(lake, target, insert)
    row = StagedRow("insert counted", 1, 1, plan.digest, 0, "g1-e1-x", files, counts, facts)
    return StagedEpoch(pipeline, insert, target, plan, row, 7, {}, lake)


@pytest.mark.parametrize(
    ("change", "check", "message"),
    [
        (lambda epoch: None, None, ""),
        (lambda epoch: epoch.staged.counts.update({"processed": 5}), "one-place", "7 rows were read, 5 taken, and 3"),
        (lambda epoch: epoch.staged.counts.update({"to:drop": 2}), "one-place", "7 rows were read"),
        (lambda epoch: epoch.staged.facts.update({"not-having": 0}), "one-place", "the function gave 3 rows"),
        (lambda epoch: epoch.staged.counts.pop("dropped:late"), "counts-complete", "dropped:late"),
        (lambda epoch: epoch.staged.facts.pop("not-having"), "counts-complete", "not-having"),
    ],
)
def test_every_row_that_windows_of_sql_read_is_in_one_place(
    tmp_path: Path, change: Callable[[StagedEpoch], None], check: str | None, message: str
) -> None:
    epoch = windowed(tmp_path)
    change(epoch)
    found = failed(epoch)
    assert set(found) >= ({check} if check else set())
    assert check or not found
    assert message in found.get(check or "", "")


def published(folder: Path, landed: int = 9, change: Callable[[StagedEpoch], None] = lambda epoch: None) -> StagedEpoch:
    """The epoch of `windowed` on its lake, published; two more rows have landed since."""
    epoch = windowed(folder)
    change(epoch)
    lake, plan, insert = epoch.lake, epoch.plan, epoch.insert
    store(lake, plan.row(), epoch.staged, verdict_of(plan))
    for number, count in ((1, 7), (2, landed - 7)):
        store(lake, WatermarkRow("events", 1, number, 0, count, 0, False))
    land(lake, 9)
    application = lake.application("insert counted", "publish", 1)
    folder = lake.new_attempt(epoch.target, insert, epoch.staged.folder)["publish"]
    adopt(lake.target_path(epoch.target), folder, epoch.staged.of("publish"), application=application, epoch=1)
    return epoch


def land(lake: Lake, count: int) -> None:
    """The rows of the input's table, the last two of them as its second epoch."""
    path = lake.table_path("events")
    Path(path).mkdir(parents=True)
    numbers = pa.array([1] * (count - 2) + [2] * 2, pa.int64())
    write_deltalake(str(path), pa.table({"_generation": pa.array([1] * count, pa.int32()), "_epoch": numbers}))


@pytest.mark.parametrize(
    ("landed", "change", "problems"),
    [
        pytest.param(9, lambda epoch: None, (), id="all of it adds up"),
        pytest.param(
            9,
            lambda epoch: epoch.staged.counts.update({"processed": 5}),
            ("of 7 rows that its epochs take, they saw 7, handled 5 and left out 3",),
            id="a row is in two places",
        ),
        pytest.param(
            9,
            lambda epoch: epoch.staged.counts.update({"rows": 6, "processed": 3}),
            ("of 7 rows that its epochs take, they saw 6, handled 3 and left out 3",),
            id="a row was not seen",
        ),
        pytest.param(
            9,
            lambda epoch: epoch.staged.facts.update(emitted=4),
            ("of 4 rows for counted, 2 are published, 0 quarantined and 1 left out by HAVING",),
            id="a row that was given is nowhere",
        ),
        pytest.param(
            8,
            lambda epoch: None,
            ("the table of events holds 9 rows, by the control tables it should be 8",),
            id="a row landed twice",
        ),
        pytest.param(
            9,
            lambda epoch: epoch.staged.counts.update({"to:publish": 3}) or epoch.staged.facts.update(emitted=4),
            ("the table of counted holds 2 rows, by the control tables it should be 3",),
            id="a row was published nowhere",
        ),
    ],
)
def test_the_rows_of_a_process_add_up_over_its_history(
    tmp_path: Path, landed: int, change: Callable[[StagedEpoch], None], problems: tuple[str, ...]
) -> None:
    epoch = published(tmp_path, landed, change)
    found = reconcile(epoch.lake, epoch.pipeline, epoch.insert)
    assert found.problems == tuple(f"process counted: {each}" for each in problems)
    assert found.passed is not bool(problems)
    (source,) = found.rows.inputs
    assert (source.taken, source.waiting) == (7, landed - 7)
    if not problems:
        assert found.rows.left_out == {"where": 2, "late": 1}
        assert set(found.counts.values()) == {9, 4, 3, 2, 0, 1}
