"""'quarantine.retention': quarantined rows that were released again or given up leave the quarantine's table.

What goes is all that one epoch has quarantined for one reason (`Kept`), once the epoch that decided about it was
planned longer ago than the option says: the one that joined the rows again, or gave them up; of a held epoch that was
discarded, itself. What nobody has decided about stays for ever. Epochs are in order, so how far this has gone is one
number, the last deciding epoch; it is stored in the quarantine's log, by the commit that removes the rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.dataset as ds

from tidegate.pipelines.clock import Clock
from tidegate.pipelines.lake import Lake, delta_log
from tidegate.pipelines.lake.adopt import Epochs, replace, without
from tidegate.pipelines.runtime.accounting import DECISIONS, in_quarantine, rows_in_words
from tidegate.pipelines.runtime.history import history_of
from tidegate.pipelines.runtime.quarantine.quarantined import Kept, decided, kept_out, removal, removed_upto
from tidegate.pipelines.runtime.retention import WORTH_IT, Retained
from tidegate.pipelines.sql.model import Insert
from tidegate.pipelines.sql.options import QUARANTINE_RETENTION
from tidegate.pipelines.sql.pipeline import Pipeline
from tidegate.pipelines.syntax.durations import parse_duration
from tidegate.pipelines.watermarks.watermark import milliseconds

GENERATION = 1
"""An INSERT has one."""


@dataclass(frozen=True)
class _Wholes(Epochs):
    """Of some epochs' rows those that were quarantined for a reason, by reason."""

    epochs: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def holds(self) -> pc.Expression:
        found = pc.scalar(False)
        for reason, epochs in self.epochs.items():
            found = found | ((pc.field("_reason") == reason) & pc.field("_epoch").isin(epochs))
        # Nothing is said of a row without a reason, so that it is kept.
        return found & pc.field("_reason").is_valid() & (pc.field("_generation") == self.generation)


@dataclass(frozen=True)
class QuarantineRetention:
    """Removes rows from the quarantines of one pipeline's INSERTs. The caller holds the INSERT's lease."""

    lake: Lake
    pipeline: Pipeline
    clock: Clock
    environment: Mapping[str, str] | None

    def of(self, insert: Insert) -> timedelta | None:
        """The 'quarantine.retention' of an INSERT's target."""
        text = self.pipeline.table(insert.target).options.one(QUARANTINE_RETENTION, self.environment)
        return None if text is None else parse_duration(text)

    def apply(self, insert: Insert, retention: timedelta) -> Retained:
        """Remove the rows that may go, in one commit. Raises LakeError."""
        name, path = insert.id, self.lake.quarantine_path(self.pipeline.table(insert.target), insert)

        def nothing(reason: str) -> Retained:
            return Retained(name, GENERATION, reason=reason, what="quarantined rows")

        before = removed_upto(self.lake, insert, path)
        oldest = self.clock() - milliseconds(retention, f"'{QUARANTINE_RETENTION}'", zero=True)
        going: list[Kept] = []
        upto = before
        for item in sorted(self._decided(insert, before, oldest), key=lambda item: item.decider.epoch):
            if item.decider.epoch <= before:
                continue
            if item.decider.instant > oldest:
                break
            going.append(item)
            upto = item.decider.epoch
        opened = delta_log.opened(path)
        if not going or opened is None:
            return nothing("no row that was released or discarded is old enough")
        if not delta_log.plain(opened):
            return nothing("its files are not plain Parquet any more")
        # What is decided in one epoch goes together, so that the epoch's number tells of all of it.
        return self._removed(insert, path, opened, going, upto)

    def _decided(self, insert: Insert, before: int, oldest: int) -> list[Kept]:
        """What was released or discarded; the history is read where an epoch after `before` has done so that was
        planned at or before `oldest` (ms, UTC)."""
        target = self.lake.target_path(self.pipeline.table(insert.target))
        decisions = in_quarantine(self.lake, insert.id, target).decisions or ()
        known = len(decisions) < DECISIONS or min(decisions)[0] <= before
        if known and not any(epoch > before and at <= oldest for epoch, at in decisions):
            return []
        return decided(kept_out(history_of(self.lake, self.pipeline, insert)))

    def _removed(
        self, insert: Insert, path: Path, opened: delta_log.Table, going: Sequence[Kept], upto: int
    ) -> Retained:
        epochs: dict[str, list[int]] = defaultdict(list)
        for item in going:
            epochs[item.reason].append(item.epoch)
        first, last = min(item.epoch for item in going), max(item.epoch for item in going)
        wholes, rows = _Wholes(GENERATION, [(first, last)], epochs=epochs), sum(item.rows for item in going)
        there, looked_at = 0, 0
        for file in delta_log.data_files(opened, GENERATION, first - 1, last).paths:
            found = ds.dataset(file, format="parquet")
            taken = found.count_rows(filter=wholes.holds())
            there, looked_at = there + taken, looked_at + (found.count_rows() if taken else 0)
        if there != rows:
            return Retained(
                insert.id,
                GENERATION,
                looked_at,
                reason=f"of {rows_in_words(rows)} that may go, the quarantine has {there:,}: tidegate verify",
                what="quarantined rows",
            )
        if rows < looked_at * WORTH_IT:
            few = f"{rows:,} of {looked_at:,} rows may go, which is not worth writing the rest anew"
            return Retained(insert.id, GENERATION, looked_at, reason=few, what="quarantined rows")
        old, kept = without(opened, path, wholes)
        marks = {removal(self.lake, insert): upto}
        replace(path, path, kept, old, note=f"{QUARANTINE_RETENTION}: {rows_in_words(rows)} went", marks=marks)
        return Retained(insert.id, GENERATION, looked_at, rows, what="quarantined rows")
