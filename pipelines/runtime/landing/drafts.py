"""A step of a source that is planned and not stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidegate.pipelines.connectors.protocol import Json, SplitStore, Step


@dataclass(frozen=True)
class SourceDraft:
    """The next epoch of a source table. `step` is None where it has nothing to land, or alignment holds it back.

    `unfinished`: the epoch is planned already, and a run would finish it first.
    """

    table: str
    generation: int
    epoch: int
    step: Step | None
    unfinished: bool = False


@dataclass
class DraftSplits:
    """Splits as they are stored, and those that a source would add, which are kept here alone
    (tidegate.pipelines.connectors.protocol.SplitStore)."""

    stored: SplitStore
    added: dict[str, dict[str, Any]] = field(default_factory=dict)
    cuts: dict[str, Json] = field(default_factory=dict)

    @property
    def prefix(self) -> str:
        return self.stored.prefix

    def rows(self) -> list[dict[str, Any]]:
        there = {row["split"]: row for row in self.stored.rows()}
        found = [{**row, "cut": row["cut"] or self.cuts.get(row["split"])} for row in (self.added | there).values()]
        return sorted(found, key=lambda row: row["ordinal"])

    def add(self, splits: Sequence[Json]) -> None:
        for split in splits:
            self.added.setdefault(split["split"], {**split, "cut": None})

    def cut(self, cuts: Mapping[str, Json]) -> None:
        self.cuts = {**cuts, **self.cuts}
