"""json, csv and raw: the tables of tests/fixtures/formats."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cases import at_length
from tests.pipelines.sources.formats.format_tables import ONE_BY_ONE, cases, decoded, pair, python, values, wanted
from tidegate.pipelines.frames import settings

CASES = [(name, case) for name in ("json", "csv", "raw") for case in cases(name)]


@pytest.mark.parametrize(("name", "case"), CASES, ids=[f"{n}: {c.get('name', c['columns'])}" for n, c in CASES])
def test_messages_become_rows_or_errors(spark, name: str, case: dict[str, Any]) -> None:
    messages_become_rows_or_errors(spark, name, case)


@pytest.mark.parametrize("case", at_length(cases("json"), fast=4), ids=lambda case: case.get("name", case["columns"]))
def test_each_json_message_by_itself(spark, case: dict[str, Any]) -> None:
    """So those that are plain take the short way."""
    with settings(spark, ONE_BY_ONE):
        messages_become_rows_or_errors(spark, "json", case)


def messages_become_rows_or_errors(spark, name: str, case: dict[str, Any]) -> None:
    pairs = [pair(message) for message in case["messages"]]
    messages = [bytes.fromhex(given) if name == "raw" else given.encode() for given, _ in pairs]
    found = decoded(spark, name, [*messages], wanted(case["columns"], case.get("options")))
    for (given, expected), rows in zip(pairs, found, strict=True):
        if not expected.strip():
            assert rows == [], given
            continue
        assert [(row["_op"], row["_sub"], row["_time"], row["_marks"]) for row in rows] == [("+I", 0, None, None)], (
            given
        )
        row = rows[0]
        if expected.startswith("!"):
            assert expected[1:].strip() in (row["_error"] or f"no error: {row['_fields']}"), given
            assert row["_fields"] is None, given
        else:
            assert row["_error"] is None, (given, row["_error"])
            assert values(row["_fields"]) == python(expected), given


@pytest.mark.parametrize("name", ["json", "csv", "raw"])
@pytest.mark.parametrize(("role", "ops"), [("probe", ["-D", "+I"]), ("build", ["d", "c"])])
def test_a_null_message_says_that_its_key_is_gone(spark, name: str, role: str, ops: list[str]) -> None:
    message = {"json": b'{"s": "x"}', "csv": b"x", "raw": b"x"}[name]
    (gone,), (there,) = decoded(spark, name, [None, message], wanted("s STRING", role=role))
    assert [gone["_op"], there["_op"]] == ops
    assert (gone["_fields"], gone["_error"]) == (None, None)
    assert there["_fields"]["s"] == "x"


@pytest.mark.parametrize("name", ["json", "csv"])
def test_bytes_that_are_no_text(spark, name: str) -> None:
    ((row,),) = decoded(spark, name, [b'{"s": "\xff"}'], wanted("s STRING"))
    assert row["_error"].startswith("the message is no UTF-8 text")


def test_a_long_string_is_no_deep_recursion(spark) -> None:
    text = 'x\\"1.5' * 100_000
    ((row,),) = decoded(spark, "json", [f'{{"s": "{text}", "d": 1.5}}'.encode()], wanted("s STRING, d DECIMAL(2, 1)"))
    assert row["_error"] is None
    assert len(row["_fields"]["s"]) == 5 * 100_000
