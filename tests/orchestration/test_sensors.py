"""The alerting sensor against a lake and a history that are made by hand, without Spark and without a daemon."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.assets.clicks import REASON, Hand, handmade, pipeline
from tests.orchestration.conftest import SHOP
from tests.orchestration.services import MailServer, Webhook, free_port
from tidegate.assets import Presentation, build_pipeline_definitions
from tidegate.assets.factories import location_definitions, on_lake
from tidegate.assets.names import WILL_RETRY
from tidegate.assets.watched import WatchedInsert
from tidegate.orchestration.alerts.gates import held_epoch
from tidegate.orchestration.alerts.incident import Incident
from tidegate.orchestration.alerts.memory import Memory
from tidegate.orchestration.alerts.post import GIVE_UP_S
from tidegate.orchestration.definitions import with_alerts
from tidegate.orchestration.demo.play import materialize
from tidegate.orchestration.sensors import ALERTS
from tidegate.pipelines.connectors.protocol import Step
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.sources.mysql_cdc.binlog.model import BinlogPosition, BinlogRange
from tidegate.pipelines.sources.mysql_cdc.log import Birth
from tidegate.pipelines.sources.mysql_cdc.plan import BinlogStep
from tidegate.pipelines.sql import compile_script

MINUTE = 60_000


@pytest.fixture
def definitions(lake: Path) -> dg.Definitions:
    return with_alerts(build_pipeline_definitions(pipeline("block"), lake=lake))


def judged(lake: Path, epoch: int, passed: bool, supersedes: int | None = None) -> None:
    counts = {"rows": 7, "unmatched:key-absent@user_info": 2}
    handmade(lake).epoch(epoch, counts, *(() if passed else (REASON,)), supersedes=supersedes)


def now() -> int:
    return round(datetime.now(UTC).timestamp() * 1000)


def tick(definitions: dg.Definitions, instance: dg.DagsterInstance, cursor: str | None = None) -> str:
    """One evaluation, as the daemon makes it; the cursor it leaves."""
    (sensor,) = ALERTS
    context = dg.build_sensor_context(instance=instance, cursor=cursor, repository_def=definitions.get_repository_def())
    found = sensor.evaluate_tick(context)
    assert not found.run_requests
    assert found.cursor is not None
    return found.cursor


def mend(lake: Path) -> None:
    events = lake / "_scratch" / "user_info" / "events"
    (events / "00000007.arrow").rename(events / "00000000.arrow")


USERS, CLICKS, PUBLISHED = (dg.AssetKey(["clicks", name]) for name in ("user_info", "click_event", "enriched_click"))


def graph_run(definitions: dg.Definitions, instance: dg.DagsterInstance, key: dg.AssetKey) -> dg.ExecuteInProcessResult:
    """A run of one asset, as the asset graph and automation start it."""
    job = definitions.get_repository_def().get_implicit_global_asset_job_def()
    return job.execute_in_process(instance=instance, raise_on_error=False, asset_selection=[key])


def failing_run(definitions: dg.Definitions, lake: Path, instance: dg.DagsterInstance) -> str:
    """A run whose build side fails, so that the gate never runs; its id."""
    hand = Hand(pipeline("block"), lake)
    hand.users(1)
    events = lake / "_scratch" / "user_info" / "events"
    next(events.iterdir()).rename(events / "00000007.arrow")
    result = materialize(definitions, "clicks", instance=instance)
    assert not result.success
    return result.run_id


class TestHeldGates:
    def test_nothing_is_reported_of_a_lake_that_is_not_there(self, definitions, instance, webhook: Webhook, lake: Path):
        tick(definitions, instance)
        assert webhook.messages == []
        assert not lake.exists()

    def test_a_held_epoch_is_reported_once_with_reasons_and_commands(
        self, definitions, instance, webhook: Webhook, lake
    ):
        judged(lake, 1, passed=True)
        cursor = tick(definitions, instance)
        assert webhook.messages == []
        judged(lake, 2, passed=False)
        for _ in range(3):
            cursor = tick(definitions, instance, cursor)
        (message,) = webhook.messages
        assert message["kind"] == "gate-held"
        assert (message["insert"], message["epoch"], message["rows"]) == ("enriched_click", 2, 7)
        assert "2 rows have no match." in message["text"]
        assert message["next"] == [
            f"tidegate release SCRIPT enriched_click --lake {lake}",
            f"tidegate discard SCRIPT enriched_click --lake {lake}",
        ]

    def test_what_no_run_has_judged_has_no_link_to_a_run(self, definitions, instance, webhook: Webhook, lake: Path):
        judged(lake, 1, passed=False)
        asset = dg.AssetKey(["clicks", "enriched_click_staged"])
        shown = dg.AssetCheckEvaluation(asset_key=asset, check_name="rows", passed=False)
        for event in (shown, dg.AssetMaterialization(asset)):
            instance.report_runless_asset_event(event)
            tick(definitions, instance)
        assert {message["run"] for message in webhook.messages} == {""}

    def test_its_commands_can_be_pasted_whatever_the_paths(self, instance, webhook: Webhook, tmp_path: Path):
        lake = tmp_path / "my lake"
        look = Presentation(script=tmp_path / "my clicks.sql")
        definitions = with_alerts(build_pipeline_definitions(pipeline("block"), lake=lake, look=look))
        handmade(lake).epoch(1, {"rows": 7}, REASON)
        tick(definitions, instance)
        (message,) = webhook.messages
        arguments = f"'{tmp_path}/my clicks.sql' enriched_click --lake '{lake}'"
        assert message["next"] == [f"tidegate {verb} {arguments}" for verb in ("release", "discard")]

    def test_it_is_reported_when_it_is_over(self, definitions, instance, webhook: Webhook, lake: Path):
        judged(lake, 1, passed=False)
        cursor = tick(definitions, instance)
        judged(lake, 2, passed=True, supersedes=1)
        for _ in range(3):
            cursor = tick(definitions, instance, cursor)
        assert [message["state"] for message in webhook.messages] == ["open", "resolved"]
        assert webhook.messages[1]["key"] == webhook.messages[0]["key"]
        assert "resolved after" in webhook.messages[1]["text"]
        assert Memory.of(cursor).open == ()

    def test_an_epoch_that_is_held_once_more_is_another_incident_and_the_first_is_not_over(
        self, definitions, instance, webhook: Webhook, lake: Path
    ):
        judged(lake, 1, passed=False)
        cursor = tick(definitions, instance)
        judged(lake, 2, passed=False, supersedes=1)
        tick(definitions, instance, cursor)
        assert [(message["epoch"], message["state"]) for message in webhook.messages] == [(1, "open"), (2, "open")]

    def test_rows_are_read_when_an_incident_begins_and_not_at_every_tick(
        self, definitions, instance, webhook: Webhook, lake: Path, monkeypatch
    ):
        read: list[int] = []
        monkeypatch.setattr(
            "tidegate.orchestration.alerts.gates.missed_keys", lambda *given: read.append(given[3].epoch) or []
        )
        rows = handmade(lake)
        rows.epoch(1, {"to:quarantine": 500, "unmatched:key-absent@user_info": 500}, at=now(), publish=True)
        rows.epoch(2, {"rows": 7}, REASON, at=now())
        cursor = tick(definitions, instance)
        assert sorted(read) == [1, 2]
        cursor = tick(definitions, instance, cursor)
        assert sorted(read) == [1, 2]
        rows.epoch(3, {"rows": 7}, REASON, at=now(), supersedes=2)
        tick(definitions, instance, cursor)
        assert sorted(read) == [1, 2, 3]
        assert [(message["kind"], message["state"]) for message in webhook.messages] == [
            ("gate-held", "open"),
            ("quarantine-growing", "open"),
            ("gate-held", "open"),
        ]


def landed_once(lake: Path, table: str) -> None:
    """A table of a database that has flipped."""
    end = BinlogPosition("binlog.000001", 4)
    step = BinlogStep(BinlogRange(end, end), (end.file,), Birth(0, 1), (), None, end, now())
    rows = handmade(lake)
    rows.begun(table, 1, now(), Step(step.to_json()))
    rows.landed(table, 1, at=now(), flip=1)


def a_build_in_mysql(lake: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, port: int) -> dg.Definitions:
    """`shop`, whose build side has landed once, at a server on this port; and `clicks`, on the same lake."""
    script = folder / "shop.sql"
    script.write_text(SHOP.format(host="127.0.0.1", port=port))
    monkeypatch.setenv("SHOP_PASSWORD", "reader-secret")
    landed_once(lake, "person")
    shop = on_lake(
        replace(compile_script(script.read_text()), name="shop"), lake=lake, look=Presentation(script=script)
    )
    return with_alerts(location_definitions([on_lake(pipeline("block"), lake=lake), shop]))


class TestSilentServers:
    def test_a_held_gate_is_reported_while_a_server_takes_the_connection_and_says_nothing(
        self, instance, webhook: Webhook, lake: Path, tmp_path: Path, monkeypatch, capfd
    ):
        monkeypatch.setattr("tidegate.orchestration.alerts.tables.ANSWER_WITHIN", "1 s")
        with socket.create_server(("127.0.0.1", 0)) as silent:
            port = silent.getsockname()[1]
            definitions = a_build_in_mysql(lake, tmp_path, monkeypatch, port)
            judged(lake, 1, passed=False)
            cursor = tick(definitions, instance)
            assert webhook.kinds() == ["gate-held"]
            logged = capfd.readouterr().err
            assert "retention could not be checked" in logged
            assert "timed out" in logged, "the server was asked, and the answer waited for"
            tick(definitions, instance, cursor)
        assert webhook.kinds() == ["gate-held"]

    def test_what_the_lakes_show_is_sent_before_a_server_is_asked(
        self, instance, webhook: Webhook, lake: Path, tmp_path: Path, monkeypatch
    ):
        sent_by_then: list[str] = []

        def asked(*_: object) -> None:
            sent_by_then.extend(webhook.kinds())

        monkeypatch.setattr("tidegate.orchestration.alerts.look.passing_log", asked)
        judged(lake, 1, passed=False)
        tick(a_build_in_mysql(lake, tmp_path, monkeypatch, 1), instance)
        assert set(sent_by_then) == {"gate-held"}


class TestWhatCanNotBeLookedAt:
    """What is open of it stays as it was, and nothing else does."""

    def test_a_log_that_lasts_again_is_reported_while_another_source_is_down(
        self, instance, webhook: Webhook, lake: Path, tmp_path: Path, capfd
    ):
        script = tmp_path / "visits.sql"
        script.write_text(BESIDE_A_CLOSED_SERVER)
        visits = replace(compile_script(BESIDE_A_CLOSED_SERVER), name="visits")
        definitions = with_alerts(build_pipeline_definitions(visits, lake=lake, look=Presentation(script=script)))
        landed_once(lake, "customer")
        rows = handmade(lake)
        rows.landed("customer_visit", 1, at=now(), kept=now() + MINUTE)
        cursor = tick(definitions, instance)
        assert [message["table"] for message in webhook.messages] == ["customer_visit"]
        assert "retention could not be checked" in capfd.readouterr().err
        stored = json.loads(cursor)
        (incident,) = stored["open"]
        of_the_other = {**incident, "key": f"retention {lake} customer passing", "details": {"table": "customer"}}
        rows.landed("customer_visit", 2, at=now(), kept=now() + 1440 * MINUTE)
        cursor = tick(definitions, instance, json.dumps({**stored, "open": [incident, of_the_other], "asked": 0}))
        assert [(message["table"], message["state"]) for message in webhook.messages[1:]] == [
            ("customer_visit", "resolved")
        ]
        assert [item.key for item in Memory.of(cursor).open] == [of_the_other["key"]]

    def test_a_released_epoch_is_reported_while_another_insert_cannot_be_read(
        self, instance, webhook: Webhook, lake: Path, monkeypatch
    ):
        both = [on_lake(pipeline("block", f"{p}clicks", p), lake=lake) for p in ("", "s_")]
        definitions = with_alerts(location_definitions(both))
        for prefix in ("", "s_"):
            handmade(lake, prefix).epoch(1, {"rows": 7}, REASON)
        cursor = tick(definitions, instance)
        assert webhook.kinds() == ["gate-held", "gate-held"]
        judged(lake, 2, passed=True, supersedes=1)

        def half(watched: WatchedInsert, *more: Any) -> Incident | None:
            if watched.insert.startswith("s_"):
                raise OSError("no such disk")
            return held_epoch(watched, *more)

        monkeypatch.setattr("tidegate.orchestration.alerts.look.held_epoch", half)
        cursor = tick(definitions, instance, cursor)
        assert [(message["insert"], message["state"]) for message in webhook.messages[2:]] == [
            ("enriched_click", "resolved")
        ]
        assert [item.details["insert"] for item in Memory.of(cursor).open] == ["s_enriched_click"]


BESIDE_A_CLOSED_SERVER = """
CREATE TABLE customer (customer_id INT PRIMARY KEY NOT ENFORCED, name STRING) WITH (
    'connector' = 'mysql-cdc', 'hostname' = '127.0.0.1', 'port' = '1', 'username' = 'reader',
    'password' = 'a-password', 'database-name' = 'shop', 'table-name' = 'customer'
);
CREATE TABLE customer_visit (customer_id INT, proctime AS PROCTIME()) WITH ('connector' = 'kafka', 'topic' = 't',
    'format' = 'json', 'properties.bootstrap.servers' = 'nobody:9092');
CREATE TABLE named_visit (customer_id INT, name STRING) WITH ('connector' = 'scripted');
INSERT INTO named_visit SELECT v.customer_id, name FROM customer_visit AS v
JOIN customer FOR SYSTEM_TIME AS OF v.proctime ON v.customer_id = customer.customer_id;
"""
"""A table whose server cannot be reached, and one whose retention the lake itself knows. Their names begin alike."""


class TestSources:
    @pytest.mark.parametrize(
        ("minutes", "bound", "reported"), [(31, None, True), (29, None, False), (3, "2 min", True)]
    )
    def test_a_build_that_does_not_flip_is_reported_beyond_the_bound_and_over_at_the_flip(
        self, definitions, instance, webhook: Webhook, lake: Path, monkeypatch, minutes, bound, reported
    ):
        if bound:
            monkeypatch.setenv("TIDEGATE_ALERT_FLIP_WITHIN", bound)
        rows = handmade(lake)
        rows.begun("user_info", 1, now() - minutes * MINUTE)
        rows.landed("click_event", 1, 11, at=now())
        cursor = tick(definitions, instance)
        assert webhook.kinds() == (["not-flipped"] if reported else [])
        if reported:
            assert webhook.messages[0]["counts"] == {"waiting for the flip": 11}
            rows.landed("user_info", 1, at=now(), flip=1)
            tick(definitions, instance, cursor)
            assert [message["state"] for message in webhook.messages] == ["open", "resolved"]

    def test_lag_over_the_bound(self, definitions, instance, webhook: Webhook, lake: Path):
        rows = handmade(lake)
        rows.landed("click_event", 1, at=now(), lag_ms=14 * MINUTE)
        cursor = tick(definitions, instance)
        assert webhook.messages == []
        rows.landed("click_event", 2, at=now(), lag_ms=16 * MINUTE)
        for _ in range(2):
            cursor = tick(definitions, instance, cursor)
        (message,) = webhook.messages
        assert (message["kind"], message["lag_ms"]) == ("lag", 16 * MINUTE)
        assert message["positions"] == {"click_event": "epoch 1/2, log:2"}
        rows.landed("click_event", 3, at=now(), lag_ms=0)
        tick(definitions, instance, cursor)
        assert webhook.messages[-1]["state"] == "resolved"

    def test_an_epoch_that_does_not_end_is_lag_as_well(self, definitions, instance, webhook: Webhook, lake: Path):
        rows = handmade(lake)
        rows.landed("click_event", 1, at=now() - 40 * MINUTE, lag_ms=0)
        rows.begun("click_event", 2, now() - 20 * MINUTE)
        tick(definitions, instance)
        assert webhook.kinds() == ["lag"]
        assert "epoch 2 has been under way for" in webhook.messages[0]["text"]

    def test_a_quarantine_that_grows(self, definitions, instance, webhook: Webhook, lake: Path, monkeypatch):
        rows = handmade(lake)
        absent = {"to:quarantine": 60, "unmatched:key-absent@user_info": 60}
        for epoch, minutes in ((1, 90), (2, 30)):
            rows.epoch(epoch, absent, at=now() - minutes * MINUTE, publish=True)
        cursor = tick(definitions, instance)
        assert webhook.messages == [], "60 rows in the last hour; the bound is 100"
        rows.epoch(3, {**absent, "discarded": 5000}, at=now())
        rows.epoch(4, absent, at=now(), again=120)
        fifth = rows.epoch(5, absent, at=now())
        cursor = tick(definitions, instance, cursor)
        reason = "epoch 5 is not published, epoch 3 was a person's own decision, rows of epoch 4 came back"
        assert webhook.messages == [], reason
        rows.published(fifth)
        cursor = tick(definitions, instance, cursor)
        (message,) = webhook.messages
        assert (message["kind"], message["rows"]) == ("quarantine-growing", 120)
        assert message["counts"] == {"key-absent@user_info": 120}
        assert message["next"][0].startswith("tidegate quarantine list ")
        monkeypatch.setenv("TIDEGATE_ALERT_QUARANTINE_WINDOW", "10 min")
        cursor = tick(definitions, instance, cursor)
        assert [item["state"] for item in webhook.messages] == ["open", "resolved"], "60 rows in the last ten minutes"
        assert Memory.of(cursor).open == ()


class TestDelivery:
    def test_without_a_channel_the_log_is_reported(self, definitions, instance, lake, caplog):
        judged(lake, 1, passed=False)
        cursor = tick(definitions, instance)
        assert "the gate holds epoch 1 of clicks/enriched_click" in caplog.text
        assert Memory.of(cursor).pending == ()

    def test_a_channel_that_is_down_is_reported_to_the_others_once_and_tried_again(
        self, definitions, instance, lake, webhook: Webhook, caplog, monkeypatch
    ):
        webhook.status = 503
        monkeypatch.setattr("tidegate.orchestration.alerts.post.ANSWER_S", 300.0)  # a busy machine loads Apprise slowly
        judged(lake, 1, passed=False)
        with MailServer() as mail:
            monkeypatch.setenv("TIDEGATE_ALERT_URLS", mail.url)
            cursor = tick(definitions, instance)
            cursor = tick(definitions, instance, cursor)
            assert len(mail.mails) == 2
            assert "the gate holds epoch 1" in mail.subjects()[0]
            assert "webhook takes no alerts: it answered 503" in mail.subjects()[1]
            assert "it answered 503; it is tried again" in caplog.text
            assert "T0KEN" not in caplog.text + cursor + mail.text("webhook takes no alerts")
            webhook.status = 200
            for _ in range(2):
                cursor = tick(definitions, instance, rested(cursor))
            assert webhook.kinds() == ["gate-held"]
            assert "resolved" in mail.subjects()[2]
            assert len(mail.mails) == 3

    def test_what_no_one_took_goes_to_the_first_that_comes_back(
        self, definitions, instance, lake, webhook: Webhook, monkeypatch
    ):
        webhook.status = 503
        gone = f"json://user:hunter2@127.0.0.1:{free_port()}/hooks/T0KEN"
        monkeypatch.setenv("TIDEGATE_ALERT_URLS", gone)
        judged(lake, 1, passed=False)
        cursor = tick(definitions, instance)
        assert set(Memory.of(cursor).silent) == {"channel 1 (json)", "webhook"}
        webhook.status = 200
        cursor = tick(definitions, instance, rested(cursor))
        assert webhook.kinds() == ["gate-held", "channel-unreachable"]
        assert "hunter2" not in cursor + json.dumps(webhook.messages)
        assert "T0KEN" not in cursor + json.dumps(webhook.messages)

    def test_a_slow_channel_gets_the_rest_at_the_next_tick(
        self, definitions, instance, lake, webhook: Webhook, monkeypatch
    ):
        monkeypatch.setattr("tidegate.orchestration.alerts.post.SEND_FOR_S", 0.0)
        rows = handmade(lake)
        rows.landed("click_event", 1, at=now(), lag_ms=16 * MINUTE)
        judged(lake, 1, passed=False)
        cursor = None
        for number in (1, 2, 2):
            cursor = tick(definitions, instance, asked_lately(cursor))
            assert len(webhook.messages) == number, "one message, and the rest is kept"
        assert webhook.kinds() == ["gate-held", "lag"]

    def test_no_secret_is_in_the_cursor_the_log_and_the_journal(
        self, definitions, instance, lake, webhook: Webhook, monkeypatch, caplog
    ):
        webhook.status = 503
        for name, value in {
            "CLICKS_PASSWORD": "hunter2!",
            "TIDEGATE_ALERT_URLS": "json://ops:T0KEN-2@127.0.0.1:1",
        }.items():
            monkeypatch.setenv(name, value)
        held = Incident(
            "gate-held x", "gate-held", "denied: hunter2!", "clicks", said=("T0KEN-2",), details={"d": "T0KEN-2"}
        )
        monkeypatch.setattr("tidegate.orchestration.alerts.look.held_epoch", lambda *_: held)
        judged(lake, 1, passed=True)
        cursor = tick(definitions, instance)
        assert Memory.of(cursor).pending
        (row,) = Lake(lake, create=False).alerts.rows("clicks")
        assert row.title == "denied: ***"
        for shown in (cursor, caplog.text):
            assert "denied: ***" in shown
            assert "hunter2" not in shown
            assert "T0KEN-2" not in shown

    def test_it_is_given_up_in_the_end(self, definitions, instance, lake, webhook: Webhook, caplog):
        webhook.status = 503
        judged(lake, 1, passed=False)
        stored = json.loads(tick(definitions, instance))
        stored["pending"][0]["raised"] -= GIVE_UP_S
        cursor = tick(definitions, instance, json.dumps(stored))
        assert "it is given up" in caplog.text
        assert Memory.of(cursor).pending == ()

    def test_a_bound_that_is_none_is_named(self, definitions, instance, lake, monkeypatch):
        monkeypatch.setenv("TIDEGATE_ALERT_MAX_LAG", "soon")
        with pytest.raises(PlanningError, match=r"\$TIDEGATE_ALERT_MAX_LAG is 'soon'"):
            tick(definitions, instance)


def rested(cursor: str) -> str:
    """The cursor some time later: a channel that did not answer may be tried again."""
    stored = json.loads(cursor)
    for item in stored["silent"].values():
        item["due"] = 0
    return json.dumps(stored)


def asked_lately(cursor: str | None) -> str | None:
    """The cursor of a tick that does not ask the sources themselves, and so sends once."""
    stored = json.loads(cursor or Memory().cursor())
    return json.dumps({**stored, "asked": datetime.now(UTC).timestamp()})


class TestFinishedRuns:
    def test_a_failed_run_is_reported_once_with_the_checks_that_did_not_run(
        self, definitions, instance, webhook: Webhook, lake: Path
    ):
        cursor = tick(definitions, instance)
        run_id = failing_run(definitions, lake, instance)
        for _ in range(3):
            cursor = tick(definitions, instance, cursor)
        (message,) = webhook.messages
        assert message["kind"] == "run-failed"
        assert (message["run_id"], message["pipeline"]) == (run_id, "clicks")
        assert message["failed_steps"] == ["clicks__user_info"]
        assert "clicks/enriched_click_staged: gate" in message["checks_not_run"]
        assert "is gone" in message["text"]

    def test_a_run_that_dagster_tries_again_is_reported_once_it_does_not(
        self, definitions, instance, webhook: Webhook, lake: Path
    ):
        cursor = tick(definitions, instance)
        run_id = failing_run(definitions, lake, instance)
        instance.add_run_tags(run_id, {WILL_RETRY: "true"})
        for _ in range(2):
            cursor = tick(definitions, instance, cursor)
        assert webhook.messages == []
        instance.add_run_tags(run_id, {WILL_RETRY: "false"})
        for _ in range(2):
            cursor = tick(definitions, instance, cursor)
        assert [(message["kind"], message["run_id"]) for message in webhook.messages] == [("run-failed", run_id)]

    def test_a_run_of_the_asset_graph_is_launched_again_as_it_was(
        self, definitions, instance, webhook: Webhook, lake: Path
    ):
        """Its job is Dagster's own, and has every asset of the code location."""
        cursor = tick(definitions, instance)
        hand = Hand(pipeline("block"), lake)
        hand.users(1)
        events = lake / "_scratch" / "user_info" / "events"
        next(events.iterdir()).rename(events / "00000007.arrow")
        assert not graph_run(definitions, instance, USERS).success
        tick(definitions, instance, cursor)
        (message,) = webhook.messages
        assert message["pipeline"] == "clicks"
        assert message["next"][-1] == "then run it again: dg launch --assets 'key:\"clicks/user_info\"'"

    def test_alerts_link_to_the_newest_run_of_the_asset_whoever_started_it(
        self, definitions, instance, webhook: Webhook, lake: Path
    ):
        assert materialize(definitions, "clicks", instance=instance).success
        newest = graph_run(definitions, instance, CLICKS)
        assert newest.success
        rows = handmade(lake)
        rows.landed("click_event", 1, at=now(), lag_ms=20 * MINUTE)
        tick(definitions, instance)
        (message,) = webhook.messages
        assert message["run"].endswith(f"/runs/{newest.run_id}")

    def test_a_check_that_blocks_nothing_is_reported_when_it_fails_and_when_it_passes(
        self, definitions, instance, webhook: Webhook, lake: Path
    ):
        cursor = tick(definitions, instance)
        target = lake / "targets" / "enriched_click"
        target.mkdir(parents=True)
        columns = pa.schema([("user_id", pa.int32()), ("item_id", pa.int32()), ("gender", pa.string())])
        write_deltalake(str(target), pa.table({"user_id": [1], "item_id": [1], "gender": ["f"]}, columns))
        assert graph_run(definitions, instance, PUBLISHED).success
        for _ in range(2):
            cursor = tick(definitions, instance, cursor)
        (message,) = webhook.messages
        assert (message["kind"], message["failed_checks"]) == ("check-failed", ["clicks/enriched_click: adds_up"])
        assert message["next"][0] == f"tidegate verify SCRIPT --lake {lake}"
        DeltaTable(str(target)).delete()
        assert graph_run(definitions, instance, PUBLISHED).success
        tick(definitions, instance, cursor)
        assert [message["state"] for message in webhook.messages] == ["open", "resolved"]

    @pytest.mark.usefixtures("spark")
    def test_runs_that_fail_alike_are_one_incident_until_one_does_what_failed(
        self, definitions, instance, webhook: Webhook, lake: Path
    ):
        cursor = tick(definitions, instance)
        failing_run(definitions, lake, instance)
        cursor = tick(definitions, instance, cursor)
        assert not materialize(definitions, "clicks", instance=instance).success
        cursor = tick(definitions, instance, cursor)
        assert len(webhook.messages) == 1
        mend(lake)
        assert materialize(definitions, "clicks", instance=instance).success
        for _ in range(2):
            cursor = tick(definitions, instance, cursor)
        assert [message["state"] for message in webhook.messages] == ["open", "resolved"]
        assert "It was seen 2 times." in webhook.messages[1]["text"]

    def test_runs_before_the_first_tick_are_history(self, definitions, instance, webhook: Webhook, lake: Path):
        failing_run(definitions, lake, instance)
        cursor = tick(definitions, instance)
        tick(definitions, instance, cursor)
        assert webhook.messages == []

    def test_a_cancelled_run_leaves_its_checks_unrun(self, definitions, instance, webhook: Webhook, lake: Path):
        cursor = tick(definitions, instance)
        job = definitions.get_repository_def().get_job("clicks")
        run = instance.create_run_for_job(job, tags=job.run_tags)
        instance.report_run_canceling(run)
        instance.report_run_canceled(run)
        tick(definitions, instance, cursor)
        (message,) = webhook.messages
        assert message["kind"] == "check-not-run"
        assert "was cancelled" in message["text"]
        assert "clicks/enriched_click_staged: gate" in message["checks_not_run"]

    def test_a_check_whose_name_holds_a_secret_is_over_once_it_has_run(
        self, definitions, instance, webhook: Webhook, lake: Path, monkeypatch
    ):
        monkeypatch.setenv("CLICKS_PASSWORD", "enriched")
        cursor = tick(definitions, instance)
        job = definitions.get_repository_def().get_job("clicks")
        lost = instance.create_run_for_job(job, tags=job.run_tags)
        instance.report_run_canceled(lost)
        cursor = tick(definitions, instance, cursor)
        (message,) = webhook.messages
        assert "clicks/***_click_staged: gate" in message["checks_not_run"]
        well = instance.create_run_for_job(job, tags=job.run_tags)
        planned = instance.get_records_for_run(
            well.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED
        ).records
        for record in planned:
            key = record.event_log_entry.get_dagster_event().asset_check_planned_data.asset_check_key
            evaluated = dg.AssetCheckEvaluation(key.asset_key, key.name, passed=True, metadata={})
            instance.report_dagster_event(
                dg.DagsterEvent(
                    dg.DagsterEventType.ASSET_CHECK_EVALUATION.value, "clicks", event_specific_data=evaluated
                ),
                well.run_id,
            )
        instance.report_run_canceled(well)
        cursor = tick(definitions, instance, cursor)
        assert [message["state"] for message in webhook.messages] == ["open", "resolved"]
        assert "enriched" not in cursor

    def test_a_bug_is_reported_without_its_text(self, instance, webhook: Webhook, lake: Path, monkeypatch):
        """Only typed errors are known to hold no secret."""
        from tidegate.assets.resources import TidegateResource

        def broken(*_: object, **__: object) -> None:
            raise RuntimeError("jdbc:mysql://reader:hunter2@localhost")

        monkeypatch.setattr(TidegateResource, "runner", broken)
        definitions = with_alerts(build_pipeline_definitions(pipeline(), lake=lake))
        cursor = tick(definitions, instance)
        assert not materialize(definitions, "clicks", instance=instance).success
        tick(definitions, instance, cursor)
        (message,) = webhook.messages
        assert sorted(message["failed_steps"]) == ["clicks__click_event", "clicks__user_info"]
        assert "hunter2" not in json.dumps(message)

    def test_runs_of_other_assets_are_not_its_business(self, instance, webhook: Webhook, lake: Path):
        @dg.asset
        def other() -> None:
            raise RuntimeError

        definitions = dg.Definitions.merge(
            with_alerts(build_pipeline_definitions(pipeline(), lake=lake)), dg.Definitions(assets=[other])
        )
        cursor = tick(definitions, instance)
        assert not dg.materialize([other], instance=instance, raise_on_error=False).success
        tick(definitions, instance, cursor)
        assert webhook.messages == []

    @pytest.mark.parametrize("given_up", [False, True])
    def test_a_run_whose_history_cannot_be_read_silences_no_other(
        self, definitions, instance, webhook: Webhook, lake: Path, monkeypatch, given_up: bool
    ):
        @dg.job(tags={"tidegate/pipeline": "clicks"})
        def broken() -> None: ...

        cursor = tick(definitions, instance)
        broken_id = broken.execute_in_process(instance=instance).run_id
        failed_id = failing_run(definitions, lake, instance)
        read = dg.DagsterInstance.get_records_for_run

        def records(self: dg.DagsterInstance, run_id: str, *given: Any, **named: Any) -> Any:
            if run_id == broken_id:
                raise OSError("database disk image is malformed")
            return read(self, run_id, *given, **named)

        with monkeypatch.context() as patch:
            patch.setattr(dg.DagsterInstance, "get_records_for_run", records)
            for _ in range(3):
                cursor = tick(definitions, instance, cursor)
            assert [message["run_id"] for message in webhook.messages] == [failed_id], "the other is looked at again"
            assert list(Memory.of(cursor).retried) == [broken_id]
            if given_up:
                patch.setattr("tidegate.orchestration.alerting.RETRIED_WITHIN_S", 0.0)
                for _ in range(3):
                    cursor = tick(definitions, instance, cursor)
                _, message = webhook.messages
                assert (message["kind"], message["run_id"]) == ("run-failed", broken_id)
                assert message["text"].startswith(f"Tidegate: run {broken_id} of clicks has ended (SUCCESS), and what")
        tick(definitions, instance, cursor)
        assert len(webhook.messages) == 1 + given_up

    def test_the_history_of_a_run_that_is_not_its_business_is_read_once(self, definitions, instance, monkeypatch):
        reads: list[str] = []
        read = dg.DagsterInstance.get_records_for_run

        def counted(self: dg.DagsterInstance, run_id: str, *given: Any, **named: Any) -> Any:
            reads.append(run_id)
            return read(self, run_id, *given, **named)

        @dg.op
        def nothing() -> None: ...

        @dg.job
        def upkeep() -> None:
            nothing()

        cursor = tick(definitions, instance)
        run_id = upkeep.execute_in_process(instance=instance).run_id
        monkeypatch.setattr(dg.DagsterInstance, "get_records_for_run", counted)
        for _ in range(3):
            cursor = tick(definitions, instance, cursor)
        assert reads == [run_id]
