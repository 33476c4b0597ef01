"""An INSERT whose rows wait is an observation that names what they wait for: by control rows, without Spark."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from tests.assets.clicks import handmade, pipeline
from tests.orchestration.conftest import SPANS
from tests.pipelines.runtime.handmade import HandmadeLake
from tidegate.assets import build_pipeline_definitions
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.sql.compile import Pipeline

PUBLISHED = dg.AssetKey(["clicks", "enriched_click"])


@pytest.fixture
def rows(tmp_path: Path) -> HandmadeLake:
    """Three clicks have landed, and the users are still loading."""
    found = handmade(tmp_path / "lake")
    for table, number in ((found.build, 2), (found.probe, 3)):
        found.landed(table, 1, number, at=0)
    return found


def published(lake: Path, *others: dg.AssetsDefinition, of: Pipeline | None = None) -> dg.ExecuteInProcessResult:
    """A run of the published asset, and of others beside it."""
    made = build_pipeline_definitions(of or pipeline(), lake=lake)
    key = PUBLISHED if of is None else dg.AssetKey([of.name, of.inserts[0].id])
    names = [key, *(other.key for other in others)]
    return dg.materialize(
        [*(made.assets or []), *others],  # type: ignore[list-item]
        selection=dg.AssetSelection.assets(*names).without_checks(),
        resources=made.resources,
        instance=dg.DagsterInstance.ephemeral(),
    )


def observed(result: dg.ExecuteInProcessResult) -> list[dg.AssetObservation]:
    return [event.asset_observation_data.asset_observation for event in result.get_asset_observation_events()]


def test_rows_that_wait_are_an_observation_that_names_what_they_wait_for(rows: HandmadeLake, tmp_path: Path) -> None:
    result = published(tmp_path / "lake")
    (found,) = observed(result)
    assert found.asset_key == PUBLISHED
    assert found.description == (
        "3 rows wait: user_info is still loading: its snapshot is not proved complete; "
        "next: they are released once user_info has flipped"
    )
    assert next(iter(found.metadata)) == "summary"
    assert found.metadata["waiting for"].value == "user_info"
    assert found.metadata["waiting rows"].value == 3
    assert not result.get_asset_materialization_events()


def test_what_reads_it_in_the_same_run_is_not_skipped(rows: HandmadeLake, tmp_path: Path) -> None:
    @dg.asset(deps=[PUBLISHED])
    def report() -> None: ...

    result = published(tmp_path / "lake", report)
    assert len(observed(result)) == 1
    assert {event.asset_key for event in result.get_asset_materialization_events()} == {PUBLISHED, report.key}


def test_where_no_row_waits_it_has_asked_and_is_fresh(tmp_path: Path) -> None:
    handmade(tmp_path / "lake")
    result = published(tmp_path / "lake")
    assert observed(result) == []
    assert [event.asset_key for event in result.get_asset_materialization_events()] == [PUBLISHED]


def test_a_watermark_is_waited_for_by_the_input_that_holds_it(tmp_path: Path) -> None:
    found, spans = handmade(tmp_path / "lake"), compile_script(SPANS)
    for table, number, watermark in (("rates", 1, 1_000), ("orders", 2, 9_000)):
        found.landed(table, 1, number, at=0, flip=1, timestamp=watermark, use_processing_time=False)
    assert spans.name
    (seen,) = observed(published(tmp_path / "lake", of=spans))
    assert seen.metadata["waiting for"].value == "rates"
    assert "2 rows wait: the watermark stands at 1970-01-01T00:00:01" in (seen.description or "")
