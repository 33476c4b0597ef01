"""Typed errors of the pipelines as Dagster shows them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import dagster as dg

from tidegate.assets.names import RETRIES, RETRY_ON_FAILURE
from tidegate.pipelines.clock import Clock, system_clock
from tidegate.pipelines.commands import AS_WRITTEN, Commands
from tidegate.pipelines.errors import ConcurrentRun, GateHeld, LeaseHeld, PlanningError, TidegateError

ERROR_KIND = "tidegate/error"
"""Failure metadata: the name of the typed error."""

FINAL = (GateHeld, LeaseHeld, PlanningError, ConcurrentRun)
"""Errors that a retry cannot mend: a person, another runner or the script has to change first."""


NO_RETRY = {RETRY_ON_FAILURE: "false"}
"""Run tag: a failed step (a held gate, a difference that was found) is not tried again, it needs a person or new
data."""

LONGEST_PAUSE_S = 15.0
"""A waiting step tries again after 1, 2, 4, … seconds, and then at this interval."""

StepContext = dg.AssetExecutionContext | dg.AssetCheckExecutionContext | dg.OpExecutionContext


def failure(error: TidegateError, commands: Commands = AS_WRITTEN) -> dg.Failure:
    """The failure of a step, with the state that is kept and the next command as metadata."""
    command = commands.shown(error.advice)
    facts = {"where": error.where, "state": error.state, "next": command}
    return dg.Failure(
        description=error.what,
        metadata={ERROR_KIND: type(error).__name__, **{name: text for name, text in facts.items() if text}},
        allow_retries=not isinstance(error, FINAL),
    )


@dataclass(frozen=True)
class Waits:
    """How the step of `context` waits for another runner's work; at most for `longest`."""

    context: StepContext
    longest: timedelta
    clock: Clock = system_clock

    def wait(self, error: LeaseHeld) -> None:
        """Raise RetryRequested: the step ends, frees its slot, and is started again in seconds. Returns once it has
        waited long enough, and if the executor's retries are disabled."""
        waited = timedelta(milliseconds=self.clock() - self._since())
        if waited >= self.longest or self.context.get_step_execution_context().retry_mode.disabled:
            return
        tries = self.context.retry_number
        seconds = min(2.0 ** min(tries, 5), LONGEST_PAUSE_S, (self.longest - waited).total_seconds())
        self.context.log.info(
            f"{error.owner} is being worked on by {error.holder}. This step waits, without a slot: it asks again in "
            f"{seconds:.0f} s, and fails once it has waited for {self.longest.total_seconds():,.0f} s."
        )
        raise dg.RetryRequested(max_retries=tries + 1, seconds_to_wait=seconds) from error

    def _since(self) -> int:
        """When this step of this run began to wait (ms, UTC); now, if it has not waited yet."""
        if self.context.retry_number:
            key = self.context.get_step_execution_context().step.key
            for record in self.context.instance.all_logs(
                self.context.run.run_id, dg.DagsterEventType.STEP_UP_FOR_RETRY
            ):
                asked = record.get_dagster_event()
                cause = asked.step_retry_data.error.cause if asked.step_key == key else None
                if cause is not None and cause.cls_name == LeaseHeld.__name__:
                    return int(record.timestamp * 1000)
        return self.clock()


def never_again(context: StepContext) -> None:
    """Keep Dagster from retrying this run, whoever started it: its verdict is final, and the gate's check would be
    shown as in progress instead of failed."""
    context.instance.add_run_tags(context.run.run_id, {**NO_RETRY, RETRIES: "0"})


@contextmanager
def explained(commands: Commands = AS_WRITTEN, waits: Waits | None = None) -> Iterator[None]:
    """Turn a typed error into a failed step with advice, or a LeaseHeld into one that waits; other errors are bugs and
    stay as they are."""
    try:
        yield
    except TidegateError as error:
        if isinstance(error, LeaseHeld) and waits is not None:
            waits.wait(error)
        if isinstance(error, GateHeld) and waits is not None:
            never_again(waits.context)
        raise failure(error, commands) from error
