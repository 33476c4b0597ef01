"""What planning says of a topic's table: the table of tests/fixtures/kafka/options.toml."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tidegate.pipelines.sources.kafka.options import layout, parse, specific_offsets
from tidegate.pipelines.sources.kafka.reading import FETCH_WAIT_MS, Reader
from tidegate.pipelines.sql import SqlError, compile_script

CASES = tomllib.loads((Path(__file__).parents[3] / "fixtures" / "kafka" / "options.toml").read_text())["case"]

SCRIPT = """
CREATE TABLE t (id BIGINT, name STRING{key}) WITH ({options});
CREATE TABLE clicks (user_id BIGINT, proctime AS PROCTIME()) WITH ('connector' = 'datagen');
CREATE TABLE joined (id BIGINT, name STRING) WITH ('connector' = 'delta');
"""
INSERTS = {
    "probe": "INSERT INTO joined SELECT id, name FROM t;",
    "build": "INSERT INTO joined SELECT c.user_id, u.name FROM clicks AS c "
    "JOIN t FOR SYSTEM_TIME AS OF c.proctime AS u ON c.user_id = u.id;",
}


def script(case: dict[str, Any]) -> str:
    role = case.get("role", "probe")
    given = {
        "connector": case.get("connector", "kafka"),
        "properties.bootstrap.servers": "localhost:9092",
        **case["options"],
    }
    key = ", PRIMARY KEY (id) NOT ENFORCED" if case.get("key", role == "build") else ""
    options = ", ".join(f"'{name}' = '{value}'" for name, value in given.items())
    return SCRIPT.format(key=key, options=options) + INSERTS[role]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_planning(case: dict[str, Any]) -> None:
    if "error" not in case:
        compile_script(script(case))
        return
    with pytest.raises(SqlError, match=re.escape(case["error"])):
        compile_script(script(case))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("partition:0,offset:42;partition:1,offset:300", {0: 42, 1: 300}),
        (" partition : 0 , offset : 42 ; ", {0: 42}),
        ("partition:0,offset:1;partition:0,offset:2", None),
        ("partition:0", None),
        ("", {}),
    ],
)
def test_specific_offsets(text: str, expected: dict[int, int] | None) -> None:
    assert specific_offsets(text) == expected


def test_secrets_are_not_shown_and_the_plans_own_are_not_passed_on() -> None:
    options = parse(
        {
            "topic": "t",
            "format": "json",
            "properties.bootstrap.servers": "b:1",
            "properties.sasl.jaas.config": "password=hidden",
            "properties.auto.offset.reset": "latest",
            "properties.enable.auto.commit": "true",
        },
        "t",
    )
    assert "hidden" not in repr(options)
    assert options.client == {"bootstrap.servers": "b:1", "sasl.jaas.config": "password=hidden"}
    assert options.reset == "latest"


@pytest.mark.parametrize(("given", "wait"), [({}, FETCH_WAIT_MS), ({"properties.fetch.max.wait.ms": "70"}, "70")])
def test_a_broker_does_not_wait_long_for_more_than_a_step_reads(given: dict[str, str], wait: str) -> None:
    options = parse({"topic": "t", "format": "json", "properties.bootstrap.servers": "b:1", **given}, "t")
    (insert,) = compile_script(script({"options": {"topic": "t", "format": "json"}})).inserts
    table = compile_script(script({"options": {"topic": "t", "format": "json"}})).table(insert.probe)
    reader = Reader(table, options, table.options, layout(table, table.options, "kafka"), "read_committed")
    assert reader.consumer == {
        "bootstrap.servers": "b:1",
        "fetch.max.wait.ms": wait,
        "isolation.level": "read_committed",
    }
