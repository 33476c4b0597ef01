"""The value of a `${VAR}` in WITH options is shown to nobody: errors say its name instead."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import TidegateError

LEAST = 4
"""Characters of a value that is looked for everywhere; a shorter one (`1`) only where it is in quotes."""


class MaskedCause(Exception):
    """What caused a typed error, where its own text held a value of the environment."""


@dataclass(frozen=True)
class Mask:
    """Puts `${VAR}` in the place of the values of variables."""

    values: Mapping[str, str]

    @classmethod
    def of(cls, tables: Iterable[Table], environment: Mapping[str, str] | None = None) -> Mask:
        """For the variables that the WITH options of `tables` name."""
        known = os.environ if environment is None else environment
        names = sorted({name for table in tables for name in table.options.variables()})
        return cls({name: known[name] for name in names if known.get(name)})

    def text(self, text: str) -> str:
        """`text` without the values."""
        for name, value in sorted(self.values.items(), key=lambda item: -len(item[1])):
            edge = ("'", "'") if len(value) < LEAST else (r"(?<!\w)", r"(?!\w)")
            named = f"'${{{name}}}'" if len(value) < LEAST else f"${{{name}}}"
            text = re.sub(f"{edge[0]}{re.escape(value)}{edge[1]}", lambda _, named=named: named, text)
        return text

    @contextmanager
    def over(self) -> Iterator[None]:
        """Mask every typed error that passes, and what it says of its cause."""
        try:
            yield
        except TidegateError as error:
            error.reword(self.text)
            cause = error.__cause__ or error.__context__
            if cause is not None and any(self.text(each) != each for each in _chain(cause)):
                shown = " <- ".join(self.text(each) for each in _chain(cause))
                raise error from MaskedCause(shown).with_traceback(cause.__traceback__)
            raise


def _chain(error: BaseException | None) -> Iterator[str]:
    while error is not None:
        yield f"{type(error).__name__}: {error}"
        error = error.__cause__ or error.__context__
