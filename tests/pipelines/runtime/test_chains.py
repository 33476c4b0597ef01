"""Statements that read one another's targets: whatever the order of events, runs and crashes, the rows are those of a
plain model. (Watermarks: `test_random_scripts.py`.)"""

from __future__ import annotations

import random
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests import cases
from tests.cases import at_length
from tests.pipelines.runtime.crashing import dying, may_die
from tests.pipelines.runtime.processes import functions as fn
from tidegate.assets.metadata import of_waiting
from tidegate.assets.text import facts_of
from tidegate.orchestration.console.shown import shown
from tidegate.orchestration.report import render
from tidegate.orchestration.report.flow import flow
from tidegate.pipelines.errors import GateHeld, PlanningError
from tidegate.pipelines.facts.problems import looked
from tidegate.pipelines.facts.report import gather
from tidegate.pipelines.process import EventTimeExtension
from tidegate.pipelines.runtime import faults
from tidegate.pipelines.runtime.epochs import Asked, insert_owner, stored_plan
from tidegate.pipelines.runtime.epochs.position import Waiting
from tidegate.pipelines.runtime.failures import StepFailed
from tidegate.pipelines.runtime.nearest import nearest_keys
from tidegate.pipelines.runtime.quarantine import quarantined_by_epoch, rows_of
from tidegate.pipelines.runtime.status import status
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.testing import Harness
from tidegate.pipelines.watermarks import MIN_TIMESTAMP
from tidegate.quality_checks.reconcile import reconcile

AT = datetime(2026, 1, 1)
WITH = "WITH ('connector' = 'scripted')"
BUILDS = "".join(
    f"CREATE TABLE {name} (k INT PRIMARY KEY NOT ENFORCED, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) {WITH};\n"
    for name in ("users", "rates")
)
CLICKS = (
    f"CREATE TABLE clicks (id INT, k INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts, proctime AS PROCTIME()) {WITH};\n"
)


def target(name: str, columns: str, options: str = "") -> str:
    return (
        f"CREATE TABLE {name} (id INT, k INT, {columns}ts TIMESTAMP(3), WATERMARK FOR ts AS ts, "
        f"proctime AS PROCTIME()) WITH ('connector' = 'scripted'{options});\n"
    )


def script(time: str, joining: str) -> str:
    """Seven statements, the last one first: clicks -> clean -> named -> rated -> seen, named -> tally -> busy, and met,
    which joins visits to named, in the other kind of time perhaps (`joining`)."""
    return (
        BUILDS
        + CLICKS
        + CLICKS.replace("clicks", "visits")
        + target("clean", "")
        + target("named", "u INT, ").replace("k INT", "k INT PRIMARY KEY NOT ENFORCED")
        + f"CREATE TABLE met (id INT, click INT) {WITH[:-1]}, 'gate.on-unmatched' = 'publish');\n"
        + "INSERT INTO met SELECT v.id, n.id FROM visits AS v "
        + f"LEFT JOIN named FOR SYSTEM_TIME AS OF v.{joining} AS n ON n.k = v.k;\n"
        + target("rated", "u INT, r INT, ", ", 'gate.on-unmatched' = 'publish'")
        + f"CREATE TABLE seen (id INT, u INT, r INT) {WITH};\n"
        + f"CREATE TABLE tally (u INT, closed TIMESTAMP(3), n BIGINT) {WITH};\n"
        + f"CREATE TABLE busy (u INT, n BIGINT) {WITH};\n"
        + "INSERT INTO busy SELECT u, n FROM tally WHERE n > 1;\n"
        + "INSERT INTO tally SELECT u, window_end, COUNT(*) FROM TABLE(TUMBLE(TABLE named, DESCRIPTOR(ts), "
        + "INTERVAL '0.02' SECONDS)) GROUP BY window_start, window_end, u;\n"
        + "INSERT INTO seen SELECT id, u, r FROM rated;\n"
        + "INSERT INTO rated SELECT n.id, n.k, n.u, r.v, n.ts FROM named AS n "
        + f"LEFT JOIN rates FOR SYSTEM_TIME AS OF n.{time} AS r ON r.k = n.k;\n"
        + "INSERT INTO named SELECT c.id, c.k, u.v, c.ts FROM clean AS c "
        + f"JOIN users FOR SYSTEM_TIME AS OF c.{time} AS u ON u.k = c.k;\n"
        + "INSERT INTO clean SELECT id, k, ts FROM clicks WHERE id >= 0;\n"
    )


INSERTS = ("clean", "named", "met", "tally", "busy", "rated", "seen")
WIDTH = 20
"""The windows of `tally`, in ms."""
POINTS = [point for point in faults.POINTS if point.startswith("insert.")]


def moment(ms: int) -> datetime:
    return AT + timedelta(milliseconds=ms)


def at_ms(ms: int) -> int:
    return int(moment(ms).replace(tzinfo=UTC).timestamp() * 1000)


def valid(versions: Sequence[tuple[int, int]], ms: int) -> int | None:
    """The value of the last version at or before a time."""
    place = bisect_right([at for at, _ in versions], ms)
    return versions[place - 1][1] if place else None


class Story:
    """A random history of three tables, fed to a chain step by step."""

    def __init__(self, harness: Harness, seed: int) -> None:
        self.harness, self.random, self.visiting = harness, random.Random(seed), random.Random(f"visits {seed}")
        self.marks: dict[str, int] = dict.fromkeys(("clicks", "users", "rates"), 0)
        self.versions: dict[str, dict[int, list[tuple[int, int]]]] = {"users": {}, "rates": {}}
        self.clicks: list[dict[str, Any]] = []
        self.visits: list[dict[str, Any]] = []
        self.visited = 0

    def step(self) -> None:
        draw = self.random
        match draw.choice(["click", "click", "users", "rates", "mark", "mark", "idle"]):
            case "click":
                rows = [self._click() for _ in range(draw.randint(1, 4))]
                self.clicks += rows
                self.harness.push("clicks", [row | {"ts": moment(row["ts"])} for row in rows])
            case "users" | "rates" as name:
                at, key, value = self.marks[name] + draw.randint(1, 30), draw.randint(1, 3), draw.randint(0, 99)
                known = self.versions[name].setdefault(key, [])
                if known and known[-1][0] >= at:
                    return
                known.append((at, value))
                self.harness.push(name, [{"k": key, "v": value, "ts": moment(at)}])
            case "mark":
                self.mark(name := draw.choice(list(self.marks)), self.marks[name] + draw.randint(0, 25))
            case "idle":
                self.harness.idle("clicks")

    def visit(self) -> None:
        draw = self.visiting
        at, self.visited = self.visited, self.visited + draw.randint(0, 25)
        visits = [
            {"id": len(self.visits) + n, "k": draw.randint(1, 4), "ts": draw.randint(at, at + 40)} for n in (0, 1)
        ]
        self.visits += visits
        self.harness.push("visits", [row | {"ts": moment(row["ts"])} for row in visits])
        self.harness.watermark("visits", at_ms(self.visited))

    def mark(self, name: str, ms: int) -> None:
        self.marks[name] = ms
        self.harness.watermark(name, at_ms(ms))

    def _click(self) -> dict[str, Any]:
        late = max(self.marks["clicks"] - 10, 0)
        number = len(self.clicks) * 10 + self.random.randint(0, 9)
        dropped = self.random.random() < 0.2
        return {
            "id": -1 if dropped else number,
            "k": self.random.randint(1, 4),
            "ts": self.random.randint(late, late + 60),
        }

    def expected(self) -> dict[str, list[tuple[Any, ...]]]:
        """What each target holds in the end, and (`lost`) what `named` keeps in quarantine."""
        clean = [row for row in self.clicks if row["id"] >= 0]
        found: dict[str, list[tuple[Any, ...]]] = {"clean": [], "named": [], "rated": [], "lost": []}
        for row in clean:
            own = (row["id"], row["k"])
            found["clean"].append(own)
            user = valid(self.versions["users"].get(row["k"], []), row["ts"])
            if user is None:
                found["lost"].append(own)
                continue
            found["named"].append((*own, user))
            found["rated"].append((*own, user, valid(self.versions["rates"].get(row["k"], []), row["ts"])))
        found["seen"] = [(row[0], *row[2:]) for row in found["rated"]]
        return {name: sorted(rows, key=repr) for name, rows in found.items()}


COLUMNS = {"clean": "id k", "named": "id k u", "rated": "id k u r", "seen": "id u r"}


def rows(harness: Harness, name: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row[each] for each in COLUMNS[name].split()) for row in harness.published(name)), key=repr)


def tallied(harness: Harness) -> list[tuple[Any, ...]]:
    """What `tally` holds in the end, by what `named` has published: a row is late where its window's end was reached
    with the epoch before its own."""
    log = {row.epoch: row.timestamp for row in harness.lake.watermarks.rows("named")}
    found: Counter[tuple[int, datetime]] = Counter()
    for row in stored(harness, "named"):
        before = max((epoch for epoch in log if epoch < row["_epoch"]), default=None)
        past = (row["ts"] - AT) // timedelta(milliseconds=1)
        end = past - past % WIDTH + WIDTH
        if before is None or at_ms(end) > log[before]:
            found[row["u"], moment(end)] += 1
    return sorted((*group, number) for group, number in found.items())


def stored(harness: Harness, name: str) -> list[dict[str, Any]]:
    """The rows of a target with what the lake stores of them."""
    return DeltaTable(str(harness.lake.target_path(harness.pipeline.table(name)))).to_pyarrow_table().to_pylist()


def met(harness: Harness, story: Story) -> list[tuple[Any, ...]]:
    """What `met` holds in the end, by the epochs that its plans have pinned of `named`."""
    event = harness.pipeline.insert("met").time == "event"
    plans = {row.epoch: stored_plan(row) for row in harness.lake.epochs.rows(insert_owner("met"))}
    log = {row.epoch: row for row in harness.lake.watermarks.rows("named")}
    versions, found, visits = stored(harness, "named"), [], {row["id"]: row for row in story.visits}

    def order(version: dict[str, Any]) -> tuple[Any, ...]:
        taken = tuple(version[name] for name in ("_epoch", "_rowtime", "_split", "_offset"))
        return (version["_rowtime"], *taken) if event else taken

    for row in stored(harness, "met"):
        visit, (pin,) = visits[row["id"]], plans[row["_epoch"]].pins
        assert pin.epoch >= pin.flip_epoch == flip_of_named(harness)
        own = [each for each in versions if each["k"] == visit["k"]]
        if event:
            own = [each for each in own if each["ts"] <= moment(visit["ts"])]
            later = [each for each in own if each["_epoch"] > pin.epoch]
            complete = log[pin.epoch].idle or log[pin.epoch].timestamp
            assert all(complete is True or each["ts"].timestamp() * 1000 <= complete for each in later)
        own = [each for each in own if each["_epoch"] <= pin.epoch]
        found.append((row["id"], max(own, key=order)["id"] if own else None))
    return sorted(found)


def flip_of_named(harness: Harness) -> int:
    """The epoch of `named` up to which all rows that `clean` had when it was complete have been released."""
    last = harness.lake.watermarks.last("clean")
    assert last is not None
    assert last.flip_epoch is not None
    ids = {row["id"] for row in stored(harness, "clean") if row["_epoch"] <= last.flip_epoch}
    quarantine = harness.lake.quarantine_path(harness.pipeline.table("named"), harness.pipeline.insert("named"))
    kept = DeltaTable(str(quarantine)).to_pyarrow_table().to_pylist()
    epochs = [row["_epoch"] for row in (*stored(harness, "named"), *kept) if row["id"] in ids]
    plans = [stored_plan(row) for row in harness.lake.epochs.rows(insert_owner("named"))]
    return max(min(plan.epoch for plan in plans if plan.first.upto >= last.flip_epoch), *epochs, 0)


def reached(harness: Harness, name: str) -> int:
    last = harness.lake.watermarks.last(name)
    return MIN_TIMESTAMP if last is None else last.timestamp


@pytest.mark.parametrize("seed", at_length(range(20), fast=0))
def test_a_chain_in_event_time_is_what_a_plain_model_says_wherever_it_is_cut(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    harness = Harness(script("ts", ("ts", "proctime")[seed % 2]), spark, tmp_path)
    story = Story(harness, seed)
    assert [insert.id for insert in harness.pipeline.inserts] == list(INSERTS)
    for _ in range(4 if cases.AT_LENGTH else 3):
        for _ in range(story.random.randint(2, 6)):
            story.step()
        story.visit()
        with may_die(story.random.choice(POINTS), passes=story.random.randint(1, 3)) as died:
            harness.advance()
        if died:
            harness.restart()
            harness.advance()
    for name in story.marks:
        story.mark(name, 10_000)
    harness.watermark("visits", at_ms(10_000))
    harness.advance()
    expected = story.expected()
    assert {name: rows(harness, name) for name in COLUMNS} == {name: expected[name] for name in COLUMNS}
    counted = sorted((row["u"], row["closed"], row["n"]) for row in harness.published("tally"))
    assert counted == tallied(harness)
    assert sorted((row["id"], row["click"]) for row in harness.published("met")) == met(harness, story)
    assert sorted(row["id"] for row in harness.published("met")) == [row["id"] for row in story.visits]
    assert sorted((row["u"], row["n"]) for row in harness.published("busy")) == sorted(
        (user, number) for user, _, number in counted if number > 1
    )
    lost = sorted(((row["id"], row["k"]) for row in harness.quarantined("named")), key=repr)
    assert lost == expected["lost"]
    assert reached(harness, "rated") == at_ms(10_000)
    for insert in harness.pipeline.inserts:
        assert insert.windowed or not cases.AT_LENGTH or harness.verify(insert.id).passed
        assert reconcile(harness.lake, harness.pipeline, insert).problems == ()
    assert not harness.run().moved
    with pytest.raises(
        PlanningError, match="met and tally and rated reads named, so none of its rows can be released anew"
    ):
        harness.runner.backfill("named")


HELD = (
    BUILDS
    + CLICKS
    + target("clean", "", ", 'gate.on-unmatched' = 'block'")
    + f"CREATE TABLE seen (id INT, u INT) {WITH};\n"
    + "INSERT INTO clean SELECT c.id, c.k, c.ts FROM clicks AS c "
    + "JOIN users FOR SYSTEM_TIME AS OF c.proctime AS u ON u.k = c.k;\n"
    + "INSERT INTO seen SELECT c.id, r.v FROM clean AS c "
    + "JOIN rates FOR SYSTEM_TIME AS OF c.proctime AS r ON r.k = c.k;\n"
)


def shown_to_people(harness: Harness) -> str:
    """What `tidegate status` and `tidegate report` show of a lake."""
    look = looked(harness.lake, harness.pipeline)
    return "\n".join([*map(str, shown(look)), unescape(render(gather(harness.lake, harness.pipeline)))])


def test_what_is_held_or_in_quarantine_above_comes_below_when_it_is_released(
    spark: SparkSession, tmp_path: Path
) -> None:
    harness = Harness(HELD, spark, tmp_path)
    assert status(harness.lake, harness.pipeline).inserts[1].waits_for_inserts == ("clean",), "it has published nothing"
    for name in ("users", "rates"):
        harness.push(name, [{"k": 1, "v": 7, "ts": AT}])
        harness.watermark(name, at_ms(1))
    harness.push("clicks", [{"id": 1, "k": 1, "ts": AT}])
    assert [row["_target"] for row in harness.advance()] == ["clean", "seen"]
    assert not harness.run().moved  # a processing-time chain comes to an end
    harness.push("clicks", [{"id": 2, "k": 2, "ts": AT}, {"id": 3, "k": 1, "ts": AT}])
    assert "seen waits for" not in shown_to_people(harness)
    with pytest.raises(GateHeld, match="clean"):
        harness.advance()
    assert [row["id"] for row in harness.published("seen")] == [1]
    for found in (status(harness.lake, harness.pipeline), status(harness.lake)):
        assert [(item.in_chain, item.reads, item.waits_for_inserts) for item in found.inserts] == [
            ("clean", (), ()),
            ("└ seen", ("clean",), ("clean",)),
        ]
    waiting = harness.runner.stage("seen")
    assert isinstance(waiting, Waiting)
    metadata = facts_of(of_waiting(harness.runner.releasing("seen"), waiting))
    assert (metadata["waiting for"], metadata["status"]["reads"]) == ("clean", ["clean"])
    assert shown_to_people(harness).count("seen waits for clean, whose newest epoch the gate holds.") == 2
    picture = flow(gather(harness.lake, harness.pipeline))
    assert [text in picture for text in (">target of clean<", ">waits for clean<")] == [True, True]
    harness.push("users", [{"k": 2, "v": 8, "ts": AT}])
    with pytest.raises(GateHeld):
        harness.run()
    with dying("insert.published", owner="clean"):  # between the target's commit and its log
        harness.runner.resolve_held("clean")
    harness.restart()
    assert sorted(row["id"] for row in harness.advance()) == [3]
    assert sorted(row["id"] for row in harness.published("clean")) == [1, 2, 3]
    assert [row["id"] for row in harness.quarantined("seen")] == [2]
    harness.push("rates", [{"k": 2, "v": 9, "ts": AT}])
    harness.run()
    harness.runner.out_of_quarantine("seen", Asked())
    assert sorted(row["id"] for row in harness.published("seen")) == [1, 2, 3]
    for insert in harness.pipeline.inserts:
        assert harness.verify(insert.id).passed
        assert reconcile(harness.lake, harness.pipeline, insert).problems == ()


def test_a_process_of_two_inputs_does_not_pass_over_what_is_held_of_an_idle_target(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = "CREATE TABLE {} (k STRING, {} BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts, p AS PROCTIME()) WITH ({});"
    blocked = "'connector' = 'scripted', 'gate.on-unmatched' = 'block'"
    script = BUILDS.split("\n")[0] + table.format("events", "number", "'connector' = 'scripted'")
    script += table.format("rules", "rule", "'connector' = 'scripted'") + table.format("known", "number", blocked)
    script += "INSERT INTO known SELECT e.k, e.number, e.ts FROM events AS e "
    script += "JOIN users FOR SYSTEM_TIME AS OF e.p AS u ON u.k = CAST(e.k AS INT);"
    wrapped = EventTimeExtension.wrap_process_function(fn.Paired())
    columns = "k STRING, number BIGINT, rule BIGINT"
    pipeline = compile_script(script).process("paired", ["known", "rules"], "k", wrapped, columns, buckets=1)
    harness = Harness(pipeline, spark, tmp_path)

    def row(key: int, ms: int, **more: Any) -> dict[str, Any]:
        return {"k": str(key), "ts": moment(ms), **more}

    def paired() -> list[tuple[Any, ...]]:
        return sorted((row["k"], row["number"] - at_ms(0), row["rule"]) for row in harness.published("paired"))

    harness.push("users", [{"k": 1, "v": 7, "ts": AT}])
    harness.watermark("users", at_ms(6))
    harness.push("events", [row(1, 5, number=at_ms(1))])
    harness.watermark("events", at_ms(6))
    harness.advance()
    for name in ("users", "events"):
        harness.idle(name)
    harness.push("rules", [row(1, 6, rule=8)])
    harness.watermark("rules", at_ms(6))
    harness.advance()
    assert paired() == [("1", 1, 8)]
    assert (told := harness.lake.watermarks.last("known")) is not None
    assert told.idle
    harness.push("events", [row(2, 7, number=at_ms(2))])
    with pytest.raises(GateHeld):
        harness.advance()
    harness.watermark("rules", at_ms(900))
    with pytest.raises(GateHeld):
        harness.advance()
    assert reached(harness, "paired") == at_ms(6)
    harness.push("users", [{"k": 2, "v": 8, "ts": AT}])
    with pytest.raises(GateHeld):
        harness.run()
    harness.runner.resolve_held("known")
    for name in ("users", "events"):
        harness.idle(name)
    harness.advance()
    assert paired() == [("1", 1, 8), ("2", 2, None)]
    assert reached(harness, "paired") == at_ms(900)


BUILT = (
    BUILDS.split("\n")[0]
    + CLICKS
    + CLICKS.replace("clicks", "orders")
    + "CREATE TABLE known (k INT PRIMARY KEY NOT ENFORCED, id INT, ts TIMESTAMP(3)) WITH ('connector' = 'scripted', "
    + "'gate.on-unmatched' = 'quarantine');\n"
    + f"CREATE TABLE seen (id INT, of INT) {WITH};\n"
    + "INSERT INTO seen SELECT o.id, n.id FROM orders AS o "
    + "JOIN known FOR SYSTEM_TIME AS OF o.proctime AS n ON n.k = o.k;\n"
    + "INSERT INTO known SELECT c.k, c.id, c.ts FROM clicks AS c "
    + "JOIN users FOR SYSTEM_TIME AS OF c.proctime AS u ON u.k = c.id / 10;\n"
)


def test_a_row_out_of_quarantine_does_not_become_the_newest_of_its_key_in_a_build(
    spark: SparkSession, tmp_path: Path
) -> None:
    harness = Harness(BUILT, spark, tmp_path)
    assert [insert.id for insert in harness.pipeline.inserts] == ["known", "seen"]

    def ordered(*orders: tuple[int, int]) -> list[tuple[int, int]]:
        harness.push("orders", [{"id": order, "k": key, "ts": AT} for order, key in orders])
        return sorted((row["id"], row["of"]) for row in harness.advance() if row["_target"] == "seen")

    harness.push("users", [{"k": 1, "v": 0, "ts": AT}])
    harness.watermark("users", at_ms(1))
    harness.push("clicks", [{"id": 10, "k": 1, "ts": AT}, {"id": 20, "k": 1, "ts": AT}, {"id": 21, "k": 2, "ts": AT}])
    assert ordered((1, 1)) == [], "clicks, and so known, has not flipped"
    harness.watermark("clicks", at_ms(1))
    assert ordered((2, 2)) == [(1, 10)]
    assert [row["id"] for row in harness.quarantined("known")] == [20, 21]
    harness.push("clicks", [{"id": 11, "k": 1, "ts": AT}])
    assert ordered((3, 1)) == [(3, 11)]
    harness.push("users", [{"k": 2, "v": 0, "ts": AT}])
    harness.run()
    harness.runner.out_of_quarantine("known", Asked())
    assert ordered((4, 1), (5, 2)) == [(4, 11), (5, 21)]
    of_seen = harness.lake, harness.pipeline, harness.pipeline.insert("seen")
    (lot,) = quarantined_by_epoch(*of_seen)
    ((row, missed),) = nearest_keys(*of_seen, rows_of(*of_seen, [lot], 9), 9)
    assert (row.place["_probe_epoch"], dict(missed.key)) == (2, {"k": 2})
    assert re.fullmatch(
        r"inserted at .* \(epoch 4\), after the pin \(epoch 2\): joining again finds it", missed.nearest
    )
    for insert in harness.pipeline.inserts:
        assert harness.verify(insert.id).passed
        assert reconcile(harness.lake, harness.pipeline, insert).problems == ()
    assert not harness.run().moved


PLAIN = (
    CLICKS
    + target("clean", "").replace("k INT", "k INT PRIMARY KEY NOT ENFORCED")
    + "INSERT INTO clean SELECT id, k, ts FROM clicks;\n"
)
READER = f"CREATE TABLE seen (id INT) {WITH};\nINSERT INTO seen SELECT id FROM clean;\n"


def test_a_script_that_changes_around_a_chain_loses_no_row_or_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    alone = Harness(PLAIN, spark, tmp_path / "alone")
    for number in (1, 2):
        alone.push("clicks", [{"id": number, "k": 1, "ts": AT}])
        alone.advance()
    alone.runner.close()
    read = Harness(PLAIN + READER, spark, tmp_path / "alone")
    assert sorted(row["id"] for row in read.advance()) == [1, 2]
    read.push("clicks", [{"id": 3, "k": 1, "ts": AT}])
    assert [row["id"] for row in read.advance()] == [3, 3]
    assert read.verify("seen").passed
    read.runner.close()

    both = Harness(PLAIN + READER, spark, tmp_path / "both")
    both.push("clicks", [{"id": 1, "k": 1, "ts": AT}])
    with dying("insert.staged", owner="clean"):  # with places, and published without a reader
        both.advance()
    both.runner.close()
    without = Harness(PLAIN, spark, tmp_path / "both")
    assert len(without.advance()) == 1
    without.push("clicks", [{"id": 2, "k": 1, "ts": AT}])
    assert len(without.advance()) == 1
    without.runner.close()
    again = Harness(PLAIN + READER, spark, tmp_path / "both")
    assert sorted(row["id"] for row in again.advance()) == [1, 2]
    assert again.verify("seen").passed
    again.runner.close()
    probed = "clicks AS c JOIN clean FOR SYSTEM_TIME AS OF c.proctime AS d ON d.k = c.k"
    joins = READER.replace("seen", "met").replace("id FROM clean", f"c.id FROM {probed}")
    with pytest.raises(PlanningError, match="clean was published before met joined it: its rows have no order"):
        Harness(PLAIN + joins, spark, tmp_path / "both").run()
    source = PLAIN.split("INSERT")[0] + READER
    with pytest.raises(PlanningError, match="clean was the target of an INSERT in this lake"):
        Harness(source, spark, tmp_path / "both").run()


def test_a_reader_that_waits_while_the_old_script_publishes_its_first_epoch_reads_that_too(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The target has no epoch yet, so what its reader's script would stage has places; what comes first has none."""
    alone, read = Harness(PLAIN, spark, tmp_path), Harness(PLAIN + READER, spark, tmp_path)
    alone.push("clicks", [{"id": 1, "k": 1, "ts": AT}])
    alone.runner.advance("clicks")
    alone.runner.close()
    alone.restart()
    leases, waited = read.runner.leases, list[str]()
    acquire = leases.acquire

    def waiting(owner: str, *args: Any, **more: Any) -> Any:
        if owner == insert_owner("clean") and not waited:
            assert read.runner.releasing("clean").is_logged
            waited.append(owner)
            alone.runner.release("clean")
            alone.runner.close()
            assert [row.keys() & {"_split"} for row in stored(read, "clean")] == [set()]
        return acquire(owner, *args, **more)

    leases.acquire = waiting  # type: ignore[method-assign]
    read.run()
    read.push("clicks", [{"id": 2, "k": 1, "ts": AT}])
    read.advance()
    assert waited == [insert_owner("clean")]
    assert sorted(row["id"] for row in read.published("seen")) == [1, 2]
    assert all(read.verify(name).passed for name in ("clean", "seen"))
    assert all(reconcile(read.lake, read.pipeline, insert).problems == () for insert in read.pipeline.inserts)


NAMED = (
    BUILDS
    + CLICKS
    + target("named", "u INT, ", ", 'gate.on-unmatched' = 'block'")
    + "INSERT INTO named SELECT c.id, c.k, u.v, c.ts FROM clicks AS c "
    + "JOIN users FOR SYSTEM_TIME AS OF c.ts AS u ON u.k = c.k;\n"
)
READ_LATER = (
    f"CREATE TABLE rated (id INT, u INT, r INT) {WITH};\nCREATE TABLE tally (u INT, n BIGINT) {WITH};\n"
    "INSERT INTO rated SELECT n.id, n.u, r.v FROM named AS n JOIN rates FOR SYSTEM_TIME AS OF n.ts AS r ON r.k = n.k;\n"
    "INSERT INTO tally SELECT u, COUNT(*) FROM TABLE(TUMBLE(TABLE named, DESCRIPTOR(ts), INTERVAL '0.02' SECONDS)) "
    "GROUP BY window_start, window_end, u;\n"
)


def test_a_first_reader_that_comes_later_reads_all_that_was_published(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While an epoch is held, and with crashes between the commits that open the target; a runner of the script without
    the readers goes on beside."""

    def clicked(harness: Harness, number: int, key: int, ms: int, mark: int) -> None:
        harness.push("clicks", [{"id": number, "k": key, "ts": moment(ms)}])
        for name in ("clicks", "users"):
            harness.watermark(name, at_ms(mark))

    alone = Harness(NAMED, spark, tmp_path)
    alone.push("users", [{"k": 1, "v": 7, "ts": moment(0)}])
    for number, ms in ((1, 5), (2, 15), (3, 25)):
        clicked(alone, number, 1, ms, ms + 1)
        alone.advance()
    clicked(alone, 4, 2, 35, 36)
    with pytest.raises(GateHeld):
        alone.advance()
    alone.runner.close()

    both = Harness(NAMED + READ_LATER, spark, tmp_path)
    for key in (1, 2):
        both.push("rates", [{"k": key, "v": 50 + key, "ts": moment(0)}])
    both.watermark("rates", at_ms(100))
    both.push("users", [{"k": 2, "v": 8, "ts": moment(30)}])
    with pytest.raises(GateHeld):
        both.run()
    assert both.published("rated") == both.published("tally") == []
    with monkeypatch.context() as patch:
        patch.setattr("tidegate.pipelines.lake.places.add_columns", no_space)
        both.runner.resolve_held("named")
        with pytest.raises(StepFailed, match="no space"):
            both.advance()
    both.restart()
    with monkeypatch.context() as patch:
        patch.setattr("tidegate.pipelines.runtime.epochs.commits.LogCommit.make", no_space)
        with pytest.raises(StepFailed, match="no space"):
            both.advance()
    both.restart()
    both.advance()
    both.runner.close()

    clicked(alone, 5, 1, 45, 46)
    clicked(alone, 6, 1, 3, 46)
    alone.advance()
    alone.runner.close()
    clicked(both, 7, 2, 55, 100)
    both.advance()
    rated = {1: (7, 51), 2: (7, 51), 3: (7, 51), 4: (8, 52), 5: (7, 51), 6: (7, 51), 7: (8, 52)}
    assert {row["id"]: (row["u"], row["r"]) for row in both.published("rated")} == rated
    assert Counter((row["u"], row["n"]) for row in both.published("tally")) == {(7, 2): 1, (7, 1): 2, (8, 1): 2}
    assert reached(both, "named") == at_ms(100)
    assert all(both.verify(name).passed for name in ("named", "rated"))
    assert all(reconcile(both.lake, both.pipeline, insert).problems == () for insert in both.pipeline.inserts)
    table = DeltaTable(str(both.lake.target_path(both.pipeline.table("named"))))
    assert len({(row["_epoch"], row["_split"], row["_offset"]) for row in table.to_pyarrow_table().to_pylist()}) == 7
    files = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert all(file["min._rowtime"] is not None for file in files)


def no_space(*_: object) -> None:
    raise OSError("no space")


SILENT = "WITH ('connector' = 'scripted', 'tells-time' = 'false', 'scan.watermark.idle-timeout' = '1 ms')"


def test_rows_without_a_time_are_not_passed_over_by_an_idle_source_that_never_had_a_watermark(
    spark: SparkSession, tmp_path: Path
) -> None:
    sources = (BUILDS.split("\n")[0] + CLICKS).replace(WITH, SILENT)
    joined = "SELECT c.id, c.k, c.ts FROM clicks AS c JOIN users FOR SYSTEM_TIME AS OF c.ts AS u ON u.k = c.k"
    harness = Harness(f"{sources}{target('clean', '')}INSERT INTO clean {joined};\n{READER}", spark, tmp_path)
    for ms in (None, 5):
        time = None if ms is None else moment(ms)
        harness.push("users", [{"k": 1, "v": 7, "ts": time}])
        harness.push("clicks", [{"id": ms or 1, "k": 1, "ts": time}])
        harness.advance()
        harness.advance()
        logs = [harness.lake.watermarks.last(name) for name in ("users", "clicks")]
        assert all(row is not None and row.idle for row in logs)
    assert [row["id"] for row in harness.quarantined("clean")] == [1]
    assert [row["id"] for row in harness.published("seen")] == [5]
