"""The format avro, with messages that an independent library writes (fastavro): tests/fixtures/formats/avro.toml.

And which records have a number that is too long: those of that library have none, whatever bytes their text has.
"""

from __future__ import annotations

import datetime
import json
import random
import re
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.pipelines.sources.formats.format_tables import (
    cases,
    decoded,
    messages_become_rows_or_errors,
    python,
    values,
    wanted,
    written,
)
from tidegate.pipelines.sources.formats import problems
from tidegate.pipelines.sources.formats.avro import _SUSPECT, _end_mark, schema
from tidegate.pipelines.sources.formats.avro_numbers import TooLong

CASES = cases("avro")


def test_a_mark_makes_no_message_look_as_if_it_had_a_number_that_is_too_long() -> None:
    """About one process in a hundred had drawn one that did, and refused 0 where it is written as 80 00."""
    looks = re.compile(_SUSPECT.encode("latin-1"))
    marks = [_end_mark() for _ in range(2_000)]
    assert not any(looks.search(before + mark) for mark in marks for before in (b"", b"\x80\x00", b"\xff" * 9))
    assert len(set(marks)) == 2_000
    assert {(len(mark), mark.count(0), mark[-1]) for mark in marks} == {(16, 1, 0)}


@pytest.mark.parametrize("case", CASES, ids=[case.get("name", case["columns"]) for case in CASES])
def test_messages_become_rows_or_errors(spark, case: dict[str, Any]) -> None:
    types = [json.loads(of) for of in case["avro"]]

    def encoded(given: str) -> bytes:
        return bytes.fromhex(given[1:]) if given.startswith("x") else written(types, python(given))

    messages_become_rows_or_errors(spark, "avro", case, encoded)


@pytest.mark.parametrize(("role", "ops"), [("probe", ["-D", "+I", "+I"]), ("build", ["d", "c", "c"])])
def test_a_null_message_says_that_its_key_is_gone(spark, role: str, ops: list[str]) -> None:
    """A null message, an empty one and a record of NULLs are three things."""
    gone, empty, nulls = [rows[0] for rows in decoded(spark, "avro", [None, b"", b"\0"], wanted("s STRING", role=role))]
    assert [gone["_op"], empty["_op"], nulls["_op"]] == ops
    assert (gone["_fields"], gone["_error"]) == (None, None)
    assert (empty["_fields"], empty["_error"]) == (None, "the message is empty")
    assert (nulls["_fields"].asDict(), nulls["_error"]) == ({"s": None}, None)


COLUMNS = """i INT NOT NULL, b BOOLEAN, t TINYINT, h SMALLINT, l BIGINT, f FLOAT, d DOUBLE, s STRING, y BYTES, e DATE,
    m TIMESTAMP(3), n DECIMAL(20, 4), a ARRAY<STRING>, p MAP<STRING, INT>, r ROW<x BIGINT, y ARRAY<BOOLEAN NOT NULL>>"""
TYPES: list[Any] = [
    "int", ["null", "boolean"], ["null", "int"], ["null", "int"], ["null", "long"], ["null", "float"],
    ["null", "double"], ["null", "string"], ["null", "bytes"], ["null", {"type": "int", "logicalType": "date"}],
    ["null", {"type": "long", "logicalType": "timestamp-millis"}],
    ["null", {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 4}],
    ["null", {"type": "array", "items": ["null", "string"]}], ["null", {"type": "map", "values": ["null", "int"]}],
    ["null", {"type": "record", "name": "r", "fields": [
        {"name": "x", "type": ["null", "long"]},
        {"name": "y", "type": ["null", {"type": "array", "items": "boolean"}]}]}],
]  # fmt: skip


def row_of(dice: random.Random) -> tuple[Any, ...]:
    """A row of COLUMNS."""

    def perhaps(value: Any) -> Any:
        return None if dice.random() < 0.2 else value

    def text() -> str:
        return "".join(dice.choices("aé\0語🦋 ", k=dice.choice([0, 1, 5, 70])))

    day = datetime.date.fromordinal(dice.randint(1, 3652059))
    moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(milliseconds=dice.randint(-(10**13), 10**13))
    inner = (
        perhaps(dice.randint(-(2**63), 2**63 - 1)),
        perhaps([dice.random() < 0.5 for _ in range(dice.randint(0, 3))]),
    )
    return (
        dice.randint(-(2**31), 2**31 - 1), perhaps(dice.random() < 0.5), perhaps(dice.randint(-128, 127)),
        perhaps(dice.randint(-(2**15), 2**15 - 1)), perhaps(dice.randint(-(2**63), 2**63 - 1)),
        perhaps(dice.randint(-(2**20), 2**20) / 8), perhaps(dice.uniform(-1e300, 1e300)), perhaps(text()),
        perhaps(dice.randbytes(dice.choice([0, 1, 200]))), perhaps(day), perhaps(moment),
        perhaps(Decimal(dice.randint(-(10**20) + 1, 10**20 - 1)).scaleb(-4)),
        perhaps([perhaps(text()) for _ in range(dice.randint(0, 4))]),
        perhaps({text(): perhaps(dice.randint(-5, 5)) for _ in range(dice.randint(0, 4))}), perhaps(inner),
    )  # fmt: skip


def message_of(row: tuple[Any, ...]) -> bytes:
    *head, moment, number, array, entries, inner = row
    moment = moment and moment.replace(tzinfo=datetime.UTC)
    return written(TYPES, (*head, moment, number, array, entries, inner and dict(zip("xy", inner, strict=True))))


def test_rows_of_every_type_come_as_they_were_written(spark) -> None:
    dice = random.Random(5)
    rows = [row_of(dice) for _ in range(500)]
    found = decoded(spark, "avro", [message_of(row) for row in rows], wanted(COLUMNS))
    assert [row["_error"] for (row,) in found] == [None] * len(rows)
    assert [values(row["_fields"]) for (row,) in found] == rows


def test_every_shorter_and_every_longer_message_is_broken(spark) -> None:
    """No beginning of a record is a record, and nothing may stand behind one."""
    dice = random.Random(7)
    whole = [message_of(row_of(dice)) for _ in range(20)]
    shorter = [message[:length] for message in whole for length in range(len(message))]
    longer = [message + dice.randbytes(length) for message in whole for length in (1, 2, 15, 16, 17, 40)]
    found = decoded(spark, "avro", [*shorter, *longer], wanted(COLUMNS))
    said = [row["_error"] for (row,) in found]
    assert len(said) > 2000
    assert [message.hex() for message, error in zip([*shorter, *longer], said, strict=True) if error is None] == []
    assert all("left over" in error for error in said[len(shorter) :])


def test_bytes_at_random_are_rows_or_errors(spark) -> None:
    """What claims to be long is not believed: a reader that made room for it would end the process."""
    dice = random.Random(11)
    claims = [b"\2" + bytes.fromhex("FEFFFFFF0F"), b"\0\2" + bytes.fromhex("FEFFFFFF0F"), b"\0\0\2" * 2 + b"\xfe" * 9]
    messages = [*claims, *(dice.randbytes(dice.randint(1, 60)) for _ in range(3000))]
    found = decoded(spark, "avro", messages, wanted("s STRING, b BYTES, a ARRAY<BIGINT>, m MAP<STRING, STRING>"))
    assert all(row["_error"] for (row,) in found[:3])
    assert {(row["_error"] is None) == (row["_fields"] is not None) for (row,) in found} == {True}


@pytest.mark.parametrize(
    ("columns", "options", "problem"),
    [
        ("i INT", {"avro.encoding": "json"}, "'avro.encoding' = 'json': Avro's own JSON cannot be read"),
        ("i INT", {"avro.encoding": "bin"}, "'avro.encoding' is 'binary', not 'bin'"),
        ("i INT", {"avro.encoding": "${E}"}, "'avro.encoding' cannot come from the environment"),
        ("t TIMESTAMP_LTZ(3)", {"avro.timestamp_mapping.legacy": "${L}"}, "cannot come from the environment"),
        ("m MAP<INT, INT>", {}, "column m is MAP<INT, INT>: the keys of a map in Avro are strings"),
        ("t TIMESTAMP_LTZ(3)", {}, "with 'avro.timestamp_mapping.legacy' = 'false' finer ones and TIMESTAMP_LTZ"),
        ("t ARRAY<TIMESTAMP(6)>", {}, "column t is ARRAY<TIMESTAMP(6)>: there are TIMESTAMP(0) to TIMESTAMP(3)"),
    ],
)
def test_what_avro_has_not_is_found_at_planning(columns: str, options: dict[str, str], problem: str) -> None:
    (found,) = problems("avro", wanted(columns, options), names=("avro",))
    assert problem in found


@pytest.mark.parametrize("options", [{"avro.timestamp_mapping.legacy": "false"}, {"avro.encoding": "binary"}, {}])
def test_what_flink_takes_is_taken(options: dict[str, str]) -> None:
    columns = "t TIMESTAMP(3)" + (", u TIMESTAMP_LTZ(6)" if "avro.timestamp_mapping.legacy" in options else "")
    assert problems("avro", wanted(columns, {**options, "avro.open.fastread": "true"}), names=("avro",)) == []


def test_what_a_writer_makes_has_none() -> None:
    dice = random.Random(13)
    written = [message_of(row_of(dice)) + b"the mark" for _ in range(500)]
    found = TooLong(schema(wanted(COLUMNS).columns, 8))(pa.array(written, pa.binary()))
    assert found.to_pylist() == [False] * len(written)


def test_each_place_of_a_number() -> None:
    too_long = TooLong(schema(wanted("a ARRAY<BIGINT NOT NULL> NOT NULL, s STRING NOT NULL").columns, 1))
    zero, more = b"\x80" * 9 + b"\0", b"\x80" * 9 + b"\2"
    # The count of a block, an element, the end, the length of a text.
    whole = [b"\2", b"\4", b"\0", b"\0", b"!"]
    assert too_long(pa.array([b"".join(whole), None])).to_pylist() == [False, None]
    for place in range(4):
        for number, found in ((zero, False), (more, True)):
            parts = list(whole)
            parts[place] = bytes([number[0] | parts[place][0], *number[1:]])
            assert too_long(pa.array([b"".join(parts)])).to_pylist() == [found], (place, found)


def test_nulls_alone() -> None:
    assert TooLong("{}")(pa.nulls(3, pa.binary())).to_pylist() == [None] * 3
