"""`tidegate run --from --to`: spans of time released on their own, as a person types them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.orchestration.test_cli import read, tidegate
from tests.pipelines.runtime.test_event_time import RATES, at_ms, moment
from tidegate.pipelines.testing import Harness

CLICKS = """
CREATE TABLE users (id INT PRIMARY KEY NOT ENFORCED) WITH ('connector' = 'scripted');
CREATE TABLE clicks (id INT, p AS PROCTIME()) WITH ('connector' = 'scripted');
CREATE TABLE sink (id INT) WITH ('connector' = 'scripted');
INSERT INTO sink SELECT c.id FROM clicks c JOIN users FOR SYSTEM_TIME AS OF c.p AS u ON c.id = u.id;
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "rates.sql"
    path.write_text(RATES.format(policy="quarantine", kind="LEFT", more=""))
    return path


def test_years_of_history_by_hand_and_then_the_stream(script: Path, spark: SparkSession, tmp_path: Path) -> None:
    day = 86_400_000
    harness = Harness(script.read_text(), spark, tmp_path)
    harness.push("rates", [{"currency": "EUR", "rate": 100 + n, "valid_from": moment(n * day)} for n in range(4)])
    harness.push("orders", [{"id": n, "currency": "EUR", "at": moment(n * day // 2)} for n in range(8)])
    harness.watermark("rates", at_ms(4 * day))
    harness.watermark("orders", at_ms(4 * day))
    where = ("--lake", tmp_path / "lake", "--json")
    found = tidegate("run", script, "--from", "2026-01-02", "--to", "2026-01-03T00:00", *where)
    assert found.exit_code == 0, found.output
    [released] = read(found)["inserts"]
    assert [(done["rows"], done["epoch"]) for done in released["published"]] == [(2, 1)]
    assert sorted(row["id"] for row in harness.published("converted")) == [2, 3]
    assert tidegate("run", script, "--to", "2026-01-02T01:00:00+01:00", *where).exit_code == 0
    assert sorted(row["id"] for row in harness.published("converted")) == [0, 1, 2, 3]
    again = read(tidegate("run", script, "--from", "2026-01-02", "--to", "2026-01-03", *where))
    assert again["inserts"][0]["published"][0]["again"] == 2
    days = [("2026-01-04", "2026-01-05"), ("2026-01-01", "2026-01-02"), ("2026-01-01T06:00", "2026-01-02")]
    apart = [word for low, high in days for word in ("--from", low, "--to", high)]
    [released] = read(tidegate("run", script, *apart, *where))["inserts"]
    assert [(done["rows"], done["again"]) for done in released["published"]] == [(4, 2)]
    assert sorted(row["id"] for row in harness.published("converted")) == [0, 1, 2, 3, 6, 7]
    assert tidegate("run", script, *where).exit_code == 0
    rows = sorted((row["id"], row["rate"]) for row in harness.published("converted"))
    assert rows == [(n, 100 + n // 2) for n in range(8)]
    verified = tidegate("verify", script, "--lake", tmp_path / "lake", "--json")
    assert verified.exit_code == 0, verified.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--from", "yesterday"], "--from: 'yesterday' is no time"),
        (["--from", "2026-01-02", "--to", "2026-01-02"], "is not before"),
        (["--from", "2026-01-02", "--from", "2026-01-04", "--to", "2026-01-03"], "a --from and a --to each"),
        (["--from", "2026-01-02", "--continuous"], "--continuous follows the stream"),
    ],
)
def test_a_span_that_is_none_is_status_2(script: Path, tmp_path: Path, arguments: list[str], message: str) -> None:
    found = tidegate("run", script, "--lake", tmp_path / "lake", *arguments)
    assert found.exit_code == 2
    assert message in " ".join(found.output.replace("│", " ").split())


def test_rows_without_a_time_of_their_own_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    script = tmp_path / "clicks.sql"
    script.write_text(CLICKS)
    found = tidegate("run", script, "--lake", tmp_path / "lake", "--from", "2026-01-02", "--json")
    assert found.exit_code == 1
    assert "sink joins by processing time" in read(found)["error"]["what"]
