"""Where the command writes: one result on stdout (a table for people, or one JSON document), all else on stderr. And
how it fails: one clear text without a stack, and an exit status:

  0  done        1  it failed, or a gate holds an epoch        2  the command line is wrong
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TextIO

import typer
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.text import Text
from typer.exceptions import TyperException

from tidegate.orchestration.console.grid import FILE_WIDTH, Line
from tidegate.pipelines.commands import AS_WRITTEN, MEND, Commands, remedy
from tidegate.pipelines.errors import GateHeld, TidegateError
from tidegate.pipelines.text import document


@dataclass
class Screen:
    """Args:
    as_json: Print results (and errors) as JSON.
    debug: Show stacks of errors.
    commands: The script and the lake of this very command, for the commands that it shows.
    """

    as_json: bool = False
    debug: bool = False
    commands: Commands = AS_WRITTEN
    out: Console = field(default_factory=lambda: _console(stderr=False))
    err: Console = field(default_factory=lambda: _console(stderr=True))

    def result(self, data: Any, *shown: RenderableType) -> None:
        """The result: `data` for a program, `shown` for a person."""
        if self.as_json:
            self.out.file.write(document(data))
            self.out.file.flush()
            return
        for item in shown:
            self.out.print(item, soft_wrap=isinstance(item, str | Text | Line))

    def line(self, text: str, **data: Any) -> None:
        """One event of a stream of them: a line of text, or one line of JSON."""
        if self.as_json:
            self.out.file.write(json.dumps(data, ensure_ascii=False, default=str) + "\n")
            self.out.file.flush()
        else:
            self.out.print(text, soft_wrap=True)

    def say(self, text: RenderableType) -> None:
        """A message beside the result."""
        self.err.print(text, soft_wrap=True)


def _console(*, stderr: bool) -> Console:
    file = _own_stderr() if stderr else None
    console = Console(file=file, highlight=False)
    return console if console.is_terminal else Console(file=file, highlight=False, width=FILE_WIDTH)


def _own_stderr() -> TextIO:
    """Standard error, on a descriptor of its own, so that Spark can use the original while bars go on."""
    if sys.stderr is not sys.__stderr__ or sys.stderr.fileno() != 2:
        return sys.stderr
    return os.fdopen(os.dup(2), "w", encoding="utf-8", buffering=1)


FAILED, USAGE = 1, 2
_MEND = f"{MEND} (a file that is damaged or gone: bring it back from a backup)"


@contextmanager
def reported(screen: Screen) -> Iterator[None]:
    """Print a TidegateError and leave with status 1; Ctrl-C leaves with 1 as well."""
    try:
        yield
    except Exception as error:
        typed = error if isinstance(error, TidegateError) else of_the_engine(error)
        if typed is None:
            raise
        show(screen, typed)
        if screen.debug:
            screen.err.print_exception()
        raise typer.Exit(FAILED) from error
    except KeyboardInterrupt as error:
        state, then = "nothing is committed in half", "the same command goes on where this one stopped"
        screen.say(f"Stopped. {state.capitalize()}; {then}.")
        if screen.as_json:
            stopped = {"kind": "Stopped", "what": "it was interrupted", "where": "", "state": state, "next": then}
            screen.result({"error": stopped})
        raise typer.Exit(FAILED) from error


def of_the_engine(error: Exception) -> TidegateError | None:
    """The error for what the disk, Delta Lake, Arrow or Spark raised where no step has explained it; None for a bug."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from tidegate.pipelines.lake.delta_log import unreadable
    from tidegate.pipelines.runtime.failures import StepFailed, first_line

    if isinstance(error, BrokenPipeError) or not isinstance(error, (*unreadable(), PySparkException, Py4JError)):
        return None
    where = getattr(error, "filename", None)
    # Libraries that speak HTTP put addresses, with what is secret in them, into an OSError of their own.
    detail = (error.strerror or "") if isinstance(error, OSError) else first_line(error)
    return StepFailed(
        f"{type(error).__name__}: {detail}" if detail else type(error).__name__,
        where=str(where or ""),
        state="what was committed before is safe, and nothing is half done: the next run goes on from its stored plan",
        next_command=remedy(str(error), _MEND) + ", then run the same command again; --debug shows the stack",
    )


def wrong_usage(error: TyperException) -> str:
    """The error of a command line, as one JSON document."""
    context, message = getattr(error, "ctx", None), getattr(error, "format_message", error.__str__)
    command = context.command_path if context is not None else "tidegate"
    found = {"kind": type(error).__name__, "what": message(), "where": command, "state": "nothing was run"}
    return document({"error": {**found, "next": f"{command} --help"}})


def show(screen: Screen, error: TidegateError) -> None:
    """One error, for a program or for a person."""
    if screen.as_json:
        screen.result({"error": as_data(error, screen.commands)})
        return
    first, *rest = error.text(screen.commands).splitlines()
    kind = "Held:" if isinstance(error, GateHeld) else "Error:"
    screen.err.print(f"[bold red]{kind}[/] {escape(first)}", soft_wrap=True)
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
