"""debezium-json, canal-json and changelog-json: the table tests/fixtures/formats/changes.toml, for both roles.

And json, csv and raw: the tables of tests/fixtures/formats.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import random
import re
from decimal import Decimal
from typing import Any

import pytest

from tests.cases import SEED, at_length
from tests.pipelines.sources.formats.format_tables import (
    ONE_BY_ONE,
    cases,
    decoded,
    messages_become_rows_or_errors,
    python,
    values,
    wanted,
)
from tidegate.pipelines.frames import settings
from tidegate.pipelines.sources.formats import format_named, shape
from tidegate.pipelines.syntax.dialect import parse_type
from tidegate.pipelines.syntax.types import FlinkType, Kind, decimal

CASES = [(case, role) for case in cases("changes") for role in ("build", "probe")]
AS_PROBE = {"c": "+I", "r": "+I", "d": "-D", "t": "t"}


def expected(message: dict[str, Any], role: str) -> Any:
    """The rows [(op, row), …], or the text of the error."""
    written = message.get(role, message["build"])
    if written.startswith("!"):
        return written[1:].strip()
    rows = python(written)
    return rows if role in message else [(AS_PROBE[op], row) for op, row in rows]


def _cases() -> list[Any]:
    """As a build, and in `make test-all` as a probe too, where nothing else of the message is expected of one."""
    alike = [role == "probe" and not any("probe" in each for each in case["message"]) for case, role in CASES]
    marks = [(pytest.mark.thorough,) if same else () for same in alike]
    return [pytest.param(case, role, marks=mark) for (case, role), mark in zip(CASES, marks, strict=True)]


@pytest.mark.parametrize(("case", "role"), _cases(), ids=[f"{c['format']}: {c['name']}: {r}" for c, r in CASES])
def test_messages_become_changes_or_errors(spark, case: dict[str, Any], role: str) -> None:
    messages = case["message"]
    wants = wanted(case["columns"], case.get("options"), role=role, fields=case.get("fields"))
    found = decoded(spark, case["format"], [message["value"].encode() for message in messages], wants)
    for message, rows in zip(messages, found, strict=True):
        rows_or_error, given = expected(message, role), message["value"]
        if isinstance(rows_or_error, str):
            (row,) = rows
            assert rows_or_error in (row["_error"] or f"no error: {row}"), given
            assert (row["_op"], row["_fields"]) == (None, None), given
            continue
        assert [row["_error"] for row in rows] == [None] * len(rows_or_error), given
        assert [(row["_op"], values(row["_fields"])) for row in rows] == rows_or_error, given
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


ADDED = [(name, case) for name in ("json", "csv", "raw") for case in cases(name)]


@pytest.mark.parametrize(("name", "case"), ADDED, ids=[f"{n}: {c.get('name', c['columns'])}" for n, c in ADDED])
def test_messages_become_rows_or_errors(spark, name: str, case: dict[str, Any]) -> None:
    messages_become_rows_or_errors(spark, name, case, bytes.fromhex if name == "raw" else str.encode)


@pytest.mark.parametrize("case", at_length(cases("json"), fast=4), ids=lambda case: case.get("name", case["columns"]))
def test_each_json_message_by_itself(spark, case: dict[str, Any]) -> None:
    """So those that are plain take the short way."""
    with settings(spark, ONE_BY_ONE):
        messages_become_rows_or_errors(spark, "json", case, str.encode)


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


COUNT = 400
EPOCH = datetime.datetime(1970, 1, 1)


@pytest.fixture(scope="module")
def chance() -> random.Random:
    print(f"seed {SEED}")
    return random.Random(SEED)


def evaluated(spark, sql: str, texts: list[str]) -> list:
    rows = spark.createDataFrame(list(enumerate(texts)), "n INT, t STRING").coalesce(1)
    return [row["v"] for row in sorted(rows.selectExpr("n", f"{sql} AS v").collect(), key=lambda row: row["n"])]


def digits(chance: random.Random, most: int) -> str:
    return "".join(chance.choice("0000123456789") for _ in range(chance.randint(0, most)))


def decimals(chance: random.Random) -> list[str]:
    found = []
    for _ in range(COUNT):
        number = f"{chance.choice(['', '-', '+'])}{digits(chance, 38)}"
        number += f".{digits(chance, 38)}" if chance.random() < 0.6 else ""
        number += f"{chance.choice('eE')}{chance.randint(-40, 40)}" if chance.random() < 0.4 else ""
        found.append(number)
    return [*found, "", ".", "-", "e5", "1e", "1.5.2", "0x1", "1 2", " 1.5 ", "NaN", "1e999999999", "0e99999", "1_0"]


def fitting(number: str, of: FlinkType) -> Decimal | None:
    """The oracle: the value if it has not too many digits on either side of the point."""
    if not re.fullmatch(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", number):
        return None
    sign, figures, exponent = Decimal(number.strip()).as_tuple()
    assert isinstance(exponent, int)
    figures = tuple(figures)
    while figures and figures[-1] == 0:
        figures, exponent = figures[:-1], exponent + 1
    while figures and figures[0] == 0:
        figures = figures[1:]
    if not figures:
        return Decimal(0)
    scale, precision = of.scale or 0, of.precision or 0
    fits = -exponent <= scale and len(figures) + exponent <= precision - scale
    return Decimal((sign, figures, exponent)) if fits else None


@pytest.mark.parametrize(
    "of", [decimal(38, 0), decimal(38, 38), decimal(38, 18), decimal(10, 2), decimal(1, 1)], ids=str
)
def test_decimals(spark, chance: random.Random, of: FlinkType) -> None:
    texts = decimals(chance)
    for given, found in zip(texts, evaluated(spark, shape.scalar("t", of), texts), strict=True):
        assert found == fitting(given, of), given


@pytest.mark.parametrize("precision", [0, 3, 6])
@pytest.mark.parametrize("standard", shape.STANDARDS)
def test_timestamps(spark, chance: random.Random, precision: int, standard: str) -> None:
    of = FlinkType(Kind.TIMESTAMP, precision)
    texts, wanted = [], []
    for _ in range(COUNT):
        at = EPOCH + datetime.timedelta(seconds=chance.randint(-(10**9), 4 * 10**9))
        fraction = digits(chance, 8)
        texts.append(at.isoformat(sep=chance.choice(" T")) + (f".{fraction}" if fraction else ""))
        micros = fraction.ljust(9, "0")
        fits = (texts[-1][10] == " ") == (standard == "SQL") and not fraction.rstrip("0")[precision:]
        wanted.append(at.replace(microsecond=int(micros[:6])) if fits else None)
    texts += ["2026-02-29 00:00:00", "2026-13-01T00:00:00", "2026-01-01", "", "x", "2026-01-01 24:00:00"]
    wanted += [None] * 6
    assert evaluated(spark, shape.scalar("t", of, standard), texts) == wanted


def test_numbers_since_1970(spark, chance: random.Random) -> None:
    for of in map(parse_type, ("TIMESTAMP(0)", "TIMESTAMP(3)", "TIMESTAMP(6)")):
        for unit in (3, 6, 9):
            numbers = [chance.randint(-(10 ** (8 + unit)), 10 ** (9 + unit)) for _ in range(50)]
            numbers += [number // 10**unit * 10**unit for number in numbers]
            numbers += [number // 10 ** (unit // 2) * 10 ** (unit // 2) for number in numbers]
            wanted = []
            for number in numbers:
                finer = 10 ** max(unit - shape.precision(of), 0)
                micros = number * 10**6 // 10**unit
                wanted.append(None if number % finer else EPOCH + datetime.timedelta(microseconds=micros))
            found = evaluated(spark, shape.since_epoch("t", of, unit), [str(number) for number in numbers])
            assert found == wanted, (of, unit)
    wrong = ["", "1.5", "x", "9" * 30]
    assert evaluated(spark, shape.since_epoch("t", parse_type("TIMESTAMP(6)"), 9), wrong) == [None] * 4
