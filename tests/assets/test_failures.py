from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from tests.assets.clicks import files, script
from tests.pipelines.runtime.test_definitions import fill, planned
from tidegate.assets import build_pipeline_definitions
from tidegate.assets.failures import explained
from tidegate.pipelines.errors import GateHeld, LeaseHeld, SourceError
from tidegate.pipelines.sql import compile_script


def test_a_typed_error_becomes_a_failure_that_says_what_to_do():
    with pytest.raises(dg.Failure) as caught, explained():
        raise SourceError("the server is gone", where="user_info", state="nothing is lost", next_command="run again")
    failure = caught.value
    assert failure.description == "the server is gone"
    assert {name: value.value for name, value in failure.metadata.items()} == {
        "tidegate/error": "SourceError",
        "where": "user_info",
        "state": "nothing is lost",
        "next": "run again",
    }
    assert failure.allow_retries


@pytest.mark.parametrize("error", [LeaseHeld("user_info", "tidegate run, process 1 on here"), GateHeld("held")])
def test_what_a_retry_cannot_mend_is_not_retried(error):
    with pytest.raises(dg.Failure) as caught, explained():
        raise error
    assert not caught.value.allow_retries


def test_a_bug_stays_what_it_is():
    with pytest.raises(ZeroDivisionError), explained():
        _ = 1 / 0


@pytest.mark.parametrize("step", ["user_info", "click_event", "enriched_click_staged", "enriched_click"])
def test_a_script_that_was_changed_is_refused_by_every_step_before_an_engine_is_started(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    fill(planned(tmp_path, script()), "user_info", rows=3, log=True)
    changed = script().replace("user_id INTEGER PRIMARY KEY", "user_id BIGINT PRIMARY KEY")
    assert changed != script()
    found = build_pipeline_definitions(replace(compile_script(changed), name="clicks"), lake=tmp_path)
    monkeypatch.setattr(
        "tidegate.pipelines.runtime.session.start_session", lambda **settings: pytest.fail("an engine was started")
    )
    there = files(tmp_path)
    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize(
            [*(found.assets or []), *(found.asset_checks or [])],  # type: ignore[list-item]
            selection=dg.AssetSelection.assets(dg.AssetKey(["clicks", step])),
            resources=found.resources,
            instance=instance,
            raise_on_error=False,
        )
    (failed,) = result.get_step_failure_events()
    data = failed.step_failure_data.user_failure_data
    assert data is not None
    said = {name: str(value.value) for name, value in data.metadata.items()}
    assert said["tidegate/error"] == "DefinitionChanged"
    assert "lake:   INT NOT NULL" in said["where"]
    assert "script: BIGINT NOT NULL" in said["where"]
    assert said["next"].startswith("put the old declaration back")
    assert files(tmp_path) == there
