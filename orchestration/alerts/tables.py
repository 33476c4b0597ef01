"""Sources that are too far behind: by the lake's record of landed epochs, and by what the source itself reports as not
landed, so that nobody has to run it to find out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import dagster as dg

from tidegate.assets.watched import WatchedInsert, WatchedTable, last_run, positions
from tidegate.orchestration.alerts.incident import Incident
from tidegate.orchestration.alerts.options import AlertOptions, in_ms
from tidegate.pipelines.commands import RUN, NextCommand, resnapshot, unsaid
from tidegate.pipelines.connectors.protocol import Unread
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.lake import Lake, WatermarkRow
from tidegate.pipelines.lake.leases import read_leases
from tidegate.pipelines.lake.stream import Stream
from tidegate.pipelines.runtime.ledger import newest_of, where_rows_are
from tidegate.pipelines.runtime.opening import log_retention, unread
from tidegate.pipelines.runtime.scripts import load_script
from tidegate.pipelines.runtime.splits import Splits, of_a_file, stored_splits
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.text import moment, seconds, sentence

ASK_EVERY_S = 60
ANSWER_WITHIN = "5 s"
"""The time limit for a connection, and for each answer of the server."""
_SET_KAFKA = "kafka-configs.sh --alter --entity-type topics --entity-name TOPIC --add-config retention.ms=1209600000"
_KEEP_MORE = {"mysql-cdc": "SET GLOBAL binlog_expire_logs_seconds = 604800;"}


def passing_log(watched: WatchedTable, instance: dg.DagsterInstance, options: AlertOptions) -> Incident | None:
    """The incident of a log that is gone after the cursor of this table, or will be soon. None without a script, which
    has the address.

    Raises TidegateError if the source cannot be asked.
    """
    lake, table = Lake.found(watched.lake), declared(watched)
    if lake is None or table is None:
        return None
    found = log_retention(lake, table, answer_within=ANSWER_WITHIN)
    if found is None or found.left_s is None or found.kept_s is None:
        return None
    if found.left_s >= found.kept_s * options.retention_left:
        return None
    gone = not found.left_s
    run = watched.commands.shown(RUN)
    again = watched.commands.shown(resnapshot(watched.table))
    return Incident(
        key=f"retention {watched.subject} {'gone' if gone else 'passing'}",
        kind="retention",
        title=f"the log that {watched.name} has not read yet is gone from the server."
        if gone
        else f"the server deletes the log that {watched.name} has not read yet in about {seconds(found.left_s * 1000)} "
        f"(it keeps {seconds(found.kept_s * 1000)}).",
        pipeline=watched.pipeline,
        said=(
            "The table cannot go on from where it is: begin a new generation; readers stay on the old one meanwhile."
            if gone
            else "Land it before then, or the table needs a new snapshot.",
        ),
        positions={**positions(lake, [watched.table]), f"{watched.table}, cursor": found.position},
        run=last_run(instance, watched.pipeline, options.dagster_url, watched.key),
        next=(again,) if gone else (run, f"or let the server keep more: {_KEEP_MORE.get(table.connector, _SET_KAFKA)}"),
        replaces=f"retention {watched.subject} passing" if gone else "",
        details={"table": watched.table, "left_s": found.left_s, "kept_s": found.kept_s, "lake": watched.lake},
        subject=f"the passing log of {watched.name}",
    )


def declared(watched: WatchedTable) -> Table | None:
    """The table as its script declares it now; None without a script, and if the script no longer has it."""
    if not watched.script or not Path(watched.script).exists():
        return None
    return _compiled(watched.script, Path(watched.script).stat().st_mtime_ns).tables.get(watched.table)


@lru_cache(maxsize=64)
def _compiled(script: str, changed: int) -> Pipeline:
    return load_script(Path(script))


@dataclass(frozen=True)
class Asked:
    """A source's report on what it has after a landed epoch.

    Attributes:
        generation, epoch: the landed epoch.
        even: when it last reported nothing (ms, UTC); None where it never did after this epoch.
        mute: it cannot be queried without being read.
        rest: how much there is, as text; empty for nothing.
        number: `rest` as a number; 0 in what an older Tidegate has stored.
        since: the time of the oldest of it (ms, UTC), where the source has one.
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
        """Since when, at most, there is something after this landed epoch (ms, UTC); None if there is nothing, or
        the source was not queried since it landed."""
        if not self.rest or not self.is_of(log):
            return None
        if self.since is not None:
            return self.since
        return max(log.landed_at - (log.lag_ms or 0), self.even or 0)


def ask(watched: WatchedTable, before: Asked | None, now: int) -> Asked | None:
    """Ask the source what there is after the last landed epoch; None if the source is not known, or nothing has landed.

    Raises TidegateError if the source does not answer.
    """
    landed, table = _landed(watched), declared(watched)
    if landed is None or table is None:
        return None
    lake, log = landed
    return after(before, log, unread(lake, table, log, answer_within=ANSWER_WITHIN), now)


def after(before: Asked | None, log: WatermarkRow, unread: Unread | None, now: int) -> Asked:
    """The report to store for an answer, given the report `before`."""
    if unread is None:
        return Asked(log.generation, log.epoch, mute=True)
    if not unread.rest:
        return Asked(log.generation, log.epoch, even=now)
    even = before.even if before is not None and before.is_of(log) else None
    return Asked(log.generation, log.epoch, even, unread.rest, unread.since, number=unread.number)


def lagging(
    watched: WatchedTable, instance: dg.DagsterInstance, options: AlertOptions, now: int, asked: Asked | None = None
) -> Incident | None:
    """The incident of a source that is too far behind: it was when its newest epoch landed, or is now, or may be, since
    nobody has read it for so long, or since its next epoch has been under way for so long."""
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
    """How to bring the source up to date; for a schedule that is on (as stored by Dagster, else by default), what its
    last tick did."""
    stored = instance.schedule_storage is not None
    states = instance.all_instigator_state() if stored else ()
    known = {
        state.instigator_name: state
        for state in sorted(states, key=lambda state: state.is_running)
        if state.instigator_type.name == "SCHEDULE"
    }
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
    """The newest landed epoch of the newest generation; None while a build loads, which `not_flipped` reports."""
    lake = Lake.found(watched.lake)
    plan = lake.epochs.last(watched.table) if lake else None
    if lake is None or plan is None:
        return None
    log = Stream(lake, watched.table).generation(plan.generation).last
    return None if log is None or (watched.build and log.flip_epoch is None) else (lake, log)


def _behind(
    lake: Lake, watched: WatchedTable, log: WatermarkRow, asked: Asked | None, now: int
) -> list[tuple[int, str]]:
    """How far behind the source is (ms), by each way to know it, each with a sentence; certain ones come first."""
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
        unread = "only a reader can see what has not landed"
        found.append(
            (untouched, f"may be behind its source: nobody has read it for {seconds(untouched)}, and {unread}")
        )
    return found


def _ended(log: WatermarkRow) -> bool:
    """Whether no row of it will come."""
    splits = stored_splits(log)
    return bool(splits) and all(split.ended for split in splits)


def not_flipped(
    watched: WatchedTable, instance: dg.DagsterInstance, options: AlertOptions, now: int
) -> Incident | None:
    """The incident of a build whose newest generation was first planned so long ago, and is not proved complete."""
    lake = Lake.found(watched.lake)
    newest = lake.epochs.last(watched.table) if lake and watched.build else None
    if lake is None or newest is None:
        return None
    landed = Stream(lake, watched.table).generation(newest.generation).last
    if landed is not None and landed.flip_epoch is not None:
        return None
    first = lake.epochs.rows(watched.table, generation=newest.generation, epoch=1)
    loading = now - (first[0] if first else newest).planned_at
    if loading <= in_ms(options.flip_within):
        return None
    again = newest.generation > 1
    held_back = (
        "Readers stay on the generation before it." if again else "Rows of its probes land, and none is released."
    )
    return Incident(
        key=f"not-flipped {watched.subject} {newest.generation}",
        kind="not-flipped",
        title=f"{watched.name} has not flipped {seconds(loading)} after its first plan "
        f"(bound {seconds(in_ms(options.flip_within))}){_chunks(lake, watched.table, newest.generation)}.",
        pipeline=watched.pipeline,
        said=(held_back,),
        counts={"waiting for the flip": rows} if not again and (rows := _waiting(lake, watched)) else {},
        positions=positions(lake, [watched.table]),
        run=last_run(instance, watched.pipeline, options.dagster_url, watched.key),
        next=watched.commands.all([NextCommand("status"), NextCommand("run", does="goes on where it stopped")]),
        details={"table": watched.table, "generation": newest.generation, "loading_ms": loading, "lake": watched.lake},
        subject=f"the wait for the flip of {watched.name}, generation {newest.generation}",
    )


def _chunks(lake: Lake, table: str, generation: int) -> str:
    chunks = [row for row in Splits(lake, table, generation).rows() if not of_a_file(row["detail"])]
    done = sum(row["cut"] is not None for row in chunks)
    return f", with {done} of {len(chunks)} chunks read" if chunks else ""


def _waiting(lake: Lake, watched: WatchedTable) -> int:
    """Landed rows that wait for this build, over all INSERTs that join to it."""
    found = [
        newest_of(lake, insert, None)[1] or where_rows_are(lake, insert, probe, ()) for insert, probe in watched.waits
    ]
    return sum(rows.waiting for rows in found)


def stuck(
    watched: WatchedTable | WatchedInsert, instance: dg.DagsterInstance, options: AlertOptions
) -> Incident | None:
    """The incident of a step that failed and is tried again, until it works, whoever runs it."""
    lake = Lake.found(watched.lake)
    table = watched.table if isinstance(watched, WatchedTable) else None
    owner = watched.table if isinstance(watched, WatchedTable) else watched.owner
    last = lake.stuck.last(owner) if lake else None
    if lake is None or last is None or last.over:
        return None
    key = watched.key if isinstance(watched, WatchedTable) else watched.staged
    return Incident(
        key=f"stuck {watched.subject} {last.since}",
        kind="stuck",
        title=f"{watched.name} is stuck since {moment(last.since)} UTC: {sentence(last.what)}.",
        pipeline=watched.pipeline,
        said=(
            "What it had committed is safe, and it is tried again. Others go on; an INSERT that joins to a stuck table "
            "in processing time waits, in event time its watermark holds it.",
            *((f"where: {last.where}",) if last.where else ()),
        ),
        positions=positions(lake, [table]) if table else {},
        run=last_run(instance, watched.pipeline, options.dagster_url, key),
        next=watched.commands.all(
            [*unsaid(last.what, str(last.advice)), *([last.advice] if last.advice else []), NextCommand("status")]
        ),
        details={"owner": owner, "error": last.kind, "since": last.since, "lake": watched.lake},
        subject=f"what {watched.name} was stuck at",
    )
