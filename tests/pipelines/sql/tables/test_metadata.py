"""METADATA columns in another type than the connector's: what is taken, how it is cast, and what is refused."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.sql.connectors import CONNECTORS
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.sql import SqlError, compile_script
from tidegate.pipelines.sql.explanation import show_create_table

FIXTURE = tomllib.loads((Path(__file__).parents[3] / "fixtures" / "sql" / "metadata.toml").read_text())
CASES: list[dict[str, Any]] = FIXTURE["column"]


def script(declared: str) -> str:
    return f"""CREATE TABLE t (a INT, m {declared} METADATA FROM 'noted') WITH ('connector' = 'scripted');
        CREATE TABLE s (a INT) WITH ('connector' = 'scripted');
        INSERT INTO s SELECT a FROM t;"""


def compiled(of: str, declared: str) -> Table:
    connectors = {**CONNECTORS, "scripted": replace(CONNECTORS["scripted"], metadata={"noted": of})}
    table = compile_script(script(declared), connectors=connectors).table("t")
    again = f"{show_create_table(table)};{script(declared).partition(';')[2]}"
    assert compile_script(again, connectors=connectors).table("t") == table
    return table


@pytest.mark.parametrize(
    "case", [case for case in CASES if "sql" in case], ids=lambda case: f"{case['of']} as {case['declared']}"
)
def test_what_loses_nothing_is_cast_as_flink_casts_it(case: dict[str, Any]) -> None:
    table = compiled(case["of"], case["declared"])
    column = table.column("m")
    assert f"{column.type}{'' if column.nullable else ' NOT NULL'}" == case["declared"]
    assert (column.conversion or "`m`") == case["sql"]
    assert (table.delivered.column("m").type, table.delivered.column("a")) == (case["of"], table.column("a"))


@pytest.mark.parametrize(
    "case", [case for case in CASES if "sql" not in case], ids=lambda case: f"{case['of']} as {case['declared']}"
)
def test_what_would_lose_something_is_refused_with_the_type_to_declare(case: dict[str, Any]) -> None:
    with pytest.raises(SqlError) as refused:
        compiled(case["of"], case["declared"])
    error = refused.value
    assert (error.line, error.column) == (1, script("").index("(a INT, m ") + len("(a INT, m ") + 1)
    assert error.what == f"type clash: metadata `noted` of scripted is {case['of']}, not {case['declared']}"
    assert error.hint == f"declare m {case['of']} METADATA"
