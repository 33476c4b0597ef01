"""What every module keeps to, found in its text: what is asked of the lake is asked by a function that returns a
record, and a number before a noun is written by `counted`."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SHOWING = ("orchestration", "assets")
"""What shows facts, and reads no control table and no plan for it."""

PLANS = {
    *("ReleasePlan", "Taken", "Bounds", "StateSpan"),
    *("Backfill", "stored_plan", "stored_step"),
}
ROWS = {
    *("EpochRow", "StagedRow", "VerdictRow", "WatermarkRow", "SplitRow", "StuckRow", "AlertRow", "LedgerRow"),
    *("DefinitionRow", "read_leases", "Splits"),
}
TABLES = {"epochs", "staged", "verdicts", "watermarks", "splits", "stuck", "alerts", "ledger", "definitions"}
READING = {"last", "rows", "owners", "newest_first", "append", "newest"}

FACTS = "tidegate.pipelines.facts"
"""Records, some of which are called like what they are made of."""


def modules(*folders: str) -> Iterator[tuple[str, str]]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def read_from_lake(source: str) -> set[str]:
    """The control tables that a module reads, and the rows and plans that it knows."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ImportFrom(module=module, names=names) if not (module or "").startswith(FACTS):
                found |= {each.name for each in names} & (PLANS | ROWS)
            case ast.Attribute(value=ast.Attribute(attr=table), attr=what) if table in TABLES and what in READING:
                found.add(f"{table}.{what}")
    return found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("lake.epochs.last(owner)", {"epochs.last"}),
        ("from tidegate.pipelines.runtime.epochs import Pin, ReleasePlan", {"ReleasePlan"}),
        ("status.inserts[0].rows.landed", set()),
    ],
)
def test_the_rule_sees_what_it_forbids(source: str, found: set[str]) -> None:
    assert read_from_lake(source) == found


def test_what_shows_facts_reads_no_control_table_and_knows_no_plan() -> None:
    reading = {name: read_from_lake(source) for name, source in modules(*SHOWING)}
    others = {name: sorted(found) for name, found in reading.items() if found}
    assert others == {}


NOUNS = "rows|epochs|chunks|splits|messages|keys|tables|clicks|INSERTs"
NOT_COUNTED = {
    "orchestration/demo/": "there are many",
}


def written_as_many(source: str) -> list[str]:
    """Places in f-strings where a number stands before a noun in the plural, whatever it is."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            parts = node.values
            for part, after in itertools.pairwise(parts):
                if not isinstance(part, ast.FormattedValue) or not isinstance(after, ast.Constant):
                    continue
                spec = ast.unparse(part.format_spec) if part.format_spec else ""
                if "," in spec and re.match(rf" (?:\w+ )?(?:{NOUNS})\b(?!/s)", str(after.value)):
                    found.append(f"{{{ast.unparse(part.value)}}}{str(after.value)[:30]}")
    return found


def test_one_row_is_not_1_rows() -> None:
    assert written_as_many('f"{rows:,} rows, {rows:,} more rows, {one}"') != []
    found = {
        name: places
        for name, source in modules("orchestration", "assets", "pipelines", "quality_checks")
        if (places := written_as_many(source)) and not name.startswith(tuple(NOT_COUNTED))
    }
    assert found == {}
