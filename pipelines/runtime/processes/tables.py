"""The tables of one process: what it reads, the targets of its outputs, its state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.location import Location
from tidegate.pipelines.process.engine.bucket import StateColumns
from tidegate.pipelines.process.spec import ProcessSpec
from tidegate.pipelines.runtime.definitions import Definitions
from tidegate.pipelines.runtime.epochs.position import InsertOnLake
from tidegate.pipelines.runtime.processes.columns import (
    ensure_state,
    key_columns,
    output_columns,
    record_columns,
    state_columns,
)
from tidegate.pipelines.runtime.processes.state import KeyColumns
from tidegate.pipelines.runtime.releasing.staging import TARGET_COLUMNS, ensure, ensure_quarantine, make_places

PROCESS_COLUMNS = {**TARGET_COLUMNS, "_split": "STRING", "_offset": "BIGINT"}
"""What a row of a process's output carries: with its place, so that another process may take it in order."""


@dataclass(frozen=True)
class ProcessTables:
    """A process on a lake, by what its script says of it."""

    on_lake: InsertOnLake
    definitions: Definitions | None = None

    @property
    def spec(self) -> ProcessSpec:
        return self.on_lake.process

    @property
    def targets(self) -> tuple[Table, ...]:
        """The table of each output."""
        return tuple(self.on_lake.pipeline.table(name) for name in self.spec.outputs)

    @cached_property
    def given(self) -> Sequence[dict[str, str]]:
        """The columns that the function gives to each output: name -> Spark type."""
        return [output_columns(self.on_lake.pipeline, self.spec, place) for place in range(len(self.spec.outputs))]

    @cached_property
    def state(self) -> StateColumns:
        """The columns that the state is stored in."""
        return state_columns(self.on_lake.pipeline, self.spec)

    @property
    def key(self) -> KeyColumns:
        return key_columns(self.state)

    def folders(self, target: Table, attempt: str) -> dict[str, Location]:
        """The folders that an attempt at an epoch is staged in, by disposition."""
        return self.on_lake.lake.new_attempt(target, self.on_lake.insert, attempt)

    def prepare(self, ready: set[Location]) -> None:
        """Make the targets, their quarantines and the state's table, or check that they are what is declared; once for
        those in `ready`."""
        lake, insert = self.on_lake.lake, self.on_lake.insert
        added = self.definitions.added(self.on_lake.owner) if self.definitions else ()
        for target in self.targets:
            own, quarantine = record_columns(target), lake.quarantine_path(target, insert)
            ensure(lake.target_path(target), {**own, **PROCESS_COLUMNS}, target.name, ready, added)
            ensure_quarantine(quarantine, own, target.name, ready, added)
            make_places(lake, target, insert)
        path = lake.state_path(insert)
        if path not in ready:
            ensure_state(path, self.state, insert.id)
            ready.add(path)
