"""The suite of Great Expectations that 'quality.suite' of a target names: read when a script is compiled, and checked
as far as that can be done without data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tidegate.pipelines.connectors.table import Suite
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.paths import check, restricted
from tidegate.pipelines.syntax.errors import suggest

OPTION = "quality.suite"
NAMES_COLUMN = ("column", "column_A", "column_B")
NAMES_COLUMNS = ("column_list", "column_set")
ON_VIOLATION = ("fail", "warn")

Problem = tuple[str, str | None]
"""What is wrong, and what to do."""


def read_suite(written: str, path: Path, table: str, columns: Collection[str]) -> Suite | Problem:
    """The suite at `path`, for a table with these columns that INSERTs write; or the first thing that is wrong."""
    try:
        if restricted():
            check(path.resolve(), f"'{OPTION}'", table)
        text = path.read_text(encoding="utf-8")
        found = json.loads(text)
    except OSError as error:
        return f"the suite cannot be read: {error.strerror}", f"it was looked for at {path}"
    except SourceError as error:
        return error.what, error.next_command
    except ValueError as error:
        return f"the suite is no JSON: {error}", "write what ExpectationSuite.to_json_dict() gives"
    problem = next(_problems(found, table, columns), None)
    return problem or Suite(written, text, hashlib.sha256(text.encode()).hexdigest()[:16])


def _problems(suite: Any, table: str, columns: Collection[str]) -> Iterator[Problem]:
    items = suite.get("expectations") if isinstance(suite, Mapping) else None
    if not isinstance(items, list) or not items:
        yield "the suite has no expectations", 'write {"name": "…", "expectations": [{"type": …, "kwargs": …}]}'
        return
    for number, item in enumerate(items, 1):
        name = item.get("type") if isinstance(item, Mapping) else None
        where = f"expectation {number} of the suite"
        if not isinstance(name, str):
            yield f"{where} has no type", '{"type": "expect_…", "kwargs": {…}}'
        elif name not in known_expectations():
            yield f"{where}: there is no `{name}`", suggest(name, known_expectations(), "Great Expectations' own")
        else:
            yield from _wrong_arguments(f"{where} ({name})", item, table, columns)


def _wrong_arguments(where: str, item: Mapping[str, Any], table: str, columns: Collection[str]) -> Iterator[Problem]:
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
        if name not in columns:
            yield f"{where}: unknown column `{name}` of {table}", suggest(str(name), columns, "its columns")


@cache
def known_expectations() -> frozenset[str]:
    """The names of Great Expectations' own expectations; none where it is not installed."""
    spec = find_spec("great_expectations")
    folders = spec.submodule_search_locations if spec is not None else None
    return frozenset(
        path.stem for folder in folders or () for path in Path(folder, "expectations", "core").glob("*expect*.py")
    )
