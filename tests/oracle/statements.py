"""What each target of a script holds, in plain Python, given the plans: which rows each epoch took follows from how far
it read and which watermark it had reached, and what they met from its pins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.oracle.scripts import Row, Script, Statement, leaves
from tidegate.pipelines.runtime.epochs import ReleasePlan
from tidegate.pipelines.runtime.epochs.plan import Taken


class Version(NamedTuple):
    """A build's row, in the order of its coming; `deleted` ends the key's version. `epoch`: that in which it landed."""

    k: int
    v: int
    ts: int
    deleted: bool
    epoch: int = 0


class Landed(NamedTuple):
    """A row, the epoch that it came with, what tells it from every other row of its table, its split and offset, and
    the epoch that it was taken with first."""

    epoch: int
    row: Row
    key: tuple[object, ...]
    place: tuple[str, int] = ("", 0)
    first: int = 0

    @property
    def order(self) -> tuple[int, int, tuple[str, int]]:
        """Among the versions that a target has of a key."""
        return self.first, -1 if self.row.ts is None else self.row.ts, self.place


@dataclass
class Fate:
    """What has become of a row in a statement: the epoch that took it last, and its result there (`Statement.result`).
    `row`: what was taken; None where UNNEST, or a WHERE before it, left it out. `place`: its split, after the epoch
    that it had come with, and offset. `first`: the epoch that took it first."""

    row: Row | None
    number: int
    place: tuple[str, int]
    epoch: int = 0
    first: int = 0
    result: Row | str = "dropped"


@dataclass
class Model:
    """All tables of a script. `published`: of each statement the plans that were published, in order; `windows`: what
    the log of a window's table said (epoch -> watermark, in ms after the start)."""

    script: Script
    rows: dict[str, list[Landed]]
    versions: Mapping[str, Sequence[Version]]
    published: Mapping[str, Sequence[ReleasePlan]]
    start: int
    fates: dict[str, dict[tuple[object, ...], Fate]] = field(default_factory=dict)
    quarantined: dict[str, list[tuple[int, Row]]] = field(default_factory=dict)
    first: dict[str, list[tuple[int, Row]]] = field(default_factory=dict)

    def run(self, statement: Statement) -> None:
        """Take a statement through its plans; those that it reads went before."""
        fates, quarantined = self.fates.setdefault(statement.target, {}), list[tuple[int, Row]]()
        self.first[statement.target] = []
        for plan in self.published[statement.target]:
            gone = [each for each in quarantined if any(low <= each[0] <= high for low, high in plan.replaces)]
            quarantined = [each for each in quarantined if each not in gone]
            for fate in self._taken(statement, plan, fates):
                again, fate.epoch = bool(fate.epoch), plan.epoch
                fate.first = fate.first or plan.epoch
                if fate.row is None:
                    continue
                if not again:
                    self.first[statement.target].append((plan.epoch, fate.row))
                fate.result = self._result(statement, plan, fate)
                if isinstance(fate.result, Row):
                    fate.result = fate.result._replace(late=fate.row.late or plan.out_of_quarantine)
                elif fate.result == "quarantined":
                    kept = statement.mapped(fate.number, fate.row)
                    assert kept is not None
                    quarantined.append((plan.epoch, kept))
        self.quarantined[statement.target] = quarantined
        self.rows[statement.target] = [
            Landed(fate.epoch, fate.result, key, fate.place, fate.first)
            for key, fate in fates.items()
            if isinstance(fate.result, Row)
        ]

    def _taken(self, statement: Statement, plan: ReleasePlan, fates: dict[tuple[object, ...], Fate]) -> Iterator[Fate]:
        if plan.out_of_quarantine:
            taken = [fate for fate in fates.values() if fate.result == "quarantined" and self._may_match(plan, fate)]
            spans = [(lot.first, lot.last) for lot in plan.joined]
        else:
            taken, spans = list(fates.values()), list(plan.replaces)
        yield from [fate for fate in taken if any(low <= fate.epoch <= high for low, high in spans)]
        for number, (table, _) in enumerate(leaves(statement.tree)):
            item = plan.takes[number]
            for epoch, row, key, (split, offset), _ in self.rows[table]:
                begin = f"{number + 1} {table}/" if statement.united else ""
                due = self._ahead(item, epoch, row) if plan.looks_back else epoch <= item.upto and self._due(plan, row)
                for element, entry in enumerate(statement.entries(number, row) if due else ()):
                    if (number, element, *key) not in fates:
                        place = f"{epoch:010}/{begin}{split}", offset * 1000 + element
                        yield fates.setdefault((number, element, *key), Fate(entry, number, place))

    @staticmethod
    def _may_match(plan: ReleasePlan, fate: Fate) -> bool:
        """Whether a quarantined row could ever be published: in event time, one without a time cannot."""
        return fate.row is not None and (plan.bounds is None or fate.row.ts is not None)

    def _due(self, plan: ReleasePlan, row: Row) -> bool:
        """Whether a row's time has come."""
        return row.ts is None or plan.bounds is None or row.ts + self.start <= plan.watermark

    def _ahead(self, item: Taken, epoch: int, row: Row) -> bool:
        """Whether a backfill takes a row that nothing has taken yet: up to the watermark of then, which no plan has."""
        areas = [area for part in item.fresh for area in part.areas if area.after < epoch <= area.upto]
        return row.ts is not None and any(area.low < 1000 * (row.ts + self.start) <= area.high for area in areas)

    def _result(self, statement: Statement, plan: ReleasePlan, fate: Fate) -> Row | str:
        pins = {pin.table: pin.epoch for pin in plan.pins}

        def found(build: str, row: Row) -> int | None:
            if build in self.rows:
                return self._version(build, row, pins[build], event=statement.in_event_time)
            versions = [each for each in self.versions[build] if each.k == row.k and each.epoch <= pins[build]]
            if statement.in_event_time:
                assert row.ts is not None
                versions = sorted((each for each in versions if each.ts <= (row.ts or 0)), key=lambda each: each.ts)
            return versions[-1].v if versions and not versions[-1].deleted else None

        assert fate.row is not None
        result = statement.result(fate.number, fate.row, found, plan.on_unmatched)
        return "quarantined" if plan.discards and result != "dropped" else result

    def _version(self, target: str, probe: Row, pin: int, *, event: bool) -> int | None:
        """The `id` of the row of a target that is valid for a probe's row: of its key, the newest one."""
        versions = [each for each in self.rows[target] if each.row.k == probe.k and each.epoch <= pin]
        if event:
            assert probe.ts is not None
            past = [(each.row.ts, each) for each in versions if each.row.ts is not None and each.row.ts <= probe.ts]
            versions = [each for _, each in sorted(past, key=lambda pair: (pair[0], pair[1].order))]
        else:
            versions.sort(key=lambda each: each.order)
        return versions[-1].row.id if versions else None

    def counted(self, statement: Statement, reached: Mapping[int, int]) -> list[tuple[int, int, int, int]]:
        """The rows of a window's target. `reached`: of its table's log, epoch -> watermark in ms. A row is late where
        its window's end was reached with the epoch before its own."""
        found: Counter[tuple[int, int]] = Counter()
        assert isinstance(statement.tree, str)
        for epoch, row, *_ in self.rows[statement.tree]:
            if row.ts is None:
                continue
            before = max((each for each in reached if each < epoch), default=None)
            end = row.ts - row.ts % statement.window + statement.window
            if before is None or end + self.start > reached[before]:
                found[row.k, end] += 1
        return sorted((k, k, number, end) for (k, end), number in found.items())
