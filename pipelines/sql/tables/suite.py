"""'quality.suite' of one CREATE TABLE: a file of Great Expectations, read and looked through by the compiler.

What is found here stays what judges: a file that changes or vanishes later changes nothing for a pipeline that is
compiled. Great Expectations itself is not imported; which expectations it has is known from the names of its modules.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tidegate.pipelines.connectors.table import Column, Suite
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.paths import check, restricted
from tidegate.pipelines.syntax.errors import SqlError, suggest
from tidegate.pipelines.syntax.secrets import needs_variables
from tidegate.pipelines.syntax.source import Source
from tidegate.pipelines.syntax.statements import CreateTable, Text

OPTION = "quality.suite"
NAMES_COLUMN = ("column", "column_A", "column_B")
NAMES_COLUMNS = ("column_list", "column_set")
ON_VIOLATION = ("fail", "warn")


class SuiteCompiler:
    """Reads the suite that a table names; paths are relative to the script."""

    def __init__(self, source: Source, statement: CreateTable, columns: Sequence[Column]) -> None:
        self.source = source
        self.statement = statement
        self.columns = [column.name for column in columns if column.physical]

    def compile(self) -> Suite | None:
        """The suite; None where the table names none. Raises SqlError at the option's value."""
        value = next((option.value for option in self.statement.options if option.key.text == OPTION), None)
        if value is None:
            return None
        if needs_variables(value.text):
            raise self._error(value, f"'{OPTION}' cannot come from the environment: it is read when compiling")
        path = Path(self.source.path or ".").parent / value.text
        problem = hint = None
        text = ""
        try:
            if restricted():
                check(path.resolve(), f"'{OPTION}'", self.statement.name.text)
            text = path.read_text(encoding="utf-8")
            found = json.loads(text)
        except OSError as error:
            problem, hint = f"the suite cannot be read: {error.strerror}", f"it was looked for at {path}"
        except SourceError as error:
            problem, hint = error.what, error.next_command
        except ValueError as error:
            problem, hint = f"the suite is no JSON: {error}", "write what ExpectationSuite.to_json_dict() gives"
        else:
            for problem, hint in self._problems(found):  # noqa: B007  the first one is reported
                break
        if problem is not None:
            raise self._error(value, problem, hint)
        return Suite(value.text, text, hashlib.sha256(text.encode()).hexdigest()[:16])

    def _error(self, value: Text, what: str, hint: str | None = None) -> SqlError:
        return self.source.error(value.span, what, hint)

    def _problems(self, suite: Any) -> Iterator[tuple[str, str | None]]:
        """What is wrong with a suite, with a hint each."""
        items = suite.get("expectations") if isinstance(suite, Mapping) else None
        if not isinstance(items, list) or not items:
            yield "the suite has no expectations", 'write {"name": "…", "expectations": [{"type": …, "kwargs": …}]}'
            return
        for number, item in enumerate(items, 1):
            name = item.get("type") if isinstance(item, Mapping) else None
            if not isinstance(name, str):
                yield f"expectation {number} of the suite has no type", '{"type": "expect_…", "kwargs": {…}}'
            elif name not in known_expectations():
                close = suggest(name, known_expectations(), "Great Expectations' own")
                yield f"expectation {number} of the suite: there is no `{name}`", close
            else:
                yield from self._kwargs(f"expectation {number} of the suite ({name})", item)

    def _kwargs(self, where: str, item: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
        kwargs, meta = item.get("kwargs", {}), item.get("meta") or {}
        if not isinstance(kwargs, Mapping) or not isinstance(meta, Mapping):
            yield f"{where}: kwargs and meta are objects", None
            return
        if meta.get("on_violation", "fail") not in ON_VIOLATION:
            yield f"{where}: on_violation is {meta['on_violation']!r}", "write 'fail' or 'warn'"
        named = [kwargs[name] for name in NAMES_COLUMN if name in kwargs]
        named += [name for key in NAMES_COLUMNS if isinstance(kwargs.get(key), list) for name in kwargs[key]]
        if item["type"] == "expect_column_to_exist":
            return
        for name in named:
            if name not in self.columns:
                yield (
                    f"{where}: unknown column `{name}` of {self.statement.name.text}",
                    suggest(str(name), self.columns, "its columns"),
                )


@cache
def known_expectations() -> frozenset[str]:
    """The names of Great Expectations' own expectations; none where it is not installed."""
    spec = find_spec("great_expectations")
    folders = spec.submodule_search_locations if spec is not None else None
    return frozenset(
        path.stem for folder in folders or () for path in Path(folder, "expectations", "core").glob("*expect*.py")
    )
