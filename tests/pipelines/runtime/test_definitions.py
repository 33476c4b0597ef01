"""A lake keeps what its tables and INSERTs are defined by: a change goes on in one line, or is refused with both
versions, and a refusal has written nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from tests.copies import kept_files
from tests.oracle.pins import rows_of
from tests.pipelines.runtime.crashing import dying
from tests.pipelines.runtime.handmade import HandmadeLake, store
from tests.pipelines.runtime.plans import release, taken
from tests.pipelines.runtime.plays import taken_up
from tidegate.orchestration.console.shown import shown
from tidegate.pipelines.connectors.protocol import Planned, Step
from tidegate.pipelines.errors import ConcurrentRun, DefinitionChanged, LakeError, PlanningError, SourceError
from tidegate.pipelines.lake import Lake, WatermarkRow
from tidegate.pipelines.lake.control import Records
from tidegate.pipelines.lake.lake import FORMAT
from tidegate.pipelines.lake.owner_log import LAKE, OwnerLog
from tidegate.pipelines.lake.stream import Generation, Removed
from tidegate.pipelines.runtime.definitions import Definitions, as_defined
from tidegate.pipelines.runtime.differences import compared, may_change, reordered
from tidegate.pipelines.runtime.epochs import Pin, ReleasePlan, source_row, stored_plan
from tidegate.pipelines.runtime.epochs.position import InsertOnLake
from tidegate.pipelines.runtime.failures import StepFailed
from tidegate.pipelines.runtime.opening import position_of
from tidegate.pipelines.runtime.runner import Runner
from tidegate.pipelines.runtime.status import settled_status
from tidegate.pipelines.runtime.stored_definitions import (
    inserts_beside,
    left_behind,
    mixed_definitions,
)
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.sql.canonical import insert_form, table_form
from tidegate.pipelines.testing import Harness

SCRIPT = """
CREATE TABLE users (user_id INT PRIMARY KEY NOT ENFORCED, gender STRING)
    WITH ('connector' = 'scripted', 'phases' = 'true', 'signals' = 'true');
CREATE TABLE clicks (user_id INT, item STRING, cents INT, proctime AS PROCTIME()) WITH ('connector' = 'scripted');
CREATE TABLE enriched (user_id INT, item STRING, gender STRING) WITH ('connector' = 'scripted');
INSERT INTO enriched SELECT c.user_id, c.item, u.gender FROM clicks AS c
    JOIN users FOR SYSTEM_TIME AS OF c.proctime AS u ON c.user_id = u.user_id WHERE c.cents > 0;
"""


def tree(folder: Path) -> dict[str, int]:
    """Every file of a lake but the leases', and how long it is."""
    return {str(path): path.stat().st_size for path in kept_files(folder)}


USER = {"user_id": 1, "gender": "f"}
CLICK = {"user_id": 1, "item": "a", "cents": 5}


@pytest.fixture(scope="module")
def history(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake on which SCRIPT has published a row."""
    found = Harness(SCRIPT, spark, tmp_path_factory.mktemp("history"))
    found.push("users", [USER])
    found.end_of_snapshot("users")
    found.push("clicks", [CLICK])
    assert len(found.advance()) == 1
    found.runner.close()
    return found.directory


@pytest.fixture
def harness(spark: SparkSession, history: Path, tmp_path: Path) -> Harness:
    shutil.copytree(history, tmp_path, dirs_exist_ok=True)
    return Harness(SCRIPT, spark, tmp_path)


def test_what_decides_the_next_epochs_alone_is_said_and_stored(harness: Harness) -> None:
    assert [row.epoch for row in harness.lake.definitions.rows("insert enriched")] == [1]
    changes = [
        ("c.item, u.gender FROM", "UPPER(c.item), u.gender FROM"),
        (
            "(user_id INT, item STRING, gender STRING)",
            "(user_id INT, item STRING, gender STRING, cents INT, "
            "CONSTRAINT known EXPECT (user_id < 9) ON VIOLATION WARN)",
        ),
    ]
    script = SCRIPT
    for number, (old, new) in enumerate(changes, 2):
        script = script.replace(old, new)
        if "cents INT" in new:
            script = script.replace("u.gender FROM", "u.gender, c.cents FROM")
        harness = taken_up(harness, script)
        harness.push("clicks", [CLICK])
        report = harness.run()
        (line,) = report.changes
        assert line.startswith(f"insert enriched changes from epoch {number} on: ")
        row = harness.lake.epochs.last("insert enriched")
        assert row is not None
        plan = stored_plan(row)
        assert (plan.epoch, plan.definition) == (number, number)
        assert harness.run().changes == ()
    assert [(row["item"], row["cents"]) for row in harness.published("enriched")] == [
        ("a", None),
        ("A", None),
        ("A", 5),
    ]
    again = taken_up(harness, SCRIPT.replace("    JOIN", "    LEFT JOIN"))
    report = again.verify("enriched")
    assert [epoch.state for epoch in report.epochs] == ["equal"] * 3
    assert report.passed
    assert report.script_differs


@pytest.mark.parametrize(("other", "made"), [(FORMAT + 1, "a newer"), (FORMAT - 1, "an older")])
def test_a_lake_of_another_format_is_refused_by_name(
    tmp_path: Path, other: int, made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("tidegate.pipelines.lake.owner_log.FORMAT", other)
        assert Lake(tmp_path).id
    with pytest.raises(LakeError, match=f"has format {other}.*, of {made} Tidegate; this one .* format {FORMAT}"):
        Lake(tmp_path)


def definitions_of(folder: Path, script: str, say: Callable[[str], None] = lambda line: None) -> Definitions:
    return Definitions(Lake(folder), compile_script(script), {}, lambda: 0, say)


def planned(folder: Path, script: str) -> Definitions:
    """The same of a script that has planned an epoch of each of its sources."""
    found = definitions_of(folder, script)
    for table in found.pipeline.sources:
        found.number(table.name)
        store(found.lake, source_row(table.name, 1, 1, 0, Step({})))
    return found


ALONE = """
CREATE TABLE orders (id BIGINT, cents DOUBLE) WITH (
    'connector' = 'kafka', 'topic' = 'paying', 'format' = 'json', 'properties.bootstrap.servers' = '${BROKER}');
"""


def test_what_comes_from_a_variable_makes_no_other_definition_for_who_verifies(tmp_path: Path) -> None:
    script = f"""{ALONE}
        CREATE TABLE copied (id BIGINT, cents DOUBLE) WITH ('connector' = 'delta');
        INSERT INTO copied SELECT id, cents FROM orders;"""
    pipeline = compile_script(script)
    lake = Lake(tmp_path)
    landed = Definitions(lake, pipeline, {"BROKER": "b:9092"}, lambda: 0)
    landed.number("orders")
    store(lake, source_row("orders", 1, 1, 0, Step({})))
    store(lake, WatermarkRow("orders", 1, 1, 0, 1, 0, False))
    landed.number("insert copied")
    assert as_defined(lake, pipeline, "copied") is pipeline
    with pytest.raises(PlanningError, match="the environment has no BROKER"):
        Definitions(lake, pipeline, {}, lambda: 0).require()
    other = compile_script(script.replace("'paying'", "'orders'"))
    assert as_defined(lake, other, "copied") is not other


def test_the_insert_of_another_script_has_its_target_where_that_script_lies(tmp_path: Path) -> None:
    """Retention asks for it. A script that is moved with its lake takes its target along."""
    script = SCRIPT.replace("gender STRING) WITH ('connector' = 'scripted');", "gender STRING) WITH ({});")
    script = script.format("'connector' = 'delta', 'path' = 'out/enriched'")
    first = tmp_path / "first"
    other = compile_script(SCRIPT.partition("INSERT")[0].replace("enriched", "others"))
    written = compile_script(script, path=str(first / "scripts" / "a.sql"))
    found = Definitions(Lake(first / "lake"), written, {}, lambda: 0)
    found.number("insert enriched")
    store(found.lake, source_row("insert enriched", 1, 1, 0, Step({})))
    for folder in (first, tmp_path / "second"):
        if folder != first:
            first.rename(folder)
        lake = Lake(folder / "lake")
        beside = inserts_beside(lake, other, "users")["enriched"]
        assert beside is not None
        assert str(lake.target_path(beside.table("enriched"))) == str(folder / "scripts" / "out" / "enriched")


TIMED = SCRIPT.replace("cents INT, proctime", "cents INT, at TIMESTAMP(3), WATERMARK FOR at AS at, proctime")
IDLE = TIMED.replace("PROCTIME()) WITH (", "PROCTIME()) WITH ('scan.watermark.idle-timeout' = '9 s', ")


def test_a_runner_that_another_has_overtaken_stops(tmp_path: Path) -> None:
    script = SCRIPT.replace("proctime AS PROCTIME()) WITH (", "proctime AS PROCTIME()) WITH ({} ")
    old = planned(tmp_path, script.format(""))
    new = definitions_of(tmp_path, script.format("'scan.max-rows-per-epoch' = '9',"))
    new.take_up("clicks")
    assert old.number("clicks") == new.number("clicks") == 1  # no part of the definition
    old = planned(tmp_path / "timed", TIMED)
    lines: list[str] = []
    new = definitions_of(tmp_path / "timed", IDLE, lines.append)
    new.take_up("clicks")
    (line,) = lines
    assert line.startswith("table clicks changes from epoch 1 on: watermark options")  # nothing of it is committed
    with pytest.raises(ConcurrentRun, match="has changed the definition of clicks"):
        old.number("clicks")
    with pytest.raises(ConcurrentRun):
        old.take_up("clicks")


def test_a_runner_that_is_overtaken_while_it_plans_does_not_go_on(tmp_path: Path) -> None:
    """Another runner changes the definition after this one has looked, and before its plan is stored."""
    old = planned(tmp_path, TIMED)

    def number() -> int:
        found = old.number("clicks")
        if old.lake.epochs.last("clicks").epoch == 1:  # type: ignore[union-attr]
            definitions_of(tmp_path, IDLE).take_up("clicks")
        return found

    landing = Runner(old.pipeline, old.lake, clock=lambda: 0).landing("clicks")
    planner = replace(landing.planner, check=number)
    with landing.opened(1) as (_, context):
        position = position_of(context, old.lake)
        step = SimpleNamespace(plan=lambda request: Planned(Step({"from": 0, "to": 0})))
        with pytest.raises(ConcurrentRun, match="has changed the definition of clicks"):
            planner.plan(cast(Any, step), context, position, {})


def test_a_disk_that_is_full_where_a_definition_is_stored_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    definitions = definitions_of(tmp_path, SCRIPT)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Records, "append", full)
    with pytest.raises(StepFailed, match=r"clicks: .*No space left on device") as failed:
        definitions.number("clicks")
    assert "definition 1" in failed.value.where
    assert failed.value.next_command.startswith("make room on the disk of the lake")
    monkeypatch.undo()
    assert definitions.number("clicks") == 1


def fill(definitions: Definitions, table: str, *, rows: int, log: bool) -> None:
    """Commit epoch 1 of a table, and write its watermark-log row with `log`."""
    lake = definitions.lake
    HandmadeLake(Path(lake.root), definitions.pipeline).appended(table, 1)
    if log:
        store(lake, WatermarkRow(table, 1, 1, 0, rows, 0, True))


MORE = SCRIPT.replace("cents INT, proctime", "cents INT, more INT, proctime")


@pytest.mark.parametrize(
    ("rows", "log", "refused"), [(0, True, False), (3, True, True), (3, False, True)], ids=["none", "rows", "killed"]
)
def test_a_table_without_rows_takes_new_columns(rows: int, log: bool, refused: bool, tmp_path: Path) -> None:
    """`killed`: rows are committed, and the run was killed before it had counted them."""
    fill(planned(tmp_path, SCRIPT), "clicks", rows=rows, log=log)
    found = definitions_of(tmp_path, MORE).differences()
    assert [(item.what, item.refused) for item in found if item.owner == "clicks"] == [("columns more", refused)]


@pytest.mark.parametrize(
    ("lake", "script", "refused"),
    [
        ("VARCHAR(9)", "VARCHAR(10)", False),
        ("VARCHAR(9)", "STRING", False),
        ("VARBINARY(2)", "BYTES", False),
        ("TIMESTAMP(3)", "TIMESTAMP(6)", False),
        ("VARCHAR(9), twice AS cents * 2", "VARCHAR(10), twice AS cents * 2", False),
        ("VARCHAR(9)", "VARCHAR(8)", True),
        ("STRING", "VARCHAR(9)", True),
        ("VARCHAR(9)", "VARCHAR(10) NOT NULL", True),
        ("CHAR(9)", "CHAR(10)", True),
        ("VARCHAR(9)", "BYTES", True),
        ("DECIMAL(4, 2)", "DECIMAL(6, 2)", True),
        ("TIMESTAMP(6)", "TIMESTAMP(3)", True),
        ("TIMESTAMP(3)", "TIMESTAMP_LTZ(6)", True),
        ("TIMESTAMP(3), twice AS cents * 2", "TIMESTAMP(6), twice AS cents * 2", True),
    ],
)
def test_a_column_of_a_source_may_become_longer(lake: str, script: str, refused: bool, tmp_path: Path) -> None:
    old, new = (SCRIPT.replace("cents INT, proctime", f"cents INT, more {kind}, proctime") for kind in (lake, script))
    fill(planned(tmp_path, old), "clicks", rows=3, log=True)
    definitions = definitions_of(tmp_path, new)
    found = [item for item in definitions.differences() if item.owner == "clicks"]
    assert [(item.what, item.refused) for item in found] == [("columns more", refused)]


def test_longer_values_come_once_a_column_is_declared_longer(spark: SparkSession, tmp_path: Path) -> None:
    short, long = (SCRIPT.replace("user_id INT, item STRING, cents", f"user_id INT, item {kind}, cents")
                   for kind in ("VARCHAR(2)", "VARCHAR(20)"))  # fmt: skip
    harness = Harness(short, spark, tmp_path)
    harness.push("users", [USER])
    harness.end_of_snapshot("users")
    harness.push("clicks", [CLICK])
    assert len(harness.advance()) == 1
    harness = taken_up(harness, long)
    harness.push("clicks", [{**CLICK, "item": "a long name"}])
    said = harness.run().changes
    assert said == ("table clicks changes from epoch 2 on: columns item: VARCHAR(2) -> VARCHAR(20)",)
    assert sorted(row["item"] for row in harness.published("enriched")) == ["a", "a long name"]
    assert harness.verify("enriched").passed
    assert harness.run().changes == ()
    with pytest.raises(DefinitionChanged, match="table clicks"):
        taken_up(harness, short).run()


def test_an_epoch_that_nothing_is_committed_of_is_of_the_definition_that_mends_it(tmp_path: Path) -> None:
    planned(tmp_path, SCRIPT.replace("cents INT, proctime", "cents INT, more AS cents / 0, proctime"))
    lines: list[str] = []
    script = SCRIPT.replace("cents INT, proctime", "cents INT, more AS cents / 1, proctime")
    mended = definitions_of(tmp_path, script, lines.append)
    mended.take_up("clicks")
    assert [line.partition(" on: ")[0] for line in lines] == ["table clicks changes from epoch 1"]
    fill(mended, "clicks", rows=3, log=True)
    assert mixed_definitions(mended.lake, reading("clicks", upto=1)) == []


def test_what_never_landed_may_be_declared_anew(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The columns of a first epoch that fails are corrected, twice, and the same command goes on; once rows have landed
    they stay."""
    monkeypatch.setenv("TIDEGATE_FILES_ROOT", str(tmp_path))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.csv").write_text("id,name\n1,a\n")

    def run(id_type: str, more: str = "") -> tuple[str, ...]:
        script = f"""
            CREATE TABLE src (id {id_type}, name STRING{more}) WITH ('connector' = 'filesystem',
                'path' = '{tmp_path}/in', 'format' = 'csv');
            CREATE TABLE o (id {id_type}, name STRING) WITH ('connector' = 'print');
            INSERT INTO o SELECT id, name FROM src;"""
        with Runner(compile_script(script, name="p"), Lake(tmp_path / "lake"), spark=lambda: spark) as runner:
            return runner.run().changes

    for wrong in ("INT", "DATE"):
        with pytest.raises(SourceError, match="does not fit"):
            run(wrong)
    assert run("STRING") == ("table src changes from epoch 1 on: columns id: DATE -> STRING",)
    lake = Lake(tmp_path / "lake")
    assert sorted(DeltaTable(str(lake.table_path("src"))).to_pyarrow_table()["id"].to_pylist()) == ["1", "id"]
    with pytest.raises(DefinitionChanged, match="table src"):
        run("INT")


BUILD = (
    "(id INT PRIMARY KEY NOT ENFORCED, v STRING) WITH ('connector' = 'scripted', 'phases' = 'true', 'signals' = 'true')"
)


def aliased(first: str, second: str, more: str = "") -> str:
    """Two builds under these aliases; `more`: options of the target."""
    return f"""
        CREATE TABLE users {BUILD};
        CREATE TABLE names {BUILD};
        CREATE TABLE clicks (id INT, at AS PROCTIME()) WITH ('connector' = 'scripted');
        CREATE TABLE found (v STRING, w STRING) WITH ('connector' = 'scripted'{more});
        INSERT INTO found SELECT {first}.v, {second}.v FROM clicks
        JOIN users FOR SYSTEM_TIME AS OF clicks.at AS {first} ON clicks.id = {first}.id
        JOIN names FOR SYSTEM_TIME AS OF clicks.at AS {second} ON clicks.id = {second}.id;
        """


PROOF = ", 'gate.proof' = 'columns'"


def with_an_epoch(folder: Path, script: str) -> Definitions:
    made = planned(folder, script)
    pins = Pin("users", 1, 1, 1), Pin("names", 1, 1, 1)
    plan = release("found", 1, taken("clicks", 0, 1), pins=pins)
    store(made.lake, replace(plan, definition=made.number("insert found")).row())
    return made


def test_an_epoch_keeps_the_aliases_that_it_was_made_with(tmp_path: Path) -> None:
    """Reasons of quarantined rows name builds by them."""
    made, lines = with_an_epoch(tmp_path, aliased("u", "w")), list[str]()
    renamed = definitions_of(tmp_path, aliased("person", "w"), lines.append)
    assert renamed.differences() == []
    for _ in range(2):
        renamed.take_up("insert found")
    assert (renamed.number("insert found"), lines) == (2, [])
    found = [as_defined(made.lake, renamed.pipeline, "found", number) for number in (1, 2)]
    names = [[join.alias for join in each.insert("found").joins] for each in found if each]
    assert names == [["u", "w"], ["person", "w"]]
    assert found[1] is renamed.pipeline


@pytest.mark.parametrize(
    ("script", "refused"),
    [
        (aliased("w", "u"), ["alias of users: u -> w", "alias of names: w -> u"]),
        (aliased("w", "other"), ["alias of users: u -> w"]),
        (aliased("u", "w").replace("SELECT", "SELECT /* as ever */"), []),
    ],
    ids=["swapped", "taken over", "a comment"],
)
def test_an_alias_does_not_come_to_mean_another_build(tmp_path: Path, script: str, refused: list[str]) -> None:
    with_an_epoch(tmp_path, aliased("u", "w"))
    found = definitions_of(tmp_path, script)
    assert [str(item) for item in found.differences() if item.refused] == refused
    if refused:
        with pytest.raises(DefinitionChanged):
            found.take_up("insert found")


def test_columns_that_are_called_by_an_alias_keep_it(tmp_path: Path) -> None:
    with_an_epoch(tmp_path, aliased("u", "w", PROOF))
    found = definitions_of(tmp_path, aliased("person", "w", PROOF)).differences()
    assert [(str(item), item.refused) for item in found] == [("alias of users: u -> person", True)]


def test_rows_of_two_definitions_are_seen(tmp_path: Path) -> None:
    old = planned(tmp_path, SCRIPT)
    fill(old, "clicks", rows=3, log=True)
    assert mixed_definitions(old.lake, reading("clicks", upto=2)) == []
    row = old.lake.definitions.rows("clicks")[0]
    other = replace(row, epoch=2, since=2, form={**row.form, "watermark": "user_id"})
    old.lake.definitions.append([other], application=old.lake.application("clicks", "definition", 1), version=2)
    assert mixed_definitions(old.lake, reading("clicks", upto=1)) == []
    assert mixed_definitions(old.lake, reading("clicks", upto=2)) == ["clicks"]


@pytest.mark.parametrize("part", [{"policy": {"format.on-error": "quarantine"}}, {"source": {"path": "elsewhere"}}])
def test_what_decides_no_value_makes_no_two_definitions(part: dict[str, Any], tmp_path: Path) -> None:
    old = planned(tmp_path, SCRIPT)
    fill(old, "clicks", rows=3, log=True)
    row = old.lake.definitions.rows("clicks")[0]
    other = replace(row, epoch=2, since=2, form={**row.form, **part})
    old.lake.definitions.append([other], application=old.lake.application("clicks", "definition", 1), version=2)
    assert mixed_definitions(old.lake, reading("clicks", upto=2)) == []


def reading(probe: str, *, upto: int) -> ReleasePlan:
    return release("enriched", 1, taken(probe, 0, upto))


def test_an_insert_that_was_left_out_is_named_where_it_holds_retention_back(tmp_path: Path) -> None:
    for folder, option, held in (("1", "'changelog.retention' = '1 d', ", ("users",)), ("2", "", None)):
        script = SCRIPT.replace("'phases'", f"{option}'phases'")
        definitions = definitions_of(tmp_path / folder, script)
        definitions.number("insert enriched")
        assert left_behind(definitions.lake, None) == {}
        other = definitions_of(tmp_path / folder, script.replace("enriched", "also"))
        other.leave_out(definitions.lake.leases("a run"))
        store(definitions.lake, reading("clicks", upto=1).row())
        found = settled_status(definitions.lake, None)
        assert found.holding_back == ({"enriched": held} if held else {})
        note = "enriched is left out of its script: retention of users spares what it may still join"
        assert any(note in str(line) for line in shown(found)) == bool(held)


def test_a_new_insert_into_a_target_of_other_columns_is_refused_before_it_is_planned(tmp_path: Path) -> None:
    lake = planned(tmp_path, SCRIPT).lake
    there = pa.schema([("user_id", pa.int32()), ("item", pa.int32()), ("more", pa.string())])
    DeltaTable.create(str(lake.root / "targets" / "enriched"), there)
    found = definitions_of(tmp_path, SCRIPT).differences()
    assert [(item.what, item.lake, item.script, item.refused) for item in found] == [
        ("target columns item", "INT", "STRING", True),
        ("target columns gender", "nothing", "declared", True),
    ]


def test_two_scripts_that_declare_one_table_differently_do_not_share_it(tmp_path: Path) -> None:
    one = SCRIPT.replace("cents INT, proctime", "cents INT, more AS cents + 1, proctime")
    fill(planned(tmp_path, one), "clicks", rows=3, log=True)
    other = definitions_of(tmp_path, one.replace("cents + 1", "cents + 1000"))
    with pytest.raises(DefinitionChanged) as raised:
        other.require()
    assert "cents` + 1)" in raised.value.where
    assert "cents` + 1000)" in raised.value.where


def test_a_step_looks_at_the_definitions_that_it_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tick of many tables would look at each of them once for each, otherwise."""
    fill(planned(tmp_path, SCRIPT), "clicks", rows=3, log=True)
    definitions = definitions_of(tmp_path, SCRIPT)
    definitions.require()
    looks, looked = list[str](), OwnerLog.refresh
    monkeypatch.setattr(OwnerLog, "refresh", lambda log: (looks.append(log.owner), looked(log))[1])
    for owner, followed in {"users": ["users"], "insert enriched": ["insert enriched", "clicks", "users"]}.items():
        looks.clear()
        definitions.require((), owner)
        assert looks == [LAKE, *followed]
    other = compile_script(SCRIPT.replace("cents INT, proctime", "cents BIGINT, proctime"))
    stored = definitions.lake.definitions.last("clicks")
    assert stored is not None
    changed = replace(stored, epoch=2, digest="another", form=table_form(other, other.table("clicks")))
    definitions.lake.definitions.append([changed], application="d", version=2)
    definitions.require((), "users")  # which is as it was
    with pytest.raises(DefinitionChanged):
        definitions.require((), "insert enriched")


def test_an_insert_that_is_left_out_and_one_that_is_new_are_said_once(harness: Harness) -> None:
    other = SCRIPT.replace("enriched", "also")
    harness = taken_up(harness, other)
    assert harness.run().changes == (
        "insert enriched is left out of the script: what it has published stays, and no more comes",
        "insert also is new: it begins at the first row of clicks",
    )
    assert harness.run().changes == ()
    harness = taken_up(harness, SCRIPT)
    harness.push("clicks", [CLICK])
    lines = harness.run().changes
    assert lines[0].startswith("insert also is left out")
    assert lines[1] == "insert enriched is in the script again, and goes on from epoch 2"
    assert len(harness.published("enriched")) == 2


def test_a_new_column_comes_with_a_new_generation_and_is_read_in_no_older_one(tmp_path: Path) -> None:
    planned(tmp_path, SCRIPT)
    wider, lines = SCRIPT.replace("gender STRING)\n    WITH", "gender STRING, name STRING)\n    WITH"), list[str]()
    definitions = definitions_of(tmp_path, wider, lines.append)
    lake = definitions.lake
    store(lake, WatermarkRow("users", 1, 1, 0, 3, 0, True))
    with pytest.raises(DefinitionChanged, match="columns name"):
        definitions.require()
    definitions.require(["users"])
    definitions.take_up("users", resnapshot=True)
    assert (lines, len(lake.definitions.rows("users"))) == ([], 1)  # the source may still say no
    definitions.number("users")
    assert lines == ["table users changes from epoch 1 on: columns name: nothing -> STRING"]
    assert definitions.added("users") == {"name"}
    on_lake = InsertOnLake(lake, definitions.pipeline, definitions.pipeline.inserts[0])
    assert [on_lake.reads("users", generation, "build") for generation in (1, 2)] == [False, True]
    assert not on_lake.reads("users", 2, "probe")


TAKEN_TOO = SCRIPT.replace("gender STRING)\n", "gender STRING, p AS PROCTIME())\n").replace(
    "clicks (user_id INT,", "clicks (user_id INT PRIMARY KEY NOT ENFORCED,"
)
BOTH_WAYS = (
    TAKEN_TOO
    + "CREATE TABLE met (gender STRING, item STRING) WITH ('connector' = 'scripted');\n"
    + "INSERT INTO met SELECT u.gender, c.item FROM users AS u "
    + "JOIN clicks FOR SYSTEM_TIME AS OF u.p AS c ON c.user_id = u.user_id;\n"
)
"""`users`, which was joined, is taken, too, and `clicks`, which was taken, is joined."""


def test_a_table_that_was_joined_is_taken_too_and_the_other_way_round(harness: Harness) -> None:
    both = taken_up(harness, BOTH_WAYS)
    both.push("clicks", [{**CLICK, "user_id": 2, "item": "b"}])
    both.push("users", [{"user_id": 2, "gender": "m"}])
    both.end_of_snapshot("clicks")
    lines = both.run().changes
    users, clicks = (line for line in lines if line.startswith("table"))
    assert users == "table users changes from epoch 2 on: role: build -> build and probe"
    assert "columns user_id: INT -> INT NOT NULL; primary key: nothing -> (user_id); role: probe -> build" in clicks
    assert sorted((row["gender"], row["item"]) for row in both.published("met")) == [("f", "a"), ("m", "b")]
    assert all(both.verify(name).passed for name in ("enriched", "met"))
    of_users = rows_of(str(both.lake.table_path("users")))
    assert [row["_op"] for row in of_users] == ["+I", "+I"]

    alone = taken_up(both, TAKEN_TOO)
    alone.push("clicks", [CLICK])
    assert [line.split(":")[0] for line in alone.run().changes] == ["insert met is left out of the script"]
    retained = TAKEN_TOO.replace("'signals' = 'true'", "'signals' = 'true', 'changelog.retention' = '1 h'")
    with pytest.raises(DefinitionChanged, match=r"changelog\.retention[^!]*build and probe: no row may go"):
        taken_up(alone, retained).run()
    alone = taken_up(alone, TAKEN_TOO)
    alone.push("users", [USER], "-D")
    with pytest.raises(SourceError, match="only grows"):
        alone.run()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("deleted", "role.*build and probe, and it has updates"),
        ("removed", "role.*build and probe, and retention has removed rows of it"),
        ("no key", "primary key"),
        ("split", "and it has rows of several splits"),
    ],
)
def test_a_table_whose_rows_cannot_serve_another_role_is_refused(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, change: str, why: str
) -> None:
    if change == "deleted":
        harness.push("users", [USER], "-D")
    elif change == "no key":
        harness.push("clicks", [{**CLICK, "user_id": None}])
    elif change == "removed":
        monkeypatch.setattr(Generation, "removed", Removed(epoch=1))
    else:
        monkeypatch.setattr("tidegate.pipelines.runtime.both_roles.ordered_by_split", lambda table: True)
        path = str(harness.lake.table_path("clicks"))
        rows = DeltaTable(path).to_pyarrow_table()
        place = rows.schema.get_field_index("_split")
        write_deltalake(path, rows.set_column(place, rows.field(place), pa.array(["1"] * len(rows))), mode="append")
    if change != "split":
        harness.run()
    with pytest.raises(DefinitionChanged, match=f"(?s){why}") as refused:
        taken_up(harness, BOTH_WAYS).run()
    way = "--resnapshot users" if change == "deleted" else "once more under another name"
    assert change == "no key" or way in str(refused.value)


def test_rows_that_landed_for_one_role_are_not_taken_in_the_other_before_they_are_read_anew(harness: Harness) -> None:
    """A crash between the plan of the new generation, which has the new role, and its first rows."""
    harness.push("users", [USER], "-D")
    harness.run()
    both = taken_up(harness, BOTH_WAYS)
    both.end_of_snapshot("clicks")
    with dying("source.appended", owner="users"):
        both.runner.advance("users", max_epochs=1, resnapshot=True)
    both = taken_up(both, BOTH_WAYS)
    both.runner.advance("clicks")
    assert both.runner.release("met").published == ()
    both.runner.advance("users", max_epochs=1)
    (released,) = both.runner.release("met").published
    assert [(item.generation, item.rows) for item in released.plan.takes] == [(2, 1)]
    assert [(row["gender"], row["op"]) for row in both.published("met")] == [("f", "+I")]


def test_a_runner_that_began_before_a_table_got_its_other_role_takes_it_from_nobody(tmp_path: Path) -> None:
    """It has waited for the leases of the runner that gave it, for example."""
    planned(tmp_path, SCRIPT)
    store(Lake(tmp_path), WatermarkRow("users", 1, 1, 0, 3, 0, True))
    retained = SCRIPT.replace("'signals' = 'true'", "'signals' = 'true', 'changelog.retention' = '1 h'")
    waited, both = definitions_of(tmp_path, retained), definitions_of(tmp_path, BOTH_WAYS)
    waited.require()
    both.take_up("users")
    with pytest.raises(ConcurrentRun, match="its other role"):
        waited.take_up("users")
    assert [row.form["role"] for row in waited.lake.definitions.rows("users")] == ["build", "build and probe"]
    definitions_of(tmp_path, SCRIPT).take_up("users")
    with pytest.raises(DefinitionChanged, match="no row may go"):
        definitions_of(tmp_path, retained).require()


def test_branches_of_a_union_are_the_same_under_other_aliases_and_in_another_order_are_others() -> None:
    tables = "CREATE TABLE {} (id INT, n INT) WITH ('connector' = 'scripted');"

    def form(query: str) -> dict[str, Any]:
        pipeline = compile_script("".join(map(tables.format, ("a", "b", "t"))) + f"INSERT INTO t {query}")
        return insert_form(pipeline, pipeline.inserts[0])

    first = form("SELECT id, n FROM a WHERE n > 1 UNION ALL SELECT id, 2 FROM a")
    assert first == form("SELECT x.id, x.n FROM a AS x WHERE x.n > 1 UNION ALL SELECT y.id, 2 FROM a y")
    moved = form("SELECT id, 2 AS n FROM a UNION ALL SELECT id, n FROM a WHERE n > 1")
    assert reordered(first, moved)
    assert not reordered(first, first)
    for query, differs in {
        "SELECT id, n FROM a WHERE n > 2 UNION ALL SELECT id, 2 FROM a": {"branches 1": True},
        "SELECT id, n FROM a WHERE n > 1 UNION ALL SELECT id, 2 FROM b": {"probe": False, "branches 2": True},
        "SELECT id, n FROM a WHERE n > 1": {"probe": False, "union id": False, "union n": False},
    }.items():
        found = compared("insert t", first, form(query))
        told = {item.what: may_change(item, first, False) for item in found}
        assert differs.items() <= told.items(), told
