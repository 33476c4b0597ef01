"""A tick of the alerting sensor: it checks lakes and finished runs, and reports what is new and what is over.

Open incidents, and messages that a channel did not take, are stored in the sensor's cursor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import dagster as dg

from tidegate.assets.names import RETRIED_BY
from tidegate.assets.watched import watched
from tidegate.orchestration.alerts import AlertOptions
from tidegate.orchestration.alerts.causes import AWAY_S, rooted
from tidegate.orchestration.alerts.channels import channels
from tidegate.orchestration.alerts.incident import Message, scrub
from tidegate.orchestration.alerts.journal import journal
from tidegate.orchestration.alerts.look import Look
from tidegate.orchestration.alerts.memory import REMEMBERED, Memory, Open, Seen
from tidegate.orchestration.alerts.runs import KINDS, Outcome, is_watched, outcome, same, unread, will_be_retried
from tidegate.orchestration.alerts.tables import ASK_EVERY_S

RETRIED_WITHIN_S = 600.0
"""How long to wait for a retry that Dagster has announced, and for a run's history that cannot be read."""
FINISHED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]


def tick(context: dg.SensorEvaluationContext, options: AlertOptions) -> dg.SensorResult:
    """One check of everything."""
    assert context.repository_def is not None
    now = datetime.now(UTC).timestamp()
    teller = context.code_location_origin.location_name if context.code_location_origin else ""
    look = Look(watched(context.repository_def), context.instance, options, context.log, now)
    memory = Memory.of(context.cursor)
    # A late tick means that the daemon was away.
    away = (memory.looked, now) if memory.looked and now - memory.looked > AWAY_S else memory.away
    memory = replace(memory, looked=now, away=away)
    memory, of_runs = _runs(memory, look)
    queue = dict(memory.queue)
    seen = look.at_lakes(memory.unread, {item.key for item in memory.open}, queue)
    memory = replace(memory, queue=queue)
    memory, messages = memory.observed(_rooted(seen, memory, look), look.now)
    messages = (*messages, *of_runs)
    memory = _remembered(messages, memory, look, teller)
    if look.now - memory.asked >= ASK_EVERY_S:
        # What is known has been sent by now: a slow server delays no alert.
        unread, seen = look.at_sources(memory.unread)
        memory = replace(memory, asked=look.now, unread=unread)
        memory, of_sources = memory.observed(_rooted(seen, memory, look), look.now)
        memory = _remembered(of_sources, memory, look, teller)
        messages = (*messages, *of_sources)
    sent = ", ".join(f"{message.incident.key} ({message.state})" for message in messages)
    silent = "".join(f"; {name} takes no alerts ({item.why})" for name, item in memory.silent.items())
    summary = scrub(f"sent: {sent}" if sent else "nothing new to send") + silent
    return dg.SensorResult(skip_reason=dg.SkipReason(summary), cursor=memory.cursor())


def _rooted(seen: Seen, memory: Memory, look: Look) -> Seen:
    return rooted(seen, memory, look.found, look.now, look.options.max_lag)


def _remembered(messages: Sequence[Message], memory: Memory, look: Look, teller: str) -> Memory:
    """Store the messages in the lakes' journals, and send those that no other code location has sent."""
    own = journal(messages, look.found, look.log, look.now, teller)
    return memory.delivered(own, channels(look.options), look.log, look.now)


def _runs(memory: Memory, look: Look) -> tuple[Memory, tuple[Message, ...]]:
    """Every run that has finished since the last tick; the first tick only stores the time."""
    if memory.since is None:
        return replace(memory, since=look.now), ()
    records = look.instance.get_run_records(
        dg.RunsFilter(statuses=FINISHED, updated_after=datetime.fromtimestamp(memory.since, UTC)),
        order_by="update_timestamp",
        ascending=True,
        limit=REMEMBERED,
    )
    messages: list[Message] = []
    handled = memory.handled
    before = memory.retried
    memory, given_up = _given_up(memory, look)
    for run in (*given_up, *(record.dagster_run for record in records)):
        if run.run_id in handled:
            continue
        try:
            if not is_watched(look.instance, run, look.found):
                handled = (*handled, run.run_id)  # its history, which may have been asked for it, is not asked again
                continue
            if run not in given_up and will_be_retried(run):
                # It is no incident yet: the run that is started in its place shows how it ends.
                memory = replace(memory, retried={run.run_id: look.now, **memory.retried})
                continue
            ended = outcome(look.instance, run, look.found, look.options)
        except Exception as error:  # noqa: BLE001 one run that cannot be read must not silence the others
            look.log.warning(scrub(f"run {run.run_id} could not be read: {type(error).__name__}"))
            first = before.get(run.run_id, look.now)
            if look.now - first < RETRIED_WITHIN_S:
                memory = replace(memory, retried={**memory.retried, run.run_id: first})
                continue
            ended = unread(run, look.found, look.options, error)
        handled = (*handled, run.run_id)
        memory, news = _after(memory, ended.scrubbed(look.secrets), look.now)
        messages += news
    # A hair before the newest: runs that were updated in that very instant are looked at again, and reported once.
    since = max([memory.since or 0.0, *(record.update_timestamp.timestamp() - 0.001 for record in records)])
    return replace(memory, handled=handled[-REMEMBERED:], since=since), tuple(messages)


def _given_up(memory: Memory, look: Look) -> tuple[Memory, list[dg.DagsterRun]]:
    """Failed runs whose retry will not come: Dagster has decided otherwise, or has not started it in time."""
    waiting: dict[str, float] = {}
    given_up: list[dg.DagsterRun] = []
    for run_id, since in memory.retried.items():
        run = look.instance.get_run_by_id(run_id)
        if run is None or RETRIED_BY in run.tags:
            continue
        if will_be_retried(run) and look.now - since < RETRIED_WITHIN_S:
            waiting[run_id] = since
        else:
            given_up.append(run)
    return replace(memory, retried=waiting), given_up


def _after(memory: Memory, ended: Outcome, now: float) -> tuple[Memory, list[Message]]:
    """The incidents that one finished run opens, and those that it ends."""
    over = [item for item in memory.open if item.kind in KINDS and ended.ends(item)]
    still_open = [item for item in memory.open if item not in over]
    messages = [Message(item.incident(), "resolved", now - item.since) for item in over]
    incident = ended.incident
    if incident is not None:
        again = next((item for item in still_open if same(item, incident)), None)
        if again is not None:
            still_open[still_open.index(again)] = replace(again, times=again.times + 1)
        else:
            still_open.append(Open.of(incident, now))
            messages.append(Message(incident))
    return replace(memory, open=tuple(still_open)), messages
