"""Materialisations that no run of Dagster made, with the versions by which Dagster tells what is out of date.

A run tags each materialisation with the version of the code that made it and with the data versions of what it read;
the data version of the asset itself is a hash of both. Dagster compares these tags with the definitions that are loaded
and with the newest materialisations. An asset without them counts as out of date for as long as one that it reads has
none or a newer one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import dagster as dg
from dagster._core.definitions.assets.graph.base_asset_graph import BaseAssetGraph
from dagster._core.definitions.data_version import (
    CODE_VERSION_TAG,
    DATA_VERSION_TAG,
    DEFAULT_DATA_VERSION,
    NULL_EVENT_POINTER,
    compute_logical_data_version,
    extract_data_version_from_entry,
    get_input_data_version_tag,
    get_input_event_pointer_tag,
)


def code_version_of(event: dg.EventLogEntry) -> str:
    """The version of the code that made a materialisation; empty where its event does not say so."""
    return (event.tags or {}).get(CODE_VERSION_TAG, "")


@dataclass(frozen=True)
class Versions:
    """Makes the events of one look, each asset after those that it reads: they are stored in this order."""

    instance: dg.DagsterInstance
    graph: BaseAssetGraph[Any]
    _made: dict[dg.AssetKey, dg.DataVersion] = field(default_factory=dict)

    def materialization(self, key: dg.AssetKey, code: str, metadata: Mapping[str, Any]) -> dg.AssetMaterialization:
        """The materialisation of an asset by code of this version, tagged as a run of Dagster tags its own."""
        tags, read = {CODE_VERSION_TAG: code}, dict[dg.AssetKey, dg.DataVersion]()
        for parent in sorted(self.graph.get(key).parent_keys):
            read[parent], event = self._newest(parent)
            tags[get_input_data_version_tag(parent)] = read[parent].value
            tags[get_input_event_pointer_tag(parent)] = event
        self._made[key] = compute_logical_data_version(code, read)
        tags[DATA_VERSION_TAG] = self._made[key].value
        return dg.AssetMaterialization(key, metadata=metadata, tags=tags)

    def _newest(self, key: dg.AssetKey) -> tuple[dg.DataVersion, str]:
        """The data version of an asset, and the id of the event that says so: none yet for an event of this look."""
        if key in self._made:
            return self._made[key], NULL_EVENT_POINTER
        record = self.instance.get_latest_data_version_record(key)
        if record is None:
            return DEFAULT_DATA_VERSION, NULL_EVENT_POINTER
        found = extract_data_version_from_entry(record.event_log_entry)
        return found or DEFAULT_DATA_VERSION, str(record.storage_id)
