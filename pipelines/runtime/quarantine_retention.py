"""'quarantine.retention': quarantined rows that were released again or given up leave the quarantine's table.

What goes is all that one epoch has quarantined for one reason (`QuarantinedRows`), once the epoch that decided about it
was planned longer ago than the option says: the one that joined the rows again, or gave them up; of a held epoch that
was discarded, itself. What nobody has decided about stays for ever. Epochs are in order, so how far this has gone is
one number, the last deciding epoch; it is stored in the quarantine's log, by the commit that removes the rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

import pyarrow.compute as pc

from tidegate.pipelines.lake import delta_log
from tidegate.pipelines.lake.adopt import Epochs, replace, without
from tidegate.pipelines.location import Location
from tidegate.pipelines.runtime.accounting import all_done
from tidegate.pipelines.runtime.quarantine.quarantined import (
    QuarantinedRows,
    decided,
    quarantined_by_epoch,
    removal,
    removed_upto,
)
from tidegate.pipelines.runtime.retention import NOT_PLAIN, WORTH_IT, OldRows, Retained, few
from tidegate.pipelines.sql.model import Insert
from tidegate.pipelines.sql.options import QUARANTINE_RETENTION
from tidegate.pipelines.text import counted

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
        # A row without a reason has no rule, so it stays.
        return found & pc.field("_reason").is_valid() & (pc.field("_generation") == self.generation)


@dataclass(frozen=True)
class QuarantineRetention(OldRows):
    """Removes rows from the quarantines of INSERTs. The caller holds the INSERT's lease; the option is its target's."""

    option = QUARANTINE_RETENTION
    what = "quarantined rows"

    def apply(self, insert: Insert, retention: timedelta) -> Retained:
        """Remove the rows that may go, in one commit. Raises LakeError."""
        path = self.lake.quarantine_path(self.pipeline.table(insert.target), insert)
        nothing = partial(self.nothing, insert.id, GENERATION)
        before = removed_upto(self.lake, insert, path)
        oldest = self.since(retention)
        going: list[QuarantinedRows] = []
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
            return nothing(NOT_PLAIN)
        # What is decided in one epoch goes together, so that the epoch's number stands for all of it.
        return self._removed(insert, path, opened, going, upto)

    def _decided(self, insert: Insert, before: int, oldest: int) -> list[QuarantinedRows]:
        """What was released or discarded; the history is read where an epoch after `before` has done so that was
        planned at or before `oldest` (ms, UTC)."""
        target = self.lake.target_path(self.pipeline.table(insert.target))
        done = all_done(self.lake, insert.id, target)
        decisions = [item.decided for item in done.sums if item.state != "open"]
        if done.since <= before and not any(epoch > before and at <= oldest for epoch, at in decisions):
            return []
        return decided(quarantined_by_epoch(self.lake, self.pipeline, insert))

    def _removed(
        self, insert: Insert, path: Location, opened: delta_log.Table, going: Sequence[QuarantinedRows], upto: int
    ) -> Retained:
        epochs: dict[str, list[int]] = defaultdict(list)
        for item in going:
            epochs[item.reason].append(item.epoch)
        first, last = min(item.epoch for item in going), max(item.epoch for item in going)
        wholes, rows = _Wholes(GENERATION, [(first, last)], epochs=epochs), sum(item.rows for item in going)
        there, looked_at = 0, 0
        for file in delta_log.data_files(opened, GENERATION, first - 1, last).paths:
            found = Location(file).dataset()
            taken = found.count_rows(filter=wholes.holds())
            there, looked_at = there + taken, looked_at + (found.count_rows() if taken else 0)
        if there != rows:
            lost = f"of {counted(rows, 'row')} that may go, the quarantine has {there:,}: tidegate verify"
            return self.nothing(insert.id, GENERATION, lost, looked_at)
        if rows < looked_at * WORTH_IT:
            return self.nothing(insert.id, GENERATION, few(rows, looked_at), looked_at)
        old, remaining = without(opened, path, wholes)
        marks = {removal(self.lake, insert): upto}
        replace(path, path, remaining, old, note=f"{QUARANTINE_RETENTION}: {counted(rows, 'row')} went", marks=marks)
        return Retained(insert.id, GENERATION, looked_at, rows, what=self.what)
