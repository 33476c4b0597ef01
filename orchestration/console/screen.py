"""Where the command writes: one result on stdout (a table for people, or one JSON document), all else on stderr."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, RenderableType


@dataclass
class Screen:
    """Args:
    as_json: Print results (and errors) as JSON.
    debug: Show stacks of errors.
    """

    as_json: bool = False
    debug: bool = False
    out: Console = field(default_factory=lambda: Console(highlight=False))
    err: Console = field(default_factory=lambda: Console(stderr=True, highlight=False))

    def result(self, data: Any, *shown: RenderableType) -> None:
        """The answer: `data` where a program reads it, `shown` where a person does."""
        if self.as_json:
            self.out.file.write(json.dumps(data, indent=2, ensure_ascii=False, default=str) + "\n")
            self.out.file.flush()
            return
        for item in shown:
            self.out.print(item)

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
