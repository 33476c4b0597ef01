"""A power cut at any moment, whatever the disk has then of what was not synced: each acknowledged row is there once,
and the next run goes on to each row once. So it is where a runner has died before the cut, and another has gone on from
what that one had committed."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.cases import at_length
from tests.pipelines.runtime.crashing import Abort
from tests.pipelines.runtime.plays import clicks
from tests.power import Disk, another_process, laid_out
from tidegate.pipelines.testing import Harness

SCRATCH = "_scratch"
"""Where the scripted sources keep what they deliver, as if elsewhere; no part of the lake."""


@dataclass
class Cut:
    """The disk after a power cut, and what had been acknowledged before: items by where they are."""

    files: dict[str, bytes | None]
    acknowledged: Counter[int]


@dataclass
class Story:
    """Clicks and users on a disk that is watched. At `cuts` syncs the power is cut, in a copy; at `kills` the runner
    dies, and another goes on."""

    harness: Harness
    chance: random.Random
    cuts: frozenset[int]
    kills: frozenset[int]
    syncs: int = 0
    acknowledged: Counter[int] = field(default_factory=Counter)
    found: list[Cut] = field(default_factory=list)
    pushed: int = 0

    def at_sync(self, path: str) -> None:
        self.syncs += 1
        if self.syncs in self.cuts:
            for chance in (None, self.chance):
                files = self.disk.after_cut(chance)
                self.found.append(Cut(files, self.acknowledged.copy()))
        if self.syncs in self.kills:
            raise Abort(path)

    def play(self, rounds: int) -> None:
        self.disk = Disk(Path(self.harness.lake.root), self.at_sync)
        with self.disk.watched():
            for _ in range(rounds):
                self.push()
                self.advance()

    def push(self) -> None:
        for _ in range(self.chance.randint(1, 3)):
            user = self.chance.choice([1, 2, 9])
            self.harness.push("click_event", [{"user_id": user, "item_id": self.pushed}])
            self.pushed += 1
        if self.chance.random() < 0.3:
            self.harness.push("user_info", [{"user_id": 1, "gender": "x"}], "+U")

    def advance(self) -> None:
        while True:
            try:
                self.harness.advance()
            except Abort:
                another_process()
                self.harness.restart()
            else:
                self.acknowledged = items(self.harness)
                return


def items(harness: Harness) -> Counter[int]:
    """Every row that is published or quarantined, by its item."""
    rows: list[dict[str, Any]] = [*harness.published("enriched"), *harness.quarantined("enriched")]
    return Counter(row["item_id"] for row in rows)


@pytest.mark.parametrize(
    ("seed", "cuts", "kills"), at_length([(1, 2, 2), *((seed, 12, seed % 4) for seed in range(20))])
)
def test_each_acknowledged_row_is_there_once(
    spark: SparkSession, tmp_path: Path, seed: int, cuts: int, kills: int
) -> None:
    harness = Harness(clicks("LEFT", "quarantine"), spark, tmp_path / "first")
    harness.push("user_info", [{"user_id": 1, "gender": "f"}, {"user_id": 2, "gender": "m"}])
    harness.end_of_snapshot("user_info")
    harness.advance()
    another_process()
    chance, places = random.Random(seed), range(5, 90)
    story = Story(harness, chance, frozenset(chance.sample(places, cuts)), frozenset(chance.sample(places, kills)))
    story.play(2)
    assert story.acknowledged == Counter(range(story.pushed))
    assert len(story.found) == 2 * cuts, story.syncs
    harness.restart()  # so that nobody lives who holds a lease
    for number, cut in enumerate(story.found):
        root = laid_out(cut.files, tmp_path / f"cut{number}" / "lake")
        shutil.rmtree(root / SCRATCH, ignore_errors=True)
        shutil.copytree(Path(harness.lake.root) / SCRATCH, root / SCRATCH)
        again = Harness(harness.pipeline, spark, root.parent)
        there = items(again)
        assert all(there[item] == 1 for item in cut.acknowledged), (number, there, cut.acknowledged)
        again.advance()
        assert items(again) == Counter(range(story.pushed)), number
        again.runner.close()
