"""Where the rows are: of every landed probe row, which one of four places it is in, counted from control tables alone.

landed = published + quarantined + dropped + waiting        (per INSERT, exactly)
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from pipelines.lake import Lake, WatermarkRow
from pipelines.runtime.history import ReleasedEpoch
from pipelines.runtime.plans import ReleasePlan
from pipelines.runtime.quarantine.kept import kept_out


@dataclass(frozen=True)
class WhereRowsAre:
    """The landed rows of one INSERT's probe.

    Attributes:
        landed: rows of the probe's generation that the INSERT reads, by the watermark log.
        matched: published rows that every build had a version for.
        null_extended: published rows without one, by `why@alias` (policy `publish`, LEFT).
        quarantined: rows that were kept out, by `why@alias`, `violated:constraint`, `time-null` or `discarded`.
        released_again: rows that were kept out once, by the same reasons, until later epochs joined them again: they
            are counted where those have put them.
        dropped: rows that WHERE (`where`) or INNER (`why@alias`, policy `publish`) left out.
        waiting: not released yet, or in an epoch that is not published; `held` of them in one that the gate holds.
    """

    insert: str
    probe: str
    generation: int
    landed: int
    matched: int = 0
    null_extended: Mapping[str, int] = field(default_factory=dict)
    quarantined: Mapping[str, int] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    waiting: int = 0
    held: int = 0
    released_again: Mapping[str, int] = field(default_factory=dict)

    @property
    def published(self) -> int:
        return self.matched + sum(self.null_extended.values())

    @property
    def kept_out(self) -> int:
        """Rows of the quarantine's table: it keeps those that were released again."""
        return sum(self.quarantined.values()) + sum(self.released_again.values())

    @property
    def accounted(self) -> int:
        """Rows that are in one of the places."""
        return self.published + sum(self.quarantined.values()) + sum(self.dropped.values()) + self.waiting

    @property
    def balanced(self) -> bool:
        """Whether every landed row is in exactly one place."""
        return self.accounted == self.landed


def where_rows_are(
    lake: Lake, insert: str, probe: str, epochs: Sequence[ReleasedEpoch], generation: int | None = None
) -> WhereRowsAre:
    """Count the rows of `probe` for one INSERT, whose epochs are `epochs`.

    `generation` of the probe is that of the newest plan; without a plan it is the given or the newest one.
    """
    if epochs:
        generation = epochs[-1].plan.probe_generation
    elif generation is None:
        newest = lake.watermarks.last(probe)
        generation = newest.generation if newest else 1
    log = lake.watermarks.rows(probe, generation=generation)
    matched, extended, dropped = 0, Counter[str](), Counter[str]()
    released = 0
    for epoch in epochs:
        if not epoch.published or epoch.staged is None:
            continue
        released = max(released, epoch.plan.upto)
        counts = epoch.staged.counts
        if epoch.plan.process is not None:  # the function has taken them; what it gave are other rows
            matched += counts.get("processed", 0)
            dropped.update(_reasons(counts, "dropped:"))
            continue
        matched += counts.get("matched", 0)
        if epoch.plan.on_unmatched == "publish":
            extended.update(_reasons(counts, "unmatched:"))
        dropped.update(_reasons(counts, "dropped:"))
    quarantined, again = Counter[str](), Counter[str]()
    for item in kept_out(epochs):
        if item.plan.process is not None:  # rows of its function's own
            continue
        if item.state == "released":
            again[item.short] += item.rows
        else:
            quarantined["discarded" if item.state == "discarded" else item.short] += item.rows
    held = sum(waiting_rows(log, epoch.plan) for epoch in epochs if epoch.state == "held")
    in_time = [landed_rows(log, epoch.plan) for epoch in epochs if epoch.published and epoch.plan.time is not None]
    waiting = [row.rows for row in log if in_time or row.epoch > released]
    return WhereRowsAre(
        insert=insert,
        probe=probe,
        generation=generation,
        landed=sum(row.rows for row in log),
        matched=matched,
        null_extended=dict(extended),
        quarantined=dict(quarantined),
        dropped=dict(dropped),
        waiting=sum(waiting) - sum(in_time),
        held=held,
        released_again=dict(again),
    )


def left_waiting(lake: Lake, epochs: Sequence[ReleasedEpoch]) -> list[int | None]:
    """How many rows each of these epochs has left waiting: they had landed before its plan's instant, and neither it
    nor an epoch before it takes them. Those of a held epoch are its own, and none of them. Of a process, rows of all
    inputs.

    From plans and watermark logs alone; None where they do not tell it exactly.
    """
    logs: dict[tuple[str, int], _Landed | None] = {}
    found: list[int | None] = []
    for plan in (epoch.plan for epoch in epochs):
        taken = [(plan.probe, plan.probe_generation, plan.upto)]
        if plan.process is not None:
            taken = [(span.table, span.generation, span.upto) for span in plan.process.inputs]
        left: int | None = 0
        for table, generation, upto in taken:
            if (table, generation) not in logs:
                logs[table, generation] = _Landed.of(lake.watermarks.rows(table, generation=generation))
            log = logs[table, generation]
            rows = None if log is None else log.left_by(plan, upto)
            left = None if left is None or rows is None else left + rows
        found.append(left)
    return found


@dataclass(frozen=True)
class _Landed:
    """The log of one generation. `at`: when the first n + 1 epochs had landed (ms, UTC); `rows`: how many rows the
    first n have."""

    at: Sequence[int]
    rows: Sequence[int]

    @classmethod
    def of(cls, log: Sequence[WatermarkRow]) -> _Landed | None:
        """None where an epoch is missing."""
        if [row.epoch for row in log] != list(range(1, len(log) + 1)):
            return None
        rows = accumulate((row.rows for row in log), initial=0)
        return cls(list(accumulate((row.landed_at for row in log), max)), list(rows))

    def left_by(self, plan: ReleasePlan, upto: int) -> int | None:
        """The rows that a plan has left, which takes epochs up to `upto`, or in event time some rows of them."""
        # What a plan takes had landed, whatever another machine's clock said of when.
        seen = max(bisect_left(self.at, plan.instant), upto)
        if seen >= len(self.rows):
            return None
        gone = self.rows[upto] if plan.time is None else plan.time.earlier + plan.time.rows
        return self.rows[seen] - gone if gone <= self.rows[seen] else None


def rows_in_words(number: int) -> str:
    """1 row, 2,000 rows."""
    return "1 row" if number == 1 else f"{number:,} rows"


def rows_between(log: Iterable, after: int, upto: int) -> int:
    """Rows of a watermark log with after < epoch <= upto."""
    return sum(row.rows for row in log if after < row.epoch <= upto)


def released_rows(log: Iterable, plan: ReleasePlan) -> int:
    """The probe rows that a plan takes, with those that it takes again."""
    if plan.from_quarantine is not None:
        return sum(lot.rows for lot in plan.lots)
    if plan.time is None:
        return rows_between(log, plan.after, plan.upto)
    return plan.time.rows + (plan.backfill.rows_again if plan.backfill else 0)


def landed_rows(log: Iterable, plan: ReleasePlan) -> int:
    """Of them those that it takes as they have landed, and not out of the quarantine of epochs that stay."""
    return released_rows(log, plan) - sum(lot.rows for lot in plan.lots)


def waiting_rows(log: Iterable, plan: ReleasePlan) -> int:
    """The probe rows that wait until a plan is published: what it takes again is still where it was."""
    return landed_rows(log, plan) if plan.time is None else plan.time.rows


def _reasons(counts: Mapping[str, int], prefix: str) -> dict[str, int]:
    return {name.removeprefix(prefix): number for name, number in counts.items() if number and name.startswith(prefix)}
