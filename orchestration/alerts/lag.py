"""A source that is too far behind: by what the lake says of its landed epochs, and by what the source itself says of
what has not landed, so that nobody has to run it for that."""

from __future__ import annotations

from dataclasses import dataclass

import dagster as dg
from dagster._core.scheduler.instigation import InstigatorType

from tidegate.orchestration.alerts.incident import Incident
from tidegate.orchestration.alerts.logs import ANSWER_WITHIN, declared
from tidegate.orchestration.alerts.options import AlertOptions, in_ms
from tidegate.orchestration.alerts.watched import WatchedTable, last_run, opened, positions
from tidegate.orchestration.text import moment, seconds
from tidegate.pipelines.commands import NextCommand
from tidegate.pipelines.connectors.protocol import Unread
from tidegate.pipelines.lake import Lake, WatermarkRow
from tidegate.pipelines.lake.leases import read_leases
from tidegate.pipelines.lake.stream import Stream
from tidegate.pipelines.runtime.landing.asking import unread
from tidegate.pipelines.runtime.splits import stored_splits


@dataclass(frozen=True)
class Asked:
    """What a source said when it was asked what there is after a landed epoch.

    Attributes:
        generation, epoch: the landed epoch.
        even: when it last said that there is nothing (ms, UTC); None where it never did after this epoch.
        mute: it cannot be asked without being read.
        rest: how much there is, as text; empty for nothing.
        number: the same as a number; 0 in what an older Tidegate has remembered.
        since: when the oldest of it was there (ms, UTC), where the source knows.
    """

    generation: int
    epoch: int
    even: int | None = None
    rest: str = ""
    since: int | None = None
    mute: bool = False
    number: int = 0

    def is_of(self, log: WatermarkRow) -> bool:
        return (self.generation, self.epoch) == (log.generation, log.epoch)

    def unread_since(self, log: WatermarkRow) -> int | None:
        """Since when, at the most, there is something after this landed epoch (ms, UTC); None where there is nothing,
        or nobody has asked since it landed."""
        if not self.rest or not self.is_of(log):
            return None
        if self.since is not None:
            return self.since
        return max(log.landed_at - (log.lag_ms or 0), self.even or 0)


def ask(watched: WatchedTable, before: Asked | None, now: int) -> Asked | None:
    """Ask the source what there is after the last landed epoch; None where nobody knows the source, or nothing has
    landed.

    Raises TidegateError where the source does not answer.
    """
    landed, table = _landed(watched), declared(watched)
    if landed is None or table is None:
        return None
    lake, log = landed
    return after(before, log, unread(lake, table, log, answer_within=ANSWER_WITHIN), now)


def after(before: Asked | None, log: WatermarkRow, unread: Unread | None, now: int) -> Asked:
    """What is remembered of an answer, and of the one `before`."""
    if unread is None:
        return Asked(log.generation, log.epoch, mute=True)
    if not unread.rest:
        return Asked(log.generation, log.epoch, even=now)
    even = before.even if before is not None and before.is_of(log) else None
    return Asked(log.generation, log.epoch, even, unread.rest, unread.since, number=unread.number)


def lagging(
    watched: WatchedTable, instance: dg.DagsterInstance, options: AlertOptions, now: int, asked: Asked | None = None
) -> Incident | None:
    """A source that was too far behind when its newest epoch landed, or is by now, or may be, since nobody has read it
    for so long; or whose next epoch has been under way for so long."""
    landed = _landed(watched)
    if landed is None:
        return None
    lake, log = landed
    lag, how = max(_behind(lake, watched, log, asked, now), key=lambda item: item[0])
    if lag <= in_ms(options.max_lag):
        return None
    return Incident(
        key=f"lag {watched.subject} {log.generation}",
        kind="lag",
        title=f"{watched.name} {how}; the bound is {seconds(in_ms(options.max_lag))}.",
        pipeline=watched.pipeline,
        said=("What has landed is safe, and nothing is lost; what is published may be older than you asked for.",),
        positions=positions(lake, [watched.table]),
        run=last_run(instance, watched.pipeline, options.dagster_url, watched.key),
        next=watched.commands.all([NextCommand("status"), _start(instance, watched)]),
        details={"table": watched.table, "lag_ms": lag, "lake": watched.lake},
        subject=f"the lag of {watched.name}",
    )


def _start(instance: dg.DagsterInstance, watched: WatchedTable) -> NextCommand:
    """How to bring it up to date. A schedule that is on, by what Dagster has stored of it, else by default, says what
    became of its last tick."""
    stored = instance.schedule_storage is not None
    states = instance.all_instigator_state(instigator_type=InstigatorType.SCHEDULE) if stored else ()
    known = {state.instigator_name: state for state in sorted(states, key=lambda state: state.is_running)}
    on = next(
        (name for name, default in watched.schedules if (known[name].is_running if name in known else default)), None
    )
    if on is None:
        return NextCommand("run", does="or turn its schedule on" if watched.schedules else "")
    state = known.get(on)
    ticks = [] if state is None else instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=1)
    if not ticks:
        return NextCommand("run", does="its schedule is on, and has not come round yet")
    last = ticks[0]
    became = last.skip_reason or (f"it started run {last.run_ids[0]}" if last.run_ids else last.status.value.lower())
    at = moment(round(last.timestamp * 1000))
    return NextCommand("run", does=f"its schedule is on; its last tick, {at} UTC: {became}")


def _landed(watched: WatchedTable) -> tuple[Lake, WatermarkRow] | None:
    """The newest landed epoch of the newest generation; None while a build loads: then `not_flipped` speaks."""
    lake = opened(watched.lake)
    plan = lake.epochs.last(watched.table) if lake else None
    if lake is None or plan is None:
        return None
    log = Stream(lake, watched.table).generation(plan.generation).last
    return None if log is None or (watched.build and log.flip_epoch is None) else (lake, log)


def _behind(
    lake: Lake, watched: WatchedTable, log: WatermarkRow, asked: Asked | None, now: int
) -> list[tuple[int, str]]:
    """How far behind the source is (ms), by each way to know it, each with a sentence; what is certain comes first."""
    lag, ago = log.lag_ms or 0, now - log.landed_at
    when = f"when epoch {log.epoch} landed ({moment(log.landed_at)} UTC)"
    behind = "is behind its source:"
    found = [(lag, f"{behind} it was {seconds(lag)} behind {when}")]
    if lag:
        found.append((ago, f"{behind} it was behind {when}, and nothing has landed for {seconds(ago)}"))
    plan = lake.epochs.last(watched.table)
    if plan is not None and plan.generation == log.generation and plan.epoch > log.epoch:
        under_way = now - plan.planned_at
        found.append((under_way, f"{behind} epoch {plan.epoch} has been under way for {seconds(under_way)}"))
    since = asked.unread_since(log) if asked else None
    if asked is not None and since is not None:
        have = "has" if asked.number == 1 else "have"
        found.append((now - since, f"{behind} {asked.rest} {have} not landed, for up to {seconds(now - since)}"))
    if asked is not None and asked.mute and not lag and not _ended(log):
        untouched = now - max([log.landed_at, *(lease.held_at for lease in read_leases(lake.control, watched.table))])
        unread = "what it has that has not landed is only known to who reads it"
        found.append(
            (untouched, f"may be behind its source: nobody has read it for {seconds(untouched)}, and {unread}")
        )
    return found


def _ended(log: WatermarkRow) -> bool:
    """Whether no row of it will come."""
    splits = stored_splits(log)
    return bool(splits) and all(split.ended for split in splits)
