"""The generated values, checked in plain Python against what the options promise."""

import datetime as dt
from decimal import Decimal

import pytest
from pyspark.sql.types import StructType

from tidegate.pipelines.sources.datagen.options import field_spec
from tidegate.pipelines.sources.datagen.source import RowSql, value_sql
from tidegate.pipelines.syntax.dialect import parse_type

ROWS = 400
DUE_US = 1_767_225_600_123_456
"""2026-01-01 00:00:00.123456 UTC"""

DUE = dt.datetime(2026, 1, 1, 0, 0, 0, 123456)
WIDE = Decimal(10**37)


def spread(values, low, high):
    """Whether all lie within the bounds, and both halves are used about as often."""
    middle = (low + high) / 2 if not isinstance(low, Decimal) else low / 2 + high / 2
    lower = sum(value < middle for value in values)
    return all(low <= value <= high for value in values) and 0.35 < lower / len(values) < 0.65


def hexadecimal(values, length):
    return all(len(value) == length and set(value) <= set("0123456789abcdef") for value in values)


CASES = {
    "BOOLEAN": ("BOOLEAN", {}, lambda v: 0.35 < sum(v) / len(v) < 0.65),
    "TINYINT": ("TINYINT", {}, lambda v: spread(v, -128, 127)),
    "SMALLINT": ("SMALLINT", {}, lambda v: spread(v, -(2**15), 2**15 - 1)),
    "INT": ("INT", {}, lambda v: spread(v, -(2**31), 2**31 - 1)),
    "INT within": ("INT", {"min": "-3", "max": "6"}, lambda v: set(v) == set(range(-3, 7))),
    "INT of one value": ("INT", {"min": "7", "max": "7"}, lambda v: set(v) == {7}),
    "BIGINT": ("BIGINT", {}, lambda v: spread(v, -(2**63), 2**63 - 1)),
    "BIGINT, just less": ("BIGINT", {"max": str(2**62)}, lambda v: spread(v, -(2**63), 2**62)),
    "BIGINT, upper half": ("BIGINT", {"min": "0"}, lambda v: spread(v, 0, 2**63 - 1)),
    "DECIMAL(5, 2)": ("DECIMAL(5, 2)", {}, lambda v: spread(v, Decimal("-999.99"), Decimal("999.99"))),
    "DECIMAL within": (
        "DECIMAL(5, 2)",
        {"min": "0.01", "max": "0.04"},
        lambda v: set(v) == {Decimal(n).scaleb(-2) for n in (1, 2, 3, 4)},
    ),
    "DECIMAL(18, 18)": ("DECIMAL(18, 18)", {}, lambda v: spread(v, Decimal(-1), Decimal(1)) and len(set(v)) == ROWS),
    "DECIMAL(30, 5)": ("DECIMAL(30, 5)", {}, lambda v: spread(v, -Decimal(10**25), Decimal(10**25))),
    "DECIMAL(38, 0)": ("DECIMAL(38, 0)", {}, lambda v: spread(v, -Decimal(10**38), Decimal(10**38))),
    "DECIMAL(38, 38)": ("DECIMAL(38, 38)", {}, lambda v: spread(v, Decimal(-1), Decimal(1)) and len(set(v)) == ROWS),
    "DECIMAL far out": (
        "DECIMAL(38, 0)",
        {"min": str(9 * 10**37), "max": str(9 * 10**37 + 2)},
        lambda v: set(v) == {Decimal(9 * 10**37 + n) for n in range(3)},
    ),
    "DECIMAL, wide": ("DECIMAL(38, 0)", {"min": "0", "max": str(10**37)}, lambda v: spread(v, Decimal(0), WIDE)),
    "FLOAT": ("FLOAT", {"min": "0", "max": "10"}, lambda v: spread(v, 0, 10)),
    "DOUBLE": ("DOUBLE", {}, lambda v: spread(v, -1.7976931348623157e308, 1.7976931348623157e308)),
    "DOUBLE within": ("DOUBLE", {"min": "-1", "max": "3"}, lambda v: spread(v, -1, 3)),
    "STRING": ("STRING", {}, lambda v: hexadecimal(v, 100) and len(set(v)) == ROWS),
    "STRING, short": ("STRING", {"length": "3"}, lambda v: hexadecimal(v, 3)),
    "STRING, empty": ("STRING", {"length": "0"}, lambda v: set(v) == {""}),
    "STRING, long": ("STRING", {"length": "1000"}, lambda v: hexadecimal(v, 1000) and len(set(v[0])) > 10),
    "VARCHAR(7)": ("VARCHAR(7)", {}, lambda v: hexadecimal(v, 7)),
    "VARCHAR, any length": ("VARCHAR(4)", {"var_len": "true"}, lambda v: {len(text) for text in v} == {1, 2, 3, 4}),
    "BYTES": (
        "BYTES",
        {"length": "5"},
        lambda v: {len(part) for part in v} == {5} and {type(part) for part in v} == {bytes},
    ),
    "VARBINARY, any length": ("VARBINARY(3)", {"var_len": "true"}, lambda v: {len(part) for part in v} == {1, 2, 3}),
    "DATE": ("DATE", {}, lambda v: set(v) == {DUE.date()}),
    "TIMESTAMP(3)": ("TIMESTAMP(3)", {}, lambda v: set(v) == {DUE.replace(microsecond=123000)}),
    "TIMESTAMP(6)": ("TIMESTAMP(6)", {}, lambda v: set(v) == {DUE}),
    "TIMESTAMP(0)": ("TIMESTAMP(0)", {}, lambda v: set(v) == {DUE.replace(microsecond=0)}),
    "TIMESTAMP in the past": (
        "TIMESTAMP(6)",
        {"max_past": "1 d"},
        lambda v: spread([(DUE - at).total_seconds() for at in v], 0, 86_400),
    ),
    "ARRAY": (
        "ARRAY<INT>",
        {"element.max": "5", "element.min": "0", "length": "4"},
        lambda v: {len(a) for a in v} == {4},
    ),
    "ARRAY's elements differ": ("ARRAY<BIGINT>", {}, lambda v: all(len(set(a)) == 3 for a in v)),
    "ARRAY, empty": ("ARRAY<BIGINT>", {"length": "0"}, lambda v: all(a == [] for a in v)),
    "MAP": ("MAP<BIGINT, STRING>", {"length": "2"}, lambda v: {len(m) for m in v} == {2}),
    "MAP of few keys": ("MAP<BOOLEAN, INT>", {}, lambda v: {len(m) for m in v} == {1, 2}),
    "ROW": (
        "ROW<`a b` INT, `c` ROW<`d` DECIMAL(3, 1)>>",
        {"a b.min": "0", "a b.max": "1", "c.d.min": "0.1", "c.d.max": "0.1"},
        lambda v: {(row["a b"], row["c"]["d"]) for row in v} == {(0, Decimal("0.1")), (1, Decimal("0.1"))},
    ),
    "NULLs": ("INT", {"null_rate": "0.5"}, lambda v: 0.4 < v.count(None) / len(v) < 0.6),
    "only NULLs": ("INT", {"null_rate": "1"}, lambda v: set(v) == {None}),
    "NULLs inside": (
        "ARRAY<INT>",
        {"element.null_rate": "0.5"},
        lambda v: 0.4 < sum(a.count(None) for a in v) / 1200 < 0.6,
    ),
    "sequence": ("BIGINT", {"kind": "sequence", "start": "5", "end": "999"}, lambda v: v == list(range(5, ROWS + 5))),
    "sequence below zero": (
        "BIGINT",
        {"kind": "sequence", "start": str(-(2**63)), "end": "999"},
        lambda v: v == [n - 2**63 for n in range(ROWS)],
    ),
    "sequence of DECIMAL": (
        "DECIMAL(10, 2)",
        {"kind": "sequence", "start": "0", "end": "999"},
        lambda v: v == [Decimal(n) for n in range(ROWS)],
    ),
    "sequence of DOUBLE": (
        "DOUBLE",
        {"kind": "sequence", "start": "0", "end": "999"},
        lambda v: v == list(range(ROWS)),
    ),
    "sequence of STRING": ("STRING", {"kind": "sequence", "start": "9", "end": "999"}, lambda v: v[:2] == ["9", "10"]),
    "sequence of BYTES": ("BYTES", {"kind": "sequence", "start": "9", "end": "999"}, lambda v: v[:2] == [b"9", b"10"]),
}


def expression(name: str, seed: int = 7) -> str:
    flink, options, _ = CASES[name]
    spec = field_spec(
        "f", parse_type(flink), {f"fields.f.{key.replace('_', '-')}": value for key, value in options.items()}
    )
    return value_sql(spec, RowSql(seed, "id", f"{DUE_US}L"))


@pytest.fixture(scope="module")
def generated(spark):
    """All cases in one query."""
    names = list(CASES)
    rows = spark.range(ROWS).selectExpr(*[f"{expression(name)} AS c{n}" for n, name in enumerate(names)]).collect()
    return {name: [row[f"c{n}"] for row in rows] for n, name in enumerate(names)}


@pytest.mark.parametrize("name", CASES)
def test_value(generated, name):
    assert CASES[name][2](generated[name])


def test_every_value_has_the_type_of_its_column(spark):
    frame = spark.range(0).selectExpr(*[f"{expression(name)} AS c{n}" for n, name in enumerate(CASES)])
    wanted = [f"c{n} {parse_type(flink).spark}" for n, (flink, _, _) in enumerate(CASES.values())]
    assert [field.dataType for field in frame.schema] == [
        field.dataType for field in StructType.fromDDL(", ".join(wanted))
    ]


def test_a_row_is_a_function_of_seed_and_number(spark, generated):
    names = ["BIGINT", "STRING", "DECIMAL(38, 0)", "NULLs"]
    again = spark.range(100, 110, 1, 5).selectExpr(
        "id", *[f"{expression(name)} AS c{n}" for n, name in enumerate(names)]
    )
    for row in again.collect():
        assert [row[f"c{n}"] for n in range(len(names))] == [generated[name][row["id"]] for name in names]
    other = spark.range(ROWS).selectExpr(f"{expression('BIGINT', seed=8)} AS c").collect()
    assert not {row["c"] for row in other} & set(generated["BIGINT"])


def test_values_stay_what_they_are_in_later_releases(spark):
    """Stored epochs are recomputed from seed and number, so these may never change."""
    row = spark.range(3, 4).selectExpr(*[f"{expression(name)} AS c{n}" for n, name in enumerate(PINNED)]).collect()[0]
    assert dict(zip(PINNED, row, strict=True)) == PINNED


PINNED = {
    "INT": 1230158368,
    "BIGINT": -1195924912820012512,
    "DECIMAL(5, 2)": Decimal("251.16"),
    "DOUBLE within": 2.740675122278201,
    "STRING, short": "4ee",
}
