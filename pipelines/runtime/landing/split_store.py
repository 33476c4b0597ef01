"""The splits that are too many for a plan (the chunks of a snapshot), as a source stores and finds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidegate.pipelines.lake import Lake, SplitRow

if TYPE_CHECKING:
    from tidegate.pipelines.connectors.protocol import Json


@dataclass
class Splits:
    """The `splits` table of one source table and generation (tidegate.pipelines.connectors.protocol.SplitStore)."""

    lake: Lake
    owner: str
    generation: int
    prefix: str = ""

    def rows(self) -> list[dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for row in self.lake.splits.rows(self.owner, generation=self.generation):
            if row.epoch == 0:
                entry = {"split": row.split, "ordinal": row.ordinal, "detail": row.detail, "cut": None}
                found.setdefault(row.split, entry)
        for row in self.lake.splits.rows(self.owner, generation=self.generation):
            if row.epoch != 0 and row.split in found and found[row.split]["cut"] is None:
                found[row.split]["cut"] = row.cut
        return sorted(found.values(), key=lambda row: row["ordinal"])

    def add(self, splits: Sequence[Json]) -> None:
        known = {row["split"] for row in self.rows()}
        new = [
            SplitRow(self.owner, self.generation, 0, split["split"], split["ordinal"], split["detail"])
            for split in splits
            if split["split"] not in known
        ]
        self._write(new)

    def cut(self, cuts: Mapping[str, Json]) -> None:
        known = {row["split"]: row for row in self.rows()}
        planned = self.lake.epochs.last(self.owner, self.generation)
        epoch = planned.epoch if planned else 1
        new = [
            SplitRow(self.owner, self.generation, epoch, name, known[name]["ordinal"], None, cut)
            for name, cut in cuts.items()
            if known[name]["cut"] is None
        ]
        self._write(new)

    def _write(self, new: list[SplitRow]) -> None:
        if new:
            application = self.lake.application(self.owner, "splits", self.generation)
            self.lake.splits.append(new, application=application, version=self.lake.splits.version(application) + 1)


def of_a_file(detail: Json | None) -> bool:
    """Whether a split is a file that was taken up: no chunk of a snapshot, and without a cut."""
    return detail is not None and detail.get("kind") == "file"
