"""'changelog.retention': versions of a build side that nobody can ask for any more leave its changelog.

A version may go once its successor is old enough; the newest old version of every key stays, so later joins find what
they would have found (DESIGN, rulings: retention).

  joined in event time        the version after it begins at or before  (what every INSERT has released) - retention
  joined in processing time   a later one by seq landed before  now - retention,  at or before every pin

Rows in quarantine, and those of a plan that is not published, do not count as released here (DESIGN, decision 2). The
newest version of a key, by seq, always stays.

How far retention has ever gone is stored by the commit that removed the versions (`Removed`): later horizons may lie
before it. A release reads it when it is planned: a row before it may have lost its version, and finds nothing.

'quarantine.retention' is `QuarantineRetention`.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import ClassVar, Literal

import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidegate.pipelines.clock import Clock
from tidegate.pipelines.connectors.options import CHANGELOG_RETENTION, QUARANTINE_RETENTION
from tidegate.pipelines.connectors.spec import SEQ_PARTS
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.lake import Lake, WatermarkRow, delta_log
from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.lake.adopt import Epochs, replace, survey, without
from tidegate.pipelines.lake.by_name import TableState
from tidegate.pipelines.lake.releasable import micros
from tidegate.pipelines.lake.stream import Removed, Stream
from tidegate.pipelines.location import Location
from tidegate.pipelines.parquet import OF_SPARK
from tidegate.pipelines.runtime.epochs import Pin, insert_owner
from tidegate.pipelines.runtime.epochs.history import ReleasedEpoch, newest_epochs, newest_plans, target_of
from tidegate.pipelines.runtime.ledger import all_done
from tidegate.pipelines.runtime.places import another_table
from tidegate.pipelines.runtime.quarantine import (
    QuarantinedRows,
    decided,
    may_match,
    quarantined_by_epoch,
    removal,
    removed_upto,
)
from tidegate.pipelines.runtime.stored_definitions import inserts_beside
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.sql.model import Insert
from tidegate.pipelines.syntax.durations import parse_duration
from tidegate.pipelines.syntax.types import quoted
from tidegate.pipelines.text import counted
from tidegate.pipelines.watermarks import MAX_TIMESTAMP, MIN_TIMESTAMP
from tidegate.pipelines.watermarks.watermark import milliseconds

What = Literal["old versions", "landed rows", "quarantined rows"]

WORTH_IT = 0.2
"""The changelog is rewritten when at least this share of the rows considered may go."""


NOT_PLAIN = "its files are not plain Parquet any more (deletion vectors or column mapping)"


def few(rows: int, examined: int) -> str:
    """The reason for removing nothing: too few rows may go."""
    return f"{rows:,} of {counted(examined, 'row')} may go, which is not worth writing the rest anew"


@dataclass(frozen=True)
class Horizon:
    """How far back releases may still look.

    Attributes:
        time: For joins in event time: a version that ended before it (ms, UTC) meets no row any more; MAX once all
            inputs have ended. None where no INSERT joins the build in event time.
        epoch: For joins in processing time: the last build epoch that is older than the retention, and that no release
            can be pinned before. None where there is no such join.
        pinned: The build epoch up to which an unpublished event-time plan, or a process, has read: what landed later
            stays, and ends no version yet. None: there is no such plan or process.
        held_by: What keeps the horizon from moving on, if a person can do something about it.
    """

    time: int | None
    epoch: int | None
    pinned: int | None = None
    held_by: str = ""


@dataclass(frozen=True)
class Retained:
    """What retention did to one table: `removed` of `examined` rows went; `what` they are. `reason`: why none were
    removed. `more`: there is more to remove right now."""

    table: str
    generation: int
    examined: int = 0
    removed: int = 0
    horizon: Horizon | None = None
    reason: str = ""
    what: What = "old versions"
    more: bool = False


@dataclass(frozen=True)
class OldRows:
    """Rows that an option of their table removes: `option`; `what` they are. `environment`: replaces `${VARIABLE}` in
    options, None for the process's own."""

    option: ClassVar[str]
    what: ClassVar[What]

    lake: Lake
    pipeline: Pipeline
    clock: Clock
    environment: Mapping[str, str] | None

    def of(self, table: Table) -> timedelta | None:
        """The option's value."""
        text = table.options.one(self.option, self.environment)
        return None if text is None else parse_duration(text)

    def since(self, retention: timedelta) -> int:
        """Rows older than this (ms, UTC) may go."""
        return self.clock() - milliseconds(retention, f"'{self.option}'", zero=True)

    def nothing(self, owner: str, generation: int, reason: str, examined: int = 0) -> Retained:
        """No row went, and why."""
        return Retained(owner, generation, examined, reason=reason, what=self.what)


@dataclass(frozen=True)
class Retention(OldRows):
    """Compacts changelogs. The caller holds the table's lease, and those of `readers`."""

    option = CHANGELOG_RETENTION
    what = "old versions"

    session: Callable[[], SparkSession] | None = None

    def readers(self, table: str) -> list[str]:
        """The INSERTs of the script and of the lake that join a table, by their owners' names."""
        joining = [insert.id for insert in self.pipeline.inserts if table in insert.builds]
        return [insert_owner(name) for name in [*joining, *inserts_beside(self.lake, self.pipeline, table)]]

    def horizon(self, table: Table, generation: int, retention: timedelta) -> Horizon | str:
        """How far back the INSERTs of the pipeline still look, and those of the lake that it does not name; or why that
        cannot be known yet."""
        keep = milliseconds(retention, f"'{CHANGELOG_RETENTION}'", zero=True)
        times: list[int] = []
        pins: list[int] = []
        unpublished: list[int] = []
        quarantined: list[tuple[int, str]] = []
        beside: list[tuple[int, str]] = []
        joining = [(insert, self.pipeline) for insert in self.pipeline.inserts if table.name in insert.builds]
        for name, made in inserts_beside(self.lake, self.pipeline, table.name).items():
            if made is None:
                return f"{name}, which this script does not name, joins it too, and cannot be read any more"
            joining.append((made.insert(name), made))
        for insert, pipeline in joining:
            target = target_of(self.lake, pipeline, insert.id)
            last = next(iter(newest_epochs(self.lake, insert.id, target)), None)
            if last is None:
                return f"{insert.id} has not released anything yet"
            if pipeline is not self.pipeline and another_table(
                self.lake, pipeline.table(insert.target), insert, last.plan
            ):
                return f"{insert.id}, which this script does not name, publishes to a table that is not at {target}"
            pin = next(pin for pin in last.plan.pins if pin.table == table.name)
            if pin.generation != generation:
                return f"{insert.id} still joins generation {pin.generation}"
            if not last.plan.bounds or pin.latest is not None:
                pins.append(pin.epoch)
            if not last.plan.bounds or not pin.timed:
                continue
            times.append(last.plan.watermark)
            if pipeline is not self.pipeline:
                beside.append((last.plan.watermark, insert.id))
            if not last.published:
                needed = max(last.plan.oldest, last.plan.horizon_of(table.name, generation))
                times += [last.plan.before, needed]
                unpublished.append(pin.epoch)
            for item in all_done(self.lake, insert.id, target).undecided:
                if may_match(item.reason, insert):
                    needed, epoch = item.needed_of(table.name, generation)
                    quarantined.append((needed, f"epoch {epoch} of {insert.id}"))
        read = self._read_by_processes(table.name, generation)
        if isinstance(read, str):
            return read
        pins, unpublished = (pins and [*pins, *read.values()]), [*unpublished, *read.values()]
        own = Stream(self.lake, table.name).generation(generation)
        landed = own.last
        if landed is None:
            return "nothing has landed"
        old = own.landed_before(self.clock() - keep + 1)
        if times:
            times.append(landed.timestamp)
        held_by = ""
        if read and min(read.values()) < landed.epoch:
            held_by = f"{min(read, key=lambda name: read[name])}, which has to meet every row, has not read all of it"
        if beside and min(beside)[0] <= min(times):
            held_by = f"{min(beside)[1]}, which this script does not name, has come no further"
        if quarantined and min(quarantined)[0] < min(times):
            oldest, whose = min(quarantined)
            times.append(oldest)
            held_by = f"rows that {whose} has quarantined may still be released (tidegate quarantine list SCRIPT)"
        time = min(times) - keep if times and min(times) > MIN_TIMESTAMP + keep else None
        if times and min(times) == MAX_TIMESTAMP:
            time = MAX_TIMESTAMP
        epoch = min(old, *pins) if pins and old else None
        if (times and time is None) or (pins and epoch is None) or not (times or pins):
            return "nothing is old enough" + (f": {held_by}" if held_by else "")
        return Horizon(time, epoch, min(unpublished, default=None), held_by)

    def _read_by_processes(self, table: str, generation: int) -> dict[str, int] | str:
        """The epoch up to which each process of the lake has read a table for certain, since it must see every row
        once; or why that cannot be known yet."""
        found: dict[str, int] = {}
        for plan in newest_plans(self.lake):
            for span in plan.takes if plan.state else ():
                if span.table == table:
                    if span.generation != generation and span.upto:
                        return f"{plan.insert} still reads generation {span.generation}"
                    found[plan.insert] = span.after
        for insert in self.pipeline.processes:
            if insert.id not in found and table in insert.inputs:
                return f"{insert.id} has not read anything yet"
        return found

    def spares(self, epoch: ReleasedEpoch, pin: Pin, removed: Removed) -> bool:
        """Whether an epoch's joins are unaffected by what retention has removed of a build."""
        plan, staged = epoch.plan, epoch.staged
        latest = removed.epoch is not None and pin.epoch >= removed.epoch
        if not plan.bounds or not pin.timed:
            return latest
        if pin.latest is not None and not latest:
            return False
        if removed.time is None or staged is None:
            return False
        oldest = max(epoch.oldest, plan.before if not staged.late and not plan.looks_back else plan.oldest)
        # Rows before the horizon that the plan knew have met nothing.
        if oldest < removed.time and (pin.horizon is None or pin.horizon < removed.time):
            return False
        # A version that came late may have taken the place of one that the epoch had met without it.
        log = Stream(self.lake, pin.table).generation(pin.generation).log(since=pin.epoch + 1)
        return not any(row.late is None or row.late for row in log)

    def lost_before(self, table: Table, generation: int) -> int:
        """Versions that were valid before this (ms, UTC) may be gone: MIN if all rows that ever landed are there, MAX
        if rows are gone and it is not known how far back."""
        own = Stream.of(self.lake, self.pipeline, table.name).generation(generation)
        landed = own.sums().rows
        if landed == 0 or own.there() == landed:
            return MIN_TIMESTAMP
        known = own.removed.time
        return MAX_TIMESTAMP if known is None else known

    def apply(self, table: Table, retention: timedelta) -> Retained:
        """Remove old versions of the newest generation, in one commit that replaces the files they were in."""
        stream = Stream(self.lake, table.name)
        path, last = stream.path, stream.newest
        if last is None:
            return self.nothing(table.name, 1, "nothing has landed")
        horizon = self.horizon(table, last.generation, retention)
        if isinstance(horizon, str):
            return self.nothing(table.name, last.generation, horizon)
        opened = stream.table
        if opened is None or not opened.plain:
            return self.nothing(table.name, last.generation, NOT_PLAIN)
        files = delta_log.data_files(opened, last.generation, -1, last.epoch).files
        assert self.session is not None
        rows = lake_rows.of_files(self.session(), opened, opened.paths(files))
        judged = self._judged(rows, table, last.generation, horizon)
        furthest = F.max(F.expr(f"IF(_over, coalesce(unix_micros(_after), {MAX_TIMESTAMP}L), NULL)"))
        counted = judged.agg(F.count(F.lit(1)), F.count_if("_over"), furthest).collect()[0]
        examined, over = int(counted[0]), int(counted[1])
        if over < max(examined * WORTH_IT, 1):
            reason = "; ".join(filter(None, [few(over, examined) if over else "no row may go", horizon.held_by]))
            return Retained(table.name, last.generation, examined, 0, horizon, reason)
        folder = path / f"kept-{uuid.uuid4().hex[:8]}"
        judged.where("NOT _over").select(*map(quoted, rows.columns)).write.options(**OF_SPARK).parquet(str(folder))
        marks = self._marks(last, horizon, furthest=int(counted[2]), over=over)
        replace(path, folder, survey(folder), files, note=f"retention: {counted(over, 'row')} went", marks=marks)
        return Retained(table.name, last.generation, examined, over, horizon)

    def _marks(self, last: WatermarkRow, horizon: Horizon, *, furthest: int, over: int) -> dict[str, int]:
        """The marks of the commit that removes the versions `over` of a build; `last` is the build's newest epoch.
        `furthest` (us, UTC): none of the versions had a successor after it; MAX if one had none."""
        own = Stream(self.lake, last.owner).generation(last.generation)
        before = own.removed
        time, epoch = horizon.time, last.epoch if horizon.epoch is None else horizon.epoch
        if time is None or time == MAX_TIMESTAMP:
            # No watermark says how far back it was: the versions themselves do.
            time = MAX_TIMESTAMP if furthest == MAX_TIMESTAMP else -(-furthest // 1000)
        time = time if before.time is None else max(time, before.time)
        return own.marks(Removed(time, max(epoch, before.epoch or 0), before.rows + over))

    def _judged(self, rows: DataFrame, table: Table, generation: int, horizon: Horizon) -> DataFrame:
        """The rows with `_after`, the time at which the key's next version begins, and `_over`, whether the row may go.
        A truncate never may: it explains why keys have no match."""
        keys = ", ".join(["_generation", "_op = 't'", *(quoted(key) for key in table.primary_key)])
        in_order = ", ".join(["_rowtime", *(f"_seq.{part}" for part in SEQ_PARTS)])
        pinned = "true" if horizon.pinned is None else f"_epoch <= {int(horizon.pinned)}"
        after = f"lead(_rowtime) OVER (PARTITION BY {pinned}, _rowtime IS NULL, {keys} ORDER BY {in_order})"
        over = [f"_generation = {int(generation)} AND _op <> 't'"]
        newest = "max(_seq)"
        if horizon.time is not None:
            over += [pinned, f"coalesce(unix_micros(_after) <= {micros(horizon.time)}L, false)"]
        if horizon.epoch is not None:
            newest = f"max(IF(_epoch <= {int(horizon.epoch)}, _seq, NULL))"
            over.append(f"_epoch <= {int(horizon.epoch)}")
        over.append(f"coalesce(_seq < {newest} OVER (PARTITION BY {keys}), false)")
        return rows.selectExpr("*", f"{after} AS _after").selectExpr("*", f"{' AND '.join(over)} AS _over")


@dataclass(frozen=True)
class _QuarantinedWhole(Epochs):
    """The rows of some epochs that were quarantined for given reasons."""

    epochs: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def holds(self) -> pc.Expression:
        found = pc.scalar(False)
        for reason, epochs in self.epochs.items():
            found = found | ((pc.field("_reason") == reason) & pc.field("_epoch").isin(epochs))
        # A row without a reason has no rule, so it stays.
        return found & pc.field("_reason").is_valid() & (pc.field("_generation") == self.generation)


@dataclass(frozen=True)
class QuarantineRetention(OldRows):
    """'quarantine.retention': quarantined rows that were released again or given up leave the quarantine's table. The
    caller holds the INSERT's lease; the option is its target's.

    All that one epoch has quarantined for one reason (`QuarantinedRows`) is removed at once, when the epoch that
    decided about it was planned longer ago than the option says: the one that joined the rows again, or gave them up;
    for a discarded held epoch, that epoch itself. Rows that nobody has decided about stay for ever. Epochs are in
    order, so how far this has gone is one number, the last deciding epoch, stored in the quarantine's log by the commit
    that removes the rows.
    """

    option = QUARANTINE_RETENTION
    what = "quarantined rows"

    def apply(self, insert: Insert, retention: timedelta) -> Retained:
        """Remove the rows that may go, in one commit. Raises LakeError."""
        path = self.lake.quarantine_path(self.pipeline.table(insert.target), insert)
        nothing = partial(self.nothing, insert.id, insert.generation)
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
        if not opened.plain:
            return nothing(NOT_PLAIN)
        # What is decided in one epoch goes together, so that the epoch's number stands for all of it.
        return self._removed(insert, path, opened, going, upto)

    def _decided(self, insert: Insert, before: int, oldest: int) -> list[QuarantinedRows]:
        """The rows that were released or discarded. The history is read only if an epoch after `before` has done so
        that was planned at or before `oldest` (ms, UTC)."""
        target = self.lake.target_path(self.pipeline.table(insert.target))
        done = all_done(self.lake, insert.id, target)
        decisions = [item.decided for item in done.sums if item.state != "open"]
        if done.since <= before and not any(epoch > before and at <= oldest for epoch, at in decisions):
            return []
        return decided(quarantined_by_epoch(self.lake, self.pipeline, insert))

    def _removed(
        self, insert: Insert, path: Location, opened: TableState, going: Sequence[QuarantinedRows], upto: int
    ) -> Retained:
        epochs: dict[str, list[int]] = defaultdict(list)
        for item in going:
            epochs[item.reason].append(item.epoch)
        first, last = min(item.epoch for item in going), max(item.epoch for item in going)
        whole = _QuarantinedWhole(insert.generation, [(first, last)], epochs=epochs)
        rows = sum(item.rows for item in going)
        there, examined = 0, 0
        for file in delta_log.data_files(opened, insert.generation, first - 1, last).files:
            found = opened.rows([file])
            taken = found.count_rows(filter=whole.holds())
            there, examined = there + taken, examined + (found.count_rows() if taken else 0)
        if there != rows:
            lost = f"of {counted(rows, 'row')} that may go, the quarantine has {there:,}: tidegate verify"
            return self.nothing(insert.id, insert.generation, lost, examined)
        if rows < examined * WORTH_IT:
            return self.nothing(insert.id, insert.generation, few(rows, examined), examined)
        old, remaining = without(opened, path, whole)
        marks = {removal(self.lake, insert): upto}
        replace(path, path, remaining, old, note=f"{QUARANTINE_RETENTION}: {counted(rows, 'row')} went", marks=marks)
        return Retained(insert.id, insert.generation, examined, rows, what=self.what)
