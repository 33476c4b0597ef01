"""A table read by the names of its log's files is the table that delta-rs reads, at every version, or none."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction, write_deltalake
from deltalake.schema import PrimitiveType

from tidegate.pipelines.errors import LakeError
from tidegate.pipelines.lake import by_name, delta_log
from tidegate.pipelines.lake.by_name import TableState
from tidegate.pipelines.lake.commits import commit
from tidegate.pipelines.lake.releasable import _micros
from tidegate.pipelines.location import Location


def rows(*numbers: int) -> pa.Table:
    at = [dt.datetime(2026, 1, 1, 0, 0, number % 60, 123_457) for number in numbers]
    return pa.table(
        {
            "i": pa.array(numbers, pa.int64()),
            "t": pa.array(at, pa.timestamp("us", "UTC")),
            "z": pa.array(at, pa.timestamp("us")),
            "n": pa.array([None] * len(numbers), pa.int32()),
            "s": [f"é {number}" for number in numbers],
        }
    )


def facts_of(table: TableState | None) -> tuple[int, list[tuple], int | None, str]:
    assert table is not None
    files = [
        (
            file.name,
            file.size,
            file.rows,
            *(time_of(of(c)) for of in (file.least, file.greatest, file.nulls) for c in ALL),
        )
        for file in table.files.values()
    ]
    return table.version, sorted(files), table.applications.get("a"), table.schema.to_json()


def by_delta_rs(path: Path) -> tuple[int, list[tuple], int | None, str]:
    table, kinds = DeltaTable(path), ("min", "max", "null_count")
    names = ("path", "size_bytes", "num_records", *(f"{kind}.{column}" for kind in kinds for column in ALL))
    files = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    found = sorted(tuple(time_of(file.get(name)) for name in names) for file in files)
    return table.version(), found, table.transaction_version("a"), table.schema().to_json()


ALL = "itznsx"


def time_of(value: object) -> object:
    """Statistics have times as text."""
    if isinstance(value, str) and value.startswith("2026-"):
        value = dt.datetime.fromisoformat(value)
    return value.replace(tzinfo=None) if isinstance(value, dt.datetime) else value


STEPS: dict[str, Callable[[Path], object]] = {
    "an append": lambda path: write_deltalake(path, rows(1, 2), mode="append", schema_mode="merge"),
    "a transaction": lambda path: write_deltalake(
        path,
        rows(3),
        mode="append",
        schema_mode="merge",
        commit_properties=CommitProperties(app_transactions=[Transaction("a", 7)]),
    ),
    "a delete": lambda path: DeltaTable(path).delete("i = 1"),
    "a checkpoint": lambda path: DeltaTable(path).create_checkpoint(),
    "a new column": lambda path: DeltaTable(path).alter.add_columns([Field("x", PrimitiveType("double"))]),
    "an optimize": lambda path: DeltaTable(path).optimize.compact(),
    "all rows anew": lambda path: write_deltalake(path, rows(9), mode="overwrite", schema_mode="merge"),
}


def test_it_is_what_delta_rs_reads_opened_anew_and_followed(tmp_path: Path) -> None:
    path = tmp_path / "a table of 100% ü"
    DeltaTable.create(str(path), schema=Schema.from_arrow(pa.schema(rows(1).schema)))
    followed = by_name.read(path)
    for step in ["an append", "a transaction", *STEPS, "an append", "a checkpoint", "a delete"]:
        STEPS[step](path)
        assert followed is not None, step
        followed, expected = followed.newer(), by_delta_rs(path)
        assert facts_of(followed) == facts_of(by_name.read(path)) == expected, step
        assert followed is not None
        assert followed.plain


def test_a_look_without_news_is_the_same_table(tmp_path: Path) -> None:
    write_deltalake(tmp_path, rows(1))
    assert delta_log.opened(tmp_path) is delta_log.opened(tmp_path)


UNKNOWN = {
    "deletion vectors": {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]},
    "column mapping": {"readerFeatures": ["columnMapping"], "writerFeatures": ["columnMapping"]},
    "checkpoints of version 2": {"readerFeatures": ["v2Checkpoint"], "writerFeatures": ["v2Checkpoint"]},
}


@pytest.mark.parametrize("feature", UNKNOWN)
def test_where_a_reader_has_to_know_more_the_files_are_not_the_rows(tmp_path: Path, feature: str) -> None:
    write_deltalake(tmp_path, rows(1))
    known = by_name.read(tmp_path)
    assert known is not None
    assert known.plain
    protocol = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **UNKNOWN[feature]}}
    (tmp_path / "_delta_log" / f"{1:020}.json").write_text(json.dumps(protocol))
    for table in (known.newer(), by_name.read(tmp_path)):
        assert table is not None
        assert (table.version, table.plain, len(table.files)) == (1, False, 1)


def _last_is_lost(log: Path) -> None:
    max(log.glob("*.json")).unlink()


def _another_table_lies_there(log: Path) -> None:
    for file in log.iterdir():
        text = file.read_bytes()
        file.rename(log / "away")
        file.write_bytes(text)
        (log / "away").unlink()


def _a_longer_table_lies_there(log: Path) -> None:
    other = log.parent / "other"
    for number in range(10, 15):
        write_deltalake(other, rows(number), mode="append")
    for file in log.iterdir():
        file.unlink()
    for file in (other / "_delta_log").iterdir():
        file.rename(log / file.name)


def _cleaned_up(log: Path) -> None:
    write_deltalake(log.parent, rows(5), mode="append")
    DeltaTable(log.parent).create_checkpoint()
    newest = max(log.glob("*.json"))
    for file in set(log.glob("*.json")) - {newest}:
        file.unlink()


@pytest.mark.parametrize("change", [_last_is_lost, _another_table_lies_there, _a_longer_table_lies_there, _cleaned_up])
def test_a_log_that_does_not_go_on_where_it_was_is_read_anew(tmp_path: Path, change: Callable[[Path], None]) -> None:
    for number in range(3):
        write_deltalake(tmp_path, rows(number), mode="append")
    assert delta_log.opened(tmp_path) is not None
    change(tmp_path / "_delta_log")
    assert facts_of(delta_log.opened(tmp_path)) == by_delta_rs(tmp_path)


def _in_parts(log: Path, version: int) -> None:
    """The checkpoint in two files, as Spark writes large ones."""
    whole = log / f"{version:020}.checkpoint.parquet"
    rows = pq.read_table(whole)
    for number, part in enumerate((rows.slice(0, 3), rows.slice(3)), 1):
        pq.write_table(part, log / f"{version:020}.checkpoint.{number:010}.{2:010}.parquet")
    pq.write_table(rows, log / f"{version:020}.checkpoint.{1:010}.{3:010}.parquet")  # of one that was not finished
    whole.unlink()


def _of_version_2(log: Path, version: int) -> None:
    """The checkpoint as JSON, with its files in another."""
    whole = log / f"{version:020}.checkpoint.parquet"
    rows = pq.read_table(whole, columns=["metaData", "protocol", "txn", "add"])
    (log / "_sidecars").mkdir()
    pq.write_table(rows.select(["add"]), log / "_sidecars" / "one.parquet")
    lines = [{"sidecar": {"path": "one.parquet", "sizeInBytes": 1, "modificationTime": 1}}]
    for row in rows.to_pylist(maps_as_pydicts="strict"):
        lines += [{name: row[name]} for name in ("metaData", "protocol", "txn") if row[name]]
    (log / f"{version:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json").write_text(
        "\n".join(map(json.dumps, lines))
    )
    whole.unlink()


CHECKPOINTS = {"one file": lambda *_: None, "of several files": _in_parts, "of version 2": _of_version_2}


@pytest.mark.parametrize("kind", CHECKPOINTS)
def test_a_checkpoint_that_the_log_does_not_name_is_found_by_a_listing(tmp_path: Path, kind: str) -> None:
    for _ in range(5):
        STEPS["a transaction"](tmp_path)
    DeltaTable(tmp_path).create_checkpoint()
    log = tmp_path / "_delta_log"
    for version in range(5):  # with its own: other writers keep a checkpoint alone
        (log / f"{version:020}.json").unlink()
    (log / "_last_checkpoint").unlink()
    CHECKPOINTS[kind](log, 4)
    alone = delta_log.opened(tmp_path)
    assert alone is not None
    assert (alone.version, len(alone.files), alone.committed("a"), alone.seen) == (4, 5, 7, None)
    if kind != "of version 2":
        commit(alone, [], marks={"a": 8})
        now = delta_log.opened(tmp_path)
        assert now is not None
        assert (now.version, len(now.files), now.committed("a")) == (5, 5, 8)
        assert by_delta_rs(tmp_path) == facts_of(now)


@pytest.mark.parametrize("lost", [0, 2])
def test_a_log_with_a_hole_is_damaged_and_nothing_is_put_into_it(tmp_path: Path, lost: int) -> None:
    before: TableState | None = None
    for number in range(4):
        write_deltalake(tmp_path, rows(number), mode="append")
        before = by_name.read(tmp_path) if number == lost - 1 else before
    (tmp_path / "_delta_log" / f"{lost:020}.json").unlink()
    with pytest.raises(LakeError, match="damaged"):
        delta_log.opened(tmp_path)
    if before is not None:
        with pytest.raises(LakeError, match="has version 3, and no version 2"):
            commit(before, [])


def test_a_bound_that_python_has_no_time_for_is_not_known(tmp_path: Path) -> None:
    write_deltalake(tmp_path, rows(1))
    log = tmp_path / "_delta_log" / f"{0:020}.json"
    log.write_text(log.read_text().replace('\\"t\\":\\"2026', '\\"t\\":\\"+12026'))
    table = by_name.read(tmp_path)
    assert table is not None
    (file,) = table.files.values()
    assert _micros(file.greatest("t")) is None
    assert _micros("1969-12-31T23:59:59.999999Z") == _micros("1969-12-31T23:59:59.999999") == -1


def test_what_a_log_has_removed_is_known_or_not_and_never_in_part(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        write_deltalake(tmp_path, rows(number), mode="append")
    files = set(DeltaTable(tmp_path).get_add_actions()["path"].to_pylist())
    DeltaTable(tmp_path).optimize.compact()

    def since(moment: int, at: int = 3) -> set[str] | None:
        table = by_name.read(tmp_path)
        assert table is not None
        removed = by_name.removed_since(replace(table, version=at), moment)
        return None if removed is None else set(removed)

    log = Location(tmp_path) / "_delta_log"
    removal, committed = by_name.file_of(log, 3), by_name.committed_at(log, 3)
    assert committed is not None
    assert (since(committed - 60_000), since(committed + 60_000)) == (files, set())
    actions = [json.loads(line) for line in removal.read().splitlines()]
    for action in actions:  # a writer that says of nothing when it was
        action.get("remove", {}).pop("deletionTimestamp", None)
    removal.put("\n\n".join(json.dumps(each) for each in actions if "commitInfo" not in each).encode())
    assert by_name.committed_at(log, 3) is None
    assert since(committed + 60_000) == files
    there = by_name.read(tmp_path)
    assert there is not None
    removal.put(b'{"remove": {"pa')
    assert by_name.removed_since(there, 0) is None
    by_name.file_of(log, 0).delete()
    assert by_name.removed_since(replace(there, version=2), 0) is None
