"""The alerting sensor against a lake and a history that are made by hand, without Spark and without a daemon."""

from __future__ import annotations

import json
import socket
import threading
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.assets.clicks import REASON, Hand, handmade, pipeline
from tests.orchestration.conftest import SHOP
from tests.orchestration.services import MailServer, Webhook, free_port
from tests.pipelines.runtime.handmade import no_spark
from tidegate.assets import Presentation, build_pipeline_definitions
from tidegate.assets.factories import location_definitions, on_lake
from tidegate.assets.names import WILL_RETRY
from tidegate.orchestration.alerts.memory import Memory
from tidegate.orchestration.alerts.message import Message
from tidegate.orchestration.definitions import with_alerts
from tidegate.orchestration.demo.play import materialize
from tidegate.orchestration.sensors import ALERTS
from tidegate.pipelines.commands import VERIFY
from tidegate.pipelines.connectors.protocol import Step
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.facts.at import At
from tidegate.pipelines.facts.gate_problems import held
from tidegate.pipelines.facts.problem import InsertScope, Problem, Reported
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.runtime.runner import Runner
from tidegate.pipelines.sources.mysql_cdc.binlog.model import BinlogPosition, BinlogRange
from tidegate.pipelines.sources.mysql_cdc.log import Birth
from tidegate.pipelines.sources.mysql_cdc.plan import BinlogStep
from tidegate.pipelines.sql import compile_script

MINUTE = 60_000


@pytest.fixture
def definitions(lake: Path) -> dg.Definitions:
    return with_alerts(build_pipeline_definitions(pipeline("block"), lake=lake))


def judged(lake: Path, epoch: int, passed: bool, supersedes: int | None = None) -> None:
    counts = {} if passed else {"rows": 7, "unmatched:key-absent@user_info": 2}
    reasons = () if passed else (REASON,)
    handmade(lake).epoch(epoch, counts, *reasons, at=now(), publish=passed, supersedes=supersedes)


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

    def test_a_held_epoch_is_reported_once_as_is_one_held_in_its_place_and_the_end_of_it(
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
        judged(lake, 3, passed=False, supersedes=2)
        cursor = tick(definitions, instance, cursor)
        assert [(message["epoch"], message["state"]) for message in webhook.messages] == [(2, "open"), (3, "open")]
        judged(lake, 4, passed=True, supersedes=3)
        for _ in range(3):
            cursor = tick(definitions, instance, cursor)
        *_, again, over = webhook.messages
        assert (over["state"], over["key"]) == ("resolved", again["key"])
        assert "resolved after" in over["text"]
        assert Memory.of(cursor).open == ()

    def test_what_no_run_has_judged_has_no_link_to_a_run(self, definitions, instance, webhook: Webhook, lake: Path):
        judged(lake, 1, passed=False)
        asset = dg.AssetKey(["clicks", "enriched_click_staged"])
        shown = dg.AssetCheckEvaluation(asset_key=asset, check_name="rows", passed=False)
        for event in (shown, dg.AssetMaterialization(asset)):
            instance.report_runless_asset_event(event)
            tick(definitions, instance)
        assert {message["run"] for message in webhook.messages} == {""}


def landed_once(lake: Path, table: str) -> None:
    """A table of a database that has flipped."""
    end = BinlogPosition("binlog.000001", 4)
    step = BinlogStep(BinlogRange(end, end), (end.file,), Birth(0, 1), (), None, end, now(), Birth(0, 1))
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
        monkeypatch.setattr("tidegate.orchestration.alerts.sources.ANSWER_WITHIN", "1 s")
        with socket.create_server(("127.0.0.1", 0)) as silent:
            port = silent.getsockname()[1]
            definitions = a_build_in_mysql(lake, tmp_path, monkeypatch, port)
            judged(lake, 1, passed=False)
            cursor = tick(definitions, instance)
            assert webhook.kinds() == ["gate-held"]
            logged = capfd.readouterr().err
            assert "shop/person could not be asked" in logged
            assert "timed out" in logged, "the server was asked, and the answer waited for"
            tick(definitions, instance, cursor)
        assert webhook.kinds() == ["gate-held"]

    def test_what_the_lakes_show_is_sent_before_a_server_is_asked(
        self, instance, webhook: Webhook, lake: Path, tmp_path: Path, monkeypatch
    ):
        sent_by_then: list[str] = []

        def asked(*_: object) -> dict[str, Reported]:
            sent_by_then.extend(webhook.kinds())
            return {}

        monkeypatch.setattr("tidegate.orchestration.alerting.asked", asked)
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
        cursor = tick(definitions, instance, tick(definitions, instance))  # what sources report counts at the next one
        assert [message["table"] for message in webhook.messages] == ["customer_visit"]
        assert "visits/customer could not be asked" in capfd.readouterr().err
        stored = json.loads(cursor)
        (problem,) = stored["open"]
        of_the_other = {**problem, "key": f"retention {lake} customer passing", "details": {"table": "customer"}}
        reported = {**stored["reported"], f"{lake} customer": {"left_s": 60, "kept_s": 86_400}}
        rows.landed("customer_visit", 2, at=now(), kept=now() + 1440 * MINUTE)
        stored |= {"open": [problem, of_the_other], "asked": 0, "reported": reported}
        cursor = json.dumps(stored)
        for _ in range(2):
            cursor = tick(definitions, instance, cursor)
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

        def half(at: At, insert: InsertScope) -> Problem | None:
            if insert.insert.startswith("s_"):
                raise OSError("no such disk")
            return held(at, insert)

        monkeypatch.setattr("tidegate.pipelines.facts.problems.held", half)
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
    def test_bounds_of_the_environment_hold_and_an_end_is_sent_once(
        self, definitions, instance, webhook: Webhook, lake: Path, monkeypatch
    ):
        monkeypatch.setenv("TIDEGATE_ALERT_FLIP_WITHIN", "2 min")
        monkeypatch.setenv("TIDEGATE_ALERT_MAX_LAG", "10 min")
        rows = handmade(lake)
        rows.begun("user_info", 1, now() - 3 * MINUTE)
        rows.landed("click_event", 1, 11, at=now(), lag_ms=11 * MINUTE)
        cursor = tick(definitions, instance)
        assert {message["kind"]: message["counts"] for message in webhook.messages} == {
            "not-flipped": {"waiting for the flip": 11},
            "lag": {},
        }
        rows.landed("user_info", 1, at=now(), flip=1)
        rows.landed("click_event", 2, at=now(), lag_ms=0)
        for _ in range(2):
            cursor = tick(definitions, instance, cursor)
        ended = [message["kind"] for message in webhook.messages if message["state"] == "resolved"]
        assert sorted(ended) == ["lag", "not-flipped"]
        assert len(webhook.messages) == 4

    def test_rows_that_do_not_add_up_are_one_alert_whether_a_check_finds_them_or_not(
        self, definitions, instance, webhook: Webhook, lake: Path
    ):
        cursor = tick(definitions, instance)
        target = lake / "targets" / "enriched_click"
        target.mkdir(parents=True)
        columns = pa.schema([("user_id", pa.int32()), ("item_id", pa.int32()), ("gender", pa.string())])
        write_deltalake(str(target), pa.table({"user_id": [1], "item_id": [1], "gender": ["f"]}, columns))
        assert graph_run(definitions, instance, PUBLISHED).success, "the check adds_up fails, and blocks nothing"
        rows = handmade(lake)
        rows.landed("user_info", 1, at=now(), lag_ms=0, flip=1)
        rows.landed("click_event", 1, 7, at=now(), lag_ms=0)
        rows.epoch(1, {"rows": 6, "matched": 6, "to:publish": 6}, at=now(), publish=True)
        for asked in (0, 2**40, 2**40):  # once a minute
            cursor = tick(definitions, instance, json.dumps({**json.loads(cursor), "asked": asked}))
        (message,) = webhook.messages
        assert message["kind"] == "imbalanced"
        assert message["next"] == [f"tidegate verify SCRIPT --lake {lake}   (says where they are)"]

    def test_a_step_that_failed_outside_of_dagster_is_sent_and_one_of_a_run_is_the_runs(
        self, definitions, instance, webhook: Webhook, lake: Path
    ):
        cursor = tick(definitions, instance)
        failing_run(definitions, lake, instance)
        (by,) = {row.by for row in map(Lake(lake).stuck.last, ["user_info"]) if row is not None}
        assert by.startswith("dagster run ")
        for _ in range(2):
            cursor = tick(definitions, instance, cursor)
        assert webhook.kinds() == ["run-failed"]
        with Runner(pipeline("block"), Lake(lake), spark=no_spark, label="tidegate run") as runner:
            runner.stuck("click_event", SourceError("the topic is gone", next_command=VERIFY))
        cursor = tick(definitions, instance, cursor)
        assert webhook.kinds() == ["run-failed", "stuck"]
        assert webhook.messages[-1]["next"] == [f"tidegate verify SCRIPT --lake {lake}"]


class TestDelivery:
    def test_without_a_channel_it_is_logged_once(self, definitions, instance, lake, capfd):
        judged(lake, 1, passed=False)
        cursor = tick(definitions, instance)
        logged = capfd.readouterr().err
        assert logged.count("Tidegate: the gate holds epoch 1 of clicks/enriched_click") == 1
        assert Memory.of(cursor).unsent == ()

    def test_what_one_channel_has_taken_is_not_sent_again(
        self, definitions, instance, lake, webhook: Webhook, capfd, monkeypatch
    ):
        webhook.status = 503
        monkeypatch.setattr("tidegate.orchestration.alerts.sending.SEND_FOR_S", 300.0)  # Apprise loads slowly
        judged(lake, 1, passed=False)
        with MailServer() as mail:
            monkeypatch.setenv("TIDEGATE_ALERT_URLS", mail.url)
            cursor = None
            for _ in range(2):
                cursor = tick(definitions, instance, cursor)
            assert len(mail.mails) == 1
            assert "the gate holds epoch 1" in mail.subjects()[0]
        assert Memory.of(cursor).unsent == ()
        assert capfd.readouterr().err.count("webhook did not take the alert [gate-held") == 1

    def test_what_no_one_took_is_tried_again_at_the_next_tick_and_holds_no_secret(
        self, definitions, instance, lake, webhook: Webhook, monkeypatch, capfd
    ):
        webhook.status = 503
        gone = f"json://user:hunter2@127.0.0.1:{free_port()}/hooks/T0KEN"
        monkeypatch.setenv("TIDEGATE_ALERT_URLS", gone)
        monkeypatch.setenv("CLICKS_PASSWORD", "no match")
        judged(lake, 1, passed=False)
        cursor = tick(definitions, instance)
        assert [message.key for message in Memory.of(cursor).unsent] == [f"gate-held {lake} enriched_click 1/1"]
        judged(lake, 2, passed=True, supersedes=1)
        cursor = tick(definitions, instance, cursor)
        assert [message.state for message in Memory.of(cursor).unsent] == ["open", "resolved"]
        webhook.status = 200
        for _ in range(2):
            cursor = tick(definitions, instance, cursor)
        assert [message["state"] for message in webhook.messages] == ["open", "resolved"]
        shown = cursor + json.dumps(webhook.messages) + capfd.readouterr().err
        assert "2 rows have ***." in shown
        assert not [secret for secret in ("hunter2", "T0KEN", "no match") if secret in shown]

    def test_one_that_hangs_loses_no_tick_and_no_message(self, definitions, instance, lake, monkeypatch, capfd):
        monkeypatch.setattr("tidegate.orchestration.alerts.sending.SEND_FOR_S", 0.1)
        goes_on, taken = threading.Event(), list[str]()

        class Slow:
            name = "slow"

            def send(self, message: Message) -> None:
                goes_on.wait()
                taken.append(message.state)

        monkeypatch.setattr("tidegate.orchestration.alerting.channels", lambda options: [Slow()])
        judged(lake, 1, passed=False)
        cursor = tick(definitions, instance)
        judged(lake, 2, passed=True, supersedes=1)
        cursor = tick(definitions, instance, cursor)
        assert [message.state for message in Memory.of(cursor).unsent] == ["open", "resolved"]
        assert "slow has not answered within 0.1 s" in capfd.readouterr().err
        monkeypatch.setattr("tidegate.orchestration.alerts.sending.SEND_FOR_S", 300.0)
        goes_on.set()
        cursor = tick(definitions, instance, cursor)
        assert taken[-2:] == ["open", "resolved"]
        assert Memory.of(cursor).unsent == ()


class TestFinishedRuns:
    def test_a_failed_run_is_reported_once_with_the_checks_that_did_not_run_and_not_while_dagster_tries_it_again(
        self, definitions, instance, webhook: Webhook, lake: Path
    ):
        cursor = tick(definitions, instance)
        run_id = failing_run(definitions, lake, instance)
        instance.add_run_tags(run_id, {WILL_RETRY: "true"})
        for _ in range(2):
            cursor = tick(definitions, instance, cursor)
        assert webhook.messages == []
        instance.add_run_tags(run_id, {WILL_RETRY: "false"})
        for _ in range(3):
            cursor = tick(definitions, instance, cursor)
        (message,) = webhook.messages
        assert (message["kind"], message["run_id"], message["pipeline"]) == ("run-failed", run_id, "clicks")
        assert message["failed_steps"] == ["clicks__user_info"]
        assert "clicks/enriched_click_staged: rows" in message["checks_not_run"]
        assert "is gone" in message["text"]

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

    @pytest.mark.usefixtures("spark")
    def test_runs_that_fail_alike_are_one_problem_until_one_does_what_failed(
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

    def test_runs_before_the_first_tick_are_history(self, definitions, instance, webhook: Webhook, lake: Path):
        failing_run(definitions, lake, instance)
        cursor = tick(definitions, instance)
        tick(definitions, instance, cursor)
        assert webhook.messages == []

    def test_checks_of_a_cancelled_run_are_over_once_they_have_run_though_a_name_holds_a_secret(
        self, definitions, instance, webhook: Webhook, lake: Path, monkeypatch
    ):
        monkeypatch.setenv("CLICKS_PASSWORD", "enriched")
        cursor = tick(definitions, instance)
        job = definitions.get_repository_def().get_job("clicks")
        lost = instance.create_run_for_job(job, tags=job.run_tags)
        instance.report_run_canceled(lost)
        cursor = tick(definitions, instance, cursor)
        (message,) = webhook.messages
        assert message["kind"] == "check-not-run"
        assert "was cancelled" in message["text"]
        assert "clicks/***_click_staged: rows" in message["checks_not_run"]
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

    def test_a_run_whose_history_cannot_be_read_silences_no_other(
        self, definitions, instance, webhook: Webhook, lake: Path, monkeypatch
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
            assert broken_id not in Memory.of(cursor).handled
            patch.setattr("tidegate.orchestration.alerting.DECIDED_WITHIN_S", 0.0)
            for _ in range(3):
                cursor = tick(definitions, instance, cursor)
            _, message = webhook.messages
            assert (message["kind"], message["run_id"]) == ("run-failed", broken_id)
            assert "What it did cannot be read in Dagster's history (OSError)." in message["text"]
        tick(definitions, instance, cursor)
        assert len(webhook.messages) == 2

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
