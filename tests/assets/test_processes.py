"""Processes as assets: keys, what they depend on, and checks, as of every INSERT."""

from __future__ import annotations

from pathlib import Path

import dagster as dg

from tests.pipelines.runtime.processes.test_shapes import whole
from tests.pipelines.sql.test_compile import fixture
from tidegate.assets.factories import build_pipeline_definitions
from tidegate.assets.names import GATE, Names
from tidegate.assets.specs import staged_lineage


def test_a_process_is_a_staged_and_a_published_asset_with_checks(tmp_path: Path) -> None:
    definitions = build_pipeline_definitions(whole(), lake=tmp_path)
    graph = definitions.resolve_asset_graph()
    deps = {
        key.path[-1]: {parent.path[-1] for parent in graph.get(key).parent_keys} for key in graph.get_all_asset_keys()
    }
    assert deps["ruled_staged"] == {"events", "rules"}
    assert deps["ruled"] == {"ruled_staged"}
    assert deps["evens_staged"] == {"events"}
    assert deps["chained_staged"] == {"again"}  # what another process publishes
    assert {key.name for key in graph.asset_check_keys if key.asset_key.path[-1] == "ruled_staged"} == {*GATE}
    assert {key.asset_key.path[-1] for key in graph.asset_check_keys if key.name == "adds_up"} == {
        "ruled", "paired", "evens", "again", "chained"
    }  # fmt: skip
    staged = definitions.resolve_assets_def(dg.AssetKey(["pipeline", "ruled_staged"]))
    assert "Ruled over events, rules BROADCAST by k, into ruled" in (staged.descriptions_by_key[staged.key] or "")


def test_windows_of_sql_are_shown_as_the_insert_that_they_are(tmp_path: Path) -> None:
    pipeline = fixture("windows")
    definitions = build_pipeline_definitions(pipeline, lake=tmp_path)
    graph, staged = definitions.resolve_asset_graph(), dg.AssetKey(["windows", "clicks_5min_staged"])
    assert {key.path[-1] for key in graph.get(staged).parent_keys} == {"clicks"}
    assert {key.name for key in graph.asset_check_keys if key.asset_key == staged} == {*GATE}
    text = definitions.resolve_assets_def(staged).descriptions_by_key[staged] or ""
    assert "TUMBLE(TABLE clicks, DESCRIPTOR(rowtime), INTERVAL '5' MINUTES)" in text
    found = staged_lineage(pipeline, pipeline.insert("clicks_5min"), Names("windows")).deps_by_column
    made_of = {name: [dep.column_name for dep in deps] for name, deps in found.items()}
    assert made_of == {
        "item": ["item"],
        "window_start": ["rowtime"],
        "window_end": ["rowtime"],
        "clicks": [],
        "revenue": ["price"],
    }
