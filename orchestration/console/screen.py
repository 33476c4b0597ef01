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
from rich.console import Console
from rich.text import Text
from typer.exceptions import TyperException

from tidegate.orchestration.console.grid import FILE_WIDTH, Grid
from tidegate.orchestration.console.shown import said, shown
from tidegate.pipelines.commands import AS_WRITTEN, MEND, Commands, advice, remedy
from tidegate.pipelines.errors import GateHeld, TidegateError
from tidegate.pipelines.records.document import as_json
from tidegate.pipelines.records.failure import Failure
from tidegate.pipelines.records.kinds import Note
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

    def result(self, *records: Any) -> None:
        """The result; as JSON it is one record."""
        if self.as_json:
            (record,) = records
            self.out.file.write(document(as_json(record, self.commands)))
            self.out.file.flush()
            return
        for record in records:
            for item in shown(record, self.commands):
                self._print(self.out, item)

    def line(self, record: Any) -> None:
        """One event of a stream of them: its `line`, or one line of JSON."""
        if self.as_json:
            text = json.dumps(as_json(record, self.commands), ensure_ascii=False, default=str)
            self.out.file.write(f"{text}\n")
            self.out.file.flush()
        else:
            self._print(self.out, Text(record.line))

    def say(self, told: str | Note) -> None:
        """A message beside the result."""
        for item in said(Note(told) if isinstance(told, str) else told, self.commands):
            self._print(self.err, item)

    @staticmethod
    def _print(console: Console, item: Text | Grid) -> None:
        console.print(item, soft_wrap=isinstance(item, Text))


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
            stopped = Failure(kind="Stopped", what="it was interrupted", where="", state=state, next=advice(then))
            screen.result(Failed(stopped))
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
    help_ = advice(f"{command} --help")
    failure = Failure(
        kind=type(error).__name__, what=message(), where=command, state="nothing was run", next=help_
    )  # fmt: skip
    return document(as_json(Failed(failure)))


def show(screen: Screen, error: TidegateError) -> None:
    """One error, for a program or for a person."""
    if screen.as_json:
        screen.result(Failed(Failure.of(error)))
        return
    kind = "Held:" if isinstance(error, GateHeld) else "Error:"
    screen.say(Note(f"{kind} {error.text(screen.commands)}", "bad", len(kind)))


@dataclass(frozen=True)
class Failed:
    """The result of a command that failed."""

    error: Failure
