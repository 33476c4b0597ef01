"""Plain JSON messages as columns of Arrow: which are taken, which are left, and that none brings the parser down."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.pipelines.sources.formats.format_tables import ONE_BY_ONE, decoded, wanted
from tidegate.pipelines.frames import settings as session_settings
from tidegate.pipelines.sources.formats import VALUE, json_arrow, json_text
from tidegate.pipelines.sources.formats.json_arrow import JsonColumn, JsonRows, quick

ROWS = JsonRows(
    (
        JsonColumn("t", pa.int8()),
        JsonColumn("n", pa.int64()),
        JsonColumn("d", pa.decimal128(10, 2)),
        JsonColumn("s", pa.string()),
        JsonColumn("f", pa.float64()),
        JsonColumn("b", pa.bool_()),
        JsonColumn("w", pa.decimal128(38, 18)),
    )
)
PLAIN = {
    b"{}": {},
    b'{"t": -128, "n": 9223372036854775807, "b": true}': {"t": -128, "n": 2**63 - 1, "b": True},
    b'{"d": 99999999.99, "f": -1.5}': {"d": Decimal("99999999.99"), "f": -1.5},
    b'{"d": 1.2000, "s": "{[\\"\\u00e9\\n"}': {"d": Decimal("1.20"), "s": '{["é\n'},
    b'{"d": "-0.5", "n": null, "other": {"n": [1, {"n": 2}]}}': {"d": Decimal("-0.50")},
    b'{"\\u0074": 1}': {"t": 1},
    '{"s": "\U0001f600 é"}'.encode(): {"s": "\U0001f600 é"},
}
LEFT = [
    None,
    b"",
    b"null",
    b"[1]",
    b" {}",
    b'{"t": 128}',
    b'{"n": "1"}',
    b'{"n": 1.0}',
    b'{"n": 9223372036854775808}',
    b'{"n": 1, "n": 2}',
    b'{"d": 1.234}',
    b'{"d": 100000000}',
    b'{"d": "1,5"}',
    b'{"s": 1}',
    b'{"s": {"k": 1}}',
    b'{"s": "\xff"}',
    b'{"s": "\\ud800"}',
    b'{"s": "a\nb"}',
    b'{"s":\r"a"}',
    b'{"d": 1e2}',
    b'{"d": 1e-41}',
    b'{"d": 0e-10000000}',
    b'{"d": 1e-2147483647}',
    b'{"d" :"-1.5E+2" }',
    b'{"d": "1\\u0065-2147483647"}',
    b'{"d": "\\u0031e-2147483647"}',
    b'{"f": NaN}',
    b'{"x": NaN}',
    b'{"x":[-Infinity]}',
    b'{"x": {"y":Inf}}',
    b'{"f": 1e400}',
    b'{"b": 1}',
    b"{} {}",
    b"{'t': 1}",
    b'{"t": 1}}',
    b'{"x": ' + b"[" * 400_000 + b"]" * 400_000 + b"}",
]


def read(rows: JsonRows, *messages: bytes | None) -> list[dict[str, object] | None]:
    return rows(pa.array(messages, pa.binary())).to_pylist()


@pytest.mark.parametrize("message", PLAIN)
def test_plain_messages_are_read_as_they_are(message: bytes) -> None:
    assert read(ROWS, message) == [dict.fromkeys("tndsfbw") | PLAIN[message]]


@pytest.mark.parametrize("message", LEFT, ids=lambda message: repr(message)[:40])
def test_others_are_left(message: bytes | None) -> None:
    assert read(ROWS, message) == [None]


def test_words_that_look_like_numbers_are_none() -> None:
    text = b'{"s": "550e8400-e29b-41d4-a716-446655440000", "n": 7, "x": "NaN, 1e5"}'
    assert [row and (row["s"], row["n"]) for row in read(ROWS, text)] == [("550e8400-e29b-41d4-a716-446655440000", 7)]


@pytest.mark.parametrize(
    ("precision", "scale", "number"),
    [(38, 18, 738572350274914228329), (38, 38, 7), (38, 6, 756570710444668544714088669852515), (30, 15, 34 * 10**22)],
)
def test_a_decimal_that_would_wrap_around_is_left(precision: int, scale: int, number: int) -> None:
    rows = JsonRows((JsonColumn("d", pa.decimal128(precision, scale)),))
    most = Decimal((0, (9,) * precision, -scale))
    messages = [b'{"d": %d}' % number, f'{{"d": {most:f}}}'.encode(), f'{{"d": -{most:f}}}'.encode()]
    assert [row and row["d"] for row in read(rows, *messages)] == [None, most, most.copy_negate()]


def test_minus_zero_is_the_same_both_ways(spark: SparkSession) -> None:
    (row,) = read(ROWS, b'{"f": -0, "n": -0, "t": -0, "d": -0}')
    assert str(row) == str(dict.fromkeys("tndsfbw") | {"t": 0, "n": 0, "d": Decimal("0.00"), "f": -0.0})
    for text in (b'{"f": -0}', b'{"f": -0, "s": 1}'):
        ((row,),) = decoded(spark, "json", [text], wanted("f DOUBLE, s STRING"))
        assert str(row["_fields"]["f"]) == "-0.0", text


def test_a_column_that_must_be_there() -> None:
    rows = JsonRows((JsonColumn("n", pa.int64(), nullable=False), JsonColumn("s", pa.string())))
    assert read(rows, b'{"s": "x"}', b'{"n": 1}', b'{"n": null}') == [None, {"n": 1, "s": None}, None]


def test_exponents_where_there_is_no_decimal() -> None:
    rows = JsonRows((JsonColumn("f", pa.float32()),))
    assert read(rows, b'{"f": 1e39}', b'{"f": -1.5e30}') == [None, {"f": pytest.approx(-1.5e30)}]


def test_no_messages() -> None:
    assert read(ROWS) == []
    assert read(ROWS, None, None) == [None, None]


def test_one_that_does_not_fit_takes_only_its_neighbours_with_it() -> None:
    messages = [b'{"n": %d}' % number for number in range(10_000)]
    messages[7_000] = b'{"n": "x"}'
    found = read(ROWS, *messages)
    left = [number for number, row in enumerate(found) if row is None]
    assert 7_000 in left
    assert len(left) <= json_arrow.FEWEST
    assert all(row is None or row["n"] == number for number, row in enumerate(found))


def test_parts_of_a_batch_and_slices_of_an_array(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = [b'{"n": %d, "s": "%s"}' % (number, b"x" * (number % 50)) for number in range(100)]
    for kind in (pa.binary(), pa.large_binary()):
        array = pa.array([b"not\nthis", *messages, b"nor\nthis", None], kind).slice(1, 100)
        for piece_bytes in (1, 100, 10_000_000):
            monkeypatch.setattr(json_arrow, "PIECE_BYTES", piece_bytes)
            assert [row and row["n"] for row in ROWS(array).to_pylist()] == list(range(100))


def test_a_message_that_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_arrow, "LONGEST", 20)
    assert read(ROWS, b'{"n": 1}', b'{"n": 1, "s": "longer"}')[1] is None


def value(chance: random.Random, deep: int = 0) -> object:
    kind = chance.randrange(9)
    if kind < 2 and deep < 3:
        inside = [value(chance, deep + 1) for _ in range(chance.randrange(3))]
        return inside if kind else dict(zip("abc", inside, strict=False))
    text = "".join(chr(chance.choice([chance.randrange(1, 128), chance.randrange(1, 0x11000)])) for _ in range(3))
    number = chance.randrange(-(10 ** chance.randrange(1, 22)), 10 ** chance.randrange(1, 22))
    return chance.choice([None, True, text, number, number / 4, 1, 2.25, -0.0, "1", "1.5", 1e-300])


def message(chance: random.Random) -> bytes:
    """An object of ROWS' columns, now and then with a wound."""
    members = {name: value(chance) for name in "tndsfbwx" if chance.random() < 0.6}
    text = bytearray(json.dumps(members, ensure_ascii=chance.random() < 0.5), "utf-8", "surrogatepass")
    for _ in range(chance.choice([0, 0, 1, 2])):
        at = chance.randrange(len(text) or 1)
        text[at : at + chance.randrange(2)] = bytes([chance.choice(b'{}[]",:0123e.-+ntf\\u \x00\xff\n')])
    return bytes(text)


def refused(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32))
def test_whatever_it_takes_is_what_python_reads(seed: int) -> None:
    chance = random.Random(seed)
    messages = [message(chance) for _ in range(20)]
    for text in messages:
        (row,) = read(ROWS, text)
        if row is not None:
            expected = dict.fromkeys("tndsfbw") | json.loads(text, parse_float=Decimal, parse_constant=refused)
            assert [row[name] for name in "tnsb"] == [expected[name] for name in "tnsb"], text
            for name in "dw":
                assert row[name] == (None if expected[name] is None else Decimal(expected[name])), text
            assert row["f"] == (None if expected["f"] is None else float(expected["f"])), text
    together = read(ROWS, *messages)
    alone = [row for text in messages for row in read(ROWS, text)]
    assert all(row is None or row == itself for row, itself in zip(together, alone, strict=True))


COLUMNS = "t TINYINT, d DECIMAL(10, 2), s STRING, f FLOAT, at TIMESTAMP(3), day DATE, raw BYTES, must INT NOT NULL"
SHORT = [
    '{"t": 1, "d": 12.50, "s": "x", "f": 0.1, "at": "2026-01-31 23:59:59.123", "must": 1}',
    '{"must":0,"day":"2026-01-31","raw":"YWI="}',
    '{"must": 0, "d": "2.5"}',
]
LONG = [
    '{"must": 0, "t": "1"}',
    '{"must": 0, "s": 1.10}',
    '{"must": 0, "at": "2026-01-31"}',
    '{"must": 0, "day": 5}',
    '{"must": 0, "raw": "?"}',
    "{}",
]


def test_what_is_plain_takes_the_short_way_and_nothing_else(spark: SparkSession) -> None:
    short = quick(wanted(COLUMNS), json_text.leaf("SQL"))
    assert short is not None
    rows = spark.createDataFrame([*enumerate([*SHORT, *LONG])], "n INT, text STRING")
    with session_settings(spark, ONE_BY_ONE):
        parsed = rows.selectExpr("n", "text", f"CAST(text AS BINARY) AS {VALUE}")
        parsed = parsed.select("n", "text", short.column().alias(json_text.QUICK))
        found = parsed.selectExpr("n", "text", f"{short.row} IS NOT NULL AS taken").orderBy("n").collect()
    assert [row["text"] for row in found if row["taken"]] == SHORT


def test_nested_types_have_no_short_way() -> None:
    assert quick(replace(wanted("a INT"), columns=()), json_text.leaf("SQL")) is None
    for columns in ("a ARRAY<INT>", "r ROW<x INT>", "m MAP<STRING, INT>"):
        assert quick(wanted(columns), json_text.leaf("SQL")) is None


def test_each_message_is_parsed_once(spark: SparkSession) -> None:
    """However often SQL names what was parsed."""
    rows = spark.createDataFrame([(b"{}",)], f"{VALUE} BINARY")
    decoded = json_text.FORMAT.decode(rows, wanted("a INT, b STRING, c TIMESTAMP(3)"))
    plan = decoded._jdf.queryExecution().executedPlan().toString()  # type: ignore[operator]
    assert plan.count("ArrowEvalPython") == 1
    assert plan.count("pythonUDF0") > 1
    assert "pythonUDF1" not in plan
