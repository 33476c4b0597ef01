"""Watermark alignment through the watermark log (FLIP-182). It needs no server, so it works across sources, pipelines
and runs.

The log row of each landed epoch of a source in a group holds the watermarks of its splits, and its group. The planner
of a member's next epoch reads the newest row of every member, takes the least watermark, and plans no rows of splits
that are more than the drift ahead of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from itertools import takewhile
from typing import Any

from tidegate.pipelines.lake import Lake, SplitWatermark, WatermarkRow
from tidegate.pipelines.runtime.splits import counting, stored_splits
from tidegate.pipelines.watermarks import (
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    AlignmentCoordinator,
    Watermark,
    WatermarkAlignment,
)
from tidegate.pipelines.watermarks.watermark import milliseconds

NO_SPLIT = ""
"""The split name of a source that has no splits yet."""


@dataclass(frozen=True)
class Blocked:
    """A split that gets no range until its group has caught up.

    `since`: ms, UTC. `ahead_ms`: how far it is ahead of the group's least watermark. `by`: the (source, split) that
    holds the group back. `next_rowtime` (ms, UTC): the time of its next row, if that row is too far ahead; None if the
    split itself is.
    """

    split: str
    since: int
    ahead_ms: int
    by: tuple[str, str]
    next_rowtime: int | None = None


@dataclass(frozen=True)
class GroupPosition:
    """A source's position in its group; watermarks and times in ms, UTC.

    Attributes:
        minimum, limit: The group's least watermark, and the greatest that is not too far ahead. Both None if nobody is
            waited for; MIN_TIMESTAMP (and the drift) while a member has emitted nothing.
        blocked: This source's own splits that get no rows.
        ahead: Its splits that go on, are ahead of others, and so hold nobody back.
        absent: The members that have landed nothing.
        reach: The greatest rowtime that its next rows should have, None for any. The source's own slowest split does
            not bound it. Where the source's watermark stays behind its rowtimes, they may go further by as much: by as
            far as it has stayed behind until now, and at least by `delay_ms`, which the table subtracts from its
            source's own watermark.
    """

    group: str
    max_drift_ms: int
    minimum: int | None
    limit: int | None
    held_by: tuple[str, str] | None
    blocked: tuple[Blocked, ...] = ()
    reach: int | None = None
    ahead: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    delay_ms: int = 0

    @property
    def too_far(self) -> frozenset[str]:
        """The blocked splits whose own watermark is beyond the limit. Other blocked splits are still planned, since the
        source knows the time of their next rows."""
        return frozenset(item.split for item in self.blocked if item.next_rowtime is None)

    def to_log(self, idle_timeout_ms: int | None, next_rowtimes: Mapping[str, int] | None = None) -> dict[str, Any]:
        """As stored in the source's log row. `next_rowtimes`: the epoch's `Step.next_rowtimes`."""
        stored = {"idle_timeout_ms": idle_timeout_ms, "next_rowtimes": dict(next_rowtimes or {})}
        return {**asdict(self), **stored}


def next_rowtimes_of(row: WatermarkRow | None) -> dict[str, int]:
    """The rowtime of the next row of each split that alignment held back, by a row of the watermark log."""
    return dict(row.alignment.get("next_rowtimes", {})) if row and row.alignment else {}


@dataclass(frozen=True)
class Members:
    """Which tables are in which group: for the tables of this pipeline `known` (None for no group), for all other
    tables of the lake their newest log row."""

    lake: Lake
    known: Mapping[str, str | None] = field(default_factory=dict)

    def rows(self, group: str) -> Iterator[tuple[str, WatermarkRow | None]]:
        """The members of `group`, each with its newest log row; None for one that has not landed anything."""
        for owner in sorted({*self.lake.watermarks.owners(), *self.known}):
            row = self.lake.watermarks.last(owner)
            stored = row.alignment["group"] if row and row.alignment else None
            if self.known.get(owner, stored) == group:
                yield owner, row


def group_position(
    members: Members,
    source: str,
    alignment: WatermarkAlignment,
    now: int,
    splits: Sequence[SplitWatermark] | None = None,
    next_rowtimes: Mapping[str, int] | None = None,
    delay_ms: int = 0,
) -> GroupPosition:
    """The position of `source` in its group at `now` (ms, UTC).

    `splits` are its own, and `next_rowtimes` what is known of their next rows, if its newest log row is not written
    yet. `delay_ms`: see GroupPosition.
    """
    rows = dict(members.rows(alignment.group))
    following = next_rowtimes_of(rows.get(source)) if next_rowtimes is None else next_rowtimes
    own = counting(stored_splits(rows.get(source)) if splits is None else splits)
    coordinator = AlignmentCoordinator(alignment.group, alignment.max_drift)
    emitted = {owner: _emitted(row, now) for owner, row in rows.items()}
    emitted[source] = _watermarks(own)
    for owner, watermarks in emitted.items():
        for split, watermark in watermarks.items():
            coordinator.report(owner, split, watermark)
    limit = coordinator.limit
    for owner, row in rows.items():
        if owner != source and limit is not None:
            for split, watermark in _held_back(row, emitted[owner], limit).items():
                coordinator.report(owner, split, watermark)
    found = _at_limit(_position(coordinator, source, own, alignment, delay_ms), own, following)
    absent = tuple(owner for owner, row in rows.items() if row is None and owner != source)
    stood = stored_splits(rows.get(source))
    moved = {split.split for split in own} - {old.split for old in stood for split in own if _same(old, split)}
    return replace(found, blocked=_since(found, source, rows, members.lake, moved, now), absent=absent)


def group_position_of(lake: Lake, row: WatermarkRow, now: int) -> GroupPosition | None:
    """The position of the source of a log row at `now`, by the log alone; None outside of a group. A member that had
    landed nothing when the row was written is waited for until it has."""
    if row.alignment is None:
        return None
    group = row.alignment["group"]
    drift = timedelta(milliseconds=row.alignment["max_drift_ms"])
    landed = set(lake.watermarks.owners())
    absent = {owner: group for owner in row.alignment.get("absent", ()) if owner not in landed}
    aligned = WatermarkAlignment(group, drift, timedelta(seconds=1))
    return group_position(Members(lake, absent), row.owner, aligned, now, delay_ms=row.alignment.get("delay_ms", 0))


def _position(
    coordinator: AlignmentCoordinator,
    source: str,
    own: Sequence[SplitWatermark],
    alignment: WatermarkAlignment,
    delay_ms: int,
) -> GroupPosition:
    """The position, without the times since when splits are blocked."""
    drift = milliseconds(alignment.max_drift, "the drift", zero=True)
    slowest = coordinator.slowest
    if slowest is None:
        return GroupPosition(alignment.group, drift, None, None, None, delay_ms=delay_ms)
    (by_source, by_split), minimum = slowest
    by = (str(by_source), str(by_split))
    times = {split.split: split.timestamp for split in own}
    names = sorted(str(split) for owner, split in coordinator.blocked() if owner == source)
    blocked = tuple(Blocked(name, 0, times[name] - minimum, by) for name in names)
    going = [split for split in own if split.split not in names]
    ahead = sorted(split.split for split in going if not _not_aligned(split) and split.timestamp > minimum)
    reach = _reach(coordinator, source, going, delay_ms)
    return GroupPosition(
        alignment.group, drift, minimum, coordinator.limit, by, blocked, reach, tuple(ahead), delay_ms=delay_ms
    )


def _not_aligned(split: SplitWatermark) -> bool:
    return split.ended or split.use_processing_time


def _at_limit(found: GroupPosition, own: Sequence[SplitWatermark], next_rowtimes: Mapping[str, int]) -> GroupPosition:
    """`found`, where splits whose next row is beyond the limit count as blocked, too."""
    if found.minimum is None or found.held_by is None or found.reach is None:
        return found
    more = [
        Blocked(split.split, 0, split.timestamp - found.minimum, found.held_by, next_rowtimes[split.split])
        for split in own
        if split.split in found.ahead and next_rowtimes.get(split.split, found.reach) > found.reach
    ]
    return replace(found, blocked=tuple(sorted((*found.blocked, *more), key=lambda item: item.split)))


def _reach(
    coordinator: AlignmentCoordinator, source: str, going: Sequence[SplitWatermark], delay_ms: int
) -> int | None:
    """The greatest rowtime that the next rows of the splits that go on may have; one for all of them."""
    names = [split.split for split in going] or [NO_SPLIT]
    allowed = [limit for limit in (coordinator.reach(source, name) for name in names) if limit is not None]
    behind = [split.rowtime - split.timestamp for split in going if split.rowtime is not None and _has_emitted(split)]
    return min(allowed) + max([delay_ms, *behind]) if allowed else None


def _has_emitted(split: SplitWatermark) -> bool:
    return not split.use_processing_time and MIN_TIMESTAMP < split.timestamp < MAX_TIMESTAMP


def _same(old: SplitWatermark, new: SplitWatermark) -> bool:
    return (old.split, old.timestamp, old.use_processing_time) == (new.split, new.timestamp, new.use_processing_time)


def _since(
    found: GroupPosition,
    source: str,
    rows: Mapping[str, WatermarkRow | None],
    lake: Lake,
    moved: Set[str],
    now: int,
) -> tuple[Blocked, ...]:
    """The blocked splits, each with the time since when it is blocked: now, if it has `moved` since the source's own
    log row; what that row stores, if it has the split as blocked. Any other was blocked later, by another member: since
    the first row after which the split that holds the group back left it too far behind, or else since the source's own
    row. A split whose next row is beyond the limit is blocked since the log row that knew of that row, or since now."""
    if not found.blocked or found.held_by is None or found.minimum is None:
        return ()
    own, (holder, split), minimum = rows.get(source), found.held_by, found.minimum
    before = {item["split"]: item["since"] for item in own.alignment["blocked"]} if own and own.alignment else {}
    known, landed = next_rowtimes_of(own), now if own is None else own.landed_at
    later = []
    if own is not None and holder != source and any(item.split not in before for item in found.blocked):
        later = [*takewhile(lambda row: row.landed_at > landed, lake.watermarks.newest_first(holder))][::-1]

    def since(item: Blocked) -> int:
        if item.split in moved:
            return now
        if item.split in before:
            return int(before[item.split])
        if item.next_rowtime is not None:
            return landed if item.split in known else now
        behind = minimum + item.ahead_ms - found.max_drift_ms
        seen = ((row.landed_at, _watermarks(counting(stored_splits(row))).get(split)) for row in later)
        return next((at for at, watermark in seen if watermark is not None and watermark.timestamp < behind), landed)

    return tuple(replace(item, since=since(item)) for item in found.blocked)


def _watermarks(splits: Sequence[SplitWatermark]) -> dict[str, Watermark]:
    """The watermarks of splits that are neither idle nor ended; the least possible for a source without splits."""
    if not splits:
        return {NO_SPLIT: Watermark(MIN_TIMESTAMP)}
    return {split.split: split.watermark for split in splits if not split.idle and not split.ended}


def _held_back(row: WatermarkRow | None, emitted: Mapping[str, Watermark], limit: int) -> dict[str, Watermark]:
    """The watermarks of another member's splits that the log has as blocked and that are still beyond the group's
    `limit`: their idle timeout does not run."""
    if row is None or row.alignment is None:
        return {}
    nexts = {item["split"]: item["next_rowtime"] for item in row.alignment["blocked"]}
    return {
        split.split: Watermark(split.timestamp)
        for split in counting(stored_splits(row))
        if split.split in nexts and split.split not in emitted and (nexts[split.split] or split.timestamp) > limit
    }


def _emitted(row: WatermarkRow | None, now: int) -> dict[str, Watermark]:
    """The watermarks in another member's newest log row. Its idle timeout runs even while nobody lands it."""
    splits = counting(stored_splits(row))
    timeout = row.alignment["idle_timeout_ms"] if row and row.alignment else None
    if timeout is not None:
        splits_now = [split for split in splits if split.last_row is None or now - split.last_row < timeout]
        if splits and not splits_now:
            return {}
        splits = splits_now
    return _watermarks(splits)
