"""A tick of the alerting sensor: the problems now, compared with those of the last tick. What has begun and what is
over is sent.

What was sent, and what no channel has taken, is stored in the sensor's cursor.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from itertools import product
from typing import Any, get_args

import dagster as dg

from tidegate.assets.names import RETRIED_BY
from tidegate.assets.watched import Watched, watched
from tidegate.orchestration.alerts import AlertOptions
from tidegate.orchestration.alerts.channels import channels, secrets_of
from tidegate.orchestration.alerts.dagster_problems import AWAY_S, Links, queued, with_absence, with_runs
from tidegate.orchestration.alerts.memory import RUN_KINDS, Memory
from tidegate.orchestration.alerts.message import Message
from tidegate.orchestration.alerts.runs import Ran, ran, same, will_be_retried
from tidegate.orchestration.alerts.scrubbing import reason, scrub, scrubbed
from tidegate.orchestration.alerts.sending import sent
from tidegate.orchestration.alerts.sources import ASK_EVERY_S, asked
from tidegate.pipelines.facts.problem import InsertScope, Kind, Problem, Scope, SourceScope, rooted
from tidegate.pipelines.facts.problems import problems
from tidegate.pipelines.lake import Lake

DECIDED_WITHIN_S = 600.0
"""How long to wait for a retry that Dagster has announced, and for a run's history that cannot be read."""
RUNS_AT_ONCE = 500
"""Finished runs that one tick looks at; so many are remembered as handled."""
FINISHED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]


def tick(context: dg.SensorEvaluationContext, options: AlertOptions) -> dg.SensorResult:
    """One check of everything. What the sources report is asked for at its end, and counts at the next one: a slow
    server delays no alert."""
    assert context.repository_def is not None
    now, memory = datetime.now(UTC).timestamp(), Memory.of(context.cursor)
    look = Look(
        watched(context.repository_def), context.instance, options, context.log, now, now - memory.asked >= ASK_EVERY_S
    )
    # A late tick means that the daemon was away.
    away = (memory.looked, now) if memory.looked and now - memory.looked > AWAY_S else memory.away
    memory, of_runs = look.runs(replace(memory, looked=now, away=away))
    found, unseen = look.problems(memory, of_runs)
    memory, begun, over = memory.compared(found, unseen)
    messages = [*map(look.begun, begun), *(Message.ended(each, look.at) for each in over)]
    for message in messages:
        (look.log.info if message.state == "resolved" else look.log.error)(message.text)
    left = sent([*memory.unsent, *messages], channels(options), look.log)
    memory = replace(memory, unsent=tuple(left))
    if look.is_due:
        memory = replace(memory, asked=now, reported=asked(look.found.tables, memory.reported, look.log, look.at))
    summary = [f"{message.key} ({message.state})" for message in messages]
    text = scrub(f"sent: {', '.join(summary)}" if summary else "nothing new to send")
    waiting = f"; no channel has taken {len(left):,} of them yet" if left else ""
    return dg.SensorResult(skip_reason=dg.SkipReason(text + waiting), cursor=memory.cursor())


@dataclass(frozen=True)
class Look:
    """One tick's check of what is watched. `now`: s, UTC. `is_due`: whether it is looked whether rows add up, and the
    sources are asked."""

    found: Watched
    instance: dg.DagsterInstance
    options: AlertOptions
    log: Any
    now: float
    is_due: bool

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
        return Message.begun(links.completed(problem), commands, scrub(links.run(problem), secrets=self.secrets))

    def runs(self, memory: Memory) -> tuple[Memory, list[Problem]]:
        """The problems of runs: those that are open and were not ended by a run since, and those of runs since. The
        first tick only stores the time."""
        if memory.since is None:
            return replace(memory, since=self.now), []
        records = self.instance.get_run_records(
            dg.RunsFilter(statuses=FINISHED, updated_after=datetime.fromtimestamp(memory.since, UTC)),
            order_by="update_timestamp",
            ascending=True,
            limit=RUNS_AT_ONCE,
        )
        still, handled = [item for item in memory.open if item.kind in RUN_KINDS], [*memory.handled]
        since, waits = memory.since, False
        for record in records:
            run, at = record.dagster_run, record.update_timestamp.timestamp()
            if run.run_id not in handled:
                known, ended = self._read(run, self.now - (record.end_time or at) >= DECIDED_WITHIN_S)
                waits = waits or not known
                handled += [run.run_id] if known else []
                if ended is not None:
                    still = [item for item in still if not ended.ends(item)]
                    problem = ended.problem and scrubbed(ended.problem, self.secrets)
                    if problem is not None and not any(same(item, problem) for item in still):
                        still.append(problem)
            # A hair before: runs that were updated in that very instant are looked at again, and reported once.
            since = since if waits else max(since, at - 0.001)
        return replace(memory, handled=tuple(handled[-RUNS_AT_ONCE:]), since=since), still

    def _read(self, run: dg.DagsterRun, late: bool) -> tuple[bool, Ran | None]:
        """Whether it is known by now what came of a finished run, and what. `late`: it has ended long ago."""
        if will_be_retried(run) and (RETRIED_BY in run.tags or not late):
            return RETRIED_BY in run.tags, None  # it is no problem yet: the run in its place shows how it ends
        clean = partial(scrub, secrets=self.secrets)
        try:
            return True, ran(self.instance, run, self.found, clean)
        except Exception as error:  # noqa: BLE001 one run that cannot be read must not silence the others
            self.log.warning(scrub(f"run {run.run_id} could not be read: {type(error).__name__}"))
            return late, ran(self.instance, run, self.found, clean, error) if late else None

    def problems(self, memory: Memory, of_runs: list[Problem]) -> tuple[list[Problem], set[str]]:
        """All problems now; and beginnings of the keys of what could not be checked."""
        known, unseen, found = {item.key for item in memory.open}, set[str](), [*of_runs]

        def failed(key: str, error: Exception) -> None:
            self.log.warning(scrub(f"{key} could not be checked: {reason(error)}"))
            unseen.update((key, "daemon-away") if key.startswith("lag ") else (key,))

        for folder, scope in _scopes(self.found):
            names = [*(source.table for source in scope.sources), *(insert.insert for insert in scope.inserts)]
            reports = {name: memory.reported.get(f"{folder} {name}") for name in names}
            unseen |= {f"imbalanced {folder} {name}" for name in names if not self.is_due}
            try:
                if (lake := Lake.found(folder)) is not None:
                    found += problems(
                        lake,
                        self.at,
                        scope,
                        bounds=self.options.bounds,
                        reported={name: report for name, report in reports.items() if report is not None},
                        shows_rows=lambda key: key not in known,
                        unread=failed,
                        counts_rows=self.is_due,
                    )
            except Exception as error:  # noqa: BLE001 one lake that fails must not silence the others
                for kind, name in product(get_args(Kind), names):
                    failed(f"{kind} {folder} {name}", error)
        try:
            waiting = queued(self.instance, self.found, self.now)
            found += [waiting] if waiting else []
        except Exception as error:  # noqa: BLE001 nor must Dagster's queue
            failed("runs-queued", error)
        found = rooted(with_runs(found, self.instance))
        found = with_absence(found, memory.away, self.now, self.options.max_lag)
        return [scrubbed(problem, self.secrets) for problem in found], unseen


def _scopes(found: Watched) -> Iterator[tuple[str, Scope]]:
    """Each lake with what is watched of one pipeline."""
    for own in sorted({(item.lake, item.pipeline) for item in (*found.tables, *found.inserts)}):
        tables = [table for table in found.tables if (table.lake, table.pipeline) == own]
        inserts = [insert for insert in found.inserts if (insert.lake, insert.pipeline) == own]
        sources = tuple(SourceScope(table.table, table.build, table.waits) for table in tables)
        targets = tuple(
            InsertScope(item.insert, item.places.target, item.places.staged, item.joins) for item in inserts
        )
        yield own[0], Scope(own[1], sources, targets, qualified=True)
