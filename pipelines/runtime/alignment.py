"""Watermark alignment through the watermark log (FLIP-182): no server, so it holds across sources, pipelines and runs.

Every landed epoch of a source in a group leaves its splits' watermarks and its group in its log row. Whoever plans the
next epoch of a member reads the newest row of every member, takes the least watermark, and gives no range to splits
that are more than the drift ahead of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any

from pipelines.lake import Lake, SplitWatermark, WatermarkRow
from pipelines.runtime.splits import counting, stored_splits
from pipelines.watermarks import MIN_TIMESTAMP, AlignmentCoordinator, Watermark, WatermarkAlignment
from pipelines.watermarks.duration import milliseconds

NO_SPLIT = ""
"""Stands for the splits of a source that has not shown any yet."""


@dataclass(frozen=True)
class Blocked:
    """A split that gets no range until its group has caught up.

    `since`: ms, UTC. `ahead_ms`: of the group's least watermark. `by`: (source, split) that holds the group.
    """

    split: str
    since: int
    ahead_ms: int
    by: tuple[str, str]


@dataclass(frozen=True)
class GroupStanding:
    """Where a source stands in its group.

    `minimum` is the group's least watermark and `limit` how far this source may go (ms); None when nobody is waited
    for, MIN_TIMESTAMP (and the drift) while a member has told nothing. `blocked` are this source's own splits.
    """

    group: str
    max_drift_ms: int
    minimum: int | None
    limit: int | None
    held_by: tuple[str, str] | None
    blocked: tuple[Blocked, ...] = ()

    def to_log(self, idle_timeout_ms: int | None) -> dict[str, Any]:
        """As the source's log row has it."""
        found = asdict(self)
        return {**found, "idle_timeout_ms": idle_timeout_ms}


@dataclass(frozen=True)
class Members:
    """Who is in which group. `known`: the tables of this pipeline and their group, None for none; it is they that say
    whether such a table is a member. Of all other tables of the lake their newest log row says it."""

    lake: Lake
    known: Mapping[str, str | None] = field(default_factory=dict)

    def rows(self, group: str) -> Iterator[tuple[str, WatermarkRow | None]]:
        """The members of `group`, each with its newest log row; None for one that has not landed anything."""
        for owner in sorted({*self.lake.watermarks.owners(), *self.known}):
            row = self.lake.watermarks.last(owner)
            told = row.alignment["group"] if row and row.alignment else None
            if self.known.get(owner, told) == group:
                yield owner, row


def standing(
    members: Members,
    source: str,
    alignment: WatermarkAlignment,
    now: int,
    splits: Sequence[SplitWatermark] | None = None,
) -> GroupStanding:
    """Where `source` stands in its group at `now` (ms, UTC).

    `splits` are its own, where its newest log row is not written yet.
    """
    rows = dict(members.rows(alignment.group))
    own = rows.get(source)
    coordinator = AlignmentCoordinator(alignment.group, alignment.max_drift)
    told = {owner: _told(row, now) for owner, row in rows.items()}
    told[source] = _words(counting(stored_splits(own) if splits is None else splits))
    for owner, words in told.items():
        for split, watermark in words.items():
            coordinator.report(owner, split, watermark)
    return _standing(coordinator, source, told[source], own, alignment, now)


def standing_of(lake: Lake, row: WatermarkRow, now: int) -> GroupStanding | None:
    """Where the source of a log row stands at `now`, by the log alone; None outside of a group."""
    if row.alignment is None:
        return None
    drift = timedelta(milliseconds=row.alignment["max_drift_ms"])
    aligned = WatermarkAlignment(row.alignment["group"], drift, timedelta(seconds=1))
    return standing(Members(lake), row.owner, aligned, now)


def _standing(
    coordinator: AlignmentCoordinator,
    source: str,
    words: Mapping[str, Watermark],
    own: WatermarkRow | None,
    alignment: WatermarkAlignment,
    now: int,
) -> GroupStanding:
    drift = milliseconds(alignment.max_drift, "the drift", zero=True)
    slowest = coordinator.slowest
    if slowest is None:
        return GroupStanding(alignment.group, drift, None, None, None)
    (by_source, by_split), minimum = slowest
    by = (str(by_source), str(by_split))
    before = {item["split"]: item["since"] for item in own.alignment["blocked"]} if own and own.alignment else {}
    names = sorted(str(split) for owner, split in coordinator.blocked() if owner == source)
    blocked = tuple(Blocked(name, before.get(name, now), words[name].timestamp - minimum, by) for name in names)
    return GroupStanding(alignment.group, drift, minimum, coordinator.limit, by, blocked)


def _words(splits: Sequence[SplitWatermark]) -> dict[str, Watermark]:
    """What splits report; one that is idle or has ended reports nothing, a source without splits that it is behind."""
    if not splits:
        return {NO_SPLIT: Watermark(MIN_TIMESTAMP)}
    return {
        split.split: Watermark(split.timestamp, split.use_processing_time)
        for split in splits
        if not split.idle and not split.ended
    }


def _told(row: WatermarkRow | None, now: int) -> dict[str, Watermark]:
    """What another member's newest log row reports. Its idle timeout runs on where nobody lands it."""
    splits = counting(stored_splits(row))
    timeout = row.alignment["idle_timeout_ms"] if row and row.alignment else None
    if timeout is not None:
        splits_now = [split for split in splits if split.last_row is None or now - split.last_row < timeout]
        if splits and not splits_now:
            return {}
        splits = splits_now
    return _words(splits)
