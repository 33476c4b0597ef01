"""The alert of a topic that will have deleted what a table has not read: by the table's own log row, asking nobody."""

from __future__ import annotations

import logging
from pathlib import Path

import dagster as dg
import pytest

from tests.assets.clicks import handmade
from tests.pipelines.runtime.handmade import store
from tidegate.assets.watched import Watched, WatchedTable
from tidegate.orchestration.alerts import AlertOptions, Incident, Message
from tidegate.orchestration.alerts.journal import journal
from tidegate.orchestration.alerts.tables import passing_log
from tidegate.pipelines.clock import system_clock
from tidegate.pipelines.lake import Lake, WatermarkRow

SCRIPT = """
CREATE TABLE clicks (id INT) WITH ('connector' = 'kafka', 'topic' = 't', 'format' = 'json',
    'properties.bootstrap.servers' = 'nobody:9092');
CREATE TABLE kept (id INT) WITH ('connector' = 'print');
INSERT INTO kept SELECT id FROM clicks
"""
DAY = 86_400_000


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        pytest.param(4 * DAY, None, id="more than a quarter"),
        pytest.param(DAY, "the server deletes the log that p/clicks has not read yet in about ", id="less"),
        pytest.param(-DAY, "the server deletes the log that p/clicks has not read yet in about ", id="it may be gone"),
        pytest.param(None, None, id="it does not delete"),
    ],
)
def test_a_topic_is_reported_before_it_has_deleted_what_is_not_read(
    tmp_path: Path, left: int | None, expected: str | None
) -> None:
    script, lake = tmp_path / "p.sql", Lake(tmp_path / "lake")
    script.write_text(SCRIPT)
    kept = None if left is None else {"until": system_clock() + left, "for_ms": 7 * DAY}
    row = WatermarkRow("clicks", 1, 1, 0, 0, 0, False, position="t-0:5", kept=kept)
    store(lake, row)
    watched = WatchedTable("p", "clicks", str(lake.root), str(script))
    with dg.DagsterInstance.ephemeral() as instance:
        found = passing_log(watched, instance, AlertOptions())
    if expected is None:
        assert found is None
        return
    assert found.title.startswith(expected)
    assert found.positions["clicks, cursor"] == "t-0:5"
    assert "retention.ms" in found.next[1]
    assert "binlog" not in found.next[1]


LOG = logging.getLogger(__name__)


def test_two_code_locations_on_one_lake_send_one_message_of_each_state(tmp_path: Path):
    handmade(tmp_path / "lake").begun("rates", 1, 1)
    first, second = (Watched((), (WatchedTable(name, "rates", str(tmp_path / "lake"), ""),)) for name in ("a", "b"))
    for at, state in ((1.0, "open"), (2.0, "resolved"), (3.0, "open")):
        of_a, of_b = (Message(Incident("lag rates 1", "lag", "rates is behind", name), state) for name in ("a", "b"))
        assert journal([of_a], first, LOG, at, "team a") == [of_a]
        assert journal([of_b], second, LOG, at + 0.1, "team b") == []
        assert journal([of_a], first, LOG, at + 0.2, "team a") == [of_a], "a tick that was lost tells again"
