"""The splits of a source table. Those that would make a plan too long (the chunks of a snapshot) are stored in a table;
and only some splits count for the table's watermark and its alignment group. No Spark.

A split of the bounded phase (a chunk of a snapshot, in the order of keys) is read once. While other splits go on, such
splits do not count. As long as there are no others, the greatest watermark of them is the table's, since all their rows
are in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tidegate.pipelines.lake import Lake, SplitRow, SplitWatermark, WatermarkRow
from tidegate.pipelines.lake.records import restored

if TYPE_CHECKING:
    from tidegate.pipelines.connectors.protocol import Json, SplitStore

BOUNDED = "(bounded phase)"
"""The name of the split that stands for all finished splits of the bounded phase."""


def stored_splits(row: WatermarkRow | None) -> list[SplitWatermark]:
    """The splits of a log row."""
    return [restored(SplitWatermark, split, row.place) for split in row.splits] if row else []


def counting(splits: Sequence[SplitWatermark]) -> list[SplitWatermark]:
    """The splits that count: those that go on; if there are none, one for all that were read."""
    going = [split for split in splits if not split.ended and not split.bounded]
    return going or ([together(splits)] if splits else [])


def together(splits: Sequence[SplitWatermark]) -> SplitWatermark:
    """The finished splits as one; it is idle if each of them is idle or has ended."""
    if len(splits) == 1:
        return replace(splits[0], idle=splits[0].idle or splits[0].ended)
    last_rows = [split.last_row for split in splits if split.last_row is not None]
    rowtimes = [split.rowtime for split in splits if split.rowtime is not None]
    return SplitWatermark(
        BOUNDED,
        max(split.timestamp for split in splits),
        all(split.use_processing_time for split in splits),
        idle=all(split.idle or split.ended for split in splits),
        last_row=max(last_rows, default=None),
        late=sum(split.late for split in splits),
        ended=all(split.ended for split in splits),
        bounded=True,
        rowtime=max(rowtimes, default=None),
    )


def folded(splits: Sequence[SplitWatermark], seen: set[str]) -> list[SplitWatermark]:
    """`splits`, with those of the bounded phase that are not `seen` in this epoch combined into one, so that a log row
    does not name every chunk of a snapshot."""
    done = [split for split in splits if split.bounded and split.split not in seen]
    if len(done) < 2:
        return list(splits)
    return [split for split in splits if split not in done] + [together(done)]


STATED = "stated"
"""Key in a split's detail: how often it was stated anew."""


def _stated(detail: Json | None) -> int:
    return (detail or {}).get(STATED, 0)


@dataclass
class Splits:
    """The splits of one source table and generation (tidegate.pipelines.connectors.protocol.SplitStore)."""

    lake: Lake
    owner: str
    generation: int
    prefix: str = ""
    waiting: list[SplitRow] | None = field(default=None, init=False)
    """What is for the caller to commit; None: it is committed as it comes."""

    def rows(self) -> list[dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        rows = self.lake.splits.rows(self.owner, generation=self.generation) + (self.waiting or [])
        for row in rows:
            if row.epoch == 0 and _stated(row.detail) >= _stated(found.get(row.split, {}).get("detail")):
                found[row.split] = {"split": row.split, "ordinal": row.ordinal, "detail": row.detail, "cut": None}
        for row in rows:
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
        self.write(new)

    def restate(self, splits: Sequence[Json]) -> None:
        known = {row["split"]: row for row in self.rows()}
        new: list[SplitRow] = []
        for split in splits:
            name, detail = split["split"], {**split["detail"], STATED: _stated(known[split["split"]]["detail"]) + 1}
            new.append(SplitRow(self.owner, self.generation, 0, name, split["ordinal"], detail))
        self.write(new)

    def cut(self, cuts: Mapping[str, Json]) -> None:
        known = {row["split"]: row for row in self.rows()}
        planned = self.lake.epochs.last(self.owner, self.generation)
        epoch = planned.epoch if planned else 1
        new = [
            SplitRow(self.owner, self.generation, epoch, name, known[name]["ordinal"], None, cut)
            for name, cut in cuts.items()
            if known[name]["cut"] is None
        ]
        self.write(new)

    def write(self, new: list[SplitRow]) -> None:
        """Commit them, or have them wait for the caller's commit."""
        if self.waiting is not None:
            self.waiting += new
        elif new:
            self.lake.logs.of(self.owner).append(new, self.mark())

    def mark(self) -> dict[str, int]:
        """The transaction of the next commit."""
        application = self.lake.application(self.owner, "splits", self.generation)
        return {application: self.lake.logs.of(self.owner).version(application) + 1}


@dataclass
class SplitsOfPlan:
    """What a source has written of splits while it planned: committed with the plan that it belongs to. `of`: None for
    splits that are stored nowhere."""

    of: Splits | None
    rows: list[SplitRow] = field(default_factory=list)

    @property
    def mark(self) -> dict[str, int]:
        """Its transaction."""
        return self.of.mark() if self.of and self.rows else {}

    def store(self) -> None:
        """Commit it alone, where nothing was planned."""
        if self.of:
            self.of.write(self.rows)


@contextmanager
def with_plan(splits: SplitStore) -> Iterator[SplitsOfPlan]:
    """What is written to `splits` in the block is for the caller to commit."""
    found = SplitsOfPlan(splits if isinstance(splits, Splits) else None)
    if found.of is None:
        yield found
        return
    found.of.waiting = found.rows
    try:
        yield found
    finally:
        found.of.waiting = None


@dataclass
class DraftSplits:
    """The stored splits, and those that a source would add, which are only in memory
    (tidegate.pipelines.connectors.protocol.SplitStore)."""

    stored: SplitStore
    added: dict[str, dict[str, Any]] = field(default_factory=dict)
    cuts: dict[str, Json] = field(default_factory=dict)
    restated: dict[str, Json] = field(default_factory=dict)

    @property
    def prefix(self) -> str:
        return self.stored.prefix

    def rows(self) -> list[dict[str, Any]]:
        there = {row["split"]: row for row in self.stored.rows()}
        found = [
            {**row, **self.restated.get(row["split"], {}), "cut": row["cut"] or self.cuts.get(row["split"])}
            for row in (self.added | there).values()
        ]
        return sorted(found, key=lambda row: row["ordinal"])

    def add(self, splits: Sequence[Json]) -> None:
        for split in splits:
            self.added.setdefault(split["split"], {**split, "cut": None})

    def restate(self, splits: Sequence[Json]) -> None:
        self.restated.update({split["split"]: split for split in splits})

    def cut(self, cuts: Mapping[str, Json]) -> None:
        self.cuts = {**cuts, **self.cuts}


def of_a_file(detail: Json | None) -> bool:
    """Whether a split is a file that is read as one piece: it has no cut, and is no chunk of a snapshot."""
    return detail is not None and detail.get("kind") == "file"
