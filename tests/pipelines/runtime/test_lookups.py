"""'changelog.lookup': what a release finds in copies is what it finds by a scan, whatever happens to files between."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.lake import delta_log
from pipelines.runtime import lookups
from pipelines.runtime.lookups import FOLDER, MAKING, TOLD, Copies
from pipelines.runtime.maintenance import Maintained
from pipelines.runtime.releasing import staging
from pipelines.testing import Harness

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

    def registered(spark: Any, insert: Any, table: Any, files: Any, pin: Any) -> Any:
        seen.append(len(files))
        return of(spark, insert, table, files, pin)

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
            if harness.pipeline.insert("converted").time == "event":
                for table in ("rates", "orders"):
                    harness.watermark(table, int(self.now.replace(tzinfo=UTC).timestamp() * 1000))
            harness.advance()
        return [self._told(harness) for harness in self.harnesses]

    def _told(self, harness: Harness) -> list[tuple[Any, ...]]:
        rows = [*harness.published("converted"), *harness.quarantined("converted")]
        return sorted((row["id"], row["rate"], str(row["tags"]), row.get("_reason") or "") for row in rows)


@pytest.mark.parametrize("script", [NOW, AT_ROW_TIME], ids=["processing time", "event time"])
@pytest.mark.parametrize("seed", [1, 2])
def test_copies_change_no_row(
    spark: SparkSession, tmp_path: Path, script: str, seed: int, read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.lake.upkeep.SMALL_FILES", 3)
    plain = Harness(script.format(lookup=""), spark, tmp_path / "plain")
    looking = Harness(script.format(lookup=ON), spark, tmp_path / "looking")
    market = Market(seed, plain, looking)
    for number in range(6):
        one, other = market.round()
        assert one == other
        if number % 2:
            assert maintained(looking).copies is not None
        if number == 3:
            looking.restart()
    assert len(one) == market.ids
    assert any(row[1] is not None for row in one)
    assert read
    assert max(read) > 0
    report = looking.verify("converted")
    assert (report.passed, len(report.epochs)) == (True, 6)


def settled(spark: SparkSession, path: Path) -> tuple[Harness, Market]:
    harness = Harness(NOW.format(lookup=ON), spark, path)
    market = Market(7, harness)
    market.round()
    return harness, market


def test_copies_come_and_go_with_their_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness, market = settled(spark, tmp_path)
    files = len(delta_log.all_files(delta_log.opened(harness.lake.table_path("rates"))))  # type: ignore[arg-type]
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
    plain = Harness(NOW.format(lookup=""), spark, tmp_path)
    assert maintained(plain).copies == Copies(0, made.made, 0)
    assert not folder(plain).exists()
    assert maintained(plain).copies is None


@pytest.mark.parametrize("harm", ["a run is gone", "half made", "of another size", "all of it"])
def test_a_copy_that_is_not_whole_is_not_read(spark: SparkSession, tmp_path: Path, read: list[int], harm: str) -> None:
    harness, market = settled(spark, tmp_path)
    maintained(harness)
    kept = next(folder(harness).iterdir())
    whole = len(list(folder(harness).iterdir()))
    if harm == "a run is gone":
        next(kept.glob("*.arrow")).unlink()
    elif harm == "half made":
        (kept / TOLD).unlink()
    elif harm == "of another size":
        (kept / TOLD).write_text((kept / TOLD).read_text().replace('"size": ', '"size": 1'))
    else:
        shutil.rmtree(folder(harness))
    market.round()
    assert read[-1:] == ([whole - 1] if whole > 1 and harm != "all of it" else [])
    assert harness.verify("converted").passed


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
    moved = Harness(NOW.format(lookup=ON), spark, tmp_path / "there")
    assert copies is not None
    assert maintained(moved).copies == Copies(0, 0, copies.size)
    moved.push("orders", [{"id": 99, "venue": 0, "currency": "EUR"}])
    moved.advance()
    assert read[-1] > 0
