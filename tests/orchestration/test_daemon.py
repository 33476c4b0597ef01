"""The alerts, through a running daemon: `dg dev`, real runs, a webhook that listens, a mail server that takes mail, and
a channel that nobody listens at."""

from __future__ import annotations

import configparser
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from playwright.sync_api import expect

from tests.assets.clicks import REASON, Hand, handmade, pipeline
from tests.orchestration.browser import browsing
from tests.orchestration.services import Dagster, environment, until
from tests.stories.story import blocks
from tidegate.pipelines.connectors.protocol import Step
from tidegate.pipelines.sources.mysql_cdc.binlog.model import BinlogPosition, BinlogRange
from tidegate.pipelines.sources.mysql_cdc.log import Birth
from tidegate.pipelines.sources.mysql_cdc.plan import BinlogStep
from tidegate.pipelines.sources.mysql_cdc.server import EmbeddedMariaDb

SECRETS = (b"hunter2", b"T0KEN", b"reader-secret")
MINUTE = 60_000


def now() -> int:
    return round(time.time() * 1000)


def test_a_held_gate_is_reported_once_with_all_that_a_person_needs(dagster: Dagster, held_run: str):
    (message,) = until(lambda: dagster.alerts("gate-held", pipeline="strict"), "the alert of the held gate")
    assert (message["insert"], message["epoch"], message["state"]) == ("s_enriched_click", 1, "open")
    assert "the gate holds epoch 1 of strict/s_enriched_click (3 rows)" in message["text"]
    assert (
        message["next"][0]
        == f"tidegate release {dagster.folder}/strict.sql s_enriched_click --lake {dagster.folder}/lake"
    )
    assert message["reasons"]
    assert message["counts"] == {"key-absent@s_user_info": 1}
    (missed,) = message["keys"]
    assert (missed["key"], missed["reason"]) == ({"user_id": 9}, "key-absent@s_user_info")
    assert missed["nearest"].startswith("none up to epoch")
    assert message["positions"]["s_user_info"].startswith("pinned at epoch 1/")
    assert message["run"].endswith(f"/runs/{held_run}")
    dagster.ticked()
    assert len(dagster.alerts("gate-held", pipeline="strict")) == 1
    assert dagster.alerts("run-failed", run_id=held_run) == [], "a held gate is one incident, not two"
    assert "the gate holds epoch 1 of strict/s_enriched_click" in dagster.log
    assert dagster.strict.published() == []


def test_a_mail_has_the_same(dagster: Dagster, held_run: str):
    text = until(lambda: dagster.mail.text("the gate holds epoch 1 of strict"), "the mail of the held gate")
    for part in ("pipeline: strict", "user_id = 9", "positions:", f"/runs/{held_run}", "next: tidegate release"):
        assert part in text


def test_its_pages_say_why_and_what_to_do(dagster: Dagster, held_run: str):
    with browsing() as page:
        page.goto(f"{dagster.address}/runs/{held_run}")
        expect(page.get_by_text("Failure", exact=True).first).to_be_visible()
        page.goto(f"{dagster.address}/assets/strict/s_enriched_click_staged?view=checks&checkDetail=rows")
        expect(page.get_by_text("Failed", exact=True).first).to_be_visible()
        expect(page.get_by_text("found no match in s_user_info").first).to_be_visible()
        expect(page.get_by_text("strict.sql s_enriched_click").first).to_be_visible()
        page.goto(f"{dagster.address}/assets/strict/s_enriched_click")
        expect(page.get_by_text("Failed in").first).to_be_visible()
        expect(page.get_by_role("link", name=held_run[:8]).first).to_be_visible()


@pytest.mark.thorough
def test_checks_of_a_cancelled_run_are_reported_until_a_later_run_has_run_them(dagster: Dagster, held_run: str):
    run_id = dagster.launch("strict")
    dagster.cancel(run_id)
    assert dagster.ended(run_id) == "CANCELED"
    (message,) = until(lambda: dagster.alerts("check-not-run", run_id=run_id), "the alert of the cancelled run")
    assert (message["state"], message["pipeline"]) == ("open", "strict")
    assert "strict/s_enriched_click_staged: rows" in message["checks_not_run"]
    gate = lambda: dagster.shown("rows", "strict", "s_enriched_click_staged")  # noqa: E731
    until(lambda: gate() == "FAILED", "the held gate is failed, though a newer run never came to it")
    again = dagster.launch("strict")
    assert dagster.ended(again) == "FAILURE", "its epoch is still held, by a check that ran"
    until(lambda: dagster.alerts("check-not-run", run_id=run_id, state="resolved"), "the checks have run")
    assert len(dagster.alerts("gate-held", pipeline="strict")) == 1


@pytest.mark.thorough  # orchestration/test_sensors.py and alerts/ have them without a daemon
def test_states_of_the_lake_are_reported_once_and_are_over_once(dagster: Dagster):
    """Not flipped, lag, a quarantine that grows, a held gate: of a pipeline that no run of Dagster ever touched."""
    late = handmade(dagster.folder / "lake", "l_")
    late.begun(late.build, 1, now() - 45 * MINUTE)
    late.landed(late.probe, 1, 500, at=now(), lag_ms=20 * MINUTE)
    late.epoch(1, {"to:quarantine": 500, "unmatched:key-absent@l_user_info": 500}, at=now(), publish=True)
    late.epoch(2, {"rows": 3, "unmatched:deleted@l_user_info": 3}, REASON, at=now())
    kinds = ("not-flipped", "lag", "quarantine-growing", "gate-held")
    for kind in kinds:
        (message,) = until(lambda k=kind: dagster.alerts(k, pipeline="late"), f"the alert {kind}")
        assert message["state"] == "open"
        assert message["next"]
    dagster.ticked()
    late.landed(late.build, 1, at=now(), flip=1)
    late.landed(late.probe, 2, at=now(), lag_ms=0)
    late.epoch(3, {"rows": 3}, at=now(), supersedes=2)
    for kind in ("not-flipped", "lag", "gate-held"):
        resolved = until(lambda k=kind: dagster.alerts(k, pipeline="late", state="resolved"), f"{kind} is over")
        assert len(resolved) == 1
    dagster.ticked()
    assert [len(dagster.alerts(kind, pipeline="late")) for kind in kinds] == [2, 2, 1, 2]
    assert until(lambda: dagster.mail.text("resolved after"), "the mail that it is over")


@pytest.fixture
def shop(dagster: Dagster, mariadb: EmbeddedMariaDb) -> Iterator[BinlogPosition]:
    """`person` has landed up to the server's end, and the server keeps its binlog for ten days."""
    before = mariadb.execute("SELECT @@GLOBAL.binlog_expire_logs_seconds")[0][0]
    mariadb.execute("SET GLOBAL binlog_expire_logs_seconds = 864000")
    file, position = mariadb.execute("SHOW MASTER STATUS")[0][:2]
    end = BinlogPosition(file, int(position))
    step = BinlogStep(BinlogRange(end, end), (file,), Birth(0, 1), (), None, end, now())
    made = handmade(dagster.folder / "lake")
    made.begun("person", 1, now(), Step(step.to_json()))
    made.landed("person", 1, at=now(), flip=1)
    yield end
    mariadb.execute(f"SET GLOBAL binlog_expire_logs_seconds = {before}")


@pytest.mark.thorough
def test_a_binlog_that_will_be_deleted_before_it_is_read(
    dagster: Dagster, mariadb: EmbeddedMariaDb, shop: BinlogPosition
):
    dagster.watching()
    mariadb.execute("FLUSH BINARY LOGS")  # the file of the cursor is closed, so its days are counted
    (message,) = until(lambda: dagster.alerts("retention", pipeline="shop"), "the alert of the binlog")
    assert 0 < message["left_s"] <= message["kept_s"] == 864_000
    assert message["positions"]["person, cursor"] == str(shop)
    assert message["next"][0].startswith("tidegate run ")


@pytest.mark.thorough
def test_the_channel_that_nobody_listens_at_fails_no_run_and_is_logged(dagster: Dagster, held_run: str):
    run_id = dagster.launch("tidegate_maintenance", {"ops": {"maintain": {"config": {"pipeline": "closed"}}}})
    assert dagster.ended(run_id) == "SUCCESS"
    until(lambda: "channel 2 (json) did not take the alert" in dagster.log, "the log of the channel")


def holds(path: Path, secret: bytes) -> bool:
    """Whether a file has `secret` in it. The running daemon removes files of its own at any moment."""
    try:
        return secret in path.read_bytes()
    except FileNotFoundError:
        return False


def test_no_secret_is_in_any_message_log_or_database(dagster: Dagster, held_run: str):
    for secret in SECRETS:
        assert secret not in str(dagster.webhook.messages).encode()
        assert secret.decode() not in "".join(mail.as_string() for mail in dagster.mail.mails)
        for folder in ("home", "lake"):
            found = [path for path in (dagster.folder / folder).rglob("*") if path.is_file()]
            assert found
            assert [path for path in found if holds(path, secret)] == []
        assert secret.decode() not in dagster.log


@pytest.mark.parametrize("sensor", ["tidegate_alerts", "tidegate_continuous"])
def test_every_tick_is_well(dagster: Dagster, held_run: str, sensor: str):
    ticks = dagster.ticks(sensor)
    assert ticks
    assert [tick for tick in ticks if tick["error"]] == []


@pytest.mark.thorough
def test_runs_started_together_wait_for_each_other_and_publish_each_row_once(dagster: Dagster):
    runs = [dagster.launch("spans") for _ in range(3)]
    assert {run: dagster.ended(run) for run in runs} == dict.fromkeys(runs, "SUCCESS")
    converted = DeltaTable(str(dagster.folder / "lake" / "targets" / "converted")).to_pyarrow_table(columns=["id"])
    assert sorted(converted.column("id").to_pylist()) == [1, 2, 3]


@pytest.mark.thorough
def test_a_service_that_is_not_dagsters_is_seen_in_it_and_its_held_gate_is_reported_once(dagster: Dagster):
    """The unit of docs/cli.md, its line typed as it stands there but for its three paths."""
    (unit,) = [block.text for block in blocks("docs/cli.md") if "ExecStart=" in block.text]
    service = configparser.ConfigParser()
    service.read_string(unit)
    line = service["Service"]["ExecStart"]
    for shown, own in {
        "/srv/tidegate/.venv/bin": Path(sys.executable).parent,
        "/srv/clicks.sql": dagster.folder / "service.sql",
        "/data/lake": dagster.folder / "lake",
    }.items():
        assert shown in line
        line = line.replace(shown, str(own))
    hand = Hand(pipeline("block", prefix="o_"), dagster.folder / "lake", "o_")
    hand.users(1, 2)
    hand.all_users_are_there()
    hand.clicks(1, 2)
    published, staged = ("service", "o_enriched_click"), ("service", "o_enriched_click_staged")
    process = subprocess.Popen(
        shlex.split(line),
        env=environment(dagster.folder / "home"),
        stdout=subprocess.DEVNULL,
        stderr=(log := dagster.folder / "service.log").open("wb"),
        start_new_session=True,
    )
    try:
        (shown,) = until(lambda: dagster.materializations(*published), "Dagster shows what the service has published")
        assert shown["summary"].startswith("epoch 1 is published: 2 rows,")
        assert shown["summary"].endswith("outside of Dagster")
        assert not shown["run"]
        until(lambda: dagster.checked("rows", *staged) == ["SUCCEEDED"], "its verdict, which is stored after it")
        made = {name: status for name, status in dagster.statuses("service").items() if "o_" in name}
        assert made == dict.fromkeys(("o_click_event", "o_user_info", staged[1], published[1]), "FRESH")
        hand.clicks(9)
        until(lambda: "FAILED" in dagster.checked("rows", *staged), "Dagster shows that the gate holds")
        (message,) = until(lambda: dagster.alerts("gate-held", pipeline="service"), "the alert of the held gate")
        assert (message["insert"], message["epoch"]) == ("o_enriched_click", 2)
        dagster.ticked()
        assert len(dagster.alerts("gate-held", pipeline="service")) == 1
        assert dagster.checked("rows", *staged) == ["FAILED", "SUCCEEDED"]
    finally:
        assert service["Service"]["KillMode"] == "mixed"
        os.kill(process.pid, signal.SIGTERM)
        status = process.wait(float(service["Service"]["TimeoutStopSec"]))
    assert status == 1, log.read_text()
    assert [row["user_id"] for row in hand.published()] == [1, 2]
    assert dagster.runs("service") == []
