"""A broken check in the pipeline's job: ways of tests/fixtures/gate/broken.toml once more, as Dagster meets them. No
Spark: the epoch is staged by hand. Each of them meets the gate in tests.quality_checks.test_broken, and each sixth one
meets the job, too; with $TIDEGATE_SOAK all do."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import dagster as dg
import pytest

from tests.pipelines.runtime.handmade import no_spark
from tests.quality_checks import broken
from tests.quality_checks.test_broken import BREAKS, case, published, staged
from tidegate.assets import build_pipeline_definitions
from tidegate.assets.checks import check_names
from tidegate.assets.names import GATE
from tidegate.assets.resources import TidegateResource
from tidegate.pipelines.runtime import gate as gate_module
from tidegate.pipelines.runtime.runner import Runner

__all__ = ["case"]

NOT_IN_A_JOB = ("ends_the_process", "kills_the_process", "stores_a_second_verdict")
"""No job comes back from the first two (Dagster ends such a run), and none publishes after a no."""
IN_A_JOB = [each for each in BREAKS if each["how"] not in NOT_IN_A_JOB][:: 1 if os.environ.get("TIDEGATE_SOAK") else 6]
GATE_SAYS = {"no verdict": ([], [True]), "held": ([False],), "lost": ([True],)}
"""Its result, or none, by how it ends; it may pass where what it has passed is broken afterwards."""
NAMES = check_names()


def run(case: broken.Case, runner: Runner) -> dg.ExecuteInProcessResult:
    """The pipeline's job, with the gate of the case installed after the code location was loaded."""
    if case.gate is not None:
        installed = SimpleNamespace(load=lambda: case.gate)
        case.patch.setattr(gate_module, "entry_points", lambda **_: [installed])
    judge = Runner.judge

    def judged(runner: Runner, insert: str) -> object:
        try:
            return judge(runner, insert)
        finally:
            case.after(runner)

    case.patch.setattr(Runner, "judge", judged)
    case.patch.setattr(TidegateResource, "session", no_spark)
    case.patch.setattr("tidegate.assets.checks.check_names", lambda: NAMES)
    definitions = build_pipeline_definitions(runner.pipeline, lake=runner.lake.root)
    gate_module.installed_gate.cache_clear()
    try:
        with dg.DagsterInstance.ephemeral() as instance:
            job = definitions.resolve_job_def("handmade")
            quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
            return job.execute_in_process(quiet, instance=instance, raise_on_error=False)
    finally:
        gate_module.installed_gate.cache_clear()


@pytest.mark.parametrize("expected", IN_A_JOB, ids=lambda each: each["how"])
def test_the_run_fails_and_no_row_leaves(expected: dict[str, str], case: broken.Case, tmp_path: Path) -> None:
    getattr(broken, expected["how"])(case)
    runner = staged(case, tmp_path)
    result = run(case, runner)
    assert not result.success
    gate = [found.passed for found in result.get_asset_check_evaluations() if found.check_name in GATE]
    assert ([all(gate)] if gate else []) in GATE_SAYS[expected["ends"]]
    assert expected["says"] in said(result)
    assert published(runner) == (0, 0)


def test_a_whole_check_lets_them_out(case: broken.Case, tmp_path: Path) -> None:
    runner = staged(case, tmp_path)
    assert run(case, runner).success
    assert published(runner) == (3, 2)


def said(result: dg.ExecuteInProcessResult) -> str:
    """What a person can read of the steps that failed, and of the gate."""
    failures = [event.step_failure_data.error for event in result.get_step_failure_events()]
    words = [error.to_string() for error in failures if error]
    for found in result.get_asset_check_evaluations():
        words += [str(value.value) for value in found.metadata.values()]
    return "\n".join(words)
