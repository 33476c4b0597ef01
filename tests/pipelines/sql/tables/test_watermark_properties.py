"""A watermark as properties and back (FLIP-66, "Implementation"), and any watermark through SHOW CREATE TABLE."""

from __future__ import annotations

import string
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import searched
from tests.pipelines.sql.connectors import CONNECTORS
from tests.pipelines.sql.test_compile import fixture
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.sql import (
    Pipeline,
    SqlError,
    Table,
    WatermarkSpec,
    compile_script,
    from_properties,
    show_create_function,
    show_create_table,
    to_properties,
)

FUNCTIONS = """
CREATE FUNCTION on_flag AS 'tests.pipelines.functions.samples.watermark_on_flag' LANGUAGE PYTHON;
CREATE FUNCTION on_moment AS 'tests.pipelines.functions.samples.watermark_on_moment' LANGUAGE PYTHON;
"""


def compiled(script: str) -> Pipeline:
    return compile_script(FUNCTIONS + script, connectors=CONNECTORS)


def watermark_of(table: Table) -> WatermarkSpec:
    assert table.watermark is not None
    return table.watermark


def test_the_example_of_flip_66_has_the_properties_that_it_shows() -> None:
    table = compiled(
        "CREATE TABLE t (f1 ROW<q1 INT, q2 TIMESTAMP(3)>, WATERMARK FOR f1.q2 AS f1.q2 - INTERVAL '5' SECOND) "
        "WITH ('connector' = 'kafka', 'topic' = 'x');"
    ).table("t")
    assert to_properties(watermark_of(table)) == {
        "schema.watermark.0.rowtime": "f1.q2",
        "schema.watermark.0.strategy.expression": "`f1`.`q2` - INTERVAL '5' SECOND",
        "schema.watermark.0.strategy.datatype": "TIMESTAMP(3)",
    }


@pytest.mark.parametrize(
    ("expression", "datatype"),
    [
        ("JSON_VALUE(`j`, '$.ts' RETURNING BIGINT)", "BIGINT"),
        ("TIMESTAMP_MILLIS(CAST(GET_JSON_OBJECT(`j`, '$.ts') AS BIGINT))", "TIMESTAMP_LTZ(3)"),
        ("DATE_TRUNC('MINUTE', `ts`)", "TIMESTAMP(3)"),
        ("`ts` - `n` * INTERVAL '1' SECOND", "TIMESTAMP(3)"),
        ("TO_UTC_TIMESTAMP(`ts`, 'Europe/Berlin') - INTERVAL '5' SECOND", "TIMESTAMP(3)"),
    ],
)
def test_a_watermark_may_be_any_expression_that_gives_a_time(expression: str, datatype: str) -> None:
    columns = "j STRING, n INT, ts TIMESTAMP(3)"
    script = f"CREATE TABLE t ({columns}, WATERMARK FOR ts AS {expression}) WITH ('connector' = 'scripted');"
    table = compiled(script).table("t")
    assert to_properties(watermark_of(table))["schema.watermark.0.strategy.expression"] == expression
    assert watermark_of(table).type == datatype
    assert compiled(show_create_table(table)).table("t") == table


@pytest.mark.parametrize(
    ("table", "column", "expression", "datatype"),
    [
        ("nested", "event.log_ts", "`event`.`log_ts` - INTERVAL '5' SECOND", "TIMESTAMP(3)"),
        ("computed", "rowtime", "`rowtime` - INTERVAL '5' SECOND", "TIMESTAMP(3)"),
        ("preserved", "rowtime", "SYSTEM_WATERMARK()", "TIMESTAMP_LTZ(3)"),
        ("behind_the_source", "rowtime", "SYSTEM_WATERMARK() - INTERVAL '1' MINUTE", "TIMESTAMP_LTZ(3)"),
        ("flagged", "log_ts", "watermarkOnFlag(`log_ts`, `flag`)", "BIGINT"),
        ("flagged_by_moment", "log_ts", "MOMENT(`log_ts`, `flag`) - INTERVAL '0.001' SECOND", "TIMESTAMP(6)"),
        ("in_ms", "rowtime", "CASE WHEN `millis` > 0 THEN `millis` - 1 END", "BIGINT"),
    ],
)
def test_the_watermarks_of_the_fixture_as_properties(table: str, column: str, expression: str, datatype: str) -> None:
    pipeline = fixture("flip_66")
    spec = watermark_of(pipeline.table(table))
    properties = to_properties(spec)
    assert list(properties.values()) == [column, expression, datatype]
    again = from_properties(properties, pipeline.table(table).columns, functions=pipeline.functions)
    assert again == spec
    assert again.sql == expression


COLUMNS = compiled(
    "CREATE TABLE t (at TIMESTAMP(3), n INT, pt AS PROCTIME(), e ROW<at TIMESTAMP(3)>) WITH ('connector' = 'scripted');"
).table("t")


def properties(rowtime: str, expression: str, datatype: str = "TIMESTAMP(3)") -> dict[str, str]:
    return {
        "schema.watermark.0.rowtime": rowtime,
        "schema.watermark.0.strategy.expression": expression,
        "schema.watermark.0.strategy.datatype": datatype,
    }


def test_other_properties_are_passed_over_and_none_is_no_watermark() -> None:
    assert from_properties({"connector": "kafka", "schema.0.name": "at"}, COLUMNS.columns) is None
    found = from_properties({**properties("e.at", "e.at"), "connector": "kafka"}, COLUMNS.columns)
    assert found == WatermarkSpec("e.at", "`e`.`at`", "TIMESTAMP(3)")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"schema.watermark.0.rowtime": "at"}, "'schema.watermark.0.strategy.expression' is missing"),
        ({**properties("at", "at"), "schema.watermark.1.rowtime": "e.at"}, "'schema.watermark.1.rowtime' is not known"),
        (properties("at", "n + 5000000000", "INT"), "is INT, and the expression gives BIGINT"),
    ],
)
def test_properties_that_are_no_watermark_are_refused(given: dict[str, str], expected: str) -> None:
    with pytest.raises(PlanningError) as caught:
        from_properties(given, COLUMNS.columns, table="t")
    assert expected in caught.value.what
    assert "the watermark of t" in caught.value.where


@pytest.mark.parametrize(
    ("given", "expected", "column"),
    [
        (properties("att", "at"), "unknown column `att`", 15),
        (properties("pt", "at"), "PROCTIME() needs no watermark", 15),
        (properties("at", "at, at"), "expected the end of the watermark", 25),
        (properties("at", "aat"), "unknown column `aat`", 23),
        (properties("at", "n"), "type clash: a watermark is", 23),
    ],
)
def test_a_path_or_an_expression_that_is_wrong_is_shown(given: dict[str, str], expected: str, column: int) -> None:
    with pytest.raises(SqlError) as caught:
        from_properties(given, COLUMNS.columns)
    assert expected in caught.value.what
    assert caught.value.column == column


# --- any watermark ---------------------------------------------------------------------------------------------------

NAMES = st.text(alphabet=string.ascii_letters + "-éß値$", min_size=1, max_size=6).filter(
    lambda name: name.casefold() != "id"
) | st.sampled_from(["select", "at", "watermark", "Interval", "second", "ascending", "it's", '"', "a--b", "/*"])
GAPS = st.sampled_from([" ", "  ", "\n", " -- why\n", " /* so */ "])
LENGTHS = {
    "SECOND": timedelta(seconds=1),
    "seconds": timedelta(seconds=1),
    "MINUTE": timedelta(minutes=1),
    "Hour": timedelta(hours=1),
    "DAY": timedelta(days=1),
}
UNITS = st.sampled_from([*LENGTHS])


@dataclass(frozen=True)
class Declared:
    """A table of kafka's with a watermark, and what the watermark must be."""

    script: str
    rowtime: str
    source: bool
    delay: timedelta = timedelta(0)


def _quoted(name: str) -> str:
    return f"`{name}`"


def _expressions(rowtime: str, flag: str) -> st.SearchStrategy[str]:
    """What may stand behind AS, of every type that a watermark has."""
    moment = st.recursive(
        st.just(rowtime),
        lambda inner: (
            st.builds(lambda a, gap, n, u: f"{a}{gap}- INTERVAL{gap}'{n}' {u}", inner, GAPS, st.integers(0, 99), UNITS)
            | st.builds(lambda a, gap, n, u: f"{a} -{gap}'{n}' {u}", inner, GAPS, st.integers(0, 99), UNITS)
            | inner.map(lambda a: f"CASE WHEN {flag} THEN {a} END")
            | inner.map(lambda a: f"({a})")
            | inner.map(lambda a: f"COALESCE({a}, {a} + INTERVAL '1 02:03' DAY TO MINUTE)")
        ),
        max_leaves=4,
    )
    text = st.sampled_from(["''", "'it''s'", "'- 5 SECOND'", "'`'"])
    return (
        moment
        | st.builds(lambda a, t: f"CASE {t} WHEN 'x' THEN {a} END", moment, text)
        | st.just(f"on_flag({rowtime}, {flag})")
        | st.just(f"On_Moment({rowtime}, {flag}) - '0.001' SECOND")
        | st.just(f"EXTRACT(EPOCH FROM {rowtime}) * 1000 - 1")
        | st.just("CAST(NULL AS BIGINT)")
    )


@st.composite
def declared(draw: st.DrawFn) -> Declared:
    column, field, flag = draw(st.lists(NAMES, min_size=3, max_size=3, unique_by=str.casefold))
    kind = draw(st.sampled_from(["TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP_LTZ(3)"]))
    form = draw(st.sampled_from(["plain", "nested", "computed", "source"]))
    rowtime = path = _quoted(column)
    definition = f"{rowtime} {kind}"
    expression = None
    if form == "nested":
        definition = f"{_quoted(column)} ROW<{_quoted(field)} {kind}>"
        rowtime, path = f"{_quoted(column)}.{_quoted(field)}", f"{_quoted(column)}.{_quoted(field)}"
    elif form == "computed":
        definition = f"{rowtime} AS TO_TIMESTAMP('2024-01-31 12:00:00')"
    elif form == "source":
        definition = f"{rowtime} AS SYSTEM_ROWTIME()"
        expression = draw(st.sampled_from(["SYSTEM_WATERMARK()", "source_watermark ( )", "(System_Watermark())"]))
    source, delay = expression is not None, timedelta(0)
    if source and draw(st.booleans()):
        amount, unit, gap = draw(st.integers(0, 99)), draw(st.sampled_from([*LENGTHS])), draw(GAPS)
        interval = draw(st.sampled_from(["INTERVAL", "interval" + gap, ""])) + f"'{amount}' {unit}"
        expression, delay = f"{expression}{gap}- {interval}", amount * LENGTHS[unit]
    if expression is None:
        expression = draw(_expressions(rowtime, _quoted(flag)))
    script = (
        f"CREATE TABLE t (id INT, {definition}, {_quoted(flag)} BOOLEAN,\n WATERMARK FOR {path} AS {expression})"
        " WITH ('connector' = 'kafka', 'topic' = 'x');"
    )
    return Declared(script, f"{column}.{field}" if form == "nested" else column, source, delay)


@searched(200)
@given(declared())
def test_any_watermark_comes_back_from_what_is_shown_and_from_properties(given: Declared) -> None:
    pipeline = compiled(given.script)
    table = pipeline.table("t")
    spec = watermark_of(table)
    assert (spec.column, spec.source, spec.delay) == (given.rowtime, given.source, given.delay)

    functions = "".join(map(show_create_function, pipeline.functions.values()))
    again = compile_script(functions + show_create_table(table), connectors=CONNECTORS)
    assert again.functions == pipeline.functions
    assert again.table("t") == table
    assert show_create_table(again.table("t")) == show_create_table(table)

    found = to_properties(spec)
    back = from_properties(found, table.columns, table="t", functions=pipeline.functions)
    assert back == spec
    assert back is not None
    assert to_properties(back) == found


def test_a_column_may_be_called_ascending() -> None:
    columns = "ascending TIMESTAMP(3), WATERMARK FOR ascending AS ascending"
    script = f"CREATE TABLE t ({columns}) WITH ('connector' = 'scripted');"
    assert watermark_of(compiled(script).table("t")).expression == "`ascending`"


def test_a_column_that_a_source_delivers_carries_any_watermark_also_that_of_another() -> None:
    """What the hint of an error says to write in place of SYSTEM_ROWTIME()."""
    seen = "seen TIMESTAMP_LTZ(3) METADATA FROM 'timestamp'"
    columns = f"ts TIMESTAMP(3), {seen}, WATERMARK FOR ts AS seen - INTERVAL '1' MINUTE"
    spec = watermark_of(compiled(f"CREATE TABLE t ({columns}) WITH ('connector' = 'kafka', 'topic' = 'x');").table("t"))
    assert (spec.column, spec.type, spec.source) == ("ts", "TIMESTAMP_LTZ(3)", False)


OWN_TIME = compiled(
    "CREATE TABLE t (id INT, ts TIMESTAMP(3), at AS SYSTEM_ROWTIME(), "
    "WATERMARK FOR at AS SYSTEM_WATERMARK() - '5' SECOND) WITH ('connector' = 'kafka', 'topic' = 'x');"
).table("t")


def test_a_delay_is_another_watermark() -> None:
    spec = watermark_of(OWN_TIME)
    assert (spec.delay, spec.expression) == (timedelta(seconds=5), "(`at` - INTERVAL '0.001' SECOND)")
    given = properties("at", "SYSTEM_WATERMARK() - '5' SECOND", "TIMESTAMP_LTZ(3)")
    assert from_properties(given, OWN_TIME.columns) == spec
    given = properties("at", "SYSTEM_WATERMARK()", "TIMESTAMP_LTZ(3)")
    assert from_properties(given, OWN_TIME.columns) == replace(spec, delay=timedelta(0)) != spec


@pytest.mark.parametrize(
    ("rowtime", "expression", "expected", "hint"),
    [
        ("at", "at - INTERVAL '5' SECOND", "whose watermark is SYSTEM_WATERMARK()", "SYSTEM_WATERMARK() - INTERVAL"),
        ("ts", "at - INTERVAL '5' SECOND", "`at` is SYSTEM_ROWTIME(), and the watermark", "FOR `at` AS SYSTEM_W"),
        ("ts", "ts", "`at` is SYSTEM_ROWTIME(), and the watermark", "or leave the column out"),
        ("at", "SYSTEM_WATERMARK() - '-5' SECOND", "is negative", "write SYSTEM_WATERMARK() - INTERVAL '5' SECOND"),
    ],
)
def test_the_source_s_time_goes_with_its_watermark_in_properties_too(
    rowtime: str, expression: str, expected: str, hint: str
) -> None:
    with pytest.raises(SqlError) as caught:
        from_properties(properties(rowtime, expression), OWN_TIME.columns)
    assert expected in caught.value.what
    assert hint in (caught.value.hint or "")
