"""A column that no record has a field for is said once, with the fields that there are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.cases import at_length
from tests.pipelines.runtime.crashing import dying
from tests.pipelines.sources.filesystem.folders import Files
from tests.pipelines.sources.formats.format_tables import wanted
from tidegate.assets.metadata import of_advance
from tidegate.pipelines.errors import DefinitionChanged
from tidegate.pipelines.runtime.missing_fields import MissingFields, all_null
from tidegate.pipelines.runtime.status import status
from tidegate.pipelines.sources.formats import FORMATS
from tidegate.pipelines.sources.formats.fields import fields_of
from tidegate.pipelines.testing import Harness

ROW = {"_id": None, "v": 1, "w": {"x": 2}}
MESSAGES: dict[str, list[Any]] = {
    "json": [ROW],
    "debezium-json": [{"op": "d", "before": ROW, "after": None}, {"schema": {}, "payload": {"op": "c", "after": ROW}}],
    "canal-json": [{"type": "INSERT", "data": [{}, ROW]}],
    "changelog-json": [{"op": "+I", "data": ROW}],
}


def test_every_format_that_finds_fields_by_name_shows_them() -> None:
    assert {name for name, format in FORMATS.items() if format.spec.rows is not None} == set(MESSAGES)


@pytest.mark.parametrize(("name", "message"), [(name, each) for name, several in MESSAGES.items() for each in several])
def test_the_fields_of_messages(name: str, message: Any) -> None:
    """One that is NULL is there; what is no row has none."""
    broken = [b"", b"{", b"[1]", b"\xff", b"7", b'{"data": 1, "payload": 2, "after": 3}', b"[" * 100_000]
    wants = wanted("id INT, v INT, x INT", fields={"id": "_id"})
    found = fields_of(FORMATS[name], [None, *broken, json.dumps(message).encode()], wants)
    assert found.columns == {"id", "v"}
    assert [each for each in found.names if each in ROW] == list(ROW)
    assert found.records == len(broken) + 1


@pytest.mark.parametrize("name", ["csv", "avro", "raw"])
def test_a_format_that_goes_by_places_has_them_all(name: str) -> None:
    assert fields_of(FORMATS[name], [b"1"], wanted("id INT")).columns == {"id"}


def test_columns_that_are_null_in_all_files(tmp_path: Path) -> None:
    rows = [
        {"n": None, "some": 1, "s": {"a": None}, "t": {"a": None, "b": 1}, "l": [], "k": [None], "f": [2]},
        {"n": None, "some": None, "s": None, "t": None, "l": None, "k": None, "f": []},
    ]
    struct = pa.struct({"a": pa.int32(), "b": pa.int32()})
    types = {"n": pa.string(), "some": pa.int32(), "s": struct, "t": struct, "l": pa.list_(pa.int32())}
    types |= {"k": pa.list_(pa.int32()), "f": pa.list_(pa.int32())}
    made = pa.Table.from_pylist(rows, pa.schema(types))
    pq.write_table(made, tmp_path / "one", row_group_size=1)
    pq.write_table(made.slice(1), tmp_path / "two")
    one, two = (pq.read_metadata(tmp_path / name) for name in ("one", "two"))
    assert all_null([two, one], types) == {"n", "s", "l", "k"}
    assert all_null([two], ["n", "some"]) == {"n", "some"}


def test_what_people_read() -> None:
    found = MissingFields({"quantity": "quantity", "id": "_id"}, ("id", "qty"), 3, 1)
    assert found.sentence("src") == (
        "no record of src had the fields quantity, _id (column id), so these columns are NULL in every row so far; the "
        "fields of the first 1 record: id, qty and 3 more"
    )


SCRIPT = """
CREATE TABLE src (id INT, quantity INT, note STRING) WITH (
    'connector' = 'filesystem', 'path' = '{root}/src', 'format' = 'json');
CREATE TABLE old (id INT, names STRING) WITH (
    'connector' = 'filesystem', 'path' = '{root}/old', 'format' = 'json', 'fields.names.name' = 'the names');
CREATE TABLE live (id INT, names STRING) WITH ('connector' = 'scripted');
CREATE TABLE users (id INT PRIMARY KEY NOT ENFORCED, names STRING) WITH (
    'connector' = 'hybrid', 'hybrid.sources' = 'old, live');
CREATE TABLE o (id INT, quantity INT) WITH ('connector' = 'scripted');
CREATE TABLE p (id INT, names STRING) WITH ('connector' = 'scripted');
CREATE TABLE clicks (id INT, t AS PROCTIME()) WITH ('connector' = 'scripted');
INSERT INTO o SELECT id, quantity FROM src;
INSERT INTO p SELECT c.id, u.names FROM clicks AS c LEFT JOIN users FOR SYSTEM_TIME AS OF c.t AS u ON c.id = u.id;
"""


@pytest.mark.parametrize("crash", at_length([False, True]), ids=["as it is", "after a crash"])
def test_it_is_said_once_and_shown_until_a_record_has_it(spark: SparkSession, files_root: Path, crash: bool) -> None:
    src, old = Files(files_root / "src"), Files(files_root / "old")
    src.write("1.json", [{"id": 1, "qty": 2, "note": None}, {"id": 2, "qty": 3}])
    old.write("1.json", [{"id": 1, "name": "ann"}])
    harness = Harness(SCRIPT.format(root=files_root), spark, files_root / "lake")
    if crash:
        with dying("source.appended", owner="src"):
            harness.run()
        harness.restart()
    harness.advance()

    def said() -> list[str]:
        return [line for line in harness.runner.notes if line.startswith("no record of ")]

    def shown() -> dict[str, MissingFields | None]:
        return {source.table: source.missing for source in status(harness.lake).sources}

    assert shown() == {
        "src": MissingFields({"quantity": "quantity"}, ("id", "qty", "note"), records=2),
        "users": MissingFields({"names": "the names"}, ("id", "name"), records=1),
    }
    assert "no record of src had a field quantity, so the column is NULL in every row so far" in "".join(said())
    src.write("2.json", [{"id": 3}])
    harness.advance()
    assert len(said()) == (1 if crash else 2), "users had landed, and was named, before the crash"
    src.write("3.json", [{"id": 4}])
    advance = harness.runner.advance("src")
    details = of_advance(harness.lake, harness.runner.pipeline.table("src"), advance)["details"].value
    assert details["columns without a field"].startswith("no record of src had a field quantity")
    src.write("4.json", [{"id": 4, "quantity": 5}])
    harness.advance()
    assert shown()["src"] is None
    assert len(said()) == (1 if crash else 2)


MISSPELT = """
CREATE TABLE users (id INT PRIMARY KEY NOT ENFORCED, {column} STRING) WITH (
    'connector' = 'filesystem', 'path' = '{root}/users', 'format' = 'json'{more});
CREATE TABLE p (id INT, names STRING) WITH ('connector' = 'scripted');
CREATE TABLE clicks (id INT, t AS PROCTIME()) WITH ('connector' = 'scripted');
INSERT INTO p SELECT c.id, u.{column} FROM clicks AS c LEFT JOIN users FOR SYSTEM_TIME AS OF c.t AS u ON c.id = u.id;
"""


def test_a_correction_is_taken_by_the_command_that_its_refusal_names(spark: SparkSession, files_root: Path) -> None:
    Files(files_root / "users").write("1.json", [{"id": 1, "name": "ann"}])

    played: list[Harness] = []

    def harness(column: str, more: str = "") -> Harness:
        for earlier in played:
            earlier.runner.leases.close()
        played.append(Harness(MISSPELT.format(root=files_root, column=column, more=more), spark, files_root / "lake"))
        return played[-1]

    harness("names").run()
    with pytest.raises(DefinitionChanged) as renamed:
        harness("name").run()
    assert "keep names, whose field no record has, with the name of its field" in renamed.value.next_command
    corrected = harness("names", ", 'fields.names.name' = 'name'")
    with pytest.raises(DefinitionChanged) as refused:
        corrected.run()
    for error in (refused.value, renamed.value):
        assert "run --resnapshot users" in error.next_command.replace(" SCRIPT", "")
    corrected.runner.run(resnapshot=["users"])
    corrected.push("clicks", [{"id": 1}])
    assert [row["names"] for row in corrected.advance()] == ["ann"]
    assert status(corrected.lake).sources[0].missing is None
    assert corrected.runner.notes[0].startswith(
        "table users changes from epoch 1 on: columns names: STRING -> STRING READ"
    )
