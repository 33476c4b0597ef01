"""The statement that recomputes epochs: how large it is."""

from __future__ import annotations

import re

import pytest

from tests.pipelines.runtime.plans import release, taken
from tidegate.pipelines.runtime.epochs import Bounds, Pin
from tidegate.pipelines.runtime.verifying.recompute import Views, recompute_sql
from tidegate.pipelines.sql import compile_script

BUILD = """
CREATE TABLE b{0} (k INT, v STRING, at TIMESTAMP(3), WATERMARK FOR at AS at, PRIMARY KEY (k) NOT ENFORCED)
WITH ('connector' = 'scripted', 'phases' = 'true', 'signals' = 'true');
"""
PROBE = """
CREATE TABLE p (id INT, k INT, at TIMESTAMP(3), proctime AS PROCTIME(), WATERMARK FOR at AS at)
WITH ('connector' = 'scripted');
CREATE TABLE o (id INT, v STRING, CONSTRAINT given EXPECT (v <> '') ON VIOLATION QUARANTINE)
WITH ('connector' = 'scripted', 'gate.proof' = 'columns');
"""


@pytest.mark.parametrize("time", ["at", "proctime"])
def test_each_join_adds_as_much_to_the_plan_as_the_one_before(time: str) -> None:
    """Spark puts a step into the plan wherever the step is named: if each join named the one before it twice, each
    would double the plan."""
    joins = [
        f"LEFT JOIN b{n} FOR SYSTEM_TIME AS OF p.{time} AS x{n} ON p.k = x{n}.k AND x{n}.v <> 'a'" for n in range(3)
    ]
    pipeline = compile_script(
        "".join(map(BUILD.format, range(3))) + PROBE + f"INSERT INTO o SELECT p.id, x2.v FROM p {' '.join(joins)}"
    )
    (insert,) = pipeline.inserts
    pins = tuple(Pin(build, 1, 1, 1) for build in insert.builds)
    plan = release("o", 1, taken("p", 0, 1, 1), pins=pins, bounds=Bounds() if time == "at" else None)
    views = Views("releases", "probe", ["c0", "c1", "c2"], ["p0", "p1", "p2"], "quarantine", "lots")
    sql = recompute_sql(insert, pipeline.table("o"), pipeline.tables, [plan], views)
    steps = re.findall(r"^(?:WITH )?(\w+) AS \($", sql, re.MULTILINE)
    assert len(steps) > 3 * 6
    assert {name: len(re.findall(rf"(?:FROM|JOIN) {name}\b", sql)) for name in steps} == dict.fromkeys(steps, 1)
