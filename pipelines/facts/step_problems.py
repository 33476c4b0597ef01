"""Problems of steps: one that failed or was refused and has not worked since, and an epoch that nobody finishes."""

from __future__ import annotations

from tidegate.pipelines.commands import NextCommand, unsaid
from tidegate.pipelines.facts.at import At
from tidegate.pipelines.facts.problem import InsertScope, Problem, SourceScope, in_ms
from tidegate.pipelines.lake.stream import Stream
from tidegate.pipelines.runtime.epochs.history import newest_epochs
from tidegate.pipelines.text import moment, sentence

_OWN = ("lag", "not-flipped", "unfinished")
"""What follows where a table, or an INSERT, does not go on."""


def stuck(at: At, owner: str, name: str) -> Problem | None:
    """A table or an INSERT whose last step failed, or was refused before it began, whoever ran it."""
    last = at.lake.stuck.last(owner)
    if last is None or last.over:
        return None
    shown, when = at.name(name), f"{moment(last.since)} UTC"
    safe = "What it had committed is safe. "
    others = (
        "Others go on; an INSERT that joins to it in processing time waits, in event time its watermark holds it."
        if owner == name
        else "Others go on."
    )
    return Problem(
        key=f"{at.key('stuck', name)} {last.since}",
        kind="refused" if last.refused else "stuck",
        title=f"a run of {shown} was refused at {when}, before it began: {sentence(last.what)}."
        if last.refused
        else f"{shown} is stuck since {when}: {sentence(last.what)}.",
        subject=f"the refusal of {shown}" if last.refused else f"what {shown} was stuck at",
        owner=owner,
        since=last.since,
        text=(
            "Nothing was changed." if last.refused else safe + others,
            *((f"where: {last.where}",) if last.where else ()),
        ),
        positions=at.positions([owner]) if owner == name else {},
        next=(
            *unsaid(last.what, str(last.advice)),
            *([last.advice] if last.advice else []),
            *([] if last.advice else [NextCommand("run", does="tries it again")]),
        ),
        details={"owner": owner, "error": last.kind, "by": last.by, "since": last.since},
        explains=tuple(at.key(kind, name) for kind in _OWN),
    )


def unfinished_source(at: At, source: SourceScope) -> Problem | None:
    """An epoch of a table that is planned and has not landed, and nobody works on it: its run was stopped. Not of a
    build that loads, where it is known who waits for it: they say so."""
    plan = at.lake.epochs.last(source.table)
    if plan is None or at.is_worked_on(source.table):
        return None
    log = Stream(at.lake, source.table).generation(plan.generation).last
    loading = log is None or log.flip_epoch is None
    if (log is not None and log.epoch >= plan.epoch) or (source.waits and loading and plan.generation == 1):
        return None
    return _unfinished(at, source.table, source.table, plan.epoch, plan.generation, plan.planned_at)


def unfinished_insert(at: At, insert: InsertScope) -> Problem | None:
    """The same of an INSERT, whose epoch is neither published nor held."""
    newest = next(iter(newest_epochs(at.lake, insert.insert, insert.target)), None)
    if newest is None or at.is_worked_on(insert.owner):
        return None
    # Without its target, a published epoch cannot be distinguished from one that passed.
    if newest.state not in ("planned", "staged") and (newest.state != "passed" or insert.target is None):
        return None
    plan = newest.plan
    return _unfinished(at, insert.owner, insert.insert, plan.epoch, plan.generation, plan.instant)


def _unfinished(at: At, owner: str, name: str, epoch: int, generation: int, planned_at: int) -> Problem | None:
    since = max(planned_at, at.worked_on_at(owner) or 0)
    if at.now - since < in_ms(at.bounds.unfinished_within):
        return None
    return Problem(
        key=f"{at.key('unfinished', name)} {generation}/{epoch}",
        kind="unfinished",
        title=f"{at.name(name)}: epoch {epoch} is not finished, and nobody works on it.",
        subject=f"the unfinished epoch {epoch} of {at.name(name)}",
        owner=owner,
        since=since,
        text=("Its run failed, or was stopped.",),
        next=(NextCommand("run", does="goes on there, or shows why it cannot"),),
        details={"owner": owner, "generation": generation, "epoch": epoch},
        explains=(at.key("lag", name),),
    )
