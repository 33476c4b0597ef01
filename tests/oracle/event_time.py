"""The event-time temporal join in plain Python, row by row: what DESIGN's rulings say, with nothing of Tidegate in it.

A test tells it the same messages, in the order in which they land. Times are ms, UTC.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

BEGINNING = -(2**63)


@dataclass
class Input:
    """One table. `delay`: how far its watermark stays behind the greatest time of a split; the table's is the least of
    its splits, and never goes back. `late` counts the late rows since it has flipped."""

    splits: Iterable[str]
    delay: int
    watermark: int = BEGINNING
    late: int = 0
    flipped: bool = True
    emitted: dict[str, int] = field(default_factory=dict)
    pending: list[tuple[str, int, bool]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.emitted = dict.fromkeys(self.splits, BEGINNING)

    def row(self, split: str, at: int, *, tells: bool = True) -> None:
        """A row of this time is in the split, to land with the next epoch. `tells`: the watermark looks at its time."""
        self.pending.append((split, at, tells))

    def land(self) -> None:
        """The rows since the last call land, in one epoch: late is what is not past what was emitted before."""
        self.late += sum(at <= self.watermark for _, at, _ in self.pending if self.flipped)
        for split, at, tells in self.pending:
            self.emitted[split] = max(self.emitted[split], at - self.delay if tells else BEGINNING)
        self.pending.clear()
        self.watermark = max(self.watermark, min(self.emitted.values()))


@dataclass
class Build(Input):
    """A build side: what was said of each key, by time, then in the order of its coming; None ends it."""

    versions: dict[Hashable, list[tuple[int, int, Any]]] = field(default_factory=dict)
    number: int = 0

    def change(self, split: str, key: Hashable, at: int, value: Any, *, tells: bool = True) -> None:
        """A version begins, or ends where `value` is None. `tells` is as in `row`."""
        self.row(split, at, tells=tells)
        self.number += 1
        self.versions.setdefault(key, []).append((at, self.number, value))

    def at(self, key: Hashable, time: int) -> Any:
        """The value at `time`; None where there is none."""
        valid = [version for version in self.versions.get(key, ()) if version[0] <= time]
        return max(valid)[2] if valid else None


@dataclass
class Probe(Input):
    """A probe side: the rows that wait, (number, time, the key that it looks for in each build)."""

    waiting: list[tuple[int, int, Mapping[str, Hashable]]] = field(default_factory=list)

    def add(self, split: str, number: int, at: int, **keys: Hashable) -> None:
        """A row with a key for each build, by the build's name."""
        self.row(split, at)
        self.waiting.append((number, at, keys))


@dataclass
class Join:
    """A LEFT join of one probe with builds, in their order."""

    probe: Probe
    builds: Mapping[str, Build]
    reached: int = BEGINNING

    def release(self) -> list[tuple[Any, ...]]:
        """All inputs land, then what they have reached leaves: (number, value of each build), sorted."""
        inputs = [self.probe, *self.builds.values()]
        for item in inputs:
            item.land()
        if not all(build.flipped for build in self.builds.values()):
            return []
        self.reached = max(self.reached, min(item.watermark for item in inputs))
        due = [row for row in self.probe.waiting if row[1] <= self.reached]
        self.probe.waiting = [row for row in self.probe.waiting if row[1] > self.reached]
        return sorted(
            (number, *(build.at(keys[name], at) for name, build in self.builds.items())) for number, at, keys in due
        )
