"""Release, stage, judge and publish the epochs of one INSERT, strictly one after another.

    plan n -> staged files and their row -> verdict -> quarantine commit -> target commit -> plan n+1

Each arrow is one commit that a rerun recognises. A held epoch stays where it is until a person re-releases or discards
it, which is epoch n+1 over the same probe rows.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pyspark.sql import DataFrame, Observation, SparkSession

from pipelines.clock import Clock
from pipelines.errors import ConcurrentRun, GateHeld, LakeError, PlanningError
from pipelines.joins import Build, Probe, Release, joined
from pipelines.lake import Lake, StagedRow, VerdictRow
from pipelines.lake import rows as lake_rows
from pipelines.lake.adopt import adopt, survey
from pipelines.lake.delta_log import committed
from pipelines.lake.leases import Leases
from pipelines.progress import Progress, step
from pipelines.runtime import faults
from pipelines.runtime.gate import Gate, GateVerdict, StagedEpoch
from pipelines.runtime.plans import Pin, ReleasePlan, insert_owner
from pipelines.sql.model import Insert, OnUnmatched, Pipeline, Table

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
class Waiting:
    """Nothing can be released. `reason` is a sentence; `rows` landed probe rows wait; `unflipped` builds still load."""

    reason: str
    rows: int
    unflipped: tuple[str, ...] = ()


State = Literal["planned", "staged", "passed", "held", "published"]


@dataclass(frozen=True)
class Position:
    """Where the newest epoch of an INSERT stands. All None before the first plan."""

    plan: ReleasePlan | None
    staged: StagedRow | None
    verdict: VerdictRow | None
    published: int

    @property
    def state(self) -> State | None:
        if self.plan is None:
            return None
        if self.published >= self.plan.epoch:
            return "published"
        if self.staged is None:
            return "planned"
        if self.verdict is None:
            return "staged"
        return "passed" if self.verdict.passed else "held"


@dataclass(frozen=True)
class Published:
    """One epoch in the target. `rows` were added to it, `quarantined` kept out; both 0 when it was there before."""

    insert: str
    generation: int
    epoch: int
    rows: int
    quarantined: int
    plan: ReleasePlan
    staged: StagedRow


@dataclass
class Releasing:
    """The runner of one INSERT. Holds its lease while it works."""

    lake: Lake
    pipeline: Pipeline
    insert: Insert
    leases: Leases
    spark: Callable[[], SparkSession]
    clock: Clock
    progress: Progress
    ready: set[Path] = field(default_factory=set)

    @property
    def owner(self) -> str:
        return insert_owner(self.insert.id)

    @property
    def target(self) -> Table:
        return self.pipeline.table(self.insert.target)

    @property
    def on_unmatched(self) -> OnUnmatched:
        return self.target.options.get("gate.on-unmatched", "quarantine")  # type: ignore[return-value]

    # --- where it stands -----------------------------------------------------------------------------------------

    def position(self) -> Position:
        """The newest epoch, read from the control tables alone."""
        row = self.lake.epochs.last(self.owner)
        if row is None:
            return Position(None, None, None, 0)
        plan = ReleasePlan.of(row)
        staged = [
            found
            for found in self.lake.staged.rows(self.owner, generation=plan.generation, epoch=plan.epoch)
            if found.plan_digest == plan.digest
        ]
        verdicts = [
            found
            for found in self.lake.verdicts.rows(self.owner, generation=plan.generation, epoch=plan.epoch)
            if found.plan_digest == plan.digest
        ]
        published = committed(
            self.lake.target_path(self.target), self.lake.application(self.owner, "publish", plan.generation)
        )
        return Position(plan, staged[0] if staged else None, verdicts[0] if verdicts else None, published)

    # --- plan ----------------------------------------------------------------------------------------------------

    def plan(self) -> ReleasePlan | Waiting:
        """The epoch to work on: the unfinished one, else a new one that is planned now, else why there is none.

        Raises GateHeld when the newest epoch is held.
        """
        if self.insert.time == "event":
            raise PlanningError(
                f"{self.insert.id} joins at the row's own time ({self.insert.joins[0].time_column}), "
                "which this version compiles and does not release",
                state="nothing was released; the sources land as before",
                next_command="join FOR SYSTEM_TIME AS OF a PROCTIME() column of the probe",
            )
        self.leases.acquire(self.owner)
        position = self.position()
        if position.state == "held":
            raise self._held(position)
        if position.plan is not None and position.state != "published":
            return position.plan
        drafted = self._draft(position.plan)
        return drafted if isinstance(drafted, Waiting) else self._store(drafted)

    def supersede(self, kind: Literal["re-release", "discard"], on_unmatched: OnUnmatched | None = None) -> ReleasePlan:
        """Plan the epoch that takes the place of the held one: the same probe rows, against newer pins or discarded.

        Raises PlanningError when no epoch is held.
        """
        self.leases.acquire(self.owner)
        position = self.position()
        held = position.plan
        if held is None or position.state != "held":
            raise PlanningError(
                f"no epoch of {self.insert.id} is held",
                state=f"its newest epoch is {position.state or 'not planned yet'}",
                next_command="tidegate status",
            )
        pins = held.pins if kind == "discard" else self._pins(held)
        if isinstance(pins, Waiting):
            raise PlanningError(pins.reason, state="the epoch stays held", next_command="tidegate status")
        plan = replace(
            held,
            epoch=held.epoch + 1,
            kind=kind,
            instant=self.clock(),
            pins=pins,
            on_unmatched=on_unmatched or held.on_unmatched,
            computes=self.pipeline.digest(self.insert),
            supersedes=held.epoch,
        )
        return self._store(plan)

    def _draft(self, last: ReleasePlan | None) -> ReleasePlan | Waiting:
        landed = self.lake.watermarks.last(self.insert.probe)
        after = last.upto if last else 0
        pins = self._pins(last)
        rows = self.rows_between(landed.generation if landed else 1, after, landed.epoch if landed else 0)
        if isinstance(pins, Waiting):
            return replace(pins, rows=rows)
        if landed is None or landed.epoch <= after or rows == 0:
            return Waiting(f"no rows of {self.insert.probe} have landed since the last release", 0)
        if last is not None and landed.generation != last.probe_generation:
            raise PlanningError(
                f"{self.insert.probe} was started again (generation {landed.generation}), "
                f"and {self.insert.id} has published rows of generation {last.probe_generation}",
                state="nothing was released",
                next_command="give the INSERT a new 'insert.id' to release the new generation from its start",
            )
        return ReleasePlan(
            insert=self.insert.id,
            generation=last.generation if last else 1,
            epoch=last.epoch + 1 if last else 1,
            kind="release",
            instant=self.clock(),
            probe=self.insert.probe,
            probe_generation=landed.generation,
            after=after,
            upto=landed.epoch,
            pins=pins,
            on_unmatched=self.on_unmatched,
            computes=self.pipeline.digest(self.insert),
        )

    def _pins(self, last: ReleasePlan | None) -> tuple[Pin, ...] | Waiting:
        """The newest flipped generation of every build, at its newest landed epoch; never behind the last plan."""
        pins, unflipped = [], []
        for build in self.insert.builds:
            newest = self.lake.watermarks.last(build)
            for generation in range(newest.generation if newest else 0, 0, -1):
                row = self.lake.watermarks.last(build, generation)
                if row is not None and row.flip_epoch is not None:
                    pins.append(Pin(build, generation, row.epoch, row.flip_epoch))
                    break
            else:
                unflipped.append(build)
        if unflipped:
            names = " and ".join(unflipped)
            return Waiting(f"{names} is still loading: its snapshot is not proved complete", 0, tuple(unflipped))
        return tuple(pins)

    def rows_between(self, generation: int, after: int, upto: int) -> int:
        """Landed probe rows with after < epoch <= upto, by the watermark log."""
        if upto <= after:
            return 0
        rows = self.lake.watermarks.rows(self.insert.probe, generation=generation)
        return sum(row.rows for row in rows if after < row.epoch <= upto)

    def _store(self, plan: ReleasePlan) -> ReleasePlan:
        row = plan.row()
        application = self.lake.application(self.owner, "plan", plan.generation)
        self.lake.epochs.append([row], application=application, version=plan.epoch)
        stored = self.lake.epochs.rows(self.owner, generation=plan.generation, epoch=plan.epoch)
        if [found.digest for found in stored] != [row.digest]:
            raise ConcurrentRun(
                f"epoch {plan.epoch} of {self.insert.id} was planned by another runner",
                state="its plan stands, this run released nothing",
                next_command="tidegate status",
            )
        faults.point("insert.planned")
        return plan

    # --- stage ---------------------------------------------------------------------------------------------------

    def stage(self, plan: ReleasePlan) -> StagedRow:
        """Join the plan's probe rows at its pins and write them where no commit names them yet; done once a plan."""
        self.leases.acquire(self.owner)
        position = self.position()
        if position.plan == plan and position.staged is not None:
            return position.staged
        if plan.computes != self.pipeline.digest(self.insert):
            raise PlanningError(
                f"the script's INSERT INTO {self.insert.target} has changed since epoch {plan.epoch} was planned",
                state="the epoch is planned and not staged",
                next_command="run the old script once more to finish the epoch, then the new one",
            )
        spark = self.spark()
        self.prepare(spark)
        root = self.lake.staged_path(self.target, self.insert)
        folder = root / f"g{plan.generation}-e{plan.epoch}-{uuid.uuid4().hex[:8]}"
        observed = Observation(f"staged {self.insert.id} {plan.epoch}")
        with step(self.progress, f"join {self.insert.id}, epoch {plan.epoch}"):
            frame = self.frame(spark, plan, observed)
            frame.write.partitionBy("_disposition").mode("errorifexists").parquet(str(folder))
        faults.point("insert.written")
        found: dict[str, Any] = dict(observed.get)
        row = StagedRow(
            owner=self.owner,
            generation=plan.generation,
            epoch=plan.epoch,
            plan_digest=plan.digest,
            staged_at=self.clock(),
            folder=folder.name,
            files=[asdict(file) for file in survey(folder)],
            counts={name: int(value) for name, value in found.items() if "@" not in name or ":" in name},
            facts={name: value for name, value in found.items() if "@" in name and ":" not in name},
        )
        application = self.lake.application(self.owner, "stage", plan.generation)
        self.lake.staged.append([row], application=application, version=plan.epoch)
        stored = self.lake.staged.rows(self.owner, generation=plan.generation, epoch=plan.epoch)
        if [other.folder for other in stored] != [row.folder]:
            raise ConcurrentRun(
                f"epoch {plan.epoch} of {self.insert.id} was staged by another runner",
                state="its files stand, this run's are not used",
                next_command="tidegate status",
            )
        faults.point("insert.staged")
        self._sweep(root, keep=row.folder)
        return stored[0]

    def frame(self, spark: SparkSession, plan: ReleasePlan, observed: Observation) -> DataFrame:
        """The rows that a plan stages, as a DataFrame."""
        probe = self.pipeline.table(plan.probe)
        rows = lake_rows.between(spark, self.lake.table_path(plan.probe), plan.probe_generation, plan.after, plan.upto)
        builds = {
            pin.table: Build(
                lake_rows.at(spark, self.lake.table_path(pin.table), pin.generation, pin.epoch),
                [column.name for column in self.pipeline.table(pin.table).stored_columns],
                pin.generation,
                pin.epoch,
                truncated=self._truncated(pin),
            )
            for pin in plan.pins
        }
        return joined(
            spark,
            self.insert,
            Probe(
                rows,
                [column.name for column in probe.stored_columns],
                self.rows_between(plan.probe_generation, plan.after, plan.upto),
            ),
            builds,
            Release(plan.generation, plan.epoch, plan.instant, plan.on_unmatched, discard=plan.kind == "discard"),
            observed,
        )

    def _truncated(self, pin: Pin) -> bool:
        rows = self.lake.watermarks.rows(pin.table, generation=pin.generation, epoch=pin.epoch)
        return not rows or rows[0].truncated

    def prepare(self, spark: SparkSession) -> None:
        """Make the target and its quarantine, or check that they are what the script says."""
        own = {column.name: column.spark_type for column in self.target.stored_columns}
        target, quarantine = self.lake.target_path(self.target), self.lake.quarantine_path(self.target, self.insert)
        for path, columns in ((target, TARGET_COLUMNS), (quarantine, QUARANTINE_COLUMNS)):
            if path not in self.ready:
                lake_rows.ensure_table(spark, path, {**own, **columns}, self.target.name)
                self.ready.add(path)

    def _sweep(self, root: Path, keep: str) -> None:
        """Remove what crashed attempts of this very epoch left behind: no row names those folders."""
        prefix = keep.rpartition("-")[0] + "-"
        for folder in root.glob(f"{prefix}*"):
            if folder.name != keep:
                shutil.rmtree(folder)

    # --- judge ---------------------------------------------------------------------------------------------------

    def staged_epoch(self, plan: ReleasePlan, staged: StagedRow) -> StagedEpoch:
        """What the gate may look at."""
        landed = {}
        for pin in plan.pins:
            found = self.lake.watermarks.rows(pin.table, generation=pin.generation, epoch=pin.epoch)
            if found:
                landed[pin.table] = found[0]
        return StagedEpoch(
            pipeline=self.pipeline,
            insert=self.insert,
            target=self.target,
            plan=plan,
            staged=staged,
            released=self.rows_between(plan.probe_generation, plan.after, plan.upto),
            landed=landed,
            folder=str(self.lake.staged_path(self.target, self.insert) / staged.folder),
            lake=self.lake,
        )

    def judge(self, gate: Gate) -> GateVerdict | None:
        """Ask the gate about the staged epoch and store its word, which is final; None when nothing is staged."""
        self.leases.acquire(self.owner)
        position = self.position()
        if position.plan is None or position.staged is None:
            return None
        if position.verdict is not None:
            return GateVerdict.of(position.verdict)
        verdict = gate(self.staged_epoch(position.plan, position.staged), self.spark)
        plan = position.plan
        if (verdict.insert, verdict.generation, verdict.epoch, verdict.plan_digest) != (
            plan.insert,
            plan.generation,
            plan.epoch,
            plan.digest,
        ):
            raise LakeError(
                f"the gate answered for another epoch ({verdict.insert} {verdict.epoch})",
                where=f"{plan.insert}, epoch {plan.epoch}",
                state="the epoch is staged and not judged",
                next_command="mend the gate, then run the same command again",
            )
        application = self.lake.application(self.owner, "verdict", plan.generation)
        self.lake.verdicts.append([verdict.row(self.clock())], application=application, version=plan.epoch)
        stored = self.position().verdict
        if stored is None:
            raise LakeError(
                f"the verdict on epoch {plan.epoch} can not be read back",
                where=str(self.lake.verdicts.path),
                state="nothing was published",
                next_command="tidegate status",
            )
        faults.point("insert.judged")
        return GateVerdict.of(stored)

    # --- publish -------------------------------------------------------------------------------------------------

    def publish(self) -> Published | None:
        """Add the staged epoch to quarantine and target, each once. None when there is nothing to publish.

        Re-reads the stored verdict of that very staged epoch; raises GateHeld without one, or when it says no.
        """
        self.leases.acquire(self.owner)
        position = self.position()
        plan, staged = position.plan, position.staged
        if plan is None or staged is None:
            return None
        if position.verdict is None or not position.verdict.passed or position.verdict.plan_digest != plan.digest:
            raise self._held(position)
        target, quarantine = self.lake.target_path(self.target), self.lake.quarantine_path(self.target, self.insert)
        folder = self.lake.staged_path(self.target, self.insert) / staged.folder
        kept_out = adopt(
            quarantine,
            folder,
            staged.of("quarantine"),
            application=self.lake.application(self.owner, "quarantine", plan.generation),
            epoch=plan.epoch,
        )
        faults.point("insert.quarantined")
        added = adopt(
            target,
            folder,
            staged.of("publish"),
            application=self.lake.application(self.owner, "publish", plan.generation),
            epoch=plan.epoch,
        )
        faults.point("insert.published")
        return Published(self.insert.id, plan.generation, plan.epoch, added, kept_out, plan, staged)

    def _held(self, position: Position) -> GateHeld:
        plan = position.plan
        assert plan is not None
        if position.verdict is None:
            return GateHeld(
                f"epoch {plan.epoch} of {self.insert.id} has no verdict, so it is not published",
                state="it is staged; the target is unchanged",
                next_command="tidegate run SCRIPT   (judges it)",
            )
        return GateHeld(
            f"the gate holds epoch {plan.epoch} of {self.insert.id}: {'; '.join(position.verdict.reasons)}",
            where=f"probe {plan.probe}, epochs {plan.after + 1} to {plan.upto}",
            state="its rows are staged and count as waiting; the target is unchanged",
            next_command=f"tidegate release SCRIPT {self.insert.id}   (joins again against newer pins)   or   "
            f"tidegate discard SCRIPT {self.insert.id}   (quarantines them)",
        )
