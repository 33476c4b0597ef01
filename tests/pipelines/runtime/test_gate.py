"""A gate gets ready once a process, while Spark starts or a join runs; it is asked as ever, whatever becomes of it."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.pipelines.runtime.test_dry_run import SCRIPT
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.runtime.gate import NoVerdict, ask, prepare
from tidegate.pipelines.runtime.runner import Runner
from tidegate.pipelines.sql import compile_script


@pytest.mark.parametrize("fails", [False, True])
def test_a_gate_gets_ready_once_and_in_the_background(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    module, threads = ModuleType(f"a_gate_{fails}"), []

    def ready() -> None:
        threads.append(threading.current_thread())
        if fails:
            raise ImportError("no such library")

    def judge() -> None: ...

    judge.__module__ = module.__name__
    module.prepare = ready  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    prepare(judge)  # type: ignore[arg-type]
    prepare(judge)  # type: ignore[arg-type]
    for thread in threading.enumerate():
        if thread.name == "tidegate-gate-prepares":
            thread.join(10)
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()


@pytest.mark.parametrize("missing", [False, True])
def test_the_gate_of_a_run_gets_ready_while_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: bool
) -> None:
    """What lands a source alone asks no gate; that none is installed is said by the step that asks it."""
    steps: list[str] = []

    class Started(Exception):
        pass

    def spark() -> SparkSession:
        steps.append("spark")
        raise Started

    def installed() -> Any:
        if missing:
            raise ImportError("no such library")
        return "a gate"

    monkeypatch.setattr("tidegate.pipelines.runtime.runner.prepare", steps.append)
    monkeypatch.setattr("tidegate.pipelines.runtime.runner.installed_gate", installed)
    pipeline = compile_script(SCRIPT.format(options="'connector' = 'datagen', 'number-of-rows' = '5'"))
    with Runner(pipeline, Lake(tmp_path / "lake"), spark=spark) as runner:
        with pytest.raises(Started):
            runner.advance("item")
        assert steps == ["spark"]
        steps.clear()
        with pytest.raises(Started):
            runner.run()
    assert steps == (["spark"] if missing else ["a gate", "spark"])


def test_what_dagster_reads_its_history_with_is_whole_before_a_gate_gets_ready_beside_it() -> None:
    """Half imported by the gate's thread, SQLAlchemy failed a query of Dagster's that came meanwhile."""
    asked = """
import sys, types, sqlalchemy
from tidegate.pipelines.runtime.gate import prepare
assert "sqlalchemy.orm" not in sys.modules
gate = lambda: None
gate.__module__ = "a_gate"
sys.modules["a_gate"] = types.SimpleNamespace(prepare=lambda: print("sqlalchemy.orm" in sys.modules))
prepare(gate)
"""
    done = subprocess.run([sys.executable, "-c", asked], check=True, capture_output=True, text=True)
    assert done.stdout == "True\n"


def test_a_gate_that_needs_nothing_is_left_alone() -> None:
    def judge() -> None: ...

    prepare(judge)  # type: ignore[arg-type]


def test_the_spark_jobs_of_a_gate_that_does_not_answer_are_stopped_those_too_that_it_would_start_next(
    spark: SparkSession,
) -> None:
    failed: list[str] = []
    left = threading.Event()

    def endless(_: Any, session: Callable[[], SparkSession]) -> Any:
        """A suite of two expectations, each of which would take for ever; it takes what Spark throws for an answer."""
        try:
            active = session()
            for _ in range(2):
                try:
                    active.range(10**16, numPartitions=1).selectExpr("sum(hash(id))").collect()
                except Exception as error:
                    failed.append(str(error))
        finally:
            left.set()

    staged: Any = SimpleNamespace(plan=SimpleNamespace(insert="enriched", epoch=7))
    with pytest.raises(NoVerdict, match="epoch 7 of enriched did not answer within 3 s"):
        ask(endless, staged, lambda: spark, 3.0)
    assert left.wait(120), "its thread has come to an end"
    assert len(failed) == 2
    assert all("cancel" in text.lower() for text in failed)
    assert list(spark.sparkContext.statusTracker().getActiveJobsIds()) == []
    assert spark.range(3).count() == 3, "the session is as it was"
