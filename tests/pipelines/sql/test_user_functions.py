"""CREATE FUNCTION in a script: what calls of it become, and what the pipeline keeps."""

from __future__ import annotations

import pytest

from tests.pipelines.sql.connectors import CONNECTORS
from tidegate.pipelines.functions import UserFunction
from tidegate.pipelines.sql import Pipeline, compile_script, explain, show_create_function
from tidegate.pipelines.sql.canonical import computes

SAMPLES = "tests.pipelines.functions.samples"
NAMES = ("parsed", "inverse", "doubled", "day_before", "reversed_bytes", "never_mind", "watermark_on_flag", "answer")
DECLARED = "".join(
    f"CREATE FUNCTION {name} AS '{SAMPLES}.{name}' LANGUAGE PYTHON;\n" for name in (*NAMES, "half_an_hour_before")
)


def compiled(script: str) -> Pipeline:
    return compile_script(script, connectors=CONNECTORS)


def function(pipeline: Pipeline, name: str) -> UserFunction:
    return pipeline.functions[name]


@pytest.mark.parametrize(
    ("call", "kind", "arguments"),
    [
        ("parsed(s)", "BIGINT", "`s`"),
        ("parsed(sure)", "BIGINT NOT NULL", "`sure`"),
        ("PARSED(s, small)", "BIGINT", "`s`, CAST(`small` AS BIGINT)"),
        ("parsed('7', 10000000000)", "BIGINT", "'7', 10000000000L"),
        ("parsed(NULL)", "BIGINT", "CAST(NULL AS STRING)"),
        ("inverse(0.5)", "DOUBLE", "CAST(0.5BD AS DOUBLE)"),
        ("inverse(price)", "DOUBLE", "CAST(`price` AS DOUBLE)"),
        ("doubled(price)", "DECIMAL(38, 18)", "CAST(`price` AS DECIMAL(38, 18))"),
        ("day_before(day)", "DATE", "`day`"),
        ("reversed_bytes(octets)", "BYTES", "`octets`"),
        ("never_mind(s, NULL)", "STRING NOT NULL", "`s`, CAST(NULL AS STRING)"),
        ("half_an_hour_before(at)", "TIMESTAMP(6)", "`at`"),
        ("half_an_hour_before(moment)", "TIMESTAMP(6)", "`moment`"),
        ("watermark_on_flag(at, flag)", "BIGINT", "unix_millis(CAST(`at` AS TIMESTAMP)), `flag`"),
        ("watermark_on_flag(moment, TRUE)", "BIGINT", "unix_millis(CAST(`moment` AS TIMESTAMP)), TRUE"),
        ("answer()", "BIGINT NOT NULL", ""),
    ],
)
def test_a_call_gets_its_row_and_has_the_types_of_the_annotations(call: str, kind: str, arguments: str) -> None:
    pipeline = compiled(
        f"""{DECLARED}
        CREATE TABLE t (s STRING, sure VARCHAR(5) NOT NULL, small SMALLINT, price DECIMAL(10, 2), day DATE,
            octets BINARY(3), at TIMESTAMP(3), moment TIMESTAMP_LTZ(0), flag BOOLEAN,
            found AS {call}) WITH ('connector' = 'scripted')"""
    )
    column = pipeline.table("t").column("found")
    name = function(pipeline, call.partition("(")[0].lower()).spark_name
    assert column.expression == f"{name}(_split, _offset{', ' if arguments else ''}{arguments})"
    assert (column.type, column.nullable) == (kind.removesuffix(" NOT NULL"), not kind.endswith("NOT NULL"))
    assert column.sql == call


def test_calls_may_be_nested_and_stand_among_operators() -> None:
    pipeline = compiled(
        f"{DECLARED} CREATE TABLE t (s STRING, b AS 1 + parsed(never_mind(s)) * 2) WITH ('connector' = 'scripted')"
    )
    parsed, never_mind = (function(pipeline, name).spark_name for name in ("parsed", "never_mind"))
    inner = f"{never_mind}(_split, _offset, `s`)"
    assert pipeline.table("t").column("b").expression == (
        f"(CAST(1 AS BIGINT) + ({parsed}(_split, _offset, {inner}) * CAST(2 AS BIGINT)))"
    )


def test_an_explanation_shows_calls_as_the_script_has_them() -> None:
    pipeline = compiled(
        f"{DECLARED} CREATE TABLE t (s STRING) WITH ('connector' = 'scripted');"
        "CREATE TABLE sink (n BIGINT) WITH ('connector' = 'scripted');"
        "INSERT INTO sink SELECT parsed(never_mind(s), answer()) FROM t WHERE answer() > 1"
    )
    shown = explain(pipeline)
    assert "  where: (answer() > 1)\n" in shown
    assert "  n  BIGINT  CAST(parsed(never_mind(`t`.`s`), answer()) AS BIGINT)\n" in shown


def test_a_pipeline_keeps_its_functions_and_each_comes_back_from_what_is_shown() -> None:
    pipeline = compiled(f"{DECLARED} CREATE TABLE t (a INT) WITH ('connector' = 'scripted')")
    assert list(pipeline.functions) == [*NAMES, "half_an_hour_before"]
    shown = "".join(map(show_create_function, pipeline.functions.values()))
    assert compiled(f"{shown} CREATE TABLE t (a INT) WITH ('connector' = 'scripted')").functions == pipeline.functions


def test_if_not_exists_keeps_the_first() -> None:
    pipeline = compiled(
        f"CREATE TEMPORARY FUNCTION f AS '{SAMPLES}.parsed' LANGUAGE PYTHON;"
        f"CREATE TEMPORARY SYSTEM FUNCTION IF NOT EXISTS `F` AS '{SAMPLES}.inverse' LANGUAGE PYTHON;"
    )
    assert [found.reference for found in pipeline.functions.values()] == [f"{SAMPLES}.parsed"]


def test_a_function_of_flink_that_the_language_does_not_have_may_be_ones_own() -> None:
    pipeline = compiled(
        f"CREATE FUNCTION initcap AS '{SAMPLES}.never_mind' LANGUAGE PYTHON;"
        "CREATE TABLE t (s STRING, big AS INITCAP(s)) WITH ('connector' = 'scripted')"
    )
    assert pipeline.table("t").column("big").type == "STRING"


def test_another_function_under_the_same_name_is_another_insert() -> None:
    script = """
        CREATE FUNCTION f AS '{}' LANGUAGE PYTHON;
        CREATE TABLE t (s STRING, n AS f(s)) WITH ('connector' = 'scripted');
        CREATE TABLE sink (n STRING) WITH ('connector' = 'print');
        INSERT INTO sink SELECT CAST(n AS STRING) FROM t;
    """
    made = [compiled(script.format(f"{SAMPLES}.{name}")) for name in ("parsed", "never_mind", "parsed")]
    one, other, again = (computes(pipeline, pipeline.inserts[0]) for pipeline in made)
    assert one == again != other
