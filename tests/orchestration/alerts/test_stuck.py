"""What an alert of a stuck table tells, of a lake whose control rows are written by hand."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from tests.pipelines.runtime.handmade import HandmadeLake
from tidegate.assets import build_pipeline_definitions
from tidegate.orchestration.alerts import AlertOptions
from tidegate.orchestration.alerts.tables import stuck
from tidegate.orchestration.alerts.watched import WatchedInsert, WatchedTable, watched
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.runtime.epochs import insert_owner
from tidegate.pipelines.runtime.runner import Runner


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
        told = stuck(subject, instance, AlertOptions())
        assert told.key == f"stuck {subject.subject} 1000", "one incident, whatever it says meanwhile"
        assert told.title.endswith("is stuck since 1970-01-01 00:00:01 UTC: it is still not there.")
        with runner() as later:
            later._works(owner)
        assert stuck(subject, instance, AlertOptions()) is None
