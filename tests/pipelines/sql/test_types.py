"""Types: both spellings, and which may stand for which."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from tidegate.pipelines.sql import SqlError, compile_script
from tidegate.pipelines.sql.coercion import assignable, castable, common, comparable
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.syntax.dialect import parse_type


@pytest.mark.parametrize(
    ("written", "flink", "spark"),
    [
        ("integer", "INT", "INT"),
        ("double precision", "DOUBLE", "DOUBLE"),
        ("DEC", "DECIMAL(10, 0)", "DECIMAL(10, 0)"),
        ("NUMERIC(5,2)", "DECIMAL(5, 2)", "DECIMAL(5, 2)"),
        ("VARCHAR(10)", "VARCHAR(10)", "STRING"),
        ("CHARACTER VARYING(10)", "VARCHAR(10)", "STRING"),
        ("VARBINARY(10)", "VARBINARY(10)", "BINARY"),
        ("BYTES", "BYTES", "BINARY"),
        ("TIMESTAMP", "TIMESTAMP(6)", "TIMESTAMP_NTZ"),
        ("TIMESTAMP(3) WITHOUT TIME ZONE", "TIMESTAMP(3)", "TIMESTAMP_NTZ"),
        ("TIMESTAMP_LTZ(3)", "TIMESTAMP_LTZ(3)", "TIMESTAMP"),
        ("TIMESTAMP(0) WITH LOCAL TIME ZONE", "TIMESTAMP_LTZ(0)", "TIMESTAMP"),
        ("INT ARRAY ARRAY", "ARRAY<ARRAY<INT>>", "ARRAY<ARRAY<INT>>"),
        ("MAP<STRING, INT NOT NULL>", "MAP<STRING, INT NOT NULL>", "MAP<STRING, INT>"),
        (
            "ROW<a INT NOT NULL, `b-c` ROW(d TIMESTAMP(3) 'when')>",
            "ROW<`a` INT NOT NULL, `b-c` ROW<`d` TIMESTAMP(3) 'when'>>",
            "STRUCT<`a`: INT, `b-c`: STRUCT<`d`: TIMESTAMP_NTZ>>",
        ),
        ("BIGINT NOT NULL", "BIGINT NOT NULL", "BIGINT"),
    ],
)
def test_a_type_has_flinks_spelling_and_sparks(written: str, flink: str, spark: str) -> None:
    found = parse_type(written)
    assert (str(found), found.spark) == (flink, spark)
    assert parse_type(flink) == found


@pytest.mark.parametrize("text", ["", "INT INT", "ARRAY", "MAP<INT>", "ROW<>", "DECIMAL(0)", "CHAR(x)", "TIMESTAMP(7)"])
def test_what_is_no_type_is_refused(text: str) -> None:
    with pytest.raises(SqlError):
        parse_type(text)


def pairs(text: str) -> list[tuple[str, str]]:
    return [(left.strip(), right.strip()) for left, right in (line.split("->") for line in text.strip().splitlines())]


FITS = pairs("""
    TINYINT -> SMALLINT
    INT -> BIGINT
    INT -> DOUBLE
    SMALLINT -> FLOAT
    FLOAT -> DOUBLE
    INT -> DECIMAL(12, 2)
    BIGINT -> DECIMAL(19, 0)
    DECIMAL(10, 2) -> DECIMAL(12, 2)
    DECIMAL(10, 2) -> DECIMAL(12, 4)
    CHAR(3) -> STRING
    STRING -> VARCHAR(3)
    BINARY(3) -> BYTES
    TIMESTAMP(3) -> TIMESTAMP(6)
    TIMESTAMP(3) -> TIMESTAMP_LTZ(3)
    TIMESTAMP_LTZ(3) -> TIMESTAMP(3)
    ARRAY<INT> -> ARRAY<BIGINT>
    MAP<INT, STRING> -> MAP<BIGINT, STRING>
    ROW<a INT, b STRING> -> ROW<x BIGINT, y STRING>
""")
LOSES = pairs("""
    BIGINT -> INT
    BIGINT -> DOUBLE
    INT -> FLOAT
    DOUBLE -> FLOAT
    DOUBLE -> INT
    INT -> DECIMAL(11, 2)
    DECIMAL(10, 2) -> DECIMAL(10, 4)
    DECIMAL(10, 2) -> DECIMAL(12, 1)
    DECIMAL(10, 2) -> DOUBLE
    STRING -> INT
    INT -> STRING
    TIMESTAMP(6) -> TIMESTAMP(3)
    TIMESTAMP(3) -> DATE
    DATE -> TIMESTAMP(3)
    BOOLEAN -> INT
""")
NEVER = pairs("""
    INT -> TIMESTAMP(3)
    TIMESTAMP(3) -> BIGINT
    DATE -> INT
    INT -> BYTES
    BOOLEAN -> DATE
    ARRAY<STRING> -> ARRAY<INT>
    ARRAY<INT> -> STRING
    ROW<a INT> -> ROW<a INT, b INT>
    MAP<STRING, INT> -> STRING
    DOUBLE -> BOOLEAN
""")


@pytest.mark.parametrize(("source", "target"), FITS)
def test_what_loses_nothing_is_assigned_without_a_cast(source: str, target: str) -> None:
    assert assignable(parse_type(source), parse_type(target))
    assert castable(parse_type(source), parse_type(target))


@pytest.mark.parametrize(("source", "target"), LOSES)
def test_what_may_lose_something_needs_a_cast(source: str, target: str) -> None:
    assert not assignable(parse_type(source), parse_type(target))
    assert castable(parse_type(source), parse_type(target))


@pytest.mark.parametrize(("source", "target"), NEVER)
def test_what_has_no_meaning_is_not_cast(source: str, target: str) -> None:
    assert not castable(parse_type(source), parse_type(target))


@pytest.mark.parametrize(
    ("left", "right", "wanted"),
    [
        ("INT", "BIGINT", "BIGINT"),
        ("INT", "DECIMAL(10, 2)", "DECIMAL(12, 2)"),
        ("DECIMAL(10, 2)", "DECIMAL(5, 4)", "DECIMAL(12, 4)"),
        ("DECIMAL(38, 0)", "DECIMAL(38, 38)", "DECIMAL(38, 6)"),
        ("FLOAT", "INT", "FLOAT"),
        ("FLOAT", "DECIMAL(3, 1)", "DOUBLE"),
        ("CHAR(3)", "VARCHAR(9)", "STRING"),
        ("TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(6)"),
        ("INT", "STRING", None),
        ("TIMESTAMP(3)", "TIMESTAMP_LTZ(3)", None),
        ("DATE", "TIMESTAMP(3)", None),
    ],
)
def test_two_types_meet_in_the_narrowest_that_holds_both(left: str, right: str, wanted: str | None) -> None:
    found = common([parse_type(left), parse_type(right)])
    assert found == common([parse_type(right), parse_type(left)])
    assert (None if found is None else str(found)) == wanted


TABLES = """
CREATE TABLE keyed (k DECIMAL(38, 0) PRIMARY KEY NOT ENFORCED, v STRING) WITH ('connector' = 'scripted');
CREATE TABLE whole (k BIGINT PRIMARY KEY NOT ENFORCED, v STRING) WITH ('connector' = 'scripted');
CREATE TABLE probe (i INT, n BIGINT, d DOUBLE, whole DECIMAL(38, 0), fine DECIMAL(38, 18), finer DECIMAL(38, 30),
    cents DECIMAL(12, 4), many ARRAY<DECIMAL(10, 0)>, by_number MAP<INT, STRING>, p AS PROCTIME())
    WITH ('connector' = 'scripted');
CREATE TABLE found (i INT) WITH ('connector' = 'scripted');
"""


def where(condition: str) -> Pipeline:
    return compile_script(f"{TABLES} INSERT INTO found SELECT i FROM probe WHERE {condition};")


@pytest.mark.parametrize(
    "condition",
    [
        *("fine = whole", "fine < whole", "fine IN (whole)", "fine BETWEEN whole AND whole", "whole <> cents"),
        *("fine IS DISTINCT FROM whole", "NULLIF(fine, whole) IS NULL", "COALESCE(fine, whole) > 0"),
        *("CASE WHEN i = 1 THEN fine ELSE whole END > 0", "CASE fine WHEN whole THEN true END"),
        *("ARRAY_CONTAINS(many, cents)", "by_number[cents] = 'x'", "GREATEST(fine, whole) > 1", "n = finer"),
    ],
)
def test_what_would_be_rounded_before_it_is_compared_is_a_type_clash(condition: str) -> None:
    with pytest.raises(SqlError, match="type clash"):
        where(condition)


@pytest.mark.parametrize(
    "condition",
    [
        *(
            "fine = n",
            "cents = n",
            "finer > 0",
            "finer = 1.5",
            "finer IN (0, 1)",
            "finer BETWEEN -1 AND 1",
            "whole = 7",
        ),
        *("COALESCE(finer, 0) = 0", "ARRAY_CONTAINS(many, 5)", "by_number[5] = 'x'", "fine = d", "fine + whole > 1"),
    ],
)
def test_what_is_compared_exactly_needs_no_cast(condition: str) -> None:
    assert where(condition).inserts


@pytest.mark.parametrize(("build", "probe"), [("keyed", "fine"), ("keyed", "d"), ("whole", "d")])
def test_no_key_is_found_by_a_number_that_is_not_equal_to_it(build: str, probe: str) -> None:
    join = f"INNER JOIN {build} FOR SYSTEM_TIME AS OF probe.p AS b ON probe.{probe} = b.k"
    with pytest.raises(SqlError, match="type clash"):
        compile_script(f"{TABLES} INSERT INTO found SELECT probe.i FROM probe {join};")


@pytest.mark.parametrize(
    ("constant", "column", "held"),
    [
        *(("16777216", "FLOAT", True), ("16777217", "FLOAT", False), ("-16777217", "FLOAT", False)),
        *(("9007199254740992", "DOUBLE", True), ("9007199254740993", "DOUBLE", False), ("0.1", "FLOAT", True)),
        *(("1E38", "FLOAT", True), ("1E39", "FLOAT", False), ("127", "TINYINT", True)),
        *(("128", "TINYINT", False), ("12.5", "DECIMAL(3, 1)", True), ("12.55", "DECIMAL(3, 1)", False)),
    ],
)
def test_a_constant_is_taken_by_every_type_that_has_its_value(constant: str, column: str, held: bool) -> None:
    script = (
        "CREATE TABLE probe (i INT, p AS PROCTIME()) WITH ('connector' = 'scripted'); "
        f"CREATE TABLE found (c {column}) WITH ('connector' = 'scripted'); "
        f"INSERT INTO found SELECT {constant} FROM probe;"
    )
    with nullcontext() if held else pytest.raises(SqlError):
        compile_script(script)


def test_maps_are_not_compared() -> None:
    assert not comparable(parse_type("MAP<INT, INT>"), parse_type("MAP<INT, INT>"))
    assert comparable(parse_type("ARRAY<INT>"), parse_type("ARRAY<INT>"))
    assert not comparable(parse_type("ARRAY<INT>"), parse_type("ARRAY<BIGINT>"))
