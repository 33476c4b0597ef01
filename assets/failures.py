"""Typed errors of the pipelines as Dagster shows them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from tidegate.pipelines.commands import AS_WRITTEN, Commands
from tidegate.pipelines.errors import ConcurrentRun, GateHeld, LeaseHeld, PlanningError, TidegateError

ERROR_KIND = "tidegate/error"
"""Failure metadata: the name of the typed error."""

FINAL = (GateHeld, LeaseHeld, PlanningError, ConcurrentRun)
"""What a retry can not mend: a person, another runner or the script has to change first."""


def failure(error: TidegateError, commands: Commands = AS_WRITTEN) -> dg.Failure:
    """The failure of a step, with the state that is kept and the next command as metadata."""
    command = commands.filled(error.next_command)
    told = {"where": error.where, "state": error.state, "next": command}
    return dg.Failure(
        description=error.what,
        metadata={ERROR_KIND: type(error).__name__, **{name: text for name, text in told.items() if text}},
        allow_retries=not isinstance(error, FINAL),
    )


@contextmanager
def explained(commands: Commands = AS_WRITTEN) -> Iterator[None]:
    """Turn a typed error into a failed step that says what to do; other errors are bugs and stay as they are."""
    try:
        yield
    except TidegateError as error:
        raise failure(error, commands) from error
