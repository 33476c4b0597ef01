"""The alerts, through a running daemon: `dg dev`, real runs, and a webhook that listens."""

from __future__ import annotations

from pathlib import Path

from tests.orchestration.services import Dagster, until

SECRETS = (b"hunter2", b"T0KEN")


def test_a_held_gate_is_told_once(dagster: Dagster, held_run: str):
    (message,) = until(lambda: dagster.told("gate-held"), "the alert of the held gate")
    assert (message["pipeline"], message["insert"], message["epoch"]) == ("strict", "s_enriched_click", 1)
    assert message["next"][0] == f"tidegate release {dagster.folder}/strict.sql s_enriched_click"
    assert message["reasons"]
    dagster.ticked("tidegate_held_gates")
    dagster.ticked("tidegate_runs")
    assert len(dagster.told("gate-held")) == 1
    assert dagster.told("run-failed", run_id=held_run) == [], "a held gate is one incident, not two"
    assert "the gate holds epoch 1 of strict/s_enriched_click" in dagster.log
    assert dagster.strict.published() == []


def test_a_check_that_was_planned_and_did_not_run_is_told_once(dagster: Dagster):
    dagster.watching()
    run_id = dagster.launch("closed")
    assert dagster.ended(run_id) == "FAILURE"
    (message,) = until(lambda: dagster.told("run-failed", run_id=run_id), "the alert of the failed run")
    assert message["failed_steps"] == ["closed__customer"]
    assert "closed/named_visit_staged: gate" in message["checks_not_run"]
    dagster.ticked("tidegate_runs")
    assert len(dagster.told("run-failed", run_id=run_id)) == 1
    assert f"run {run_id} of closed failed" in dagster.log


def holds(path: Path, secret: bytes) -> bool:
    """Whether a file has `secret` in it. The running daemon removes files of its own at any moment."""
    try:
        return secret in path.read_bytes()
    except FileNotFoundError:
        return False


def test_no_secret_is_in_any_message_log_or_database(dagster: Dagster, held_run: str):
    for secret in SECRETS:
        assert secret not in str(dagster.webhook.messages).encode()
        for folder in ("home", "lake"):
            found = [path for path in (dagster.folder / folder).rglob("*") if path.is_file()]
            assert found
            assert [path for path in found if holds(path, secret)] == []
        assert secret.decode() not in dagster.log


def test_every_tick_is_well(dagster: Dagster, held_run: str):
    for sensor in ("tidegate_held_gates", "tidegate_runs"):
        ticks = dagster.ticks(sensor)
        assert ticks
        assert [tick for tick in ticks if tick["error"]] == []
