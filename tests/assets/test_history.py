"""What a run with nothing new leaves in Dagster's history. No Spark: the epoch before it is made by hand."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import dagster as dg
import pytest

from tests.pipelines.runtime.handmade import HandmadeLake, made_once, no_spark
from tidegate.assets import build_pipeline_definitions
from tidegate.assets.resources import TidegateResource

MOST_EVENTS, MOST_BYTES = 40, 60_000
OF_A_LAUNCHED_RUN = 5
"""Events of a run that a queue and a process of its own come before: queued, taken, starting, its process, its end."""


@made_once
def at_rest(made: HandmadeLake) -> None:
    """A lake whose sources have no more, and whose one epoch is published."""
    made.landed("clicks", 1, 0)
    made.landed("users", 1, 0, flip=1)
    made.appended("clicks", 1)
    made.appended("users", 1)
    made.released(1, 0, 1)


def test_a_run_with_nothing_new_writes_little(
    tmp_path: Path, home: Path, history: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TidegateResource, "session", no_spark)
    made = at_rest(tmp_path / "lake")
    job = build_pipeline_definitions(made.pipeline, lake=made.lake.root).resolve_job_def("handmade")
    job.execute_in_process(instance=history)  # takes up the script's definitions
    run_id = job.execute_in_process(instance=history).run_id
    with closing(sqlite3.connect(home / "history" / "runs" / f"{run_id}.db")) as database:
        written = database.execute("SELECT length(event) FROM event_logs").fetchall()
    assert len(written) + OF_A_LAUNCHED_RUN <= MOST_EVENTS
    assert sum(length for (length,) in written) + OF_A_LAUNCHED_RUN * 1_000 <= MOST_BYTES
