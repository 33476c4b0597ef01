"""How the command fails: one clear text without a stack, and the exit status that goes with it.

0  done        1  it failed, or a gate holds an epoch        2  the command line is wrong
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.markup import escape

from tidegate.orchestration.console.screen import Screen
from tidegate.pipelines.commands import AS_WRITTEN, Commands
from tidegate.pipelines.errors import GateHeld, TidegateError
from tidegate.pipelines.remedies import MEND, remedy

FAILED = 1
USAGE = 2
_MEND = f"{MEND} (a file that is damaged or gone: bring it back from a backup)"


@contextmanager
def reported(screen: Screen) -> Iterator[None]:
    """Print what a TidegateError says and leave with status 1; Ctrl-C leaves with 1 as well."""
    try:
        yield
    except TidegateError as error:
        show(screen, error)
        if screen.debug:
            screen.err.print_exception()
        raise typer.Exit(FAILED) from error
    except Exception as error:
        typed = of_the_engine(error)
        if typed is None:
            raise
        show(screen, typed)
        if screen.debug:
            screen.err.print_exception()
        raise typer.Exit(FAILED) from error
    except KeyboardInterrupt as error:
        screen.say("Stopped. Nothing is committed in half; the same command goes on where this one stopped.")
        raise typer.Exit(FAILED) from error


def of_the_engine(error: Exception) -> TidegateError | None:
    """What the disk, Delta Lake, Arrow or Spark threw where no step had a word for it; None for a mistake of ours."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from tidegate.pipelines.lake.delta_log import unreadable
    from tidegate.pipelines.runtime.failures import StepFailed, first_line

    if isinstance(error, BrokenPipeError) or not isinstance(error, (*unreadable(), PySparkException, Py4JError)):
        return None
    where = getattr(error, "filename", None)
    # Libraries that speak HTTP put addresses, with what is secret in them, into an OSError of their own.
    said = (error.strerror or "") if isinstance(error, OSError) else first_line(error)
    return StepFailed(
        f"{type(error).__name__}: {said}" if said else type(error).__name__,
        where=str(where or ""),
        state="what was committed before is safe, and nothing is half done: the next run goes on from its stored plan",
        next_command=remedy(str(error), _MEND) + ", then run the same command again; --debug shows the stack",
    )


def show(screen: Screen, error: TidegateError) -> None:
    """One error, for a program or for a person."""
    if screen.as_json:
        screen.result({"error": as_data(error, screen.commands)})
        return
    first, *rest = error.text(screen.commands).splitlines()
    screen.err.print(f"[bold red]{_kind(error)}[/] {escape(first)}", soft_wrap=True)
    for line in rest:
        screen.err.print(escape(line), soft_wrap=True)


def as_data(error: TidegateError, commands: Commands = AS_WRITTEN) -> dict[str, Any]:
    """An error as JSON: what, where, state, next; line and column too where it points into a script."""
    data: dict[str, Any] = {
        "kind": type(error).__name__,
        "what": error.what,
        "where": error.where,
        "state": error.state,
        "next": commands.shown(error.advice),
    }
    for name in ("line", "column", "hint"):
        if hasattr(error, name):
            data[name] = getattr(error, name)
    return data


def _kind(error: TidegateError) -> str:
    return "Held:" if isinstance(error, GateHeld) else "Error:"
