"""The alerting sensors against a lake and a history that are made by hand, without Spark and without a daemon."""

from __future__ import annotations

import json
from pathlib import Path

import dagster as dg
import pytest

from assets import build_pipeline_definitions
from orchestration.definitions import with_alerts
from orchestration.incidents import held_epoch, watched_inserts
from orchestration.materialize import materialize
from orchestration.sensors import ATTEMPTS, Memory, finished_runs, held_gates
from pipelines.lake import EpochRow, Lake, StagedRow, VerdictRow
from pipelines.runtime.plans import digest, insert_owner
from tests.assets.clicks import Hand, pipeline
from tests.orchestration.services import Webhook

OWNER = insert_owner("enriched_click")


@pytest.fixture
def definitions(lake: Path) -> dg.Definitions:
    return with_alerts(build_pipeline_definitions(pipeline("block"), lake=lake))


def judged(lake: Path, epoch: int, passed: bool) -> None:
    """An epoch with its verdict, as the runtime stores them."""
    found, plan = Lake(lake), {"n": epoch}
    found.epochs.append([EpochRow(OWNER, 1, epoch, "insert", 0, plan, digest(plan))], application="plan", version=epoch)
    found.staged.append(
        [StagedRow(OWNER, 1, epoch, digest(plan), 0, "folder", [], {"rows": 7}, {})], application="stage", version=epoch
    )
    reasons = [] if passed else ["2 rows have no match."]
    found.verdicts.append(
        [VerdictRow(OWNER, 1, epoch, digest(plan), 0, passed, reasons, [])], application="verdict", version=epoch
    )


def tick(
    sensor: dg.SensorDefinition, definitions: dg.Definitions, instance: dg.DagsterInstance, cursor: str | None = None
) -> str:
    """One evaluation, as the daemon makes it; the cursor it leaves."""
    context = dg.build_sensor_context(instance=instance, cursor=cursor, repository_def=definitions.get_repository_def())
    found = sensor.evaluate_tick(context)
    assert not found.run_requests
    assert found.cursor is not None
    return found.cursor


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
    def test_nothing_is_told_of_a_lake_that_is_not_there(self, definitions, instance, webhook: Webhook, lake: Path):
        tick(held_gates, definitions, instance)
        assert webhook.messages == []
        assert not lake.exists()

    def test_a_held_epoch_is_told_once_with_reasons_and_commands(self, definitions, instance, webhook: Webhook, lake):
        judged(lake, 1, passed=True)
        cursor = tick(held_gates, definitions, instance)
        assert webhook.messages == []
        judged(lake, 2, passed=False)
        for _ in range(3):
            cursor = tick(held_gates, definitions, instance, cursor)
        (message,) = webhook.messages
        assert message["kind"] == "gate-held"
        assert (message["insert"], message["epoch"], message["rows"]) == ("enriched_click", 2, 7)
        assert "2 rows have no match." in message["text"]
        assert message["next"] == [
            "tidegate release SCRIPT enriched_click",
            "tidegate discard SCRIPT enriched_click",
        ]

    def test_the_next_held_epoch_is_another_incident(self, definitions, instance, webhook: Webhook, lake: Path):
        judged(lake, 1, passed=False)
        cursor = tick(held_gates, definitions, instance)
        judged(lake, 2, passed=False)
        tick(held_gates, definitions, instance, cursor)
        assert [message["epoch"] for message in webhook.messages] == [1, 2]

    def test_what_a_person_has_resolved_is_no_incident(self, definitions, lake: Path):
        judged(lake, 1, passed=False)
        judged(lake, 2, passed=True)
        (watched,) = watched_inserts(definitions.get_repository_def())
        assert held_epoch(watched) is None


class TestDelivery:
    def test_without_a_webhook_the_log_is_told(self, definitions, instance, lake, monkeypatch, caplog):
        monkeypatch.delenv("TIDEGATE_WEBHOOK_URL", raising=False)
        judged(lake, 1, passed=False)
        cursor = tick(held_gates, definitions, instance)
        assert "the gate holds epoch 1 of clicks/enriched_click" in caplog.text
        assert Memory.of(cursor).pending == ()

    def test_a_webhook_that_is_down_is_logged_and_tried_again(
        self, definitions, instance, lake, webhook: Webhook, caplog
    ):
        webhook.status = 503
        judged(lake, 1, passed=False)
        cursor = tick(held_gates, definitions, instance)
        cursor = tick(held_gates, definitions, instance, cursor)
        assert "the webhook did not take the alert" in caplog.text
        assert "it answered 503; it is tried again" in caplog.text
        assert "T0KEN" not in caplog.text + cursor
        webhook.status = 200
        for _ in range(2):
            cursor = tick(held_gates, definitions, instance, cursor)
        assert webhook.kinds() == ["gate-held"]

    def test_it_is_given_up_in_the_end(self, definitions, instance, lake, webhook: Webhook, caplog):
        webhook.status = 503
        judged(lake, 1, passed=False)
        cursor = tick(held_gates, definitions, instance)
        stored = json.loads(cursor)
        stored["pending"][0]["attempts"] = ATTEMPTS - 1
        cursor = tick(held_gates, definitions, instance, json.dumps(stored))
        assert "it is given up" in caplog.text
        assert Memory.of(cursor).pending == ()


class TestFinishedRuns:
    def test_a_failed_run_is_told_once_with_the_checks_that_did_not_run(
        self, definitions, instance, webhook: Webhook, lake: Path
    ):
        cursor = tick(finished_runs, definitions, instance)
        run_id = failing_run(definitions, lake, instance)
        for _ in range(3):
            cursor = tick(finished_runs, definitions, instance, cursor)
        (message,) = webhook.messages
        assert message["kind"] == "run-failed"
        assert (message["run_id"], message["pipeline"]) == (run_id, "clicks")
        assert message["failed_steps"] == ["clicks__user_info"]
        assert "clicks/enriched_click_staged: gate" in message["checks_not_run"]
        assert "is gone" in message["text"]

    def test_runs_before_the_first_tick_are_history(self, definitions, instance, webhook: Webhook, lake: Path):
        failing_run(definitions, lake, instance)
        cursor = tick(finished_runs, definitions, instance)
        tick(finished_runs, definitions, instance, cursor)
        assert webhook.messages == []

    def test_a_cancelled_run_leaves_its_checks_unrun(self, definitions, instance, webhook: Webhook, lake: Path):
        cursor = tick(finished_runs, definitions, instance)
        job = definitions.get_repository_def().get_job("clicks")
        run = instance.create_run_for_job(job, tags=job.run_tags)
        instance.report_run_canceling(run)
        instance.report_run_canceled(run)
        tick(finished_runs, definitions, instance, cursor)
        (message,) = webhook.messages
        assert message["kind"] == "check-not-run"
        assert "was cancelled" in message["text"]
        assert "clicks/enriched_click_staged: gate" in message["checks_not_run"]

    def test_a_bug_is_told_without_its_text(self, instance, webhook: Webhook, lake: Path, monkeypatch):
        """Only typed errors are known to hold no secret."""
        from assets.resources import TidegateResource

        def broken(*_: object, **__: object) -> None:
            raise RuntimeError("jdbc:mysql://reader:hunter2@localhost")

        monkeypatch.setattr(TidegateResource, "runner", broken)
        definitions = with_alerts(build_pipeline_definitions(pipeline(), lake=lake))
        cursor = tick(finished_runs, definitions, instance)
        assert not materialize(definitions, "clicks", instance=instance).success
        tick(finished_runs, definitions, instance, cursor)
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
        cursor = tick(finished_runs, definitions, instance)
        assert not dg.materialize([other], instance=instance, raise_on_error=False).success
        tick(finished_runs, definitions, instance, cursor)
        assert webhook.messages == []
