"""The lake against a real database: what is found, what is not taken for a difference, and what is refused."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tests.cases import at_length
from tests.conftest import Database
from tidegate.orchestration.commands.app import app
from tidegate.pipelines.connectors.registry import comparable
from tidegate.pipelines.connectors.spec import SEQ_TYPE
from tidegate.pipelines.errors import PlanningError, SourceError
from tidegate.pipelines.frames import as_views
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.runtime.runner import Runner
from tidegate.pipelines.sql import compile_script
from tidegate.quality_checks import against_source
from tidegate.quality_checks.against_source import SourceReconciliation, latest_sql, reconcile_source

REST = """
CREATE TABLE visit (id {key}, proctime AS PROCTIME()) WITH ('connector' = 'scripted');
CREATE TABLE seen (id {key}) WITH ('connector' = 'scripted');
INSERT INTO seen SELECT visit.id FROM visit JOIN item FOR SYSTEM_TIME AS OF visit.proctime ON visit.id = item.{on};
"""

UNLOGGED = "SET SESSION sql_log_bin = 0"
"""What follows is not in the binlog: the lake cannot know of it."""

Reconciled = Callable[[], SourceReconciliation]


def script(database: Database, columns: str, key: str = "INT", on: str = "id", **more: str) -> str:
    options = ", ".join(f"'{name}' = '{value}'" for name, value in database.options("item", **more).items())
    return f"CREATE TABLE item ({columns}) WITH ({options});" + REST.format(key=key, on=on)


def running(text: str, spark: SparkSession, folder: Path) -> Runner:
    return Runner(compile_script(text), Lake(folder), spark=lambda: spark, environment={})


@pytest.fixture
def runner(database: Database, spark: SparkSession, tmp_path: Path) -> Iterator[Runner]:
    """`item` has landed: 3,000 rows of a key, a text, a number and a time, with nulls."""
    database.execute(
        "CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(20), price DECIMAL(9,2), at DATETIME(3))",
        "INSERT INTO item SELECT seq, IF(seq % 7, CONCAT('n', seq), NULL), seq / 4, NOW(3) FROM seq_1_to_3000",
    )
    columns = "id INT PRIMARY KEY NOT ENFORCED, name STRING, price DECIMAL(9,2), at TIMESTAMP(3)"
    text = script(database, columns, **{"scan.incremental.snapshot.chunk.size": "1000"})
    with running(text, spark, tmp_path / "lake") as found:
        found.advance("item")
        yield found


def test_equal_tables_are_equal_and_every_kind_of_difference_is_found_with_its_key_and_columns(
    runner: Runner, database: Database
):
    found = reconcile_source(runner, "item")
    assert found.passed
    assert (found.rows, found.source_rows, found.chunks, found.differences) == (3000, 3000, 3, 0)
    assert found.low <= found.cut
    assert found.rounds == 0
    database.execute("UPDATE item SET price = 0 WHERE id % 2", "DELETE FROM item WHERE id > 2990")
    found = reconcile_source(runner, "item")
    assert (found.passed, found.rows) == (True, 2990), "what has not landed yet is landed first"
    database.execute(
        UNLOGGED,
        "UPDATE item SET name = 'other' WHERE id = 17",
        "UPDATE item SET name = NULL, price = price + 1 WHERE id = 18",
        "UPDATE item SET name = '' WHERE id = 14",
        "DELETE FROM item WHERE id = 2000",
        "INSERT INTO item VALUES (9001, 'new', 1, NOW(3))",
    )
    found = reconcile_source(runner, "item")
    shown = {item.key["id"]: (item.kind, item.columns) for item in found.shown}
    assert shown == {
        14: ("changed", ("name",)),
        17: ("changed", ("name",)),
        18: ("changed", ("name", "price")),
        2000: ("extra", ()),
        9001: ("missing", ()),
    }
    assert not found.passed
    assert (found.differences, found.unsettled, found.rechecked) == (5, 0, 5)
    assert found.cut == max(found.low, found.high, found.cut)


def test_a_table_that_is_written_to_meanwhile_is_no_difference(runner: Runner, database: Database):
    """Deletes, inserts and updates go on in another thread; one row differs for good."""
    database.execute(UNLOGGED, "UPDATE item SET name = 'other' WHERE id = 17")
    stop = threading.Event()

    def write() -> None:
        with closing(database.connect()) as connection, connection.cursor() as cursor:
            number = 0
            while not stop.is_set():
                number += 1
                cursor.execute("UPDATE item SET price = %s WHERE id = 100", (number % 1000,))
                cursor.execute("REPLACE INTO item VALUES (%s, 'w', 1, NOW(3))", (5000 + number % 50,))
                cursor.execute("DELETE FROM item WHERE id = %s", (5000 + (number + 25) % 50,))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        found = reconcile_source(runner, "item")
    finally:
        stop.set()
        writer.join()
    assert [(item.key["id"], item.kind) for item in found.shown] == [(17, "changed")]
    assert (found.differences, found.unsettled) == (1, 0)
    assert found.rechecked > 1


def test_a_truncate_meanwhile_reads_all_of_it_again(runner: Runner, database: Database, monkeypatch):

    from tidegate.pipelines.sources.cdc.snapshot import TableComparison

    high = TableComparison.high
    calls: list[int] = []

    def truncated(self: TableComparison) -> object:
        if not calls:
            database.execute("TRUNCATE TABLE item", "INSERT INTO item VALUES (1, 'a', 1, NULL)")
        calls.append(1)
        return high(self)

    monkeypatch.setattr(TableComparison, "high", truncated)
    found = reconcile_source(runner, "item")
    assert found.passed
    assert found.rounds == 1


KEYS = {
    "a text under a collation": ("k VARCHAR(20) PRIMARY KEY", "k STRING PRIMARY KEY NOT ENFORCED", "'ä' , 'ß', 'Zz'"),
    "bytes": ("k VARBINARY(8) PRIMARY KEY", "k BYTES PRIMARY KEY NOT ENFORCED", "X'00', X'FF', X'6162'"),
    "a time": (
        "k DATETIME(3) PRIMARY KEY",
        "k TIMESTAMP(3) PRIMARY KEY NOT ENFORCED",
        "'2020-01-01', '1999-12-31', '2021-02-03'",
    ),
    "a decimal": ("k DECIMAL(12,3) PRIMARY KEY", "k DECIMAL(12,3) PRIMARY KEY NOT ENFORCED", "-1.5, 0, 7.125"),
}


@pytest.mark.parametrize("name", at_length(KEYS))
def test_keys_of_every_kind_can_be_asked_for(name: str, database: Database, spark: SparkSession, tmp_path: Path):
    there, declared, values = KEYS[name]
    key_type = declared.split(" PRIMARY")[0].split(" ", 1)[1]
    database.execute(
        f"CREATE TABLE item ({there}, v INT)",
        *(f"INSERT INTO item VALUES ({value.strip()}, 1)" for value in values.split(", ")),
    )
    with running(script(database, f"{declared}, v INT", key_type, "k"), spark, tmp_path / "lake") as found:
        found.advance("item")
        assert reconcile_source(found, "item").passed
        last = values.split(", ")[-1]
        database.execute(UNLOGGED, f"UPDATE item SET v = 2 WHERE k = {last}")
        again = reconcile_source(found, "item")
    assert [(item.kind, item.columns) for item in again.shown] == [("changed", ("v",))]


def test_a_key_of_two_columns_that_name_their_fields(database: Database, spark: SparkSession, tmp_path: Path):
    database.execute(
        "CREATE TABLE item (`_a` INT, id INT, `a.v` INT, PRIMARY KEY (`_a`, id))",
        "INSERT INTO item SELECT seq % 3, seq, seq FROM seq_1_to_100",
    )
    columns = "a INT, id INT, v INT, PRIMARY KEY (a, id) NOT ENFORCED"
    text = script(database, columns, **{"fields.a.name": "_a", "fields.v.name": "a.v"})
    text = text.replace("visit.id = item.id", "visit.id = item.id AND visit.id = item.a")
    with running(text, spark, tmp_path / "lake") as found:
        found.advance("item")
        database.execute("UPDATE item SET `a.v` = -2 WHERE id = 60")
        assert reconcile_source(found, "item").passed
        database.execute(UNLOGGED, "UPDATE item SET `a.v` = -1 WHERE id = 50")
        again = reconcile_source(found, "item")
    assert [(item.key, item.columns) for item in again.shown] == [({"a": 2, "id": 50}, ("v",))]


@pytest.mark.thorough
def test_one_changed_cell_in_a_million_rows(database: Database, spark: SparkSession, tmp_path: Path):
    database.execute(
        "CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(20), v INT)",
        UNLOGGED,
        "INSERT INTO item SELECT seq, CONCAT('name ', seq), seq % 97 FROM seq_1_to_1000000",
    )
    text = script(database, "id INT PRIMARY KEY NOT ENFORCED, name STRING, v INT")
    with running(text, spark, tmp_path / "lake") as found:
        found.advance("item")
        database.execute(UNLOGGED, "UPDATE item SET v = v + 1 WHERE id = 765432")
        compared = reconcile_source(found, "item")
    assert [(item.key, item.kind, item.columns) for item in compared.shown] == [({"id": 765432}, "changed", ("v",))]
    assert (compared.rows, compared.source_rows, compared.differing_buckets) == (1_000_000, 1_000_000, 1)


def test_what_has_not_flipped_cannot_be_compared(runner: Runner):
    runner.advance("item", resnapshot=True, max_epochs=1)
    with pytest.raises(SourceError, match="item is still loading"):
        reconcile_source(runner, "item")


def test_another_runner_that_does_not_come_so_far_is_named(runner: Runner, database: Database):
    database.execute("UPDATE item SET price = 0 WHERE id = 1")
    runner.close()
    other = Lake(runner.lake.root).leases("somebody else")
    other.acquire("item")
    try:
        with pytest.raises(SourceError, match="somebody else"):
            reconcile_source(runner, "item", wait_s=0)
    finally:
        other.close()


@pytest.mark.parametrize("mode", ["latest-offset", "snapshot"])
def test_tables_without_a_whole_image_are_no_candidates(database: Database, mode: str):
    text = script(database, "id INT PRIMARY KEY NOT ENFORCED", **{"scan.startup.mode": mode})
    assert comparable(compile_script(text).sources) == []


def test_tables_of_other_connectors_are_refused(spark: SparkSession, tmp_path: Path):
    from tests.assets.clicks import script as clicks
    from tidegate.pipelines.testing import Harness

    harness = Harness(clicks(), spark, tmp_path)
    harness.push("user_info", [{"user_id": 1, "gender": "f"}])
    harness.end_of_snapshot("user_info")
    harness.advance()
    with pytest.raises(PlanningError, match="its connector is scripted"):
        reconcile_source(harness.runner, "user_info")


class TestCommand:
    def test_it_shows_what_differs_and_leaves_with_1(
        self, runner: Runner, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        runner.close()
        path = tmp_path / "pipeline.sql"
        path.write_text(runner.pipeline.script)
        asked = ["reconcile", str(path), "--lake", str(runner.lake.root)]
        well = CliRunner().invoke(app, asked)
        assert well.exit_code == 0, well.output
        assert "item: 3,000 rows, as the source has them at" in well.stdout
        database.execute(UNLOGGED, "UPDATE item SET name = 'other' WHERE id = 17")
        compare, found, compared = against_source.reconcile_source, list[SourceReconciliation](), list[str]()

        def once(active: Runner, table: str, wait_s: float) -> SourceReconciliation:
            found.extend([] if found else [compare(active, table, wait_s)])
            return found[0]

        monkeypatch.setattr(against_source, "reconcile_source", once)
        result = CliRunner().invoke(app, [*asked, "--json"])
        assert result.exit_code == 1
        (table,) = json.loads(result.stdout)["tables"]
        assert table["shown"] == [{"key": {"id": 17}, "kind": "changed", "columns": ["name"]}]
        shown = CliRunner().invoke(app, asked)
        assert "id = 17 differs in name" in shown.stdout
        assert "--resnapshot item" in shown.stdout

        def first_alone(active: Runner, table: str, wait_s: float) -> SourceReconciliation:
            if compared:
                raise SourceError("the server is gone", where=table, state="nothing was changed", next_command="wait")
            compared.append(table)
            return once(active, table, wait_s)

        monkeypatch.setattr(against_source, "reconcile_source", first_alone)
        for more in ([], ["--json"]):
            compared.clear()
            failed = CliRunner().invoke(app, [*asked, "--table", "item", "--table", "item", *more])
            assert failed.exit_code == 1
            assert ("id = 17 differs in name" in failed.stdout) == (not more)
            assert "the server is gone" in failed.output
        given = json.loads(failed.stdout)
        assert (given["passed"], len(given["tables"]), given["error"]["kind"]) == (False, 1, "SourceError")

    @pytest.mark.parametrize("table", ["nothing", "visit"])
    def test_what_cannot_be_compared_is_a_mistake_of_usage(self, database: Database, tmp_path: Path, table: str):
        path = tmp_path / "pipeline.sql"
        path.write_text(script(database, "id INT PRIMARY KEY NOT ENFORCED"))
        compared = CliRunner().invoke(app, ["reconcile", str(path), "--table", table])
        assert compared.exit_code == 2
        assert "those that can be are item" in " ".join(compared.output.replace("│", " ").split())


SCHEMA = f"_generation INT, _epoch BIGINT, _op STRING, _seq {SEQ_TYPE}, k INT, l STRING, v INT, m MAP<STRING, INT>"


def changelog(seed: int, truncates: int) -> list[tuple[Any, ...]]:
    """Changes of 60 keys, of which the parts of `_seq` all decide somewhere; a truncate has neither key nor row."""
    noise = random.Random(seed)
    places = {tuple(noise.randrange(3) for _ in range(5)) for _ in range(400)}
    ops = ["t"] * truncates + [noise.choice("crud") for _ in range(len(places) - truncates)]
    rows = []
    for op, seq in zip(ops, noise.sample(sorted(places), len(places)), strict=True):
        key = (None, None) if op == "t" else (noise.randrange(20), noise.choice("abc"))
        rows.append((1, noise.randrange(9), op, seq, *key, noise.randrange(99), {"a": 1}))
    noise.shuffle(rows)
    return rows


def expected(rows: list[tuple[Any, ...]]) -> set[tuple[Any, ...]]:
    """(key, value, epoch, gone) of each key."""
    last = max((row[3] for row in rows if row[2] == "t"), default=None)
    found: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for row in sorted((row for row in rows if row[2] != "t"), key=lambda row: row[3]):
        gone = row[2] == "d" or (last is not None and row[3] < last)
        found[row[4:6]] = (*row[4:6], row[6], row[1], gone)
    return set(found.values())


@pytest.mark.parametrize("truncates", [0, 2])
def test_latest(spark: SparkSession, truncates: int) -> None:
    rows = changelog(seed=5 + truncates, truncates=truncates)
    with as_views({"changelog": spark.createDataFrame(rows, SCHEMA)}) as views:
        found = spark.sql(latest_sql(views["changelog"], ["k", "l"], ["k", "l", "v", "m"])).collect()
    assert {(row["k"], row["l"], row["v"], row["_epoch"], row["_gone"]) for row in found} == expected(rows)
    assert len(found) == len({(row["k"], row["l"]) for row in found})
    assert all(row["m"] == {"a": 1} for row in found)
