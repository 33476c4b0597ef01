"""A group of sources that can tell times, whatever their rows: nothing waits for ever, and nothing overshoots."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tidegate.pipelines.lake import SplitWatermark, WatermarkRow
from tidegate.pipelines.runtime.landing.alignment import GroupPosition, Members, group_position
from tidegate.pipelines.watermarks import MIN_TIMESTAMP, WatermarkAlignment

DRIFT = 10
GROUP = WatermarkAlignment("g", timedelta(milliseconds=DRIFT), timedelta(seconds=1))


@dataclass
class Split:
    """Rows by their times (ms); a row's watermark is `behind` less, and one without a time says nothing."""

    times: list[int | None]
    behind: int
    ends: bool
    read: int = 0

    @property
    def left(self) -> bool:
        return self.read < len(self.times)

    def watermark_of(self, name: str) -> SplitWatermark:
        seen = [at for at in self.times[: self.read] if at is not None]
        watermark = max(seen) - self.behind if seen else MIN_TIMESTAMP
        over = self.ends and not self.left
        return SplitWatermark(name, watermark, False, ended=over, rowtime=max(seen, default=None))


@dataclass
class Group:
    """Sources that take turns, as `Runner.advance_all` has it."""

    sources: dict[str, dict[str, Split]]
    logged: dict[str, WatermarkRow] = field(default_factory=dict)

    @property
    def watermarks(self) -> Any:
        return self

    def rows(self, owner: str) -> list[WatermarkRow]:
        return [self.logged[owner]]

    newest_first = rows

    def watermark_of(self, source: str) -> list[SplitWatermark]:
        return [split.watermark_of(name) for name, split in self.sources[source].items()]

    def stands(self, source: str) -> GroupPosition:
        return group_position(Logged(self), source, GROUP, 0)  # type: ignore[arg-type]

    def turn(self, source: str) -> bool:
        """An epoch of `source`, planned as a source plans that can tell times."""
        found = self.stands(source)
        blocked, moved = {item.split for item in found.blocked}, False
        for name, split in self.sources[source].items():
            if name in blocked:
                continue
            ahead = name in found.ahead
            first = split.read
            while split.left and self.may(split, found.reach, ahead or split.read > first):
                split.read, moved = split.read + 1, True
        if moved or source not in self.logged:
            splits = [asdict(split) for split in self.watermark_of(source)]
            self.logged[source] = WatermarkRow(source, 1, 1, 0, 0, 0, False, splits=splits)
        return moved

    def may(self, split: Split, reach: int | None, strictly: bool) -> bool:
        at = split.times[split.read]
        return not strictly or reach is None or at is None or at <= reach


@dataclass(frozen=True)
class Logged(Members):
    lake: Any

    def rows(self, group: str) -> Iterator[tuple[str, WatermarkRow | None]]:
        for name in sorted(self.lake.sources):
            yield name, self.lake.logged.get(name)


_times = st.lists(st.one_of(st.integers(0, 60), st.integers(0, 10_000), st.none()), max_size=6)
_split = st.builds(Split, _times, st.sampled_from([0, 5, 300]), st.booleans())
_source = st.dictionaries(st.sampled_from("abc"), _split, min_size=1, max_size=3)
_groups = st.dictionaries(st.sampled_from("xyz"), _source, min_size=1, max_size=3)


@given(_groups)
def test_who_holds_the_group_has_read_all_that_it_has(sources: dict[str, dict[str, Split]]) -> None:
    group = Group(sources)
    turns = 0
    while any([group.turn(name) for name in sorted(sources)]):  # a list: each of them has its turn
        turns += 1
        assert turns < 100
    for name in sources:
        found = group.stands(name)
        for split_name, split in sources[name].items():
            reached = split.watermark_of(split_name)
            if split.left:
                assert found.minimum is not None
                assert reached.timestamp > found.minimum
                at = split.times[split.read]
                assert split_name in {item.split for item in found.blocked} or (at or 0) > (found.reach or 0)
    if all(split.ends for splits in sources.values() for split in splits.values()):
        assert not any(split.left for splits in sources.values() for split in splits.values())


@given(_groups)
def test_no_row_of_a_split_that_others_are_behind_is_past_the_limit(sources: dict[str, dict[str, Split]]) -> None:
    for splits in sources.values():
        for split in splits.values():
            split.behind = 0
    group = Group(sources)
    moving = True
    while moving:
        moving = False
        for name in sorted(sources):
            before = {split_name: split.watermark_of(split_name) for split_name, split in sources[name].items()}
            found = group.stands(name)
            moving = group.turn(name) or moving
            for split_name, split in sources[name].items():
                after = split.watermark_of(split_name)
                if split_name in found.ahead and after.timestamp > before[split_name].timestamp:
                    assert found.minimum is not None
                    assert after.timestamp <= found.minimum + DRIFT
