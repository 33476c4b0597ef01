"""What the sensor asks sources, and what Dagster adds to a source that is behind: a schedule, a run."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteRepositoryOrigin
from dagster._core.scheduler.instigation import (
    InstigatorState,
    InstigatorStatus,
    InstigatorType,
    ScheduleInstigatorData,
)

from tests.assets.clicks import handmade, pipeline
from tests.conftest import Database
from tests.orchestration.conftest import SHOP
from tidegate.assets import build_pipeline_definitions
from tidegate.assets.watched import WatchedTable, watched
from tidegate.orchestration.alerts import sources
from tidegate.orchestration.alerts.dagster_problems import Links
from tidegate.orchestration.alerts.sources import asked
from tidegate.orchestration.alerts.threads import AT_ONCE
from tidegate.pipelines.commands import RUN
from tidegate.pipelines.connectors.protocol import Step
from tidegate.pipelines.facts.problem import Asked, Problem, Reported
from tidegate.pipelines.sources.mysql_cdc.binlog.model import BinlogPosition, BinlogRange
from tidegate.pipelines.sources.mysql_cdc.log import Birth
from tidegate.pipelines.sources.mysql_cdc.plan import BinlogStep

MINUTE = 60_000
LOG = logging.getLogger(__name__)


@pytest.fixture
def never(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """What a source that never answers waits for."""
    found = threading.Event()
    monkeypatch.setattr(sources, "ASK_FOR_S", 0.5)
    yield found
    found.set()


def test_one_who_never_answers_holds_up_nobody_and_stays_as_it_was(
    monkeypatch: pytest.MonkeyPatch, never: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    tables = [WatchedTable("p", f"t{number}", "/lake", "") for number in range(2 * AT_ONCE)]

    def unread(table: WatchedTable, now: int, before: Reported) -> Reported:
        if table.table == "t3":
            never.wait()
        if table.table == "t4":
            raise ZeroDivisionError("hunter2")
        return Reported(Asked(1, now))

    monkeypatch.setattr(sources, "_unread", unread)
    monkeypatch.setattr(sources, "_retention", lambda table, now, before: before)
    old = {f"/lake t{number}": Reported(Asked(1, 0)) for number in (3, 4)}
    found = asked(tables, old, LOG, 7)
    assert {name: each.unread.epoch for name, each in found.items() if each.unread} == {
        table.subject: 0 if table.table in ("t3", "t4") else 7 for table in tables
    }
    assert (
        "p/t3 could not be asked for what has not landed, and for its retention: no answer within 0.5 s" in caplog.text
    )
    assert "p/t4 could not be asked for what has not landed, and for its retention: ZeroDivisionError" in caplog.text
    assert "hunter2" not in caplog.text


def test_a_server_that_nobody_reads_is_asked_how_far_it_has_come(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, now = tmp_path / "shop.sql", round(time.time() * 1000)
    script.write_text(SHOP.format(host=database.server.host, port=database.server.port))
    monkeypatch.setenv("SHOP_PASSWORD", database.password)
    monkeypatch.setattr(sources, "ASK_FOR_S", 300.0)  # a busy machine takes its time
    database.execute("CREATE TABLE noise (v LONGTEXT)")
    file, position = database.execute("SHOW MASTER STATUS")[0][:2]
    end = BinlogPosition(file, int(position))
    step = BinlogStep(BinlogRange(end, end), (file,), Birth(0, 1), (), None, end, now - 60 * MINUTE, Birth(0, 1))
    rows = handmade(tmp_path / "lake")
    rows.begun("person", 1, now - 60 * MINUTE, Step(step.to_json()))
    rows.landed("person", 1, at=now - 60 * MINUTE, lag_ms=0, flip=1)
    shop = WatchedTable("shop", "person", str(tmp_path / "lake"), str(script), (("named_call", "call"),))
    quiet = asked([shop], {}, LOG, now)
    assert quiet[shop.subject].unread == Asked(1, 1, even=now)
    database.execute("INSERT INTO noise VALUES (REPEAT('x', 5000000))")
    before = _sent(database)
    found = asked([shop], quiet, LOG, now + 1)[shop.subject]
    assert _sent(database) - before < 100_000, "the log is not read for it"
    assert found.unread is not None
    assert found.unread.rest.endswith(" bytes of the server's binlog")
    assert (found.unread.even, found.unread.since, found.connector) == (now, None, "mysql-cdc")


def _sent(database: Database) -> int:
    return int(database.execute("SHOW GLOBAL STATUS LIKE 'Bytes_sent'")[0][1])


TOPIC = """
CREATE TABLE click_event (id INT) WITH ('connector' = 'kafka', 'topic' = 't', 'format' = 'json',
    'properties.bootstrap.servers' = 'nobody:9092');
CREATE TABLE kept (id INT) WITH ('connector' = 'print');
INSERT INTO kept SELECT id FROM click_event
"""


def test_a_topic_says_when_it_will_be_deleted_without_being_asked(tmp_path: Path) -> None:
    script, rows, now = tmp_path / "p.sql", handmade(tmp_path / "lake"), round(time.time() * 1000)
    script.write_text(TOPIC)
    rows.landed(rows.probe, 1, 5, at=now, kept=now - MINUTE)
    table = WatchedTable("p", rows.probe, str(tmp_path / "lake"), str(script))
    (found,) = asked([table], {}, LOG, now).values()
    assert found.unread == Asked(1, 1, mute=True), "nobody is connected to for it"
    assert (found.left_s, found.kept_s, found.position) == (1, 86_400, "log:1"), "it may be gone, and may be there"


@pytest.mark.parametrize(
    ("by_default", "stored", "expected"),
    [
        (False, None, "or turn its schedule on"),
        (True, None, "its schedule is on, and has not come round yet"),
        (True, InstigatorStatus.DECLARED_IN_CODE, "its schedule is on, and has not come round yet"),
        (True, InstigatorStatus.STOPPED, "or turn its schedule on"),
        (False, InstigatorStatus.RUNNING, "its schedule is on, and has not come round yet"),
    ],
)
def test_nobody_is_asked_to_turn_on_a_schedule_that_is_on(
    tmp_path: Path, home: Path, by_default: bool, stored: InstigatorStatus | None, expected: str
) -> None:
    status = dg.DefaultScheduleStatus.RUNNING if by_default else dg.DefaultScheduleStatus.STOPPED
    nightly = dg.ScheduleDefinition("nightly", job_name="clicks", cron_schedule="0 1 * * *", default_status=status)
    definitions = build_pipeline_definitions(pipeline(), lake=tmp_path / "lake")
    repository = dg.Definitions.merge(definitions, dg.Definitions(schedules=[nightly])).get_repository_def()
    lag = Problem("lag", "lag", "behind", pipeline="clicks", owner="click_event", next=("look", RUN))
    with dg.DagsterInstance.from_config(str(home)) as instance:
        if stored is not None:
            place = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("here"), "__repository__")
            origin = place.get_instigator_origin("nightly")
            instance.add_instigator_state(
                InstigatorState(origin, InstigatorType.SCHEDULE, stored, ScheduleInstigatorData("0 1 * * *"))
            )
        found = Links(instance, watched(repository), "http://here").completed(lag)
    assert [str(each) for each in found.next] == ["look", f"tidegate run SCRIPT   ({expected})"]
