"""Problems of source tables: a build that does not flip, a source that is behind, a log that will be deleted."""

from __future__ import annotations

from tidegate.pipelines.commands import RUN, NextCommand, resnapshot
from tidegate.pipelines.facts.at import At
from tidegate.pipelines.facts.problem import Asked, Problem, SourceScope, in_ms
from tidegate.pipelines.lake import WatermarkRow
from tidegate.pipelines.lake.stream import Stream
from tidegate.pipelines.runtime.ledger import newest_of, nothing_done
from tidegate.pipelines.runtime.splits import Splits, of_a_file, stored_splits
from tidegate.pipelines.text import moment, seconds

_SET_KAFKA = "kafka-configs.sh --alter --entity-type topics --entity-name TOPIC --add-config retention.ms=1209600000"
_KEEP_MORE = {"mysql-cdc": "SET GLOBAL binlog_expire_logs_seconds = 604800;"}


def not_flipped(at: At, source: SourceScope) -> Problem | None:
    """A build whose newest generation was first planned long ago, and is not proved complete."""
    newest = at.lake.epochs.last(source.table) if source.build else None
    if newest is None:
        return None
    landed = Stream(at.lake, source.table).generation(newest.generation).last
    if landed is not None and landed.flip_epoch is not None:
        return None
    first = at.lake.epochs.rows(source.table, generation=newest.generation, epoch=1)
    began = (first[0] if first else newest).planned_at
    if at.now - began <= in_ms(at.bounds.flip_within):
        return None
    again, name, loading = newest.generation > 1, at.name(source.table), at.now - began
    held_back = (
        "Readers stay on the generation before it." if again else "Rows of its probes land, and none is released."
    )
    return Problem(
        key=f"{at.key('not-flipped', source.table)} {newest.generation}",
        kind="not-flipped",
        title=f"{name} has not flipped {seconds(loading)} after its first plan "
        f"(bound {seconds(in_ms(at.bounds.flip_within))}){_chunks(at, source.table, newest.generation)}.",
        subject=f"the wait for the flip of {name}, generation {newest.generation}",
        owner=source.table,
        since=began,
        text=(held_back,),
        counts={"waiting for the flip": rows} if not again and (rows := _waiting(at, source)) else {},
        positions=at.positions([source.table]),
        next=(NextCommand("status"), NextCommand("run", does="goes on where it stopped")),
        details={
            "table": source.table,
            "generation": newest.generation,
            "loading_ms": loading,
        },
    )


def _chunks(at: At, table: str, generation: int) -> str:
    chunks = [row for row in Splits(at.lake, table, generation).rows() if not of_a_file(row["detail"])]
    done = sum(row["cut"] is not None for row in chunks)
    return f", with {done} of {len(chunks)} chunks read" if chunks else ""


def _waiting(at: At, source: SourceScope) -> int:
    """Landed rows that wait for this build, over all INSERTs that join to it."""
    found = [
        newest_of(at.lake, insert, None)[1] or nothing_done(at.lake, insert, probe) for insert, probe in source.waits
    ]
    return sum(rows.waiting for rows in found)


def landed(at: At, source: SourceScope) -> WatermarkRow | None:
    """The newest landed epoch of the newest generation; None while a build loads, which `not_flipped` reports."""
    plan = at.lake.epochs.last(source.table)
    if plan is None:
        return None
    log = Stream(at.lake, source.table).generation(plan.generation).last
    return None if log is None or (source.build and log.flip_epoch is None) else log


def lagging(at: At, source: SourceScope) -> Problem | None:
    """A source that is too far behind, by any way to know it. Certain ones come first."""
    log = landed(at, source)
    if log is None:
        return None
    reported = at.reported.get(source.table)
    ways = _behind(at, source, log, reported.unread if reported else None)
    lag, how = max(ways, key=lambda item: item[0])
    if lag <= in_ms(at.bounds.max_lag):
        return None
    name = at.name(source.table)
    return Problem(
        key=f"{at.key('lag', source.table)} {log.generation}",
        kind="lag",
        title=f"{name} {how}; the bound is {seconds(in_ms(at.bounds.max_lag))}.",
        subject=f"the lag of {name}",
        owner=source.table,
        since=at.now - lag,
        text=("What has landed is safe, and nothing is lost; what is published may be older than you asked for.",),
        positions=at.positions([source.table]),
        next=(NextCommand("status"), RUN),
        details={"table": source.table, "lag_ms": lag},
    )


def _behind(at: At, source: SourceScope, log: WatermarkRow, asked: Asked | None) -> list[tuple[int, str]]:
    """How far behind the source is (ms), by each way to know it, each with a sentence."""
    lag, ago = log.lag_ms or 0, at.now - log.landed_at
    when = f"when epoch {log.epoch} landed ({moment(log.landed_at)} UTC)"
    behind = "is behind its source:"
    found = [(lag, f"{behind} it was {seconds(lag)} behind {when}")]
    if lag:
        found.append((ago, f"{behind} it was behind {when}, and nothing has landed for {seconds(ago)}"))
    plan = at.lake.epochs.last(source.table)
    if plan is not None and plan.generation == log.generation and plan.epoch > log.epoch:
        under_way = at.now - plan.planned_at
        found.append((under_way, f"{behind} epoch {plan.epoch} has been under way for {seconds(under_way)}"))
    since = asked.unread_since(log) if asked else None
    if asked is not None and since is not None:
        have = "has" if asked.number == 1 else "have"
        waits = at.now - since
        found.append((waits, f"{behind} {asked.rest} {have} not landed, for up to {seconds(waits)}"))
    if asked is not None and asked.mute and not lag and not _ended(log):
        untouched = at.now - max(log.landed_at, at.worked_on_at(source.table) or 0)
        unread = "only a reader can see what has not landed"
        found.append(
            (untouched, f"may be behind its source: nobody has read it for {seconds(untouched)}, and {unread}")
        )
    return found


def _ended(log: WatermarkRow) -> bool:
    """Whether no row of it will come."""
    splits = stored_splits(log)
    return bool(splits) and all(split.ended for split in splits)


def passing_log(at: At, source: SourceScope) -> Problem | None:
    """A log that is gone after the cursor of this table, or will be soon, as its source has reported."""
    log = at.reported.get(source.table)
    if log is None or log.left_s is None or log.kept_s is None:
        return None
    if log.left_s >= log.kept_s * at.bounds.retention_left:
        return None
    gone, name, begin = not log.left_s, at.name(source.table), at.key("retention", source.table)
    last = Stream(at.lake, source.table).newest
    return Problem(
        key=f"{begin} {'gone' if gone else 'passing'}",
        kind="retention",
        title=f"the log that {name} has not read yet is gone from the server."
        if gone
        else f"the server deletes the log that {name} has not read yet in about {seconds(log.left_s * 1000)} "
        f"(it keeps {seconds(log.kept_s * 1000)}).",
        subject=f"the passing log of {name}",
        owner=source.table,
        since=last.landed_at if last else at.now,
        text=(
            "The table cannot go on from where it is: begin a new generation; readers stay on the old one meanwhile."
            if gone
            else "Land it before then, or the table needs a new snapshot.",
        ),
        positions={**at.positions([source.table]), f"{source.table}, cursor": log.position},
        next=(resnapshot(source.table),)
        if gone
        else (RUN, f"or let the server keep more: {_KEEP_MORE.get(log.connector, _SET_KAFKA)}"),
        details={"table": source.table, "left_s": log.left_s, "kept_s": log.kept_s},
        replaces=f"{begin} passing" if gone else "",
    )
