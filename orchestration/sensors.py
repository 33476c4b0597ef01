"""The sensor that alerts: it looks at the lakes and at finished runs, and tells what is new and what is over.

What is open, and what a channel did not take, is remembered in the sensor's cursor.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import cast

import dagster as dg

from orchestration.alerts import AlertOptions
from orchestration.alerts.builds import not_flipped
from orchestration.alerts.channels import channels, secrets_of
from orchestration.alerts.gates import growing_quarantine, held_epoch
from orchestration.alerts.incident import Incident, Kind, Message, scrub
from orchestration.alerts.journal import journal
from orchestration.alerts.lag import Asked, ask, key_of, lagging
from orchestration.alerts.logs import ASK_EVERY_S, passing_log
from orchestration.alerts.memory import REMEMBERED, Memory, Open
from orchestration.alerts.patience import Unanswered, answers
from orchestration.alerts.runs import KINDS, Outcome, is_watched, outcome, same
from orchestration.alerts.watched import Watched, watched
from pipelines.errors import TidegateError

NAME = "tidegate_alerts"
INTERVAL_S = 10
ASK_FOR_S = 20.0
"""How long the sources are asked in one tick, all of them together; Dagster gives up a tick after a minute."""
FINISHED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]


def alerts_sensor(options: AlertOptions | None = None) -> dg.SensorDefinition:
    """The sensor with these options; what they leave open is taken from the environment, at every tick."""
    given = options or AlertOptions()

    @dg.sensor(
        name=NAME,
        minimum_interval_seconds=INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="One message for every incident, and one when it is over: a held gate, a failed run, a check that "
        "never ran, a build that does not flip, lag, a log about to be deleted, a quarantine that grows.",
    )
    def alert(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        return tick(context, given.of_environment())

    return alert


def tick(context: dg.SensorEvaluationContext, options: AlertOptions) -> dg.SensorResult:
    """One look at everything."""
    assert context.repository_def is not None
    now = datetime.now(UTC).timestamp()
    found, memory = watched(context.repository_def), Memory.of(context.cursor)
    active, looked_at = _of_lakes(found, memory, context.instance, options, context.log, now)
    # From here on no secret stands in what is told, logged, kept in the cursor and in the lakes' journals.
    secrets = secrets_of(options)
    memory, messages = memory.observed(_scrubbed(active, secrets), looked_at, now)
    memory, of_runs = _runs(context.instance, memory, found, options, secrets, now)
    messages = (*messages, *of_runs)
    memory = _told(messages, memory, found, options, context.log, now)
    if now - memory.asked >= ASK_EVERY_S:
        # What is known is told by now: a server that takes its time keeps nobody from hearing it.
        unread, incidents, kinds = _asked(found, memory, context.instance, options, context.log, now)
        memory = replace(memory, asked=now, unread=unread)
        memory, of_sources = memory.observed(_scrubbed(incidents, secrets), kinds, now)
        memory = _told(of_sources, memory, found, options, context.log, now)
        messages = (*messages, *of_sources)
    told = ", ".join(f"{message.incident.key} ({message.state})" for message in messages)
    silent = "".join(f"; {name} takes no alerts ({item.why})" for name, item in memory.silent.items())
    said = scrub(f"told: {told}" if told else "nothing new to tell") + silent
    return dg.SensorResult(skip_reason=dg.SkipReason(said), cursor=memory.cursor())


def _scrubbed(incidents: Sequence[Incident], secrets: frozenset[str]) -> list[Incident]:
    return [incident.scrubbed(secrets=secrets) for incident in incidents]


def _told(
    messages: Sequence[Message], memory: Memory, found: Watched, options: AlertOptions, log: logging.Logger, now: float
) -> Memory:
    """Keep the messages in the lakes' journals, and send them."""
    journal(messages, found, log, now)
    return memory.delivered(messages, channels(options), log, now)


def _of_lakes(
    found: Watched,
    memory: Memory,
    instance: dg.DagsterInstance,
    options: AlertOptions,
    log: logging.Logger,
    now: float,
) -> tuple[list[Incident], set[Kind]]:
    """What the lakes tell, with what the sources said last. A kind that could not be looked at is left as it was."""
    at = round(now * 1000)
    questions: list[tuple[Kind, list[Callable[[], Incident | None]]]] = [
        ("gate-held", [lambda i=i: held_epoch(i, instance, options) for i in found.inserts]),
        ("quarantine-growing", [lambda i=i: growing_quarantine(i, instance, options, at) for i in found.inserts]),
        ("not-flipped", [lambda t=t: not_flipped(t, instance, options, at) for t in found.tables]),
        _of_lag(found, memory.unread, instance, options, at),
    ]
    return _answers(questions, log)


def _of_lag(
    found: Watched, unread: Mapping[str, Asked], instance: dg.DagsterInstance, options: AlertOptions, at: int
) -> tuple[Kind, list[Callable[[], Incident | None]]]:
    return "lag", [lambda t=t: lagging(t, instance, options, at, unread.get(key_of(t))) for t in found.tables]


def _asked(
    found: Watched,
    memory: Memory,
    instance: dg.DagsterInstance,
    options: AlertOptions,
    log: logging.Logger,
    now: float,
) -> tuple[dict[str, Asked], list[Incident], set[Kind]]:
    """What the sources themselves tell: what of each is unread, and what follows from that. One that does not answer is
    left as it was, and holds up no other."""
    at, known = round(now * 1000), memory.unread
    passing: list[Callable[[], Incident | None]] = [lambda t=t: passing_log(t, instance, options) for t in found.tables]
    asking: list[Callable[[], Asked | None]] = [lambda t=t: ask(t, known.get(key_of(t)), at) for t in found.tables]
    given = answers([*passing, *asking], ASK_FOR_S)
    unread: dict[str, Asked] = {}
    for table, answer in zip(found.tables, given[len(passing) :], strict=True):
        try:
            said = cast("Asked | None", answer())
        except Exception as error:  # noqa: BLE001 one that fails must not silence the others
            log.warning(scrub(f"{table.name} could not be asked what is unread: {_words(error)}"))
            said = known.get(key_of(table))
        unread |= {key_of(table): said} if said is not None else {}
    looked = cast("list[Callable[[], Incident | None]]", given[: len(passing)])
    incidents, kinds = _answers([("retention", looked), _of_lag(found, unread, instance, options, at)], log)
    return unread, incidents, kinds


def _answers(
    questions: Sequence[tuple[Kind, list[Callable[[], Incident | None]]]], log: logging.Logger
) -> tuple[list[Incident], set[Kind]]:
    incidents: list[Incident] = []
    kinds: set[Kind] = set()
    for kind, asked in questions:
        whole = True
        for question in asked:
            try:
                incident = question()
            except Exception as error:  # noqa: BLE001 one question that fails must not silence the others
                log.warning(scrub(f"{kind} could not be looked at: {_words(error)}"))
                whole = False
                continue
            incidents += [incident] if incident is not None else []
        if whole:
            kinds.add(kind)
    return incidents, kinds


def _words(error: Exception) -> object:
    """What an error says, where somebody has seen to it that it holds no secret; else its kind."""
    return error if isinstance(error, TidegateError | OSError | Unanswered) else type(error).__name__


def _runs(
    instance: dg.DagsterInstance,
    memory: Memory,
    found: Watched,
    options: AlertOptions,
    secrets: frozenset[str],
    now: float,
) -> tuple[Memory, tuple[Message, ...]]:
    """Every run that has finished since the last tick; the first tick only takes the time."""
    if memory.since is None:
        return replace(memory, since=now), ()
    records = instance.get_run_records(
        dg.RunsFilter(statuses=FINISHED, updated_after=datetime.fromtimestamp(memory.since, UTC)),
        order_by="update_timestamp",
        ascending=True,
        limit=REMEMBERED,
    )
    messages: list[Message] = []
    told = memory.told
    for record in records:
        run = record.dagster_run
        if run.run_id in told or not is_watched(run, found):
            continue
        told = (*told, run.run_id)
        ended = outcome(instance, run, found, options)
        if ended.incident is not None:
            ended = replace(ended, incident=ended.incident.scrubbed(secrets=secrets))
        memory, news = _after(memory, ended, now)
        messages += news
    # A hair before the newest: runs that were updated in that very instant are looked at again, and told once.
    since = max([memory.since or 0.0, *(record.update_timestamp.timestamp() - 0.001 for record in records)])
    return replace(memory, told=told[-REMEMBERED:], since=since), tuple(messages)


def _after(memory: Memory, ended: Outcome, now: float) -> tuple[Memory, list[Message]]:
    """What one finished run begins, and what it ends."""
    over = [item for item in memory.open if item.kind in KINDS and ended.mends(item)]
    kept = [item for item in memory.open if item not in over]
    messages = [Message(item.incident(), "resolved", now - item.since) for item in over]
    incident = ended.incident
    if incident is not None:
        again = next((item for item in kept if same(item, incident)), None)
        if again is not None:
            kept[kept.index(again)] = replace(again, times=again.times + 1)
        else:
            details = dict(incident.details)
            kept.append(Open(incident.key, incident.kind, incident.title, incident.pipeline, now, details=details))
            messages.append(Message(incident))
    return replace(memory, open=tuple(kept)), messages


ALERTS = (alerts_sensor(),)
"""It watches every Tidegate asset of the code location it is put into."""
