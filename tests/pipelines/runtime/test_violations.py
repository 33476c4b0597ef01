"""What masks of staged files say: counts, samples and the greatest one, row group by row group; no Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.pipelines.connectors.table import Column, Constraint, Options, Table, severest_first
from tidegate.pipelines.joins.outcome import bits, quarantined_from
from tidegate.pipelines.location import Location
from tidegate.pipelines.runtime.releasing.violations import counted, greatest, samples

WRITTEN = (
    Constraint("small", "`n` < 9", "warn"),
    Constraint("even", "`n` % 2 = 0", "quarantine"),
    Constraint("short", "length(`name`) < 9", "warn"),
    Constraint("known", "`n` > 0", "fail"),
)
ORDERED = severest_first(WRITTEN)
TABLE = Table("t", (Column("n", "INT", "INT", False), Column("name", "STRING", "STRING")), Options({}), ("n",))


def file(path: Path, masks: list[int], **columns: list[object]) -> Location:
    rows = {"n": list(range(len(masks))), "name": [f"a{n}" for n in range(len(masks))], "_violated": masks, **columns}
    pq.write_table(pa.table(rows), path, row_group_size=2)
    return Location(path)


def test_the_severest_has_the_highest_bit() -> None:
    assert [each.name for each in ORDERED] == ["known", "even", "small", "short"]
    assert bits(ORDERED) == {"known": 8, "even": 4, "small": 2, "short": 1}
    assert quarantined_from(ORDERED) == 4
    assert quarantined_from(ORDERED[2:]) == 4  # a limit that no row reaches: 2 + 1 is the most
    assert quarantined_from(ORDERED[:2]) == 1


def test_a_row_counts_for_every_constraint_that_it_violates(tmp_path: Path) -> None:
    files = [file(tmp_path / "a", [0, 0, 15, 1, 0, 0]), file(tmp_path / "b", [0, 5]), file(tmp_path / "c", [])]
    assert counted(files, ORDERED) == {
        "violations@known": 1,
        "violations@even": 2,
        "violations@small": 1,
        "violations@short": 3,
    }
    assert counted(files, ()) == {}


def test_a_few_keys_of_each_are_shown(tmp_path: Path) -> None:
    files = [file(tmp_path / "a", [0, 1, 4, 1, 5, 1]), file(tmp_path / "b", [1, 1])]
    wanted = [each for each in ORDERED if each.name in ("known", "even", "short")]
    assert samples(files, ORDERED, wanted, TABLE, 3) == {
        "known": (),
        "even": ('{"n": 2}', '{"n": 4}'),
        "short": ('{"n": 1}', '{"n": 3}', '{"n": 4}'),
    }


def test_a_key_is_shown_once_however_many_rows_have_it(tmp_path: Path) -> None:
    files = [file(tmp_path / "a", [1, 1, 1, 1], n=[7, 7, 7, 8]), file(tmp_path / "b", [1, 1], n=[7, 9])]
    assert samples(files, ORDERED, ORDERED[3:], TABLE, 3) == {"short": ('{"n": 7}', '{"n": 8}', '{"n": 9}')}


def test_without_a_key_the_row_is_shown_cut_to_a_length(tmp_path: Path) -> None:
    from dataclasses import replace

    files = [file(tmp_path / "a", [1, 1], name=["x" * 999, "short"])]
    (first, second) = samples(files, ORDERED, ORDERED[3:], replace(TABLE, primary_key=()), 9)["short"]
    assert second == '{"n": 1, "name": "short"}'
    assert (len(first), first[-1]) == (300, "…")


def test_the_footer_shows_the_greatest_mask(tmp_path: Path) -> None:
    assert greatest(pq.read_metadata(file(tmp_path / "a", [0, 0, 5, 1, 0]))) == 5
    assert greatest(pq.read_metadata(file(tmp_path / "b", []))) == 0
    pq.write_table(pa.table({"n": [1]}), tmp_path / "c")
    assert greatest(pq.read_metadata(tmp_path / "c")) is None
    pq.write_table(pa.table({"n": [1], "_violated": [1]}), tmp_path / "d", write_statistics=False)
    assert greatest(pq.read_metadata(tmp_path / "d")) is None
    assert counted([Location(tmp_path) / "d"], ORDERED)["violations@short"] == 1
