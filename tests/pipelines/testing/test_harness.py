"""docs/testing.md: the tests that it shows, as they stand there."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from tidegate.pipelines.errors import PlanningError, SourceError, TidegateError
from tidegate.pipelines.testing import Harness

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
SHOWN: dict[str, Any] = {}
PARTS = enumerate(re.split(r"^```(?:python)?$", PAGE, flags=re.MULTILINE))
LINES = "".join(part if number % 2 else "\n" * part.count("\n") for number, part in PARTS)
"""All code of the page, each line where it stands there."""
exec(compile(LINES, "docs/testing.md", "exec"), SHOWN)
TESTS: list[Callable[..., None]] = [found for name, found in SHOWN.items() if name.startswith("test_")]


@pytest.mark.parametrize("test", TESTS, ids=lambda test: test.__name__)
def test_a_shown_test_passes(
    test: Callable[..., None], spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    test(spark, tmp_path)


def test_all_that_a_harness_can_do_is_named() -> None:
    public = {name for name in vars(Harness) if not name.startswith("_")}
    assert public <= set(re.findall(r"\.([a-z_]+)", PAGE.partition("## What a harness can do")[2]))
    assert len(TESTS) == 3


@pytest.mark.parametrize("name", ["pipeline.sql", "examples/clicks/pipeline.sql", "news.py"])
def test_the_name_of_a_file_is_no_sql(name: str, spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PlanningError) as refused:
        Harness(name, spark, tmp_path)
    assert name in refused.value.what
    assert f"Harness(Path('{name}')" in refused.value.next_command


def test_verify_asks_the_harness_s_environment(spark: SparkSession, tmp_path: Path) -> None:
    script = """
        CREATE TABLE users (id INT PRIMARY KEY NOT ENFORCED, name STRING)
            WITH ('connector' = 'scripted', 'changelog.retention' = '${KEPT}');
        CREATE TABLE clicks (id INT, at AS PROCTIME()) WITH ('connector' = 'scripted');
        CREATE TABLE named (id INT, name STRING) WITH ('connector' = 'delta');
        INSERT INTO named SELECT c.id, name FROM clicks AS c JOIN users FOR SYSTEM_TIME AS OF c.at ON c.id = users.id
    """
    harness = Harness(script, spark, tmp_path, environment={"KEPT": "7 d"})
    harness.push("users", [{"id": 1, "name": "Ann"}])
    harness.end_of_snapshot("users")
    harness.push("clicks", [{"id": 1}])
    assert [row["name"] for row in harness.advance()] == ["Ann"]
    report = harness.verify("named")
    assert report.passed
    assert [epoch.state for epoch in report.epochs] == ["equal"]


JOINED = """
CREATE TABLE rates (currency STRING PRIMARY KEY NOT ENFORCED, rate INT, since TIMESTAMP(3),
    WATERMARK FOR since AS since) WITH ('connector' = 'scripted');
CREATE TABLE orders (id INT, currency STRING, at TIMESTAMP(3), now AS PROCTIME(), WATERMARK FOR at AS at)
WITH ('connector' = 'scripted');
CREATE TABLE first (id INT, rate INT) WITH ('connector' = 'scripted');
CREATE TABLE second (id INT, rate INT) WITH ('connector' = 'scripted');
INSERT INTO first SELECT o.id, r.rate FROM orders AS o
JOIN rates FOR SYSTEM_TIME AS OF o.at AS r ON o.currency = r.currency;
"""
IN_PROCESSING_TIME = """INSERT INTO second SELECT o.id, r.rate FROM orders AS o
JOIN rates FOR SYSTEM_TIME AS OF o.now AS r ON o.currency = r.currency;"""
UNJOINED = "INSERT INTO second SELECT id, id FROM orders;"
WINDOWED = """INSERT INTO second SELECT id, CAST(COUNT(*) AS INT) FROM TABLE(
TUMBLE(TABLE orders, DESCRIPTOR(at), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end, id;"""


@pytest.mark.parametrize("op", ["-U", "+U", "-D"])
@pytest.mark.parametrize("more", [IN_PROCESSING_TIME, UNJOINED, WINDOWED], ids=["joined", "no join", "windows"])
def test_updates_of_a_probe_that_has_to_grow_are_refused(tmp_path: Path, op: str, more: str) -> None:
    harness = Harness(JOINED + more, cast(SparkSession, None), tmp_path)
    with pytest.raises(SourceError, match="needs a table that only grows") as refused:
        harness.push("orders", [{"id": 1}], op)
    assert "nothing of this call was appended" in refused.value.state
    harness.push("orders", [{"id": 1}])
    harness.push("rates", [{"currency": "EUR"}], op)


@pytest.mark.parametrize("op", ["-U", "+U", "-D"])
def test_updates_of_a_probe_in_event_time_are_taken(tmp_path: Path, op: str) -> None:
    Harness(JOINED, cast(SparkSession, None), tmp_path).push("orders", [{"id": 1}], op)


TIMES = """
CREATE TABLE texts (id INT, text STRING) WITH ('connector' = 'scripted');
CREATE TABLE times (id INT, at TIMESTAMP(3)) WITH ('connector' = 'scripted');
INSERT INTO times SELECT id, CAST(text AS TIMESTAMP(3)) FROM texts;
"""


@pytest.mark.parametrize("time", ["0000-05-01 00:00:00", "12026-01-01 00:00:00"])
def test_a_time_that_python_cannot_hold_is_a_typed_error(time: str, spark: SparkSession, tmp_path: Path) -> None:
    harness = Harness(TIMES, spark, tmp_path)
    harness.push("texts", [{"id": 1, "text": time}])
    with pytest.raises(TidegateError, match="years 1 to 9999") as refused:
        harness.advance()
    assert refused.value.where == "the rows of times"
    assert str(harness.lake.root) in refused.value.next_command
