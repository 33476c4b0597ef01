"""How far a source is behind while nothing runs: by a table of what is known, and by a real server that is asked."""

from __future__ import annotations

import json
import time
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

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
from tests.pipelines.runtime.handmade import HandmadeLake
from tidegate.assets import build_pipeline_definitions
from tidegate.assets.watched import WatchedInsert, WatchedTable, watched
from tidegate.orchestration.alerts import AlertOptions
from tidegate.orchestration.alerts.memory import Memory
from tidegate.orchestration.alerts.tables import Asked, after, ask, lagging, stuck
from tidegate.pipelines.connectors.protocol import Step, Unread
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.lake import SplitWatermark, WatermarkRow
from tidegate.pipelines.runtime.epochs import insert_owner
from tidegate.pipelines.runtime.runner import Runner
from tidegate.pipelines.sources.mysql_cdc.binlog.model import BinlogPosition, BinlogRange
from tidegate.pipelines.sources.mysql_cdc.log import Birth
from tidegate.pipelines.sources.mysql_cdc.plan import BinlogStep

MINUTE = 60_000
NOW = 1_000 * MINUTE
SOME = Unread(9, "row")


def landed(**values: Any) -> WatermarkRow:
    return WatermarkRow(**{**dict(owner="t", generation=1, epoch=3, landed_at=NOW - 60 * MINUTE), **dict(
        rows=0, timestamp=0, use_processing_time=False, flip_epoch=1), **values})  # fmt: skip


@pytest.mark.parametrize(
    ("lag_ms", "answers", "since"),
    [
        pytest.param(0, [], None, id="nobody has asked"),
        pytest.param(0, [(5, Unread())], None, id="nothing is left"),
        pytest.param(0, [(5, SOME)], -60, id="all there was had landed then"),
        pytest.param(7 * MINUTE, [(5, SOME)], -67, id="it was behind when it landed"),
        pytest.param(None, [(5, SOME)], -60, id="nobody knew then"),
        pytest.param(0, [(5, Unread()), (4, SOME)], -5, id="nothing was left later on"),
        pytest.param(0, [(9, Unread()), (5, SOME), (3, SOME)], -9, id="it stays the last such time"),
        pytest.param(
            0, [(5, Unread()), (4, replace(SOME, since=NOW - 8 * MINUTE))], -8, id="the source knows since when"
        ),
    ],
)
def test_since_when_there_is_something_that_has_not_landed(
    lag_ms: int | None, answers: list[tuple[int, Unread]], since: int | None
) -> None:
    log, asked = landed(lag_ms=lag_ms), None
    for ago, reported in answers:
        asked = after(asked, log, reported, NOW - ago * MINUTE)
    found = None if asked is None else asked.unread_since(log)
    assert found == (None if since is None else NOW + since * MINUTE)
    if asked is not None:
        assert asked.unread_since(landed(epoch=4)) is None, "an epoch has landed since then"
        assert after(asked, landed(epoch=4), SOME, NOW) == Asked(1, 4, rest="9 rows", number=9)
        assert after(asked, log, None, NOW) == Asked(1, 3, mute=True), "a source that cannot be asked"
        memory = Memory(unread={"lake t": asked})
        assert Memory.of(memory.cursor()) == memory
        older = json.loads(memory.cursor())
        del older["unread"]
        assert Memory.of(json.dumps(older)).unread == {}


def test_an_older_cursor_has_the_runs_that_were_handled() -> None:
    assert Memory.of('{"told": ["run 1"]}') == Memory(handled=("run 1",))
    assert Memory.of(Memory(handled=("run 2",)).cursor()).handled == ("run 2",)


@pytest.mark.parametrize(
    ("lag_ms", "minutes", "expected"),
    [
        pytest.param(20, 40, "and nothing has landed for 40 min", id="it was behind, and nothing has landed since"),
        pytest.param(0, 40, None, id="it was not behind, and nobody has asked since"),
        pytest.param(None, 40, None, id="nobody knows"),
        pytest.param(20, 10, None, id="inside of the bound"),
    ],
)
def test_what_the_lake_alone_shows(tmp_path: Path, lag_ms: int | None, minutes: int, expected: str | None) -> None:
    rows, now = handmade(tmp_path / "lake"), round(time.time() * 1000)
    rows.landed(rows.probe, 1, at=now - minutes * MINUTE, lag_ms=lag_ms)
    with dg.DagsterInstance.ephemeral() as instance:
        found = lagging(WatchedTable("p", rows.probe, str(tmp_path / "lake"), ""), instance, AlertOptions(), now)
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        assert expected in found.title


@pytest.mark.parametrize(
    ("unread", "expected"),
    [
        (Unread(1, "file", NOW - 40 * MINUTE), "1 file has not landed, for up to 40 min"),
        (Unread(21_000, "version", NOW - 40 * MINUTE), "21,000 versions have not landed, for up to 40 min"),
        (Unread(1, "byte", NOW - 40 * MINUTE, "the binlog"), "1 byte of the binlog has not landed, for up to 40 min"),
    ],
    ids=["one", "many", "one of many"],
)
def test_one_has_not_landed_and_two_have_not(tmp_path: Path, unread: Unread, expected: str) -> None:
    rows = handmade(tmp_path / "lake")
    rows.landed(rows.probe, 1, at=NOW - 50 * MINUTE, lag_ms=0)
    asked = after(None, landed(epoch=1), unread, NOW)
    with dg.DagsterInstance.ephemeral() as instance:
        found = lagging(WatchedTable("p", rows.probe, str(tmp_path / "lake"), ""), instance, AlertOptions(), NOW, asked)
    assert expected in found.title


@pytest.mark.parametrize(
    ("by_default", "stored", "expected"),
    [
        (False, None, "(or turn its schedule on)"),
        (True, None, "(its schedule is on, and has not come round yet)"),
        (True, InstigatorStatus.DECLARED_IN_CODE, "(its schedule is on, and has not come round yet)"),
        (True, InstigatorStatus.STOPPED, "(or turn its schedule on)"),
        (False, InstigatorStatus.RUNNING, "(its schedule is on, and has not come round yet)"),
    ],
)
def test_nobody_is_asked_to_turn_on_a_schedule_that_is_on(
    tmp_path: Path, home: Path, by_default: bool, stored: InstigatorStatus | None, expected: str
) -> None:
    rows = handmade(tmp_path / "lake")
    rows.landed(rows.probe, 1, at=NOW - 50 * MINUTE, lag_ms=20 * MINUTE)
    status = dg.DefaultScheduleStatus.RUNNING if by_default else dg.DefaultScheduleStatus.STOPPED
    nightly = dg.ScheduleDefinition("nightly", job_name="clicks", cron_schedule="0 1 * * *", default_status=status)
    definitions = build_pipeline_definitions(pipeline(), lake=tmp_path / "lake")
    repository = dg.Definitions.merge(definitions, dg.Definitions(schedules=[nightly])).get_repository_def()
    (table,) = [item for item in watched(repository).tables if item.table == rows.probe]
    with dg.DagsterInstance.from_config(str(home)) as instance:
        if stored is not None:
            place = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("here"), "__repository__")
            origin = place.get_instigator_origin("nightly")
            instance.add_instigator_state(
                InstigatorState(origin, InstigatorType.SCHEDULE, stored, ScheduleInstigatorData("0 1 * * *"))
            )
        found = lagging(table, instance, AlertOptions(), NOW)
    assert expected in found.next[-1]


TOPIC = """
CREATE TABLE click_event (id INT) WITH ('connector' = 'kafka', 'topic' = 't', 'format' = 'json',
    'properties.bootstrap.servers' = 'nobody:9092');
CREATE TABLE kept (id INT) WITH ('connector' = 'print');
INSERT INTO kept SELECT id FROM click_event
"""


@pytest.mark.parametrize(
    ("lag_ms", "held", "ended", "expected"),
    [
        pytest.param(
            0, None, False, "may be behind its source: nobody has read it for 40 min, and ", id="nothing runs"
        ),
        pytest.param(0, 20, False, "may be behind its source: nobody has read it for 20 min, and ", id="not for long"),
        pytest.param(0, 10, False, None, id="a run has found nothing"),
        pytest.param(20, None, False, "is behind its source: it was behind when", id="it was behind: that is certain"),
        pytest.param(0, None, True, None, id="nothing will ever come"),
    ],
)
def test_a_cluster_that_only_a_run_can_ask_may_be_ahead_when_nobody_runs(
    tmp_path: Path, lag_ms: int, held: int | None, ended: bool, expected: str | None
) -> None:
    script, rows, now = tmp_path / "p.sql", handmade(tmp_path / "lake"), round(time.time() * 1000)
    script.write_text(TOPIC)
    landed_at = now - 40 * MINUTE
    splits = [asdict(SplitWatermark("t-0", 0, False, ended=each)) for each in (True, ended)]
    rows.landed(rows.probe, 1, 5, at=landed_at, lag_ms=lag_ms, splits=splits, timestamp=0, use_processing_time=False)
    if held is not None:
        with closing(rows.lake.leases("tidegate run", clock=lambda: now - held * MINUTE)) as leases:
            leases.acquire(rows.probe)
    table = WatchedTable("p", rows.probe, str(tmp_path / "lake"), str(script))
    asked = ask(table, None, now)
    assert asked == Asked(1, 1, mute=True), "nobody is connected to for it"
    with dg.DagsterInstance.ephemeral() as instance:
        found = lagging(table, instance, AlertOptions(), now, asked)
        assert lag_ms or lagging(table, instance, AlertOptions(), now) is None, (
            "whether it can be asked is not known yet"
        )
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        assert expected in found.title
        assert found.title.endswith("the bound is 15 min.")


def test_a_server_that_nobody_reads_is_asked_how_far_it_has_come(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, now = tmp_path / "shop.sql", round(time.time() * 1000)
    script.write_text(SHOP.format(host=database.server.host, port=database.server.port))
    monkeypatch.setenv("SHOP_PASSWORD", database.password)
    database.execute("CREATE TABLE noise (v LONGTEXT)")
    file, position = database.execute("SHOW MASTER STATUS")[0][:2]
    end = BinlogPosition(file, int(position))
    step = BinlogStep(BinlogRange(end, end), (file,), Birth(0, 1), (), None, end, now - 60 * MINUTE)
    rows = handmade(tmp_path / "lake")
    rows.begun("person", 1, now - 60 * MINUTE, Step(step.to_json()))
    rows.landed("person", 1, at=now - 60 * MINUTE, lag_ms=0, flip=1)
    shop = WatchedTable("shop", "person", str(tmp_path / "lake"), str(script), (("named_call", "call"),))
    quiet = ask(shop, None, now)
    assert quiet == Asked(1, 1, even=now)
    database.execute("INSERT INTO noise VALUES (REPEAT('x', 5000000))")
    before = _sent(database)
    asked = ask(shop, quiet, now + 1)
    assert _sent(database) - before < 100_000, "the log is not read for it"
    assert asked.rest.endswith(" bytes of the server's binlog")
    assert (asked.even, asked.since) == (now, None)
    with dg.DagsterInstance.ephemeral() as instance:
        assert lagging(shop, instance, AlertOptions(), now + 14 * MINUTE, asked) is None
        found = lagging(shop, instance, AlertOptions(), now + 16 * MINUTE, asked)
        assert f"{asked.rest} have not landed, for up to 16 min" in found.title
        assert found.details["lag_ms"] == 16 * MINUTE
        rows.landed("person", 2, at=now, lag_ms=0)
        assert lagging(shop, instance, AlertOptions(), now + 16 * MINUTE, asked) is None


def _sent(database: Database) -> int:
    return int(database.execute("SHOW GLOBAL STATUS LIKE 'Bytes_sent'")[0][1])


@pytest.mark.parametrize("which", ["table", "INSERT"])
def test_who_is_stuck_is_an_incident_until_a_step_has_worked_whoever_ran_it(tmp_path: Path, which: str) -> None:
    made, now = HandmadeLake(tmp_path), [1_000]
    found = watched(build_pipeline_definitions(made.pipeline, lake=made.lake.root).get_repository_def())
    subject: WatchedTable | WatchedInsert = next(item for item in found.tables if item.table == "users")
    if which == "INSERT":
        (subject,) = found.inserts
    owner = "users" if which == "table" else insert_owner("enriched")
    failed = SourceError("the table was dropped", where="log:7", next_command="create it again")
    with dg.DagsterInstance.ephemeral() as instance:
        assert stuck(subject, instance, AlertOptions()) is None

        def runner() -> Runner:
            return Runner(made.pipeline, made.lake, clock=lambda: now[0], environment={})

        with runner() as active:
            active.stuck(owner, failed)
            now[0] = 9_000
            active.stuck(owner, SourceError("it is still not there"))
        reported = stuck(subject, instance, AlertOptions())
        assert reported.key == f"stuck {subject.subject} 1000", "one incident, whatever it says meanwhile"
        assert reported.title.endswith("is stuck since 1970-01-01 00:00:01 UTC: it is still not there.")
        with runner() as later:
            later._works(owner)
        assert stuck(subject, instance, AlertOptions()) is None
