"""Where the command writes: one result on stdout (a table for people, or one JSON document), all else on stderr."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field
from typing import Any, TextIO

from rich.console import Console, RenderableType
from rich.text import Text

from tidegate.orchestration.console.grid import FILE_WIDTH, Line
from tidegate.pipelines.commands import AS_WRITTEN, Commands
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
        """The answer: `data` where a program reads it, `shown` where a person does."""
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
    """Standard error, on a descriptor of its own: it can be lent to Spark while bars go on here."""
    if sys.stderr is not sys.__stderr__ or sys.stderr.fileno() != 2:
        return sys.stderr
    return os.fdopen(os.dup(2), "w", encoding="utf-8", buffering=1)
