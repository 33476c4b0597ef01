"""Common options, their values, and the environment."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pipelines.sql.connectors import CONNECTORS
from tidegate.pipelines.connectors.options import (
    SINK_OPTIONS,
    SOURCE_OPTIONS,
    find_option,
    parse_duration,
    resolve_options,
    wrong_value,
)
from tidegate.pipelines.connectors.spec import OptionSpec
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.sql import Table, compile_script
from tidegate.pipelines.syntax.durations import format_duration


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("7 d", timedelta(days=7)),
        ("200 ms", timedelta(milliseconds=200)),
        ("200", timedelta(milliseconds=200)),
        ("1min", timedelta(minutes=1)),
        ("1 m", timedelta(minutes=1)),
        (" 2 Hours ", timedelta(hours=2)),
        ("3 sec", timedelta(seconds=3)),
        ("5 us", timedelta(microseconds=5)),
        ("5 µs", timedelta(microseconds=5)),
        ("5 micros", timedelta(microseconds=5)),
        ("2000 ns", timedelta(microseconds=2)),
        ("PT1H", timedelta(hours=1)),
        ("P1DT2H3M4.5S", timedelta(days=1, hours=2, minutes=3, seconds=4.5)),
        ("pt0.000001s", timedelta(microseconds=1)),
        ("0", timedelta(0)),
    ],
)
def test_a_duration_is_read_as_flink_reads_it(text: str, wanted: timedelta) -> None:
    assert parse_duration(text) == wanted


@pytest.mark.parametrize(
    "text",
    ["", "d", "1 fortnight", "-1 s", "1.5 s", "1 h 5 min", "P", "PT", "P1M", "1 ns", "PT0.0000001S", "9" * 30 + " d"],
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no duration|finer|too long"):
        parse_duration(text)


@given(st.timedeltas(min_value=timedelta(0)))
def test_a_duration_survives_its_text(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration


def test_keys_are_found_by_name_family_and_column() -> None:
    known = (OptionSpec("topic"), OptionSpec("properties.*"), OptionSpec("fields.#.min"), OptionSpec("fields.#.max"))
    assert find_option("topic", known) is known[0]
    assert find_option("properties.a.b", known) is known[1]
    assert find_option("properties.", known) is None
    assert find_option("fields.a.b.max", known) is known[3]
    assert find_option("fields..max", known) is None
    assert find_option("fields.max", known) is None
    assert find_option("Topic", known) is None


@pytest.mark.parametrize("option", [*SINK_OPTIONS, *SOURCE_OPTIONS], ids=lambda option: option.name)
def test_common_options_are_documented_and_their_defaults_are_values(option: OptionSpec) -> None:
    assert option.doc
    assert option.default is None or wrong_value(option, option.default) is None


MYSQL = """
CREATE TABLE t (id INT PRIMARY KEY NOT ENFORCED) WITH ('connector' = 'mysql-cdc', 'hostname' = '${HOST}',
    'username' = 'u', 'password' = '${PASSWORD}', 'database-name' = 'd', 'table-name' = 't',
    'connect.timeout' = '${TIMEOUT}', 'jdbc.properties.x' = 'a${HOST}b')
"""


def mysql_table() -> Table:
    return compile_script(MYSQL, connectors=CONNECTORS).table("t")


def test_options_are_resolved_and_no_default_filled_in() -> None:
    environment = {"HOST": "db", "PASSWORD": "hunter2", "TIMEOUT": "5 s"}
    resolved = resolve_options(mysql_table(), CONNECTORS["mysql-cdc"], environment)
    assert resolved["password"] == "hunter2"
    assert resolved["jdbc.properties.x"] == "adbb"
    assert "port" not in resolved


def test_a_variable_that_is_not_set_is_named() -> None:
    with pytest.raises(PlanningError, match="the environment has no PASSWORD, TIMEOUT"):
        resolve_options(mysql_table(), CONNECTORS["mysql-cdc"], {"HOST": "db"})


def test_a_wrong_value_out_of_the_environment_is_named_but_not_shown() -> None:
    environment = {"HOST": "db", "PASSWORD": "hunter2", "TIMEOUT": "hunter2"}
    with pytest.raises(PlanningError) as caught:
        resolve_options(mysql_table(), CONNECTORS["mysql-cdc"], environment)
    assert "the value of 'connect.timeout' is no duration" in str(caught.value)
    assert "hunter2" not in str(caught.value)
