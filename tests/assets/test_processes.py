"""Processes as assets: keys, what they depend on, and checks, as of every INSERT."""

from __future__ import annotations

from pathlib import Path

import dagster as dg

from assets.factories import build_pipeline_definitions
from tests.pipelines.runtime.processing.test_shapes import whole


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
    checks = {key.name for key in graph.asset_check_keys if key.asset_key.path[-1] == "ruled_staged"}
    assert {"gate", "one_place", "counts_complete"} <= {name.replace("-", "_") for name in checks}
    staged = definitions.resolve_assets_def(dg.AssetKey(["pipeline", "ruled_staged"]))
    assert "Ruled over events, rules BROADCAST by k, into ruled" in (staged.descriptions_by_key[staged.key] or "")
