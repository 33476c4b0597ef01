"""Who stands where in an alignment group, by hand-written rows of the watermark log; no Spark."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tests.pipelines.runtime.handmade import store
from tidegate.orchestration.console.shown import shown
from tidegate.pipelines.connectors.protocol import SourcePosition, Step
from tidegate.pipelines.lake import Lake, SplitWatermark, WatermarkRow
from tidegate.pipelines.runtime.epochs import source_row
from tidegate.pipelines.runtime.landing.alignment import (
    Blocked,
    GroupPosition,
    Members,
    group_position,
    group_position_of,
)
from tidegate.pipelines.runtime.landing.planning import ALIGNED_ROWS
from tidegate.pipelines.runtime.runner import Runner
from tidegate.pipelines.runtime.status import status
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.watermarks import MIN_TIMESTAMP, WatermarkAlignment

GROUP = WatermarkAlignment("g", timedelta(milliseconds=10), timedelta(seconds=1))
GROUPS = {"a": "g", "b": "g"}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def log(
    lake: Lake,
    table: str,
    *splits: SplitWatermark,
    group: str | None = "g",
    at: int = 0,
    timeout: int | None = None,
    known: dict[str, str | None] | None = None,
    following: dict[str, int] | None = None,
    delay_ms: int = 0,
):
    """The next epoch of `table` as its landing would have logged it."""
    last = lake.watermarks.last(table)
    epoch = last.epoch + 1 if last else 1
    row = WatermarkRow(table, 1, epoch, at, 0, 0, False, flip_epoch=1, splits=[asdict(split) for split in splits])
    if group is not None:
        aligned = WatermarkAlignment(group, GROUP.max_drift, GROUP.update_interval)
        stands = group_position(Members(lake, known or {}), table, aligned, at, splits, following or {}, delay_ms)
        stands = stands.to_log(timeout, following)
        row = WatermarkRow(**{**vars(row), "alignment": stands})
    store(lake, row)


def split(name: str, timestamp: int, **more: Any) -> SplitWatermark:
    return SplitWatermark(name, timestamp, more.pop("use_processing_time", False), **more)


def blocked(lake: Lake, table: str, now: int = 0, known: dict[str, str | None] | None = None) -> list[str]:
    found = group_position(Members(lake, GROUPS if known is None else known), table, GROUP, now)
    return [item.split for item in found.blocked]


def logged(lake: Lake, at: int) -> GroupPosition:
    """Where `a` stands by the log."""
    row = lake.watermarks.last("a")
    assert row is not None
    found = group_position_of(lake, row, at)
    assert found is not None
    return found


def test_a_member_that_has_landed_nothing_holds_the_others_but_not_itself(lake: Lake) -> None:
    assert (blocked(lake, "a"), blocked(lake, "b")) == ([], [])
    log(lake, "a", split("0", 100))
    assert (blocked(lake, "a"), blocked(lake, "b")) == (["0"], [])
    assert group_position(Members(lake, GROUPS), "a", GROUP, 0).held_by == ("b", "")


def test_a_split_beyond_the_least_and_the_drift_is_blocked_and_others_go_on(lake: Lake) -> None:
    log(lake, "b", split("0", 100))
    log(lake, "a", split("0", 110), split("1", 111), split("2", 95))
    assert (blocked(lake, "a"), blocked(lake, "b")) == (["0", "1"], [])
    found = group_position(Members(lake, GROUPS), "a", GROUP, 0)
    assert (found.minimum, found.limit, found.held_by) == (95, 105, ("a", "2"))
    assert [item.ahead_ms for item in found.blocked] == [15, 16]


@pytest.mark.parametrize(
    "slow",
    [
        pytest.param(split("0", 0, idle=True), id="idle"),
        pytest.param(split("0", 0, ended=True), id="ended"),
        pytest.param(split("0", MIN_TIMESTAMP, use_processing_time=True), id="processing time"),
    ],
)
def test_who_is_not_waited_for(lake: Lake, slow: SplitWatermark) -> None:
    log(lake, "b", slow)
    log(lake, "a", split("0", 100))
    assert blocked(lake, "a") == []


def reach(lake: Lake, table: str) -> int | None:
    return group_position(Members(lake, GROUPS), table, GROUP, 0).reach


def test_how_far_rows_may_come_is_counted_in_rowtimes_and_not_by_the_slowest_itself(lake: Lake) -> None:
    log(lake, "a", split("0", 100, rowtime=100))
    log(lake, "b", split("0", 103, rowtime=103))
    assert (reach(lake, "a"), reach(lake, "b")) == (113, 110)
    log(lake, "a", split("0", 100, rowtime=400))  # WATERMARK FOR at AS at - 300 ms
    assert (reach(lake, "a"), reach(lake, "b")) == (413, 110)
    log(lake, "b", split("0", MIN_TIMESTAMP, rowtime=7))  # it has emitted nothing
    assert reach(lake, "b") == 110
    log(lake, "b", split("0", 0, idle=True))
    assert (reach(lake, "a"), reach(lake, "b")) == (None, 110)


def test_a_delay_has_rows_go_further_before_any_has_shown_it(lake: Lake) -> None:
    def reach_of(delay_ms: int) -> int | None:
        return group_position(Members(lake, GROUPS), "a", GROUP, 0, delay_ms=delay_ms).reach

    log(lake, "b", split("0", 100))
    assert (reach_of(0), reach_of(300)) == (110, 410)
    log(lake, "a", split("0", 100, rowtime=401))  # a delay of 300 ms, and the ms after the source's own
    assert (reach_of(300), reach_of(0)) == (411, 411)
    log(lake, "a", split("0", 100, rowtime=50))  # the source has emitted more than the table's own rows
    assert (reach_of(300), reach_of(0)) == (410, 110)


def test_the_log_knows_the_delay(lake: Lake) -> None:
    log(lake, "b", split("0", 100))
    log(lake, "a", split("0", 101), following={"0": 409}, delay_ms=300)
    assert lake.watermarks.last("a").alignment["delay_ms"] == 300  # type: ignore[union-attr, index]
    found = logged(lake, 0)
    assert (found.reach, found.blocked) == (410, ()), "the next row is a second later than its watermark will be"
    log(lake, "a", split("0", 101), following={"0": 411}, delay_ms=300)
    assert [item.next_rowtime for item in logged(lake, 0).blocked] == [411]


def test_only_who_stands_at_the_least_watermark_is_waited_for(lake: Lake) -> None:
    def ahead(table: str) -> tuple[str, ...]:
        return group_position(Members(lake, GROUPS), table, GROUP, 0).ahead

    log(lake, "a", split("0", 100), split("1", 100), split("2", 103), split("3", 111))
    assert ahead("a") == ()  # the other has landed nothing: all are blocked
    log(lake, "b", split("0", 100), split("1", 109), split("2", 105, idle=True), split("3", 105, ended=True))
    assert (ahead("a"), ahead("b")) == (("2",), ("1", "2"))
    assert blocked(lake, "a") == ["3"]
    log(lake, "b", split("0", MIN_TIMESTAMP, use_processing_time=True))
    assert ahead("b") == ()
    log(lake, "a", split("0", 100, idle=True))
    assert (ahead("a"), ahead("b")) == ((), ())


def test_who_stands_at_its_limit_is_reported_until_the_group_lets_its_next_row_come(lake: Lake) -> None:
    def blocked_at(at: int) -> list[tuple[str, int, int, int | None]]:
        found = logged(lake, at)
        assert found.too_far == {"2"}, "who stands at its limit is asked for again"
        return [(item.split, item.since, item.ahead_ms, item.next_rowtime) for item in found.blocked]

    log(lake, "b", split("0", 100))
    following = {"0": 400, "1": 112, "3": 110}
    log(lake, "a", split("0", 100), split("1", 105), split("2", 120), split("3", 101), at=5, following=following)
    assert blocked_at(9) == [("1", 5, 5, 112), ("2", 5, 20, None)], "0 is the slowest, 3 may go on"
    log(lake, "a", split("0", 101), split("1", 105), split("2", 120), split("3", 101), at=20, following={"1": 112})
    assert blocked_at(30)[0] == ("1", 5, 5, 112), "the holder has not moved, so it is since then"
    log(lake, "b", split("0", 101), at=40)
    assert blocked_at(50) == [("1", 5, 4, 112), ("2", 5, 19, None)]
    log(lake, "b", split("0", 103), at=60)
    log(lake, "c", split("0", 102), at=60)
    assert blocked_at(70)[0][0] == "1", "a's own slowest still is at 101"
    log(lake, "a", split("0", 103), split("1", 105), split("2", 120), split("3", 101, ended=True), at=80)
    assert blocked_at(90) == [("2", 5, 18, None)]


def test_several_splits_go_as_far_as_the_least_allows(lake: Lake) -> None:
    log(lake, "b", split("0", 100))
    log(lake, "a", split("0", 90), split("1", 95, rowtime=97), split("2", 101))
    assert reach(lake, "a") == 90 + 10 + 2  # 2 is blocked, 0 holds 1
    log(lake, "a", split("0", 80), split("1", 95, rowtime=97), split("2", 101))
    assert reach(lake, "a") == 95 + 10  # 0 alone goes on: to where the next one is


def test_a_finished_bounded_phase_counts_by_its_greatest_until_others_go_on(lake: Lake) -> None:
    log(lake, "b", split("chunk-0", 5, bounded=True), split("chunk-1", 95, bounded=True))
    log(lake, "a", split("0", 100))
    assert blocked(lake, "a") == []
    log(lake, "b", split("(bounded phase)", 95, bounded=True), split("binlog", 20))
    assert blocked(lake, "a") == ["0"]


def test_members_of_other_pipelines_count_by_their_log_rows(lake: Lake) -> None:
    log(lake, "elsewhere", split("0", 0))
    log(lake, "a", split("0", 100))
    assert blocked(lake, "a", known={"a": "g"}) == ["0"]
    log(lake, "elsewhere", split("0", 0), group="another")
    assert blocked(lake, "a", known={"a": "g"}) == []
    log(lake, "b", split("0", 0))
    assert blocked(lake, "a", known={"a": "g", "b": None}) == []  # this script has taken b out of the group


def test_the_idle_timeout_of_a_member_runs_on_where_nobody_lands_it(lake: Lake) -> None:
    log(lake, "elsewhere", split("0", 0, last_row=1000), timeout=500)
    log(lake, "a", split("0", 100))
    assert blocked(lake, "a", 1499, {"a": "g"}) == ["0"]
    assert blocked(lake, "a", 1500, {"a": "g"}) == []


def test_the_idle_timeout_of_a_member_does_not_run_while_the_group_holds_it_back(lake: Lake) -> None:
    """So the slow one never gets so far that a fast one, which may not go on, is what it should have waited for."""
    log(lake, "a", split("0", 0), at=1000)
    log(lake, "b", split("0", 100, last_row=1000), split("1", 5, last_row=1000), timeout=500, at=1000)
    log(lake, "a", split("0", 80), at=5000)

    def reach(now: int, at: int) -> int | None:
        return group_position(Members(lake, GROUPS), "a", GROUP, now, [split("0", at)]).reach

    assert reach(1400, 80) == 15  # the other split of b is awake
    assert reach(5000, 80) == 110
    assert reach(5000, 90) is None  # b may go on, and does not


def test_how_long_a_split_is_blocked_is_kept_in_the_log(lake: Lake) -> None:
    log(lake, "b", split("0", 0))
    log(lake, "a", split("0", 50), split("1", 0), at=1000)
    log(lake, "a", split("0", 50), split("1", 5), at=2000)
    row = lake.watermarks.last("a")
    assert row.alignment["blocked"] == [
        {"split": "0", "since": 1000, "ahead_ms": 50, "by": ["b", "0"], "next_rowtime": None}
    ]
    assert logged(lake, 9000) == GroupPosition(
        "g", 10, 0, 10, ("b", "0"), (Blocked("0", 1000, 50, ("b", "0")),), reach=10, ahead=("1",)
    )
    log(lake, "b", split("0", 40))
    log(lake, "a", split("0", 50), split("1", 40), at=3000)
    log(lake, "a", split("0", 90), split("1", 40), at=4000)
    assert [item.since for item in group_position(Members(lake), "a", GROUP, 5000).blocked] == [4000]


def test_a_member_that_has_landed_nothing_is_known_by_the_log(lake: Lake) -> None:
    log(lake, "a", split("0", 100), at=1000, known={"a": "g", "b": "g"})
    now = logged(lake, 5000)
    assert (now.held_by, now.absent) == (("b", ""), ("b",))
    assert [(item.split, item.since) for item in now.blocked] == [("0", 1000)]
    log(lake, "b", split("0", 95), at=6000)
    now = logged(lake, 7000)
    assert (now.held_by, now.absent, now.blocked) == (("b", "0"), (), ())
    log(lake, "b", split("0", 95), at=8000, group=None)
    assert logged(lake, 9000).blocked == ()  # it has left the group


def test_a_split_that_others_have_blocked_is_so_since_they_have(lake: Lake) -> None:
    log(lake, "b", split("0", 45), at=500)
    log(lake, "a", split("0", 50), at=1000)

    def since(at: int) -> list[int]:
        return [item.since for item in logged(lake, at).blocked]

    assert since(1500) == []
    log(lake, "b", split("0", 46), at=2000)
    log(lake, "b", split("0", 46), split("1", 0), at=3000)  # a partition that has just come
    log(lake, "b", split("0", 46), split("1", 5), at=4000)
    assert (since(9000), since(10_000)) == ([3000], [3000])
    log(lake, "c", split("0", 3), at=5000)
    assert since(9000) == [5000]
    log(lake, "a", split("0", 50), split("1", 90), at=6000)
    assert since(9000) == [5000, 6000]


def test_status_tells_who_is_blocked_by_whom_and_for_how_long(lake: Lake) -> None:
    log(lake, "b", split("0", 0), split("1", 9, idle=True))
    log(lake, "a", split("0", 50), split("1", 4), at=1000, following={"1": 25_000})
    for table in ("a", "b"):
        store(lake, source_row(table, 1, 1, 0, Step({})))
    found = status(lake, clock=lambda: 61_000)
    positions = {source.table: source for source in found.sources}
    assert positions["a"].blocked == (Blocked("0", 1000, 50, ("b", "0")), Blocked("1", 1000, 4, ("b", "0"), 25_000))
    assert (positions["b"].blocked, positions["b"].idle_splits) == ((), ("1",))
    aligned = found.to_json()["sources"][0]["aligned"]
    assert (aligned["group"], aligned["blocked"][0]["by"]) == ("g", ["b", "0"])
    assert [item["next_rowtime"] for item in aligned["blocked"]] == [None, 25_000]
    console = Console(width=200, file=io.StringIO(), record=True)
    for part in shown(found):
        console.print(part)
    text = console.export_text()
    assert "a waits for its group g" in text
    assert "split 0: blocked for 60.0 s" in text
    assert "ahead of b split 0" in text
    assert "split 1: at its limit for 60.0 s, its next row is 25.0 s ahead of b split 0" in text
    assert "b, idle: 1" in text


@pytest.mark.parametrize(
    ("group", "option", "most"),
    [("g", "", ALIGNED_ROWS), ("g", ", 'scan.max-rows-per-epoch' = '7'", 7), ("alone", "", None), (None, "", None)],
)
def test_an_epoch_has_a_bound_where_a_group_is_to_be_waited_for(
    lake: Lake, group: str | None, option: str, most: int | None
) -> None:
    text = "CREATE TABLE {0} (at TIMESTAMP_LTZ(3), WATERMARK FOR at AS at) WITH ('connector' = 'datagen'{1});"
    aligned = ", 'scan.watermark.alignment.group' = '{0}', 'scan.watermark.alignment.max-drift' = '1 s'"
    tables = text.format("a", option + (aligned.format(group) if group else "")) + text.format("b", aligned.format("g"))
    kept = "CREATE TABLE kept_{0} (at TIMESTAMP_LTZ(3)) WITH ('connector' = 'scripted');"
    inserts = "".join(kept.format(name) + f"INSERT INTO kept_{name} SELECT at FROM {name};" for name in "ab")
    landing = Runner(compile_script(tables + inserts), lake, environment={}).landing("a")
    with landing.opened(1) as (_, context):
        assert landing.planner.request(context, SourcePosition(), {}, 0).max_rows == most


@pytest.mark.parametrize(
    ("phases", "flipped", "held"), [(True, False, False), (True, True, True), (False, False, True)]
)
def test_a_source_without_phases_may_be_held_back_before_its_flip(
    lake: Lake, phases: bool, flipped: bool, held: bool
) -> None:
    options = (
        "'connector' = 'scripted', 'scan.watermark.alignment.group' = 'g', 'scan.watermark.alignment.max-drift' = "
    )
    text = "CREATE TABLE a (at TIMESTAMP_LTZ(3), WATERMARK FOR at AS at) WITH ({0}'10 ms', 'phases' = '{1}');"
    kept = "CREATE TABLE kept (at TIMESTAMP_LTZ(3)) WITH ('connector' = 'scripted'); INSERT INTO kept SELECT at FROM a;"
    made = compile_script(text.format(options, str(phases).lower()) + kept)
    landing = Runner(made, lake, environment={}).landing("a")
    with landing.opened(1) as (_, context):
        log(lake, "a", split("0", 100))
        log(lake, "b", split("0", 10))
        request = landing.planner.request(context, SourcePosition(flipped=flipped), {}, 0)
        assert landing.planner.stops(request, 1) == held
        assert request.blocked == ({"0"} if held else set())


# --- a group of sources that can tell times, whatever their rows: nothing waits for ever, and nothing overshoots ------


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
                    assert after.timestamp <= found.minimum + 10
