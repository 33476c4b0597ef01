"""A tick of the alerting sensor: the problems now, compared with those of the last tick. What has begun and what is
over is sent.

What was sent, and what no channel has taken, is stored in the sensor's cursor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import product
from typing import Any, get_args

import dagster as dg

from tidegate.assets.names import RETRIED_BY
from tidegate.assets.watched import Watched, watched
from tidegate.orchestration.alerts import AlertOptions
from tidegate.orchestration.alerts.channels import channels, secrets_of
from tidegate.orchestration.alerts.dagster_problems import AWAY_S, Links, queued, with_absence, with_runs
from tidegate.orchestration.alerts.memory import REMEMBERED, RUN_KINDS, Memory, Open
from tidegate.orchestration.alerts.message import Message
from tidegate.orchestration.alerts.runs import Outcome, is_watched, outcome, same, unread, will_be_retried
from tidegate.orchestration.alerts.scrubbing import scrub, scrubbed
from tidegate.orchestration.alerts.sending import sent
from tidegate.orchestration.alerts.sources import ASK_EVERY_S, asked
from tidegate.pipelines.errors import TidegateError
from tidegate.pipelines.facts.problem import InsertScope, Kind, Problem, Scope, SourceScope, rooted
from tidegate.pipelines.facts.problems import problems
from tidegate.pipelines.lake import Lake

RETRIED_WITHIN_S = 600.0
"""How long to wait for a retry that Dagster has announced, and for a run's history that cannot be read."""
FINISHED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]


def tick(context: dg.SensorEvaluationContext, options: AlertOptions) -> dg.SensorResult:
    """One check of everything."""
    assert context.repository_def is not None
    now = datetime.now(UTC).timestamp()
    look = Look(watched(context.repository_def), context.instance, options, context.log, now)
    memory = Memory.of(context.cursor)
    # A late tick means that the daemon was away.
    away = (memory.looked, now) if memory.looked and now - memory.looked > AWAY_S else memory.away
    memory = replace(memory, looked=now, away=away)
    memory, of_runs = _runs(memory, look)
    memory, summary = _told(memory, look, of_runs, counts_rows=False)
    if look.now - memory.asked >= ASK_EVERY_S:
        # What is known has been sent by now: a slow server delays no alert.
        reported = asked(look.found.tables, memory.reported, look.log, look.at)
        memory, more = _told(replace(memory, asked=look.now, reported=reported), look, [], counts_rows=True)
        summary += more
    waiting = f"; no channel has taken {len(memory.unsent):,} of them yet" if memory.unsent else ""
    summary = [f"{message.key} ({message.state})" for message in summary]
    text = scrub(f"sent: {', '.join(summary)}" if summary else "nothing new to send") + waiting
    return dg.SensorResult(skip_reason=dg.SkipReason(text), cursor=memory.cursor())


@dataclass(frozen=True)
class Look:
    """One tick's check of what is watched. `now`: s, UTC."""

    found: Watched
    instance: dg.DagsterInstance
    options: AlertOptions
    log: Any
    now: float

    @cached_property
    def secrets(self) -> frozenset[str]:
        """Those of the channels."""
        return secrets_of(self.options)

    @property
    def at(self) -> int:
        """ms, UTC."""
        return round(self.now * 1000)

    def begun(self, problem: Problem) -> Message:
        """The message of a problem that has begun."""
        links = Links(self.instance, self.found, self.options.dagster_url)
        commands = self.found.commands_of(problem.pipeline)
        return Message.begun(links.completed(problem), commands, links.run(problem), self.secrets)

    def problems(self, memory: Memory, counts_rows: bool) -> tuple[list[Problem], set[str], dict[str, str]]:
        """All problems now, those of runs as they are open; beginnings of the keys of what could not be checked; what
        is known of queued runs."""
        known, unseen, queue = {item.key for item in memory.open}, set[str](), dict(memory.queue)
        found = memory.of_runs()

        def failed(key: str, error: Exception) -> None:
            # Only the text of these is known to hold no secret.
            why = error if isinstance(error, TidegateError | OSError) else type(error).__name__
            self.log.warning(scrub(f"{key} could not be checked: {why}"))
            unseen.update((key, "daemon-away") if key.startswith("lag ") else (key,))

        for folder, scope in _scopes(self.found):
            try:
                lake = Lake.found(folder)
                if lake is not None:
                    found += problems(
                        lake,
                        self.at,
                        scope,
                        bounds=self.options.bounds,
                        reported={
                            source.table: memory.reported[f"{folder} {source.table}"]
                            for source in scope.sources
                            if f"{folder} {source.table}" in memory.reported
                        },
                        shows_rows=lambda key: key not in known,
                        unread=failed,
                        counts_rows=counts_rows,
                    )
                    unseen |= {f"imbalanced {folder} {each.insert}" for each in scope.inserts if not counts_rows}
            except Exception as error:  # noqa: BLE001 one lake that fails must not silence the others
                names = [*(source.table for source in scope.sources), *(insert.insert for insert in scope.inserts)]
                for kind, name in product(get_args(Kind), names):
                    failed(f"{kind} {folder} {name}", error)
        try:
            waiting = queued(self.instance, self.found, self.now, queue)
            found += [waiting] if waiting else []
        except Exception as error:  # noqa: BLE001 nor must Dagster's queue
            failed("runs-queued", error)
        found = rooted(with_runs(found, self.instance))
        found = with_absence(found, memory.away, self.now, self.options.max_lag)
        return [scrubbed(problem, self.secrets) for problem in found], unseen, queue


def _scopes(found: Watched) -> Iterator[tuple[str, Scope]]:
    """Each lake with what is watched of one pipeline."""
    items = (*found.tables, *found.inserts)
    for lake, pipeline in sorted({(item.lake, item.pipeline) for item in items}):
        own = (lake, pipeline)
        tables = [table for table in found.tables if (table.lake, table.pipeline) == own]
        inserts = [insert for insert in found.inserts if (insert.lake, insert.pipeline) == own]
        yield (
            lake,
            Scope(
                pipeline,
                tuple(SourceScope(table.table, table.build, table.waits) for table in tables),
                tuple(
                    InsertScope(insert.insert, insert.places.target, insert.places.staged, insert.joins)
                    for insert in inserts
                ),
                qualified=True,
            ),
        )


def _told(memory: Memory, look: Look, of_runs: Sequence[Message], *, counts_rows: bool) -> tuple[Memory, list[Message]]:
    """Send what has begun and what is over, and what no channel has taken yet. `of_runs`: the messages of runs.
    `counts_rows`: whether it is looked whether rows add up."""
    found, unseen, queue = look.problems(memory, counts_rows)
    memory, begun, over = memory.compared(found, unseen)
    messages = [*map(look.begun, begun), *(Message.ended(each, look.now, look.secrets) for each in over), *of_runs]
    for message in messages:
        (look.log.info if message.state == "resolved" else look.log.error)(message.text)
    left = sent(messages, memory.unsent, channels(look.options), look.log)
    return replace(memory, queue=queue, unsent=tuple(left)), messages


def _runs(memory: Memory, look: Look) -> tuple[Memory, list[Message]]:
    """Every run that has finished since the last tick; the first tick only stores the time."""
    if memory.since is None:
        return replace(memory, since=look.now), []
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
                # It is no problem yet: the run that is started in its place shows how it ends.
                memory = replace(memory, retried={run.run_id: look.now, **memory.retried})
                continue
            ended = outcome(look.instance, run, look.found)
        except Exception as error:  # noqa: BLE001 one run that cannot be read must not silence the others
            look.log.warning(scrub(f"run {run.run_id} could not be read: {type(error).__name__}"))
            first = before.get(run.run_id, look.now)
            if look.now - first < RETRIED_WITHIN_S:
                memory = replace(memory, retried={**memory.retried, run.run_id: first})
                continue
            ended = unread(run, look.found, error, look.now)
        handled = (*handled, run.run_id)
        memory, news = _after(memory, ended.scrubbed(look.secrets), look)
        messages += news
    # A hair before the newest: runs that were updated in that very instant are looked at again, and reported once.
    since = max([memory.since or 0.0, *(record.update_timestamp.timestamp() - 0.001 for record in records)])
    return replace(memory, handled=handled[-REMEMBERED:], since=since), messages


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


def _after(memory: Memory, ended: Outcome, look: Look) -> tuple[Memory, list[Message]]:
    """The problems that one finished run opens, and those that it ends."""
    over = [item for item in memory.open if item.kind in RUN_KINDS and ended.ends(item)]
    still_open = [item for item in memory.open if item not in over]
    messages = [Message.ended(item.problem(), look.now, look.secrets) for item in over]
    problem = ended.problem
    if problem is not None:
        again = next((item for item in still_open if same(item, problem)), None)
        if again is not None:
            still_open[still_open.index(again)] = replace(again, times=again.times + 1)
        else:
            still_open.append(Open.of(problem))
            messages.append(look.begun(problem))
    return replace(memory, open=tuple(still_open)), messages
