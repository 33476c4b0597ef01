"""debezium-json, canal-json and changelog-json: the table tests/fixtures/formats/changes.toml, for both roles."""

from __future__ import annotations

import base64
import datetime
import hashlib
from decimal import Decimal
from typing import Any

import pytest

from tests.pipelines.sources.formats.format_tables import cases, decoded, python, values, wanted
from tidegate.pipelines.sources.formats import format_named

CASES = [(case, role) for case in cases("changes") for role in ("build", "probe")]
AS_PROBE = {"c": "+I", "r": "+I", "d": "-D", "t": "t"}


def expected(message: dict[str, Any], role: str) -> Any:
    """The rows [(op, row), …], or the text of the error."""
    told = message.get(role, message["build"])
    if told.startswith("!"):
        return told[1:].strip()
    rows = python(told)
    return rows if role in message else [(AS_PROBE[op], row) for op, row in rows]


def _cases() -> list[Any]:
    """As a build, and in `make test-all` as a probe too, where nothing else of the message is expected of one."""
    alike = [role == "probe" and not any("probe" in each for each in case["message"]) for case, role in CASES]
    marks = [(pytest.mark.thorough,) if same else () for same in alike]
    return [pytest.param(case, role, marks=mark) for (case, role), mark in zip(CASES, marks, strict=True)]


@pytest.mark.parametrize(("case", "role"), _cases(), ids=[f"{c['format']}: {c['name']}: {r}" for c, r in CASES])
def test_messages_become_changes_or_errors(spark, case: dict[str, Any], role: str) -> None:
    messages = case["message"]
    wants = wanted(case["columns"], case.get("options"), role=role)
    found = decoded(spark, case["format"], [message["value"].encode() for message in messages], wants)
    for message, rows in zip(messages, found, strict=True):
        told, given = expected(message, role), message["value"]
        if isinstance(told, str):
            (row,) = rows
            assert told in (row["_error"] or f"no error: {row}"), given
            assert (row["_op"], row["_fields"]) == (None, None), given
            continue
        assert [row["_error"] for row in rows] == [None] * len(told), given
        assert [(row["_op"], values(row["_fields"])) for row in rows] == told, given
        assert [row["_sub"] for row in rows] == sorted({row["_sub"] for row in rows}), given
        if "time" in message:
            at = datetime.datetime(1970, 1, 1) + datetime.timedelta(milliseconds=message["time"])
            assert {row["_time"] for row in rows} == {at}, given
        assert {row["_marks"] for row in rows} <= {message.get("marks")}, given


@pytest.mark.parametrize("name", ["debezium-json", "canal-json", "changelog-json"])
def test_a_tombstone_is_passed_over(spark, name: str) -> None:
    assert format_named(name).spec.changelog
    assert decoded(spark, name, [None], wanted("id INT", role="build")) == [[]]


def test_unscaled_numbers_of_all_sizes(spark) -> None:
    """Against Python's own big-endian two's complement."""
    numbers = [int.from_bytes(hashlib.sha256(bytes([n])).digest()[: n % 15 + 1], "big", signed=True) for n in range(60)]
    numbers += [0, -1, 2**63, 2**64, -(2**63), -(2**64), 10**38 - 1, -(10**38 - 1), 10**38]
    texts = [base64.b64encode(n.to_bytes((n.bit_length() // 8) + 1, "big", signed=True)).decode() for n in numbers]
    messages = [f'{{"op": "c", "after": {{"n": "{text}"}}}}'.encode() for text in texts]
    wants = wanted("n DECIMAL(38, 4)", {"debezium-json.decimal.handling.mode": "precise"})
    for number, (row,) in zip(numbers, decoded(spark, "debezium-json", [*messages], wants), strict=True):
        if abs(number) >= 10**38:
            assert "does not fit DECIMAL(38, 4)" in row["_error"]
        else:
            assert row["_fields"]["n"] == Decimal(f"{number}E-4"), number
