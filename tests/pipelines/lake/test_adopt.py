"""Commits that name files which lie there already, and take others out: once, and right whatever else is committed."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Schema, write_deltalake

from tests.pipelines.runtime.handmade import adopted
from tidegate.pipelines.errors import ConcurrentRun, LakeError
from tidegate.pipelines.lake import adopt as adopting
from tidegate.pipelines.lake.adopt import Epochs, adopt, survey
from tidegate.pipelines.lake.publishers import swap_mark
from tidegate.pipelines.lake.records import StagedFile
from tidegate.pipelines.lake.statistics import skipping
from tidegate.pipelines.lake.upkeep import live_files, put_together, still_read
from tidegate.pipelines.location import Location
from tidegate.pipelines.parquet import column_bounds, python_rows


def rows(epoch: int, *ids: int) -> pa.Table:
    columns = {"id": pa.array(ids, pa.int32()), "_generation": pa.array([1] * len(ids), pa.int32())}
    return pa.table({**columns, "_epoch": pa.array([epoch] * len(ids), pa.int64())})


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Epochs 1 to 3, a file each, of two rows."""
    path = tmp_path / "table"
    for epoch in (1, 2, 3):
        write_deltalake(path, rows(epoch, 10 * epoch, 10 * epoch + 1), mode="append")
    return path


def staged(table: Path) -> tuple[Path, list[StagedFile]]:
    folder = table / "_staged" / "g1-e4-x"
    folder.mkdir(parents=True)
    pq.write_table(rows(4, 40, 41), folder / "part.parquet")
    return folder, survey(folder)


def there(table: Path) -> list[tuple[int, int]]:
    found = DeltaTable(table).to_pyarrow_table().to_pylist()
    return sorted((row["_epoch"], row["id"]) for row in found)


INSTEAD_OF = Epochs(1, ((2, 2),), rows=2)
REPLACED = [(1, 10), (1, 11), (3, 30), (3, 31), (4, 40), (4, 41)]


@pytest.mark.parametrize("together", [False, True], ids=["a file an epoch", "all in one file"])
def test_epochs_are_replaced_once(table: Path, together: bool) -> None:
    if together:
        DeltaTable(table).optimize.compact()
    folder, files = staged(table)
    before = live_files(table)
    for added in (2, 0):
        assert adopt(table, folder, files, application="a", epoch=4, instead_of=INSTEAD_OF) == added
        assert there(table) == REPLACED
    # What has left is still read by readers of the version before; a checkpoint knows it as well.
    left = before - live_files(table)
    assert len(left) == 1
    for _ in range(2):
        assert (still_read(table, keep=timedelta(minutes=10)) or set()) >= live_files(table) | left
        DeltaTable(table).create_checkpoint()
        for commit in sorted((table / "_delta_log").glob("*.json"))[:-1]:
            commit.unlink()


def test_a_table_behind_a_link_adopts(table: Path) -> None:
    link = table.parent / "link"
    link.symlink_to(table)
    folder, files = staged(link)
    assert adopt(link, folder, files, application="a", epoch=4, instead_of=INSTEAD_OF) == 2
    assert there(table) == REPLACED
    there_are = {str(path) for path in link.rglob("*.parquet")}
    assert still_read(link, keep=timedelta(minutes=10)) == there_are


@pytest.mark.parametrize("together", [False, True], ids=["a file an epoch", "all in one file"])
def test_an_optimize_in_between_doubles_no_row(table: Path, monkeypatch: pytest.MonkeyPatch, together: bool) -> None:
    if together:
        DeltaTable(table).optimize.compact()
        write_deltalake(table, rows(5, 50), mode="append")
    folder, files = staged(table)
    looked, find = [], adopting.without

    def and_then_others_rewrite(*arguments: object) -> object:
        found = find(*arguments)  # type: ignore[arg-type]
        looked.append(found)
        if len(looked) == 1:
            DeltaTable(table).optimize.compact()
        return found

    monkeypatch.setattr(adopting, "without", and_then_others_rewrite)
    adopt(table, folder, files, application="a", epoch=4, instead_of=INSTEAD_OF)
    assert there(table) == sorted([*REPLACED, *([(5, 50)] if together else [])])
    assert len(looked) == 2


def test_a_table_that_never_rests_is_an_error(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, files = staged(table)
    find = adopting.without

    def and_then_others_write(*arguments: object) -> object:
        found = find(*arguments)  # type: ignore[arg-type]
        write_deltalake(table, rows(9, 90), mode="append")
        return found

    monkeypatch.setattr(adopting, "without", and_then_others_write)
    with pytest.raises(ConcurrentRun, match="changed 5 times while epoch 4"):
        adopt(table, folder, files, application="a", epoch=4, instead_of=Epochs(1, ((2, 2),)))
    assert (2, 20) in there(table)
    assert (4, 40) not in there(table)


WRITTEN_BY_HAND = {
    "an update": lambda table: table.update(updates={"name": "'corrected'"}, predicate="id = 10"),
    "a delete": lambda table: table.delete("id = 30"),
    "a merge": lambda table: (
        table.merge(pa.table({"id": pa.array([10], pa.int32())}), "t.id = s.id", source_alias="s", target_alias="t")
        .when_matched_update({"name": "'corrected'"})
        .execute()
    ),
}


@pytest.mark.parametrize("by_hand", WRITTEN_BY_HAND)
def test_epochs_are_replaced_in_files_that_delta_rs_has_written(tmp_path: Path, by_hand: str) -> None:
    """It writes text as `string_view`, which Arrow does not filter."""
    table = tmp_path / "table"
    for epoch in (1, 2, 3):
        of_epoch = rows(epoch, 10 * epoch, 10 * epoch + 1)
        named = of_epoch.append_column("name", pa.array(["a", "b"])).append_column("bytes", pa.array([b"a", b"b"]))
        write_deltalake(table, named.append_column("inner", pa.array([{"x": "a", "l": ["b"]}] * 2)), mode="append")
    DeltaTable(table).optimize.compact()
    WRITTEN_BY_HAND[by_hand](DeltaTable(table))
    expected = [row for row in DeltaTable(table).to_pyarrow_table().to_pylist() if row["_epoch"] != 2]
    folder, files = staged(table)
    assert adopt(table, folder, files, application="a", epoch=4, instead_of=INSTEAD_OF) == 2
    there_are = DeltaTable(table).to_pyarrow_table().to_pylist()
    assert sorted((row for row in there_are if row["_epoch"] != 4), key=str) == sorted(expected, key=str)
    assert [row["name"] for row in there_are if row["_epoch"] == 4] == [None, None]
    before = len(there_are)
    put_together(table, least=2)
    assert len(DeltaTable(table).file_uris()) == 1
    assert DeltaTable(table).to_pyarrow_table().num_rows == before


def test_a_file_that_no_reader_takes_is_a_typed_error(table: Path) -> None:
    (old,) = [file for file in live_files(table) if there_in(file) == {2}]
    Path(old).write_bytes(b"PAR1" + Path(old).read_bytes()[4:-8] + b"\0" * 4 + b"PAR1")
    folder, files = staged(table)
    with pytest.raises(LakeError, match="the lake is damaged"):
        adopt(table, folder, files, application="a", epoch=4, instead_of=INSTEAD_OF)


def test_rows_of_somebody_else_are_never_taken_out(table: Path) -> None:
    write_deltalake(table, rows(2, 99), mode="append")
    folder, files = staged(table)
    before = there(table)
    with pytest.raises(LakeError, match="3 rows of epochs that published 2, not all this INSERT's"):
        adopt(table, folder, files, application="a", epoch=4, instead_of=INSTEAD_OF)
    assert there(table) == before


def _made(path: Path, rows: pa.Table) -> None:
    schema = Schema.from_arrow(rows.schema)
    DeltaTable.create(path, schema, configuration=skipping(json.loads(schema.to_json())["fields"]))


@pytest.mark.parametrize("odd", [float("inf"), float("-inf")])
def test_numbers_that_json_has_not_are_in_no_statistics(tmp_path: Path, odd: float) -> None:
    rows = pa.table({"x": [1.5, odd], "n": [1, 2]})
    _made(tmp_path, rows)
    adopted(Location(tmp_path), "e1", rows, "published", 1)
    found = DeltaTable(tmp_path)
    assert found.to_pyarrow_table().num_rows == 2
    actions = pa.table(found.get_add_actions(flatten=True)).to_pylist()[0]
    assert actions["max.n"] == 2
    assert actions.get("max.x") is None


FAR = {
    "late": pa.array([316_516_204_800_000_000, 5], pa.int64()).cast(pa.timestamp("us")),  # of the year 12000
    "early": pa.array([-77_000_000_000_000_000, 5], pa.int64()).cast(pa.timestamp("us", "UTC")),
    "day": pa.array([3_700_000, 5], pa.int32()).cast(pa.date32()),
}


def test_times_that_python_has_not_are_in_no_statistics_and_cost_no_row(tmp_path: Path) -> None:
    rows = pa.table({**FAR, "n": [1, 2]})
    adopted(Location(tmp_path), "e1", rows, "published", 1)
    found = DeltaTable(tmp_path)
    assert found.to_pyarrow_table().equals(rows)
    file = pa.table(found.get_add_actions(flatten=True)).to_pylist()[0]
    assert (file["num_records"], file["null_count.n"], file["max.n"]) == (2, 0, None)  # bounds of all, or of none
    assert not {name: file[name] for column in FAR for name in (f"min.{column}", f"max.{column}") if file.get(name)}
    first, second = python_rows(rows)
    assert (first["late"], first["day"], first["n"]) == ("12000-01-01 00:00:00.000000", "12100-04-04", 1)
    assert second["late"] == "1970-01-01 00:00:00.000005"


def test_a_footer_with_times_that_python_has_not_tells_no_bounds(tmp_path: Path) -> None:
    pq.write_table(pa.table({**FAR, "n": [1, 2]}), tmp_path / "a.parquet")
    footer = pq.read_metadata(tmp_path / "a.parquet")
    assert [column_bounds(footer, name) for name in (*FAR, "n")] == [None, None, None, (1, 2)]


def test_files_are_named_from_the_table_s_own_folder_too(table: Path) -> None:
    folder, files = staged(table)
    named = [StagedFile(f"_staged/{folder.name}/{file.path}", "", file.size, file.rows, file.stats) for file in files]
    (old,) = [file for file in live_files(table) if there_in(file) == {1}]
    adopting.replace(table, table, named, [adopting.there(table).files[Path(old).name]], note="in its place")
    assert 1 not in {epoch for epoch, _ in there(table)}


def there_in(file: str) -> set[int]:
    return set(pq.read_table(file)["_epoch"].to_pylist())


def test_a_target_is_of_who_publishes_first_though_both_begin_at_once(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looked up before the commit alone, both were let in. Once a generation was swapped in, it alone publishes."""

    def publish(lake: str, insert: str, generation: int = 1, role: str = "publish") -> int:
        folder = table / "_data" / insert / f"{lake}-{generation}-{role}"
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows(1, generation), folder / "a.parquet")
        name = f"{lake}/insert {insert}/{role}/{generation}"
        return adopt(table, folder, survey(folder), application=name, epoch=1)

    commit, turn = adopting.commit, iter([True])

    def overtaken(*args: Any, **kwargs: Any) -> None:
        if next(turn, False):
            assert publish("lake", "b") == 1
        commit(*args, **kwargs)

    monkeypatch.setattr(adopting, "commit", overtaken)
    before = len(there(table))
    for lake, insert in (("lake", "a"), ("other", "b")):
        with pytest.raises(LakeError, match="table holds rows published by b meanwhile") as refused:
            publish(lake, insert)
        assert refused.value.state == f"what is there stays; nothing of {insert} was published"
        assert next(turn, None) is None
    assert publish("lake", "b") == 0
    assert publish("lake", "b", role="notified") == 1
    assert len(there(table)) == before + 2

    with pytest.raises(LakeError, match="published by b meanwhile"):  # it is not swapped in
        publish("lake", "b~2", generation=2)
    marks = {swap_mark("lake", "b"): 2, "lake/insert b~2/publish/2": 0}
    commit(adopting.there(table), [], marks=marks)
    for role in ("publish", "notified"):
        with pytest.raises(ConcurrentRun, match="no more: generation 2 has taken its place"):
            publish("lake", "b", role=role)
    assert publish("lake", "b~2", generation=2) == 1
    assert len(there(table)) == before + 3
