"""A power cut at any moment of any command that writes, whatever the disk has then of what was not synced: each
acknowledged row is there once, and the next run goes on to each row once. So it is where a runner has died before the
cut, and another has gone on from what that one had committed."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.cases import at_length
from tests.pipelines.runtime.crashing import Abort
from tests.pipelines.runtime.plays import Play, at_ms, places_of
from tests.pipelines.runtime.processes import functions as fn
from tests.pipelines.runtime.processes.test_processes import SCRIPT as EVENTS
from tests.pipelines.runtime.processes.test_processes import event, wrapped
from tests.power import Disk, another_process, laid_out
from tidegate.pipelines.errors import GateHeld
from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.runtime.epochs import Asked
from tidegate.pipelines.runtime.gate import NoVerdict
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.testing import Harness

SCRATCH = "_scratch"
"""Where the scripted sources keep what they deliver, as if elsewhere; no part of the lake."""

SYNCS = 20
"""At one of about so many syncs of a command the power is cut, and the runner dies."""


@dataclass
class Cut:
    """The disk after a power cut in a command, and the items that had been acknowledged before."""

    command: str
    files: dict[str, bytes | None]
    acknowledged: set[int]


class Story(Play):
    """Orders and rates, by all commands that write. Nothing takes an order back that is published or quarantined."""

    pushed = 0
    insert = "converted"

    def push(self, chance: random.Random) -> None:
        """Orders, some of a currency that no rate was ever there for."""
        for _ in range(chance.randint(1, 3)):
            self.pushed += 1
            self.order(self.pushed, chance.choice(["EUR", "USD", f"X{self.pushed}"]), 10 * self.pushed)
        self.rate("EUR", self.pushed, 10 * self.pushed)
        self.watermarks(10 * self.pushed, 10 * self.pushed)

    def items(self, harness: Harness) -> Counter[int]:
        """Every order that is in its place, by its number."""
        rows = [*harness.published(self.insert), *harness.quarantined(self.insert)]
        return Counter(row["id"] for row in rows)

    def commands(self, chance: random.Random) -> Iterator[tuple[str, Callable[[], object]]]:
        runner, most = lambda: self.harness.runner, 10 * self.pushed
        yield "run", self.harness.advance
        yield "held", lambda: self._held(chance)
        self.rate(f"X{chance.randint(1, self.pushed)}", 7, 0)  # for an order that is quarantined, perhaps
        yield "rates", lambda: runner().advance("rates")
        yield "release", lambda: runner().out_of_quarantine(self.insert, Asked())
        yield "backfill", lambda: runner().backfill(self.insert, (at_ms(0), at_ms(chance.randint(10, most))))
        yield "maintain", lambda: runner().maintenance(timedelta(0)).run()
        yield "discard", lambda: runner().out_of_quarantine(self.insert, Asked(discards=True, because="nobody's"))
        if chance.random() < 0.3:
            yield "resnapshot", lambda: runner().run(resnapshot=["rates"])

    def _held(self, chance: random.Random) -> None:
        """What the gate holds goes on one way or the other."""
        if self.harness.runner.held(self.insert):
            self.harness.runner.resolve_held(self.insert, discard=chance.random() < 0.5, on_unmatched="quarantine")


class Tallied(Story):
    """Events that a process with state and two outputs takes."""

    insert = "evens"

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        columns = "k STRING, number BIGINT, total BIGINT"
        script = compile_script(EVENTS)
        two = script.process(["evens", "odds"], "events", "k", wrapped(fn.Tallied()), [columns, columns])
        self.harness = Harness(two, spark, directory)

    def push(self, chance: random.Random) -> None:
        for _ in range(chance.randint(1, 3)):
            self.pushed += 1
            self.harness.push("events", [event("a", self.pushed)])

    def items(self, harness: Harness) -> Counter[int]:
        found = Counter[int]()
        for name in ("evens", "odds"):
            path = harness.lake.target_path(harness.pipeline.table(name))
            if (path / "_delta_log").is_there():
                found.update(row["number"] for row in lake_rows.read(harness.spark, path).collect())
        return found

    def commands(self, chance: random.Random) -> Iterator[tuple[str, Callable[[], object]]]:
        yield "run", self.harness.advance
        yield "maintain", lambda: self.harness.runner.maintenance(timedelta(0)).run()


@dataclass
class Played:
    """A story on a disk that is watched: in each command that is `chosen` the power is cut, in a copy, and by chance
    the runner dies after that, and another goes on."""

    story: Story
    chance: random.Random
    chosen: frozenset[str] | None
    syncs: int = 0
    cut_at: int = 0
    dies_at: int = 0
    command: str = ""
    acknowledged: set[int] = field(default_factory=set)
    found: list[Cut] = field(default_factory=list)

    def at_sync(self, path: str) -> None:
        self.syncs += 1
        if self.syncs == self.cut_at:
            for chance in (None, self.chance):
                self.found.append(Cut(self.command, self.disk.after_cut(chance), self.acknowledged.copy()))
        if self.syncs == self.dies_at:
            raise Abort(path)

    def play(self, rounds: int) -> None:
        self.disk = Disk(Path(self.story.harness.lake.root), self.at_sync)
        with self.disk.watched():
            for _ in range(rounds):
                self.story.push(self.chance)
                for command, step in self.story.commands(self.chance):
                    self.command, self.syncs = command, 0
                    chosen = self.chosen is None or command in self.chosen
                    self.cut_at = self.chance.randint(1, SYNCS) if chosen else 0
                    self.dies_at = self.chance.choice([0, 0, self.chance.randint(1, SYNCS)]) if chosen else 0
                    self.go_through(step)

    def go_through(self, step: Callable[[], object]) -> None:
        """Do it, by as many runners as it takes."""
        while True:
            try:
                with suppress(GateHeld):
                    step()
            except (Abort, NoVerdict):  # the gate's thread may be the one that dies
                another_process()
                self.story.harness.restart()
            else:
                self.acknowledged |= self.story.items(self.story.harness).keys()
                return


def after(cut: Cut, story: Story, root: Path) -> Harness:
    """Another runner, on what the disk has after a cut."""
    laid_out(cut.files, root)
    shutil.rmtree(root / SCRATCH, ignore_errors=True)
    shutil.copytree(Path(story.harness.lake.root) / SCRATCH, root / SCRATCH)
    return Harness(story.harness.pipeline, story.harness.spark, root.parent, clock=story.harness.clock)


@pytest.mark.parametrize(
    ("policy", "seed", "chosen", "rounds"),
    at_length(
        [
            ("quarantine", 1, frozenset({"run", "release"}), 1),
            *(("quarantine", seed, None, 3) for seed in (2, 3)),
            *(("block", seed, None, 3) for seed in (4, 5)),
            *(("process", seed, None, 5) for seed in (6, 7)),
        ]
    ),
)
def test_each_acknowledged_row_is_there_once(
    spark: SparkSession, tmp_path: Path, policy: str, seed: int, chosen: frozenset[str] | None, rounds: int
) -> None:
    first, chance = tmp_path / "first", random.Random(seed)
    story = Tallied(spark, first) if policy == "process" else Story(spark, first, policy)
    if policy != "process":
        story.rate("EUR", 1, 0)
        story.rate("USD", 2, 0)
    another_process()
    played = Played(story, chance, chosen)
    played.play(rounds)
    everything = set(range(1, story.pushed + 1))
    assert played.acknowledged == everything or policy == "block"  # what the gate holds in the end is in no place yet
    assert played.found
    print(Counter(cut.command for cut in played.found))
    story.harness.restart()  # so that nobody lives who holds a lease
    for number, cut in enumerate(played.found):
        again = after(cut, story, tmp_path / f"cut{number}" / "lake")
        there = story.items(again)
        assert all(there[item] == 1 for item in cut.acknowledged), (number, cut.command, there, cut.acknowledged)
        with suppress(GateHeld):
            again.advance()
        while again.runner.held(story.insert):
            again.runner.resolve_held(story.insert, on_unmatched="quarantine")
            with suppress(GateHeld):
                again.advance()
        assert story.items(again) == Counter(everything), (number, cut.command)
        if policy != "process":
            places_of(again)
        again.runner.close()
