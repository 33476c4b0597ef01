"""AutomationConditions as the daemon evaluates them: a published asset never moves past a failed gate."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg

from tests.assets.clicks import pipeline
from tidegate.assets import Presentation, build_pipeline_definitions
from tidegate.assets.names import GATE

AUTOMATED = Presentation(automation=True)
STAGED = dg.AssetKey(["clicks", "enriched_click_staged"])
PUBLISHED = dg.AssetKey(["clicks", "enriched_click"])
SOURCES = [dg.AssetKey(["clicks", name]) for name in ("user_info", "click_event")]


def judged(instance: dg.DagsterInstance, passed: bool) -> None:
    """Staged anew, and judged."""
    instance.report_runless_asset_event(dg.AssetMaterialization(STAGED))
    for name in GATE:
        instance.report_runless_asset_event(
            dg.AssetCheckEvaluation(asset_key=STAGED, check_name=name, passed=passed or name != "rows", blocking=True)
        )


def test_published_follows_staged_only_past_a_passed_gate(instance: dg.DagsterInstance, tmp_path: Path):
    definitions = build_pipeline_definitions(pipeline(), lake=tmp_path, look=AUTOMATED)
    for key in [*SOURCES, STAGED, PUBLISHED]:
        instance.report_runless_asset_event(dg.AssetMaterialization(key))
    published = dg.AssetSelection.assets(PUBLISHED)

    def tick(cursor: Any) -> Any:
        return dg.evaluate_automation_conditions(definitions, instance, asset_selection=published, cursor=cursor)

    first = tick(None)
    judged(instance, passed=False)
    held = tick(first.cursor)
    assert held.get_num_requested(PUBLISHED) == 0
    judged(instance, passed=True)
    assert tick(held.cursor).get_num_requested(PUBLISHED) == 1


def test_new_rows_of_a_source_ask_for_staged_checks_and_published_together(
    instance: dg.DagsterInstance, tmp_path: Path
):
    definitions = build_pipeline_definitions(pipeline(), lake=tmp_path, look=AUTOMATED)
    for key in [*SOURCES, STAGED, PUBLISHED]:
        instance.report_runless_asset_event(dg.AssetMaterialization(key))
    judged(instance, passed=True)
    downstream = dg.AssetSelection.assets(STAGED, PUBLISHED)
    first = dg.evaluate_automation_conditions(definitions, instance, asset_selection=downstream)
    instance.report_runless_asset_event(dg.AssetMaterialization(SOURCES[1]))
    after = dg.evaluate_automation_conditions(definitions, instance, asset_selection=downstream, cursor=first.cursor)
    assert after.get_num_requested(STAGED) == 1
    assert after.get_num_requested(PUBLISHED) == 1


def test_a_source_is_asked_for_once_however_many_ticks_pass_while_its_run_goes_on(
    instance: dg.DagsterInstance, tmp_path: Path
):
    definitions = build_pipeline_definitions(pipeline(), lake=tmp_path, look=AUTOMATED)
    sources, begin = dg.AssetSelection.assets(*SOURCES), datetime(2026, 1, 1, 0, 0, 10, tzinfo=UTC)
    job, cursor, asked = definitions.resolve_job_def("clicks"), None, dict[int, int]()
    for seconds in range(0, 331, 30):  # the daemon looks every 30 s, and `cron` ticks every minute
        found = dg.evaluate_automation_conditions(
            definitions, instance, sources, begin + timedelta(seconds=seconds), cursor
        )
        cursor = found.cursor
        asked |= {seconds: found.total_requested} if found.total_requested else {}
        if seconds == 60:
            started = dg.DagsterRunStatus.STARTED
            run = instance.create_run_for_job(job, asset_selection=frozenset(SOURCES), status=started)
        elif seconds == 270:
            instance.report_run_failed(run)
    assert asked == {60: 2, 300: 2}
