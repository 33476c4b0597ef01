"""Definitions in one form however they are written; the golden file is what lakes hold already."""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.runtime.processes import functions as fn
from tidegate.pipelines.connectors.options import SINK_OPTIONS, SOURCE_OPTIONS
from tidegate.pipelines.connectors.registry import InstalledConnectors, ordered_by_split
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.process import EventTimeExtension
from tidegate.pipelines.runtime.differences import compared, holds_more
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.sql.canonical import computes, digest_of, insert_form, statements_of, table_form
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.sql.model import ProcessInsert
from tidegate.pipelines.sql.roles import serves_both

FIXTURES = Path(__file__).parents[2] / "fixtures" / "definitions"
GOLDEN = FIXTURES / "golden.json"
SCRIPT = (FIXTURES / "script.sql").read_text()
ENVIRONMENT = {"DB_HOST": "db1", "DB_PASSWORD": "hidden"}
PROCESSES = """
CREATE TABLE events (k STRING, number BIGINT, name STRING, at TIMESTAMP(3), WATERMARK FOR at AS at)
    WITH ('connector' = 'scripted');
"""


def pipelines() -> list[Pipeline]:
    timed = EventTimeExtension.wrap_process_function(fn.Timed())
    process = compile_script(PROCESSES).process("told", "events", "k", timed, schema=fn.TIMED_COLUMNS, buckets=4)
    return [compile_script(SCRIPT), process]


def forms(pipeline: Pipeline) -> dict[str, Any]:
    found = {table.name: table_form(pipeline, table, ENVIRONMENT) for table in pipeline.sources}
    return found | {f"insert {insert.id}": insert_form(pipeline, insert) for insert in pipeline.inserts}


def test_the_forms_that_lakes_hold_stay_as_they_are() -> None:
    """Who changes the golden file says that rows come to mean something else: every lake will refuse the script, or
    say that it has changed. TIDEGATE_GOLDEN=1 writes it anew."""
    named = [item for each in pipelines() for item in forms(each).items()]
    found = {name: {"digest": digest_of(form), "form": form} for name, form in named}
    text = json.dumps(found, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    if os.environ.get("TIDEGATE_GOLDEN"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()
    assert "hidden" not in text


WRITTEN = [
    ("SELECT", "select"),
    ("LEFT JOIN", "left outer join"),
    ("FOR SYSTEM_TIME AS OF", "for system_time as of"),
    ("INSERT INTO", "insert /* so */ into -- and so\n"),
    ("UPPER(u.name)", "upper( u.`name` )"),
    ("u.", "person."),
    ("INT,\n    CONSTRAINT", "INT COMMENT 'made up',\n    CONSTRAINT"),
    ("c.id > 3 AND c.label IS NOT NULL", "c.label is not null and (c.id > 3)"),
    ("'5 min'", "'6 min'"),
    ("'7 d'", "'8 d'"),
    ("'readers'", "'others'"),
    ("'reader'", "'another'"),
]


@pytest.mark.parametrize(("old", "new"), WRITTEN)
def test_how_it_is_written_is_no_part_of_it(old: str, new: str) -> None:
    script = SCRIPT.replace(old, new)
    if old == "u.":
        script = script.replace("AS u ON", "AS person ON")
    assert forms(compile_script(script)) == forms(compile_script(SCRIPT))


def test_nor_is_the_order_of_statements_or_what_else_the_script_says() -> None:
    statements = [f"{one.strip()};\n" for one in SCRIPT.split(";\n") if one.strip()]
    more = "CREATE TABLE unused (x INT) WITH ('connector' = 'print');\n"
    kinds = {word: [one for one in statements if one.startswith(word)] for word in ("CREATE F", "CREATE T", "INSERT")}
    script = "".join([more, *kinds["CREATE F"], *reversed(kinds["CREATE T"]), *reversed(kinds["INSERT"])])
    assert forms(compile_script(script)) == forms(compile_script(SCRIPT))


MEANS_ANOTHER = [
    ("'clicks', 'properties", "'others', 'properties", ["clicks"]),
    ("'shop'", "'bazaar'", ["users"]),
    ("Europe/Berlin", "UTC", ["users"]),
    ("'csv.field-delimiter' = ';'", "'csv.field-delimiter' = ','", ["clicks"]),
    ("'seed' = '7'", "'seed' = '8'", ["made"]),
    ("SUBSTRING(name, 1, 1)", "SUBSTRING(name, 1, 2)", ["users"]),
    ("at - INTERVAL '5' SECOND", "at - INTERVAL '6' SECOND", ["users"]),
    ("UPPER(u.name)", "LOWER(u.name)", ["insert named"]),
    ("c.id > 3", "c.id > 4", ["insert named"]),
    ("u.name <> ''", "u.name <> 'x'", ["insert named"]),
    ("id > 0", "id > 1", ["insert named"]),
    ("/data/named", "/data/others", ["insert named"]),
    ("'publish'", "'block'", ["insert named"]),
    ("DESCRIPTOR(at), INTERVAL '1'", "DESCRIPTOR(at), INTERVAL '2'", ["insert per_minute"]),
    ("COUNT(*) > 1", "COUNT(*) > 2", ["insert per_minute"]),
]


@pytest.mark.parametrize(("old", "new", "changed"), MEANS_ANOTHER)
def test_what_means_other_rows_is_another_form_of_its_owner_alone(old: str, new: str, changed: list[str]) -> None:
    assert old in SCRIPT
    before, after = forms(compile_script(SCRIPT)), forms(compile_script(SCRIPT.replace(old, new)))
    assert [name for name in before if before[name] != after[name]] == changed


def test_a_variable_counts_with_its_value() -> None:
    pipeline = compile_script(SCRIPT)
    users = pipeline.table("users")
    assert table_form(pipeline, users, {"DB_HOST": "db1"})["source"]["hostname"] == "db1"
    assert table_form(pipeline, users, {"DB_HOST": "db2"})["source"]["hostname"] == "db2"
    assert table_form(pipeline, users, {})["source"]["hostname"] == "${DB_HOST}"


def test_the_stored_statements_make_the_same_insert_and_hold_no_secret() -> None:
    script = SCRIPT.replace("${DB_PASSWORD}", "hidden")
    pipeline = compile_script(script)
    for insert in pipeline.inserts:
        text = statements_of(pipeline, insert)
        assert "hidden" not in text
        if not isinstance(insert, ProcessInsert):
            again = compile_script(text)
            assert computes(again, again.insert(insert.id)) == computes(pipeline, insert)


def test_a_path_is_as_the_script_writes_it(tmp_path: Path) -> None:
    """Where it begins is not in it, so a script that is moved with its folder defines the same."""
    made = []
    for folder, written in (("one", "named"), ("two", "./x/../named/"), ("two", "file:///named")):
        script = SCRIPT.replace("/data/named", written)
        pipeline = compile_script(script, path=str(tmp_path / folder / "script.sql"))
        again = compile_script(statements_of(pipeline, pipeline.insert("named")))
        assert again.table("named").options["path"] == written
        made.append(insert_form(pipeline, pipeline.insert("named")))
        assert insert_form(again, again.insert("named")) == made[-1]
    assert made[0] == made[1] != made[2]
    assert (made[0]["target path"], made[2]["target path"]) == ("named", "/named")


@pytest.mark.parametrize("enforcer", ["ERROR", "DROP"])
def test_what_becomes_of_null_in_a_not_null_column_is_a_policy_that_goes_with_the_statements(enforcer: str) -> None:
    script = """CREATE TABLE s (id BIGINT) WITH ('connector' = 'scripted');
        CREATE TABLE t (id BIGINT NOT NULL) WITH ('connector' = 'scripted'); INSERT INTO t SELECT id FROM s;"""
    made = compile_script(f"SET 'table.exec.sink.not-null-enforcer' = '{enforcer}'; {script}")
    insert, before = made.insert("t"), compile_script(script)
    assert insert_form(made, insert)["policy"]["table.exec.sink.not-null-enforcer"] == enforcer
    assert computes(made, insert) != computes(before, before.insert("t"))
    again = compile_script(statements_of(made, insert))
    assert again.not_null_enforcer == enforcer
    assert computes(again, again.insert("t")) == computes(made, insert)


def test_a_field_that_is_called_like_an_alias_is_another_one_than_the_alias() -> None:
    script = """CREATE TABLE p (b ROW<x INT>, c ROW<x INT>, k INT, now AS PROCTIME()) WITH ('connector' = 'scripted');
        CREATE TABLE d (k INT PRIMARY KEY NOT ENFORCED) WITH ('connector' = 'scripted', 'phases' = 'true',
            'signals' = 'true'); CREATE TABLE t (x INT) WITH ('connector' = 'scripted');
        INSERT INTO t SELECT a.b.x FROM p AS a JOIN d FOR SYSTEM_TIME AS OF a.now AS b ON a.k = b.k;"""
    one = compile_script(script)
    same = compile_script(script.replace("p AS a", "p AS q").replace("a.", "q."))
    other = compile_script(script.replace("a.b.x", "a.c.x").replace("a.now AS b", "a.now AS c").replace("b.k", "c.k"))
    forms = [insert_form(each, each.insert("t")) for each in (one, same, other)]
    assert forms[0] == forms[1]
    assert forms[0] != forms[2]


def test_the_types_of_states_are_a_part_of_their_own_whatever_the_version_of_the_function() -> None:
    (insert,) = pipelines()[1].inserts
    form = insert_form(pipelines()[1], insert)
    assert form["states"]["total"] == "BIGINT"


def test_how_a_connection_is_made_is_no_part_of_a_table() -> None:
    script = SCRIPT.replace("'server-time-zone'", "'jdbc.properties.connectTimeout' = '9', 'server-time-zone'")
    assert script != SCRIPT
    assert forms(compile_script(script)) == forms(compile_script(SCRIPT))
    script = SCRIPT.replace("'server-time-zone'", "'jdbc.properties.sessionVariables' = 'a=9', 'server-time-zone'")
    changed = forms(compile_script(script))
    assert [name for name, form in forms(compile_script(SCRIPT)).items() if changed[name] != form] == ["users"]


def test_every_option_says_what_it_changes() -> None:
    known = [option for spec in InstalledConnectors().values() for option in spec.options]
    by_option = {option.name: option.changes for option in (*known, *SOURCE_OPTIONS, *SINK_OPTIONS)}
    identity = {name for name, changes in by_option.items() if changes == "identity"}
    assert identity == {
        "path", "hostname", "database-name", "table-name", "topic", "topic-pattern",
        "properties.bootstrap.servers", "seed", "hybrid.sources",
    }  # fmt: skip


FIELDS = "CREATE TABLE t ({columns}) WITH ('connector' = 'filesystem', 'path' = '/in', 'format' = 'json'{fields});"


def test_the_name_of_a_column_s_field_is_a_part_of_the_column() -> None:
    """So a script that leaves the column out leaves the name out, and another name is another column."""

    def form_of(columns: str, fields: str = "") -> dict[str, Any]:
        pipeline = compile_script(FIELDS.format(columns=columns, fields=fields))
        return table_form(pipeline, pipeline.table("t"))

    named = form_of("id INT, v INT", ", 'fields.id.name' = '_id'")
    assert named["columns"] == {"id": "INT READ FROM '_id'", "v": "INT"}
    assert "fields.id.name" not in named["options"]
    assert form_of("id INT, v INT", ", 'fields.id.name' = 'id'") == form_of("id INT, v INT")
    fewer = compared("t", named, form_of("v INT"))
    assert [(item.what, item.undeclared) for item in fewer] == [("columns id", True)]


@pytest.mark.parametrize(("field", "goes_on"), [("_v", True), ("_w", False)])
def test_a_column_that_names_its_field_may_become_longer(field: str, goes_on: bool) -> None:
    made = [
        compile_script(FIELDS.format(columns=f"v VARCHAR({length})", fields=f", 'fields.v.name' = '{name}'"))
        for length, name in ((9, "_v"), (10, field))
    ]
    (item,) = compared("t", *(table_form(pipeline, pipeline.table("t")) for pipeline in made))
    assert holds_more(item, made[1].table("t")) == goes_on


def test_a_build_whose_rows_are_taken_too_is_another_table_than_a_build_alone() -> None:
    tables = PROCESSES.replace("k STRING,", "k STRING PRIMARY KEY NOT ENFORCED,") + (
        "CREATE TABLE joined (k STRING) WITH ('connector' = 'print'); CREATE TABLE taken (k STRING) WITH "
        "('connector' = 'print'); CREATE TABLE c (k STRING, p AS PROCTIME()) WITH ('connector' = 'scripted');"
        "INSERT INTO joined SELECT c.k FROM c JOIN events FOR SYSTEM_TIME AS OF c.p ON events.k = c.k;"
    )
    timed = EventTimeExtension.wrap_process_function(fn.Timed())
    alone, both = compile_script(tables), compile_script(tables + "INSERT INTO taken SELECT k FROM events;")
    process = alone.process("told", "events", "k", timed, schema=fn.TIMED_COLUMNS, buckets=4)
    found = [table_form(each, each.table("events"))["role"] for each in (alone, both, process)]
    assert found == ["build", "build and probe", "build and probe"]


WHOLE = """
CREATE TABLE old (id INT, v STRING) WITH ('connector' = 'filesystem', 'path' = '/x', 'format' = '{format}');
CREATE TABLE live (id INT, v STRING)
    WITH ('connector' = 'kafka', 'topic' = 'a', 'properties.bootstrap.servers' = 'b', 'format' = '{format}');
CREATE TABLE whole (id INT PRIMARY KEY NOT ENFORCED, v STRING)
    WITH ('connector' = 'hybrid', 'hybrid.sources' = 'old, live');
CREATE TABLE c (id INT, p AS PROCTIME()) WITH ('connector' = 'datagen');
CREATE TABLE t (id INT, v STRING) WITH ('connector' = 'print');
INSERT INTO t SELECT c.id, w.v FROM c JOIN whole FOR SYSTEM_TIME AS OF c.p AS w ON w.id = c.id;
"""


@pytest.mark.parametrize(("format", "grows"), [("json", True), ("debezium-json", False)])
def test_a_table_of_parts_serves_both_roles_as_its_parts_do(format: str, grows: bool) -> None:
    pipeline = compile_script(WHOLE.format(format=format))
    table, timed = pipeline.table("whole"), EventTimeExtension.wrap_process_function(fn.Timed())
    assert (serves_both(table), ordered_by_split(table)) == (grows, True)
    with nullcontext() if grows else pytest.raises(PlanningError, match="whole has updates and deletes"):
        pipeline.process("told", "whole", "id", timed, schema=fn.TIMED_COLUMNS, buckets=4)
