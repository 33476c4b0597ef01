"""The protocol of one INSERT: its commits in their order, each made once and read back."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal

from deltalake.exceptions import CommitFailedError
from pyspark.sql import SparkSession

from tidegate.pipelines.clock import Clock
from tidegate.pipelines.commands import STATUS, NextCommand
from tidegate.pipelines.connectors.options import OnUnmatched
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import ConcurrentRun, LakeError, PlanningError, TidegateError
from tidegate.pipelines.lake import StagedRow, delta_log
from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.lake.adopt import require_whole
from tidegate.pipelines.lake.commits import require_writable
from tidegate.pipelines.lake.lake import CommitRole, mark
from tidegate.pipelines.lake.leases import Leases
from tidegate.pipelines.lake.places import place_rows
from tidegate.pipelines.lake.records import StagedFile
from tidegate.pipelines.lake.stream import Stream
from tidegate.pipelines.location import Location, folders_in
from tidegate.pipelines.progress import Progress, step
from tidegate.pipelines.runtime import faults
from tidegate.pipelines.runtime.definitions import Definitions
from tidegate.pipelines.runtime.epochs import Asked, ReleasePlan, Span, union
from tidegate.pipelines.runtime.epochs.commits import Commit, FileCommit, NotifyCommit, notified_by
from tidegate.pipelines.runtime.epochs.history import ReleasedEpoch, history, history_of
from tidegate.pipelines.runtime.epochs.position import End, InsertOnLake, Position, Waiting, gate_held
from tidegate.pipelines.runtime.failures import explained
from tidegate.pipelines.runtime.faults import OfProcess, Point
from tidegate.pipelines.runtime.gate import Gate, GateVerdict, StagedEpoch, ask
from tidegate.pipelines.runtime.landed_retention import refuse_removed
from tidegate.pipelines.runtime.ledger import checkpoint
from tidegate.pipelines.runtime.lost_commits import (
    lost_part,
    refuse_lost_files,
    refuse_lost_insert,
    refuse_lost_rows,
    refuse_restored,
)
from tidegate.pipelines.runtime.quarantine import refuse_process
from tidegate.pipelines.runtime.releasing.backfill import BackfillPlanner
from tidegate.pipelines.runtime.releasing.doubled import doubled_by_output, doubled_rows
from tidegate.pipelines.runtime.releasing.planner import ReleasePlanner
from tidegate.pipelines.sinks.protocol import EpochListener, TableSink, sink_of
from tidegate.pipelines.sql.inserts.chains import time_column
from tidegate.pipelines.sql.model import Insert, ProcessInsert

log = logging.getLogger(__name__)


TARGET_COLUMNS = {"_op": "STRING", "_generation": "INT", "_epoch": "BIGINT"}
"""What a published row carries beside the target's own columns."""

QUARANTINE_COLUMNS = {
    **TARGET_COLUMNS,
    "_probe_epoch": "BIGINT",
    "_split": "STRING",
    "_offset": "BIGINT",
    "_reason": "STRING",
}


@dataclass(frozen=True)
class Published:
    """One epoch in the target. `rows` were added to it, `quarantined` were not; both 0 when it was there before."""

    insert: str
    generation: int
    epoch: int
    rows: int
    quarantined: int
    plan: ReleasePlan
    staged: StagedRow

    @property
    def dropped(self) -> int:
        """Rows that WHERE or INNER left out, by what was staged."""
        return self.staged.counts.get("to:drop", 0)

    @property
    def doubled(self) -> int | None:
        """Rows of a key that came twice; None where no target declares one."""
        return doubled_rows(self.staged.facts)

    def doubled_of(self, output: int) -> int:
        """The same of one output, by its number."""
        return doubled_by_output(self.staged.facts)[output] or 0


@dataclass(frozen=True)
class InsertRunner(InsertOnLake, ABC):
    """The runner of one INSERT, by its kind. Holds its lease while it works. `ready`: the tables that this process has
    found to be there and as declared."""

    leases: Leases
    spark: Callable[[], SparkSession]
    clock: Clock
    progress: Progress
    definitions: Definitions
    ready: set[Location] = field(default_factory=set)
    environment: Mapping[str, str] = field(default_factory=dict)

    # --- what its kind decides -----------------------------------------------------------------------------------

    @property
    @abstractmethod
    def planner(self) -> ReleasePlanner:
        """Plans its epochs."""

    @property
    def backfills(self) -> BackfillPlanner:
        """Plans the backfills of an INSERT in event time."""
        return BackfillPlanner(self, self.clock, self.spark, self.environment)

    @abstractmethod
    def write(self, plan: ReleasePlan) -> StagedRow:
        """Write the plan's rows to files that no commit names; returns the row that describes them."""

    def sweep(self, plan: ReleasePlan, keep: str) -> None:
        """Remove the folders of crashed attempts at this epoch, which no row names."""
        for folder in (folder for place in self._places for folder in folders_in(place)):
            if folder.name.startswith(plan.attempts) and folder.name != keep:
                folder.delete_all()

    @property
    def _places(self) -> list[Location]:
        """Where attempts are staged."""
        return [place for target in self.targets for place in self.lake.staged_paths(target, self.insert).values()]

    def _prepare(
        self, target: Table, published: Mapping[str, str], beside: Mapping[str, str], also: Collection[str] = ()
    ) -> None:
        """Make an output's table, its quarantine and the folders of staged files, or check that they are as the script
        declares.

        Args:
            published, beside: The columns that rows of the output, and of its quarantine, have in addition to its own.
            also: Columns that a quarantine gets if it lacks them, in addition to those that a later definition has
                brought.
        """
        lake, insert = self.lake, self.insert
        own = {column.name: column.spark_type for column in target.stored_columns}
        added = self.definitions.added(self.owner)
        quarantine = lake.quarantine_path(target, insert)
        self._ensure(lake.target_path(target), {**own, **published}, target.name, added)
        if quarantine not in self.ready:
            self._ensure(quarantine, {**own, **beside, **QUARANTINE_COLUMNS}, target.name, {*added, *also})
            mark(quarantine)
        for place in lake.staged_paths(target, insert).values():  # that one is gone shows at a look: refuse_lost_files
            place.make()

    def _ensure(self, path: Location, columns: dict[str, str], name: str, added: Collection[str]) -> None:
        if path not in self.ready:
            anew = self.never_staged and lake_rows.is_as_made(path)
            lake_rows.ensure_table(path, columns, name, added=added, anew=anew)
            self.ready.add(path)

    @property
    def targets(self) -> tuple[Table, ...]:
        """The table of each output."""
        return (self.target,)

    def completed(self, plan: ReleasePlan) -> list[int]:
        """The last epoch of the plan's generation that has each of the commits that follow publishing."""
        lake = self.lake
        sinks = [sink_of(target, lake.target_path(target)) for target in self.targets]
        notified = [sink.committed(notified_by(lake, plan)) for sink in sinks if isinstance(sink, EpochListener)]
        names = [target.log_name for target in self.targets] if self.is_logged else []
        logged = [lake.logs.of(name).version(lake.application(name, "watermark", plan.generation)) for name in names]
        return [*logged, *notified]

    @abstractmethod
    def commits(self, plan: ReleasePlan, staged: StagedRow) -> list[Commit]:
        """What an epoch commits, in this order. The commit to the INSERT's target publishes it. Those before it go to
        tables beside the target, those after it are for readers of the target."""

    def _commit(
        self,
        staged: StagedRow,
        target: Table,
        role: Literal["publish", "quarantine"],
        files: Sequence[StagedFile],
        point: Point | OfProcess,
        *,
        always: bool = False,
    ) -> FileCommit:
        lake, insert = self.lake, self.insert
        own = role == "publish"
        sink = sink_of(target, lake.target_path(target)) if own else TableSink(lake.quarantine_path(target, insert))
        folder = lake.new_attempt(target, insert, staged.folder)[role]
        return FileCommit(role, target.name, sink, folder, files, point, always)

    def _notifications(self, *published: FileCommit) -> list[Commit]:
        """The commits that notify the targets which listen to their epochs."""
        return [NotifyCommit(commit, self.spark) for commit in published if isinstance(commit.sink, EpochListener)]

    # -------------------------------------------------------------------------------------------------------------

    def end(self) -> End:
        """The end of a run that begins now."""
        rows = [(name, Stream(self.lake, name).newest) for name in self.insert.probes]
        landed = {name: (row.generation, row.epoch) for name, row in rows if row is not None}
        return End(landed, self.planner.reach(self.position().plan))

    # --- plan ----------------------------------------------------------------------------------------------------

    def plan(self) -> ReleasePlan | Waiting:
        """The epoch to work on: the unfinished one, else a new one that is planned now, else why there is none.

        Raises GateHeld when the newest epoch is held, PlanningError where the script cannot take the unfinished one.
        """
        position = self._own_position()
        plan = position.unfinished
        if plan is not None and self.never_staged and self.planner.reads_otherwise(plan):
            return self._stored(lambda: self.planner.from_the_first_row(plan))
        return self._unfinished(position) or self._stored(lambda: self.planner.next(position.plan))

    def backfill(self, spans: Sequence[Span]) -> ReleasePlan | Waiting:
        """Plan the epoch that releases the rows of `spans` anew, once the newest epoch is published.

        Raises GateHeld when that one is held, PlanningError where rows have no time of their own, or versions are gone.
        """
        position = self._own_position()
        if not self.insert.by_spans:
            raise PlanningError(
                f"{self.insert.id} {_without_time(self.insert)}, so no span of time can be released anew",
                where=f"line {self.insert.location.line} of the script",
                state="nothing was released",
                next_command=NextCommand("run", does="without --from and --to"),
            )
        readers = self._readers
        if readers or self.is_logged:
            raise PlanningError(
                f"{readers or 'a statement'} reads {self.insert.target}, so none of its rows can be released anew: "
                f"what {readers or 'it'} has made of them would stay",
                where=f"line {self.insert.location.line} of the script",
                state="nothing was released; what is published stays",
                next_command=NextCommand("run", does="releases what is new"),
            )
        unfinished = self._unfinished(position)
        if unfinished is not None:
            return unfinished
        return self._stored(lambda: self.backfills.backfill(position.plan, self._history(), spans))

    def filled(self, spans: Sequence[Span], own: Span, since: int) -> ReleasePlan | None:
        """The published backfill of `spans` that was planned at or after `since` (ms, UTC), if it has released all that
        can be released of its span `own` by now. Takes the lease."""
        position, spans = self._own_position(), union(spans)
        if position.unfinished is not None:
            return None
        history = self._history()
        for epoch in reversed(history):
            if epoch.published and epoch.plan.answers(Asked(spans)) and epoch.plan.instant >= since:
                more = self.backfills.backfill(position.plan, history, [own])
                left = not isinstance(more, Waiting) and more.rows_waiting > 0
                return None if left else epoch.plan
        return None

    def unreached(self, spans: Sequence[Span]) -> Waiting | None:
        """The landed rows of `spans` that cannot be released yet, and why; with `rows` 0 where some may still land;
        None where the watermark has reached all of the spans."""
        return self.backfills.unreached(self.position().plan, spans)

    def out_of_quarantine(self, request: Asked, on_unmatched: OnUnmatched | None = None) -> ReleasePlan | None:
        """Plan the epoch that takes the quarantined rows that a request names, once the newest epoch is published; None
        if there are none.

        Raises GateHeld when the newest epoch is held, PlanningError where the rows cannot be joined any more.
        """
        refuse_process(self.insert)
        position = self._own_position()
        unfinished = self._unfinished(position)
        if unfinished is not None:
            return unfinished
        drafted = self.planner.out_of_quarantine(position.plan, self._history(), request, on_unmatched)
        return None if drafted is None else self._store(drafted)

    def supersede(self, kind: Literal["re-release", "discard"], on_unmatched: OnUnmatched | None = None) -> ReleasePlan:
        """Plan the epoch that replaces the held one. Raises PlanningError when none is held."""
        self._own()
        return self._store(self.planner.instead_of(self.position(), kind, on_unmatched))

    def _own(self) -> None:
        """Take the lease, and take up what the script has changed of the INSERT."""
        begins = not self.leases.holds(self.owner)
        self.leases.acquire(self.owner)
        self._log_again()
        self.refuse_lost()
        unfinished = self.position().unfinished if begins else None
        if begins and not (unfinished and unfinished.replaces):  # which may have taken rows out, to publish them
            refuse_restored(self.lake, self.pipeline, self.insert, self.targets)
        self.definitions.take_up(self.owner)
        self._open_to_readers()

    def _open_to_readers(self) -> None:
        """Give the rows of a target places, and it a log, once all that is planned is published: where a statement has
        begun to read what was published without them. Where another writer is faster, the next look does it."""
        if not self.pipeline.readers_of(self.insert) or self.is_logged:
            return
        position = self.position()
        plan = position.plan
        if plan is None or position.state != "published":
            return
        with (
            self._explained(plan, "what is published stays, and no statement reads it yet"),
            step(self.progress, f"places of the rows of {self.target.name}, for {self._readers}"),
        ):
            try:
                place_rows(self.target_path, time_column(self.insert, self.target))
            except CommitFailedError as error:
                log.info("%s changed while its rows got places: %s", self.target.name, error)
                return
        self._log_again()

    @property
    def _readers(self) -> str:
        return " and ".join(reader.id for reader in self.pipeline.readers_of(self.insert))

    def _go_on(self) -> None:
        """Take the lease, for an epoch that another runner may have planned."""
        if not self.leases.holds(self.owner):
            self.leases.acquire(self.owner)
            self.refuse_lost()

    def _own_position(self) -> Position:
        """The position, once this runner has taken the lease of the INSERT. Raises GateHeld where the epoch is held."""
        self._own()
        position = self.position()
        if held := position.held:
            raise gate_held(self.insert, held.plan, held.verdict)
        return position

    def refuse_lost(self) -> None:
        """Raise LakeError where commits or files of this INSERT are gone, as where a table came back from an older
        backup, or a table of its rows asks writers for what is not done here; called before anything new is planned."""
        refuse_lost_insert(self.lake, self.insert.id, self.target_path)
        for target in self.targets:
            refuse_lost_files(self.lake, target, self.insert)
            for path in (self.lake.target_path(target), self.lake.quarantine_path(target, self.insert)):
                if (table := delta_log.opened(path)) is not None:
                    require_writable(table, path)
        if (last := self._last_published(self.position())) is not None:
            plan, staged = last
            parts = self._beside(plan, staged)
            for part, before in zip(parts, [*staged.beside, *[-1] * len(parts)], strict=False):
                epoch = plan.epoch if part.needed else before
                if part.made(self.lake, plan) < epoch:
                    raise lost_part(self.insert.id, part.path, epoch)

    def _log_again(self) -> None:
        """Make the commits that follow publishing where a crash has left them out; otherwise the next epoch's commits
        would leave a gap."""
        position = self.position()
        if position.plan is None or all(each >= position.published for each in self.completed(position.plan)):
            return
        if (last := self._last_published(position)) is not None:
            plan, staged = last
            commits = self.commits(plan, staged)
            for commit in commits[commits.index(self._publishing(commits)) + 1 :]:
                self._made(plan, commit)

    def _last_published(self, position: Position) -> tuple[ReleasePlan, StagedRow] | None:
        """The last published epoch: the newest one, or one before it; None if it is not staged."""
        plan, staged = position.plan, position.staged
        if position.state != "published":
            number = position.published
            found = history(self.lake, self.insert.id, self.target_path, since=number, upto=number)
            plan, staged = (found[-1].plan, found[-1].staged) if found else (None, None)
        return None if plan is None or staged is None else (plan, staged)

    def _beside(self, plan: ReleasePlan, staged: StagedRow) -> list[FileCommit]:
        """What an epoch commits before it is published."""
        commits = self.commits(plan, staged)
        before = commits[: commits.index(self._publishing(commits))]
        return [commit for commit in before if isinstance(commit, FileCommit)]

    def _publishing(self, commits: Sequence[Commit]) -> FileCommit:
        """The commit to the target."""
        files = [commit for commit in commits if isinstance(commit, FileCommit)]
        return next(commit for commit in files if commit.path == self.target_path)

    def _unfinished(self, position: Position) -> ReleasePlan | None:
        """The epoch that is not published yet. If it was planned for another text of the INSERT, and nothing of it is
        staged, it is planned again for this text."""
        plan = position.unfinished
        if plan is None or position.staged is not None or plan.computes == self.computes:
            return plan
        return self._store(self.planner.anew(plan))

    def _history(self) -> list[ReleasedEpoch]:
        return history_of(self.lake, self.pipeline, self.insert)

    def _stored(self, draft: Callable[[], ReleasePlan | Waiting]) -> ReleasePlan | Waiting:
        with explained(self.insert.id, f"the plan of its next epoch over {self.insert.probe}", "nothing was planned"):
            drafted = draft()
        return drafted if isinstance(drafted, Waiting) else self._store(drafted)

    def _store(self, plan: ReleasePlan) -> ReleasePlan:
        plan = replace(plan, definition=self.definitions.number(self.owner))
        row = plan.row()
        refuse_lost_rows(self.lake, self.spark, plan, self.pipeline)
        with self._explained(plan, "nothing of the epoch is staged; epochs before it stand"):
            stored = self.lake.epochs.settle(row, application=self._application("plan", plan))
        if stored is None or stored.digest != row.digest:
            raise ConcurrentRun(
                f"epoch {plan.epoch} of {self.insert.id} was planned by another runner",
                state="its plan stands, this run released nothing",
                next_command=STATUS,
            )
        faults.point("insert.planned", self.insert.id)
        self.definitions.number(self.owner)  # changed by another runner meanwhile, the epoch is that one's to plan
        return plan

    @contextmanager
    def _explained(self, plan: ReleasePlan, state: str) -> Iterator[None]:
        """What Spark, Delta Lake and the disk throw, raised as StepFailed of this plan; LeaseHeld where another runner
        has taken the lease meanwhile."""
        low, high = plan.reads
        where = f"generation {plan.generation}, epoch {plan.epoch}: epochs {low + 1} to {high} of {plan.probe}"
        with self.leases.named(self.owner), explained(self.insert.id, where, state):
            yield

    def _application(self, role: CommitRole, plan: ReleasePlan) -> str:
        return self.lake.application(self.owner, role, plan.generation)

    # --- stage ---------------------------------------------------------------------------------------------------

    def stage(self, plan: ReleasePlan) -> StagedRow:
        """Join the plan's probe rows at its pins and write them to files that no commit names; done once a plan."""
        self.leases.acquire(self.owner)
        position = self.position()
        if position.plan == plan and position.staged is not None:
            return position.staged
        if plan.computes != self.computes:
            raise PlanningError(
                f"the script's INSERT INTO {self.insert.target} has changed since epoch {plan.epoch} was planned",
                state="the epoch is planned and not staged",
                next_command=NextCommand("run", does="plans the same rows for the new text"),
            )
        refuse_lost_rows(self.lake, self.spark, plan, self.pipeline)
        with self._explained(plan, "the epoch is planned, none of it is staged or published; epochs before it stand"):
            row = self.write(plan)
            row = replace(row, beside=[part.made(self.lake, plan) for part in self._beside(plan, row)])
            refuse_removed(self.lake, plan)  # retention knows of no INSERT before its first plan
            stored = self.lake.staged.settle(row, application=self._application("stage", plan))
        if stored is None or stored.folder != row.folder:
            raise ConcurrentRun(
                f"epoch {plan.epoch} of {self.insert.id} was staged by another runner",
                state="its files stand, this run's are not used",
                next_command=STATUS,
            )
        faults.point("insert.staged", self.insert.id)
        self.sweep(plan, keep=row.folder)
        return stored

    # --- judge ---------------------------------------------------------------------------------------------------

    def judge(self, gate: Gate) -> GateVerdict | None:
        """Run the gate on the staged epoch and store its verdict, which is final; None when nothing is staged. Raises
        NoVerdict when the gate gives no valid answer, StepFailed where the disk or the engine fails."""
        self._go_on()
        position = self.position()
        plan = position.plan
        if plan is None or position.staged is None:
            return None
        if position.verdict is not None:
            return GateVerdict.of(position.verdict)
        with self._explained(plan, "the epoch is staged, no verdict is stored, nothing of it is published"):
            verdict = ask(gate, self.staged_epoch(plan, position.staged), self.spark, self.gate_timeout_s)
            application = self._application("verdict", plan)
            stored = self.lake.verdicts.settle(verdict.row(self.clock()), application=application)
        if stored is None or stored.plan_digest != plan.digest:
            raise LakeError(
                f"the verdict on epoch {plan.epoch} cannot be read back",
                where=str(self.lake.logs.of(self.owner).path),
                state="nothing was published",
                next_command=STATUS,
            )
        faults.point("insert.judged", self.insert.id)
        return GateVerdict.of(stored)

    def staged_epoch(self, plan: ReleasePlan, staged: StagedRow) -> StagedEpoch:
        """The input of the gate."""
        rows = {
            pin.table: Stream(self.lake, pin.table).generation(pin.generation).epoch(pin.epoch) for pin in plan.pins
        }
        return StagedEpoch(
            pipeline=self.pipeline,
            insert=self.insert,
            target=self.target,
            plan=plan,
            staged=staged,
            released=plan.rows,
            landed={table: row for table, row in rows.items() if row is not None},
            lake=self.lake,
        )

    # --- publish -------------------------------------------------------------------------------------------------

    def publish(self) -> Published | None:
        """Add the staged epoch to quarantine and target, each once. None when there is nothing to publish.

        Re-reads the stored verdict of that very staged epoch; raises GateHeld without one, or when it says no.
        """
        self._go_on()
        position = self.position()
        plan, staged = position.plan, position.staged
        if plan is None or staged is None:
            return None
        if position.verdict is None or not position.verdict.passed or position.verdict.plan_digest != plan.digest:
            raise gate_held(self.insert, plan, position.verdict)
        commits = self.commits(plan, staged)
        publishing = self._publishing(commits)
        if position.state != "published":  # before anything of the epoch is committed
            for commit in commits if position.published < 1 else ():
                if isinstance(commit, FileCommit):
                    commit.refuse_other(self.lake, plan)
            with self._explained(plan, publishing.state):
                require_whole(publishing.folder, publishing.files, plan.epoch)
        added = quarantined = 0
        for commit in commits:
            rows = self._made(plan, commit)
            added += rows if commit is publishing else 0
            quarantined += rows if isinstance(commit, FileCommit) and commit.path == self.quarantine_path else 0
        if plan.looks_back:  # it has changed what earlier epochs count for; looks read all of them until this
            try:
                with self._explained(plan, "the epoch is published"):
                    checkpoint(self.lake, self.insert.id, self.target_path, self.clock(), looked_back=True)
            except TidegateError as error:  # it makes looks cheaper and changes no answer: upkeep tries again
                log.warning("no checkpoint was written behind epoch %d of %s: %s", plan.epoch, self.insert.id, error)
        return Published(self.insert.id, plan.generation, plan.epoch, added, quarantined, plan, staged)

    def _made(self, plan: ReleasePlan, commit: Commit) -> int:
        """Make a commit, unless it is made. Returns the rows that it has added; 0 where it was made before."""
        with self._explained(plan, commit.state):
            rows = commit.make(self.lake, plan)
        if commit.point is not None:
            faults.point(commit.point, self.insert.id)
        return rows


def _without_time(insert: Insert) -> str:
    """Why no rows of an INSERT can be picked by their time."""
    if isinstance(insert, ProcessInsert):
        return "takes the rows of its inputs in the order in which they landed, and its state follows from all of them"
    if not insert.joins:
        return "joins nothing: its rows are released as they land"
    if insert.time == "event":
        names = " and ".join(insert.by_latest)
        return f"joins {names} by processing time: its rows would meet other versions than they have met"
    return "joins by processing time: its rows have no time of their own"
