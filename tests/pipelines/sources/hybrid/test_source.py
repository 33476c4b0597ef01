"""Which part a step is of, and where the switch is: known without Spark.

Options that say where the last table begins; what they do: ../kafka/test_hybrid.py.
"""

from __future__ import annotations

import time
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.sources.filesystem.folders import LONG_AGO, Files
from tests.pipelines.sources.sources_help import Bench, MemorySplits
from tidegate.pipelines.connectors.protocol import KeepsALog, KnowsItsEnd, PlanRequest, Source, Unread
from tidegate.pipelines.sources.hybrid import CONNECTOR
from tidegate.pipelines.sources.rows import POISON
from tidegate.pipelines.sql import SqlError, compile_script

TABLES = """
CREATE TABLE one (id INT) WITH ('connector' = 'filesystem', 'path' = '{root}/one', 'format' = 'json');
CREATE TABLE two (id INT) WITH ('connector' = 'filesystem', 'path' = '{root}/two', 'format' = 'json');
CREATE TABLE live (id INT) WITH ('connector' = 'datagen', 'rows-per-second' = '10', 'rows-at-start' = '5');
CREATE TABLE t (id INT, p AS PROCTIME()) WITH ('connector' = 'hybrid', 'hybrid.sources' = '{sources}');
CREATE TABLE shown (id INT) WITH ('connector' = 'print');
INSERT INTO shown SELECT id FROM t
"""


def bench(files_root: Path, sources: str) -> Bench:
    pipeline = compile_script(TABLES.format(root=files_root, sources=sources))
    assert pipeline.table("live").role == ("part" if "live" in sources else "unused")
    table = pipeline.table("t")
    assert (table.role, [part.role for part in table.parts]) == ("probe", ["probe"] * len(table.parts))
    return Bench(
        CONNECTOR, table, str(files_root / "scratch" / "t"), now=int(time.time() * 1000), splits=MemorySplits()
    )


def planned(bench: Bench) -> list[tuple[Any, ...]]:
    return [(step.step.ranges["part"], step.step.summary, step.step.phase, step.step.flips) for step in bench.steps]


def test_one_part_after_another_and_the_flip_at_the_switch(files_root: Path) -> None:
    one, two = Files(files_root / "one"), Files(files_root / "two")
    one.write("a.json", [{"id": 1}])
    two.write("b.json", [{"id": 2}])
    table = bench(files_root, "one, two, live")
    assert isinstance(table.source(), Source)
    table.source().preflight(table.position)
    ends = table.source().ends(table.position)
    while table.plan(ends):
        assert len(table.steps) < 10
    assert planned(table) == [
        (0, "one: file 1: a.json", "bounded", False),
        (1, "two: file 1: b.json", "bounded", True),
        (2, "live: rows 1-5", "unbounded", False),
    ]
    assert {row["split"] for row in table.splits.rows()} == {"one/a.json", "two/b.json"}
    one.write("later.json", [{"id": 3}])
    table.now += 1000
    table.plan()
    assert planned(table)[3:] == [(2, "live: rows 6-15", "unbounded", False)]
    assert list(table.source().ends(table.position)["parts"]) == ["2"]


def test_a_restart_goes_on_in_the_same_part(files_root: Path) -> None:
    one = Files(files_root / "one")
    for number in range(3):
        one.write(f"{number}.json", [{"id": number}])
    table = bench(files_root, "one, live")
    table.max_rows = 1
    for _ in range(5):  # a new source for every plan
        table.plan()
    assert [part for part, *_ in planned(table)] == [0, 0, 0, 1, 1]
    assert [flips for *_, flips in planned(table)] == [False, False, True, False, False]
    assert [step.step.ranges["step"].get("from") for step in table.steps] == [0, 1, 2, 0, 1]
    first = table.steps[3]
    assert table.steps[4].step.ranges["first"] == {
        "ranges": first.step.ranges["step"], "epoch": 4, "planned_at": first.planned_at
    }  # fmt: skip


def test_splits_have_their_parts_name_and_only_those_of_the_last_are_reported(files_root: Path) -> None:
    """Those of the others are of the bounded phase: passed over once others go on."""
    Files(files_root / "one").write("a.json", [{"id": 1}])
    table = bench(files_root, "one, live")
    table.plan()
    table.plan()
    over = table.source().landed(table.steps[0], None)
    assert (over.splits, over.ended, over.position) == (frozenset(), frozenset(), "one: 1 file")
    going_on = table.source().landed(table.steps[1], None)
    assert (going_on.splits, going_on.ended, going_on.position) == ({"live/0"}, frozenset(), "live: row 5")


def test_what_is_unread_and_how_long_it_is_kept_are_the_current_part_s_to_tell(
    files_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = Files(files_root / "one"), Files(files_root / "two")
    one.write("a.json", [{"id": 1}])
    two.write("b.json", [{"id": 2}])
    table = bench(files_root, "one, two")
    source: Any = table.source()
    assert isinstance(source, KnowsItsEnd)
    assert isinstance(source, KeepsALog)
    assert source.unread(table.position) is None, "nothing is planned yet"
    while table.plan():
        pass
    source = table.source()
    assert (source.unread(table.position), source.retention(table.position)) == (Unread(), None)
    one.write("later.json", [{"id": 3}])
    two.write("more.json", [{"id": 4}])
    assert table.source().unread(table.position).rest == "1 file"  # type: ignore[attr-defined]
    live = bench(files_root, "one, live")
    live.plan()
    live.plan()
    assert live.source().unread(live.position) == Unread()  # type: ignore[attr-defined]
    of_now: Any = live.source()
    monkeypatch.setattr("tidegate.pipelines.sources.hybrid.KnowsItsEnd", KeepsALog)
    assert of_now.unread(live.position) is None, "nobody knows of a part that cannot be asked"


@pytest.mark.parametrize(
    ("rowtime", "watermark", "stop"),
    [
        pytest.param("SYSTEM_ROWTIME()", "SYSTEM_WATERMARK()", 3, id="up to what its group allows"),
        pytest.param("SYSTEM_ROWTIME()", "SYSTEM_WATERMARK() - '1' HOUR", 3, id="what is delayed, too"),
        pytest.param("TO_TIMESTAMP_LTZ(id, 3)", "at", 4, id="the time of a file says nothing of what is in it"),
    ],
)
def test_a_part_s_own_time_is_the_rowtime_that_the_hybrid_table_declares(
    files_root: Path, rowtime: str, watermark: str, stop: int
) -> None:
    one, two = Files(files_root / "one"), Files(files_root / "two", at=LONG_AGO + 100)
    one.write("a.json", [{"id": 1}])
    two.write("a.json", [{"id": 2}])
    text = TABLES.format(root=files_root, sources="one, two")
    made = compile_script(text.replace("p AS PROCTIME()", f"at AS {rowtime}, WATERMARK FOR at AS {watermark}")).table(
        "t"
    )
    table = Bench(CONNECTOR, made, str(files_root), now=int(time.time() * 1000), splits=MemorySplits())
    table.plan()
    table.plan()
    for name in ("b.json", "c.json", "d.json"):
        two.write(name, [{"id": 3}])
    table.limit = (LONG_AGO + 103) * 1000
    table.plan()
    assert [step.step.ranges["step"]["to"] for step in table.steps] == [1, 1, stop]
    table.ahead = frozenset({"two/0"})
    assert (table.plan(), set(table.held)) == (None, {"two/0"} if stop < 4 else set())


def test_a_plan_follows_from_its_request_alone(files_root: Path) -> None:
    """Nothing of an earlier request is left in a source that is asked again: no ends, no limit, no start."""
    one = Files(files_root / "one")
    one.write("a.json", [{"id": 1}])
    table = bench(files_root, "one, live")
    source, at = table.source(), table.position
    request = PlanRequest(ends=source.ends(at), instant=table.now)
    earlier = replace(request, ends={"parts": {**request.ends["parts"], "0": {"files": 0, "waiting": []}}})
    asked = [source.plan(item) for item in (request, earlier, request, earlier)]
    assert asked[0] == asked[2] == table.source().plan(request)
    assert asked[1] == asked[3] != asked[0]
    with pytest.raises(FrozenInstanceError):
        table.context().flipped = True  # type: ignore[misc]


def test_a_file_that_is_awaited_holds_the_switch(files_root: Path) -> None:
    one = Files(files_root / "one")
    one.write("a.json", [{"id": 1}])
    one.write("b.json", [{"id": 2}], age=-50)
    table = bench(files_root, "one, live")
    table.plan()
    assert table.plan() is None
    one.touch("b.json", time.time() - 5)
    table.plan()
    table.plan()
    assert planned(table) == [
        (0, "one: file 1: a.json", "bounded", False),
        (0, "one: file 2: b.json", "bounded", True),
        (1, "live: rows 1-5", "unbounded", False),
    ]


def test_errors_are_those_of_the_part(files_root: Path) -> None:
    table = bench(files_root, "one, live")
    with pytest.raises(Exception, match="one: the folder is not there"):
        table.source().preflight(table.position)
    Files(files_root / "one").write("a.json", "x")
    table.plan()
    source: Any = table.source()
    error = RuntimeError(POISON + '{"path": "p", "position": 0, "error": "no"}')
    assert source.explain(error, table.steps[0]).what == "one: p, the line at byte 0: no"
    table.plan()
    assert source.explain(error, table.steps[1]) is None
    source.close()


def test_its_spec() -> None:
    assert CONNECTOR.spec.phases({})
    assert CONNECTOR.spec.signals({})
    assert not CONNECTOR.spec.sink


KAFKA = "'connector' = 'kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'b:1', 'format' = 'json'"
SCRIPT = """
CREATE TABLE history (id INT, at TIMESTAMP(3)) WITH ('connector' = 'filesystem', 'path' = 'x', 'format' = 'json');
CREATE TABLE live (id INT, at TIMESTAMP(3)) WITH ({live});
CREATE TABLE t (id INT, at TIMESTAMP(3){watermark}) WITH (
    'connector' = 'hybrid', 'hybrid.sources' = 'history, live', {options});
"""


@pytest.mark.parametrize(
    ("options", "live", "watermark", "words"),
    [
        ("'hybrid.switch' = 'rowtime'", KAFKA, "s", "needs WATERMARK FOR a column of t"),
        (
            "'hybrid.switch' = 'rowtime'",
            "'connector' = 'datagen'",
            "at",
            "live is a datagen table, which cannot begin",
        ),
        (
            "'hybrid.switch' = 'rowtime'",
            f"{KAFKA}, 'scan.startup.mode' = 'latest-offset'",
            "at",
            "live begins there, and its 'scan.startup.mode' says otherwise",
        ),
        ("'hybrid.switch.overlap' = '1 s'", KAFKA, "at", "is for 'hybrid.switch' = 'rowtime'"),
    ],
)
def test_it_is_refused(options: str, live: str, watermark: str, words: str) -> None:
    own = ", s AS SYSTEM_ROWTIME(), WATERMARK FOR s AS SYSTEM_WATERMARK()"
    watermark = own if watermark == "s" else f", WATERMARK FOR {watermark} AS {watermark}"
    script = SCRIPT.format(options=options, live=live, watermark=watermark)
    with pytest.raises(SqlError) as caught:
        compile_script(script)
    assert words in caught.value.what
    assert "'hybrid.switch" in script.splitlines()[caught.value.line - 1][caught.value.column - 1 :]


def test_it_compiles() -> None:
    options = "'hybrid.switch' = 'rowtime', 'hybrid.switch.overlap' = '5 min'"
    script = SCRIPT.format(options=options, live=KAFKA, watermark=", WATERMARK FOR at AS at")
    assert compile_script(script).table("t").options["hybrid.switch"] == "rowtime"
