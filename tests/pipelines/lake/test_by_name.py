"""A table read by the names of its log's files is the table that delta-rs reads, at every version, or none."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction, write_deltalake
from deltalake.schema import PrimitiveType

from tidegate.pipelines.lake import by_name, delta_log
from tidegate.pipelines.lake.by_name import TableState
from tidegate.pipelines.location import Location

COLUMNS = ("path", "size_bytes", "num_records", *(f"{k}.{c}" for k in ("min", "max", "null_count") for c in "itznsx"))


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


def facts_of(table: delta_log.Table) -> tuple[int, list[dict], int | None, str]:
    files = sorted(delta_log.files_of(table, *COLUMNS), key=lambda file: file["path"])
    return table.version(), files, table.transaction_version("a"), table.schema().to_json()


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
        followed, anew, expected = followed.newer(), by_name.read(path), facts_of(DeltaTable(path))
        assert followed is not None, step
        assert anew is not None, step
        assert facts_of(followed) == expected, step
        assert facts_of(anew) == expected, step
        assert delta_log.plain(followed)


def test_a_look_without_news_is_the_same_table(tmp_path: Path) -> None:
    write_deltalake(tmp_path, rows(1))
    assert delta_log.opened(tmp_path) is delta_log.opened(tmp_path)


UNKNOWN = {
    "deletion vectors": {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]},
    "column mapping": {"readerFeatures": ["columnMapping"], "writerFeatures": ["columnMapping"]},
    "checkpoints of version 2": {"readerFeatures": ["v2Checkpoint"], "writerFeatures": ["v2Checkpoint"]},
}


@pytest.mark.parametrize("feature", UNKNOWN)
def test_what_a_reader_has_to_know_more_for_is_left_to_delta_rs(tmp_path: Path, feature: str) -> None:
    write_deltalake(tmp_path, rows(1))
    known = by_name.read(tmp_path)
    assert known is not None
    protocol = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **UNKNOWN[feature]}}
    (tmp_path / "_delta_log" / f"{1:020}.json").write_text(json.dumps(protocol))
    assert known.newer() is None
    assert by_name.read(tmp_path) is None


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
    assert isinstance(delta_log.opened(tmp_path), TableState)
    change(tmp_path / "_delta_log")
    now = delta_log.opened(tmp_path)
    assert isinstance(now, TableState)
    assert facts_of(now) == facts_of(DeltaTable(tmp_path))


@pytest.mark.parametrize("gone", ["_last_checkpoint", "00000000000000000004.checkpoint.parquet"])
def test_where_the_last_checkpoint_is_not_to_be_found_by_name_delta_rs_looks(tmp_path: Path, gone: str) -> None:
    for number in range(5):
        write_deltalake(tmp_path, rows(number), mode="append")
    DeltaTable(tmp_path).create_checkpoint()
    log = tmp_path / "_delta_log"
    for version in range(4):
        (log / f"{version:020}.json").unlink()
    (log / gone).rename(tmp_path / "away") if gone == "_last_checkpoint" else None
    table = delta_log.opened(tmp_path)
    assert table is not None
    assert len(delta_log.all_files(table)) == 5
    assert isinstance(table, DeltaTable) == (gone == "_last_checkpoint")


def test_a_bound_that_python_has_no_time_for_is_not_known(tmp_path: Path) -> None:
    write_deltalake(tmp_path, rows(1))
    log = tmp_path / "_delta_log" / f"{0:020}.json"
    log.write_text(log.read_text().replace('\\"t\\":\\"2026', '\\"t\\":\\"+12026'))
    table = by_name.read(tmp_path)
    assert table is not None
    assert [file["max.t"] for file in delta_log.files_of(table, "max.t")] == [None]


def test_what_a_log_has_removed_is_known_or_not_and_never_in_part(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        write_deltalake(tmp_path, rows(number), mode="append")
    files = set(DeltaTable(tmp_path).get_add_actions()["path"].to_pylist())
    DeltaTable(tmp_path).optimize.compact()

    def since(moment: int, at: int = 3) -> set[str] | None:
        removed = by_name.removed_since(Location(tmp_path), at, moment)
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
    removal.put(b'{"remove": {"pa')
    assert since(0) is None
    by_name.file_of(log, 0).delete()
    assert since(0, at=2) is None
