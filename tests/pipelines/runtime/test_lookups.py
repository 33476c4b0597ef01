"""'changelog.lookup': what a release finds in copies is what it finds by a scan, whatever happens to files between."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.lake import delta_log
from pipelines.runtime import lookups
from pipelines.runtime.failures import StepFailed
from pipelines.runtime.lookups import FOLDER, MAKING, TOLD, Copies
from pipelines.runtime.maintenance import Maintained
from pipelines.runtime.releasing import staging
from pipelines.testing import Harness
from tests.cases import at_length

pytestmark = pytest.mark.long

NOW = """
CREATE TABLE rates (currency STRING, venue SMALLINT, rate INT, tags ARRAY<STRING>, since TIMESTAMP(3),
    PRIMARY KEY (currency, venue) NOT ENFORCED)
WITH ('connector' = 'scripted'{lookup});
CREATE TABLE orders (id INT, venue INT, currency STRING, proctime AS PROCTIME()) WITH ('connector' = 'scripted');
CREATE TABLE converted (id INT, rate INT, tags ARRAY<STRING>) WITH ('connector' = 'scripted');
INSERT INTO converted SELECT o.id, r.rate, r.tags FROM orders AS o
LEFT JOIN rates FOR SYSTEM_TIME AS OF o.proctime AS r ON o.venue = r.venue AND o.currency = r.currency
"""
AT_ROW_TIME = """
CREATE TABLE rates (currency STRING, venue SMALLINT, rate INT, tags ARRAY<STRING>, since TIMESTAMP(3),
    WATERMARK FOR since AS since, PRIMARY KEY (currency, venue) NOT ENFORCED)
WITH ('connector' = 'scripted'{lookup});
CREATE TABLE orders (id INT, venue INT, currency STRING, at TIMESTAMP(3), WATERMARK FOR at AS at)
WITH ('connector' = 'scripted');
CREATE TABLE converted (id INT, rate INT, tags ARRAY<STRING>) WITH ('connector' = 'scripted');
INSERT INTO converted SELECT o.id, r.rate, r.tags FROM orders AS o
LEFT JOIN rates FOR SYSTEM_TIME AS OF o.at AS r ON o.venue = r.venue AND o.currency = r.currency
"""
ON = ", 'changelog.lookup' = 'true'"


@pytest.fixture(autouse=True)
def _files_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "FEWEST_ROWS", 1)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many files of copies each release has read."""
    seen: list[int] = []
    of = staging.registered

    def registered(spark: Any, lake: Any, insert: Any, table: Any, files: Any, pin: Any) -> Any:
        seen.append(len(files))
        return of(spark, lake, insert, table, files, pin)

    monkeypatch.setattr(staging, "registered", registered)
    return seen


def maintained(harness: Harness) -> Maintained:
    return next(item for item in harness.runner.maintenance(timedelta(0)).run() if item.name == "rates")


def folder(harness: Harness) -> Path:
    return harness.lake.table_path("rates") / FOLDER


class Market:
    """The same rates and orders for several harnesses."""

    def __init__(self, seed: int, *harnesses: Harness) -> None:
        self.chance, self.harnesses, self.ids, self.known = random.Random(seed), harnesses, 0, set[tuple[str, int]]()
        self.now = datetime(2026, 1, 1)

    def moves(self) -> Iterator[tuple[str, list[dict[str, Any]], str]]:
        """Changes and orders of one round."""
        for _ in range(self.chance.randint(1, 12)):
            self.now += timedelta(milliseconds=self.chance.randint(0, 3))
            key = self.chance.choice(["EUR", "USD", "", "ä"]), self.chance.randint(-1, 1)
            gone = key in self.known and self.chance.random() < 0.3
            (self.known.discard if gone else self.known.add)(key)
            rate = self.chance.randint(1, 999)
            row = {"currency": key[0], "venue": key[1], "rate": rate, "tags": [str(rate), None], "since": self.now}
            yield "rates", [row], "-D" if gone else "+U"
        orders = []
        for _ in range(self.chance.randint(1, 10)):
            self.ids += 1
            currency = self.chance.choice(["EUR", "USD", "", "ä", "none", None])
            at = self.now - timedelta(milliseconds=self.chance.randint(0, 9))
            orders.append({"id": self.ids, "venue": self.chance.randint(-1, 1), "currency": currency, "at": at})
        yield "orders", orders, "+I"

    def round(self) -> list[list[tuple[Any, ...]]]:
        """What each harness has published and kept out by the end of it."""
        moves = list(self.moves())
        for harness in self.harnesses:
            for table, rows, op in moves:
                names = {column.name for column in harness.pipeline.table(table).stored_columns}
                harness.push(table, [{name: row[name] for name in row if name in names} for row in rows], op)
            if harness.pipeline.insert("converted").time == "processing":
                harness.end_of_snapshot("rates")
            else:
                for table in ("rates", "orders"):
                    harness.watermark(table, int(self.now.replace(tzinfo=UTC).timestamp() * 1000))
            harness.advance()
        return [self._told(harness) for harness in self.harnesses]

    def _told(self, harness: Harness) -> list[tuple[Any, ...]]:
        rows = [*harness.published("converted"), *harness.quarantined("converted")]
        return sorted((row["id"], row["rate"] is not None, str(sorted(row.items()))) for row in rows)


@pytest.mark.parametrize(
    ("script", "change"),
    at_length(
        [
            (AT_ROW_TIME, ("", "")),
            (NOW, ("", "")),
            (NOW, ("LEFT JOIN", "JOIN")),
            (AT_ROW_TIME, ("LEFT JOIN", "JOIN")),
            (NOW, ("AS r ON", "AS r ON r.rate > 300 AND")),
            (AT_ROW_TIME, ("AS r ON", "AS r ON r.rate > 300 AND")),
            (
                NOW,
                (
                    "WITH ('connector' = 'scripted');\nINSERT",
                    "WITH ('connector' = 'scripted', 'gate.proof' = 'columns');\nINSERT",
                ),
            ),
            (
                NOW,
                (
                    "AND o.currency = r.currency",
                    "AND o.currency = r.currency LEFT JOIN rates FOR SYSTEM_TIME AS OF o.proctime AS s "
                    "ON s.venue = o.venue AND s.currency = o.currency",
                ),
            ),
        ]
    ),
    ids=["rowtime", "now", "inner now", "inner rowtime", "predicate now", "predicate rowtime", "proof", "twice"],
)
def test_copies_change_no_row(
    spark: SparkSession,
    tmp_path: Path,
    script: str,
    change: tuple[str, str],
    read: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pipelines.lake.upkeep.SMALL_FILES", 3)
    script = script.replace(*change) if change[0] else script
    plain = Harness(script.format(lookup=""), spark, tmp_path / "plain")
    looking = Harness(script.format(lookup=ON), spark, tmp_path / "looking")
    market = Market(len(script), plain, looking)
    for number in range(5):
        one, other = market.round()
        assert one == other
        if number % 2:
            assert maintained(looking).copies is not None
        if number == 3:
            looking.restart()
    assert len(one) == market.ids
    assert any(found for _, found, _ in one)
    assert read
    assert max(read) > 0
    report = looking.verify("converted")
    assert (report.passed, len(report.epochs)) == (True, 5)


def settled(spark: SparkSession, path: Path) -> tuple[Harness, Market]:
    harness = Harness(NOW.format(lookup=ON), spark, path)
    market = Market(7, harness)
    market.round()
    return harness, market


def after(harness: Harness, script: str, directory: Path) -> Harness:
    """Another one of the same lake, once the first has let go of it."""
    harness.runner.leases.abandon()
    return Harness(script, harness.spark, directory)


def files_of(harness: Harness) -> int:
    table = delta_log.opened(harness.lake.table_path("rates"))
    assert table is not None
    return len(delta_log.all_files(table))


@pytest.mark.thorough
def test_copies_come_and_go_with_their_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness, market = settled(spark, tmp_path)
    files = files_of(harness)
    copies = maintained(harness).copies
    assert copies is not None
    assert (copies.made, copies.removed) == (files, 0)
    assert copies.size == sum(file.stat().st_size for file in folder(harness).rglob("*") if file.is_file()) > 0
    assert maintained(harness).copies == Copies(0, 0, copies.size)
    for _ in range(3):
        market.round()
    monkeypatch.setattr("pipelines.lake.upkeep.SMALL_FILES", 2)
    together = maintained(harness).copies  # OPTIMIZE and VACUUM have left one file
    assert together is not None
    assert (together.made, together.removed) == (1, files)
    assert [kept.name == MAKING for kept in folder(harness).iterdir()] == [False]


def test_without_the_option_they_go(spark: SparkSession, tmp_path: Path) -> None:
    harness, _ = settled(spark, tmp_path)
    made = maintained(harness).copies
    assert made is not None
    plain = after(harness, NOW.format(lookup=""), tmp_path)
    assert maintained(plain).copies == Copies(0, made.made, 0)
    assert not folder(plain).exists()
    assert maintained(plain).copies is None


HARMS = {
    "a file is gone": lambda kept: next(kept.glob("*.arrow")).unlink(),
    "a file is empty": lambda kept: next(kept.glob("*.arrow")).write_bytes(b""),
    "half made": lambda kept: (kept / TOLD).unlink(),
    "told by halves": lambda kept: (kept / TOLD).write_text(""),
    "of another size": lambda kept: (kept / TOLD).write_text(
        (kept / TOLD).read_text().replace('"size": ', '"size": 1')
    ),
    "all of it": lambda kept: shutil.rmtree(kept.parent),
}


@pytest.mark.thorough
@pytest.mark.parametrize("harm", at_length(HARMS))
def test_a_copy_that_is_not_whole_is_not_read_and_made_again(
    spark: SparkSession, tmp_path: Path, read: list[int], harm: str
) -> None:
    harness, market = settled(spark, tmp_path)
    maintained(harness)
    kept = sorted(folder(harness).iterdir())
    HARMS[harm](kept[0])
    market.round()
    left = 0 if harm == "all of it" else len(kept) - 1
    assert read[-1:] == ([left] if left else [])
    assert maintained(harness).copies is not None
    market.round()
    assert read[-1] >= len(kept)
    assert harness.verify("converted").passed


def test_copies_that_can_not_be_made_leave_nothing_and_say_so(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness, market = settled(spark, tmp_path)

    def full(work: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(lookups, "copy", full)
    with pytest.raises(StepFailed, match="No space left") as told:
        maintained(harness)
    monkeypatch.undo()
    monkeypatch.setattr(lookups, "FEWEST_ROWS", 1)
    assert "releases scan files that have no copy" in str(told.value)
    assert not (folder(harness) / MAKING).exists()
    market.round()
    assert harness.verify("converted").passed
    assert maintained(harness).copies is not None


@pytest.mark.thorough
def test_a_key_with_very_many_versions_is_scanned(
    spark: SparkSession, tmp_path: Path, read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookups, "MOST_FOUND", -1)
    harness, market = settled(spark, tmp_path)
    made = maintained(harness).copies
    assert made is not None
    assert not list(folder(harness).rglob("*.arrow"))
    again = maintained(harness).copies
    assert (again.made, again.size) == (0, made.size) if again else False
    market.round()
    assert read == []


def test_of_a_table_that_was_truncated_none_are_kept(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness, _ = settled(spark, tmp_path)
    made = maintained(harness).copies
    kind = type(harness.lake.watermarks)
    last = kind.last

    def truncated(*of: Any) -> Any:  # no scripted op is a truncate
        return replace(last(*of), truncated=True)  # type: ignore[type-var]

    monkeypatch.setattr(kind, "last", truncated)
    assert made is not None
    assert maintained(harness).copies == Copies(0, made.made, 0, "it was truncated")


def test_keys_that_are_no_columns_have_none(spark: SparkSession, tmp_path: Path, read: list[int]) -> None:
    harness = Harness(
        NOW.format(lookup=ON).replace("o.currency = r.currency", "trim(o.currency) = r.currency"), spark, tmp_path
    )
    Market(7, harness).round()
    assert maintained(harness).copies == Copies(0, 0, 0, "no INSERT joins it by columns as they are")
    assert read == []


@pytest.mark.thorough
def test_another_script_with_its_columns_in_another_order_reads_the_same(spark: SparkSession, tmp_path: Path) -> None:
    harness, _ = settled(spark, tmp_path)
    copies = maintained(harness).copies
    assert copies is not None
    moved = NOW.format(lookup=ON).replace("rate INT, tags ARRAY<STRING>, since", "tags ARRAY<STRING>, rate INT, since")
    assert maintained(after(harness, moved, tmp_path)).copies == Copies(0, 0, copies.size)


@pytest.mark.thorough
def test_young_copies_stay_for_those_who_may_read_them(spark: SparkSession, tmp_path: Path) -> None:
    harness, _ = settled(spark, tmp_path)
    made = maintained(harness).copies
    plain = after(harness, NOW.format(lookup=""), tmp_path)
    kept = next(item for item in plain.runner.maintenance(timedelta(days=7)).run() if item.name == "rates").copies
    assert made is not None
    assert kept == Copies(0, 0, made.size)


@pytest.mark.thorough
def test_heavy_keys_are_sought_in_all_rows(
    spark: SparkSession, tmp_path: Path, read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "FEW_PAIRS", 0)
    monkeypatch.setattr("pipelines.joins.heavy.PER_KEY", 4)
    harness = Harness(AT_ROW_TIME.format(lookup=ON), spark, tmp_path)
    begin = datetime(2026, 1, 1)
    rates = [
        {"currency": "EUR", "venue": 1, "rate": n, "tags": None, "since": begin + timedelta(seconds=n)}
        for n in range(90)
    ]
    harness.push("rates", rates)
    for table in ("rates", "orders"):
        harness.watermark(table, int(begin.replace(tzinfo=UTC).timestamp() * 1000) + 80_000)
    harness.run()
    maintained(harness)
    harness.push(
        "orders", [{"id": n, "venue": 1, "currency": "EUR", "at": begin + timedelta(seconds=n)} for n in range(50)]
    )
    assert sorted((row["id"], row["rate"]) for row in harness.advance()) == [(n, n) for n in range(50)]
    assert read[-1] > 0
    ((_, heavy),) = harness.runner.releasing("converted").heavy._known.values()
    assert heavy is not None


@pytest.mark.thorough
def test_what_a_crash_has_left_is_made_again(spark: SparkSession, tmp_path: Path, read: list[int]) -> None:
    harness, market = settled(spark, tmp_path)
    (folder(harness) / MAKING / "some").mkdir(parents=True)
    maintained(harness)
    assert not (folder(harness) / MAKING).exists()
    market.round()
    assert read[-1] > 0


def test_a_large_release_scans_the_build(
    spark: SparkSession, tmp_path: Path, read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    harness, market = settled(spark, tmp_path)
    maintained(harness)
    monkeypatch.setattr(staging, "SMALL_PROBE", 0)
    market.round()
    assert read == []


def test_a_lake_that_has_moved_keeps_its_copies(spark: SparkSession, tmp_path: Path, read: list[int]) -> None:
    harness, _ = settled(spark, tmp_path / "here")
    copies = maintained(harness).copies
    shutil.move(tmp_path / "here", tmp_path / "there")
    moved = after(harness, NOW.format(lookup=ON), tmp_path / "there")
    assert copies is not None
    assert maintained(moved).copies == Copies(0, 0, copies.size)
    moved.push("orders", [{"id": 99, "venue": 0, "currency": "EUR"}])
    moved.advance()
    assert read[-1] > 0
