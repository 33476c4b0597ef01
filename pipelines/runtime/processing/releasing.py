"""The protocol of a process: that of every INSERT, with its state and its outputs' watermark as commits of their own.

    plan n -> staged files and their row -> verdict -> second output -> quarantine -> state -> target -> watermark

The target's commit is what makes an epoch published, as ever. State comes before it and is read up to the last
published epoch only: what a crash leaves half done is done again, each commit once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tidegate.pipelines.lake import StagedRow, WatermarkRow
from tidegate.pipelines.lake.adopt import Epochs
from tidegate.pipelines.lake.lake import CommitRole
from tidegate.pipelines.lake.ledger import with_sums
from tidegate.pipelines.lake.records import StagedFile
from tidegate.pipelines.runtime.epochs import ProcessPlan, ReleasePlan
from tidegate.pipelines.runtime.lost_commits import Part
from tidegate.pipelines.runtime.processing.outputs import OutputsTime
from tidegate.pipelines.runtime.processing.planning import ProcessPlanner
from tidegate.pipelines.runtime.processing.staging import ProcessStager
from tidegate.pipelines.runtime.processing.state import StateFiles
from tidegate.pipelines.runtime.releasing import InsertRunner, Published, Waiting


@dataclass(frozen=True)
class ProcessRunner(InsertRunner):
    """The runner of one process. Holds its lease while it works. `until`: see `ProcessPlanner`."""

    until: int | None = None

    @cached_property
    def planner(self) -> ProcessPlanner:  # type: ignore[override]
        return ProcessPlanner(self, self.clock, self.until)

    @cached_property
    def stager(self) -> ProcessStager:  # type: ignore[override]
        return ProcessStager(self, self.spark, self.clock, self.progress, self.ready, self.definitions)

    def plan(self) -> ReleasePlan | Waiting:
        """See `InsertRunner.plan`. What a crash has left untold of the last published epoch is told first."""
        self.leases.acquire(self.owner)
        position = self.position()
        if position.state == "published" and position.plan is not None and position.staged is not None:
            self._tell_watermark(position.plan, position.staged)
        return super().plan()

    def publish(self) -> Published | None:
        """See `InsertRunner.publish`. What the outputs' watermark is from now on is told last."""
        done = super().publish()
        if done is not None:
            self._tell_watermark(done.plan, done.staged)
        return done

    def _parts(self, plan: ReleasePlan, staged: StagedRow) -> list[Part]:
        found = []
        for target in self.stager.targets[1:]:
            files = [StagedFile(**file) for file in staged.facts["second"]["files"]]
            kept_out = [file for file in files if file.disposition == "quarantine"]
            published = [file for file in files if file.disposition == "publish"]
            path, quarantine = self.lake.target_path(target), self.lake.quarantine_path(target, self.insert)
            of_kept_out, of_published = (self._folder(staged, target, kind) for kind in ("quarantine", "publish"))
            found += [
                Part("quarantine", target.name, quarantine, of_kept_out, kept_out, "process.second-quarantined"),
                Part("publish", target.name, path, of_published, published, "process.second", True),
            ]
        return [*found, *super()._parts(plan, staged), self._state_part(staged)]

    def _state_part(self, staged: StagedRow) -> Part:
        """What the epoch has written of the state."""
        path, told = self.lake.state_path(self.insert), StateFiles.of(staged)
        files = [StagedFile(file["path"], "", file["size"], file["rows"], file["stats"]) for file in told.files]
        return Part("state", self.target.name, path, path / told.folder, files, "process.state", True)

    def _instead_of(self, plan: ReleasePlan, role: CommitRole) -> Epochs | None:
        """A base of the state takes the place of all before it."""
        rewrites = isinstance(plan, ProcessPlan) and role == "state" and plan.process.rewrite and plan.epoch > 1
        return Epochs(plan.generation, [(1, plan.epoch - 1)]) if rewrites else None

    def _tell_watermark(self, plan: ReleasePlan, staged: StagedRow) -> None:
        """The outputs' rows of the watermark log: from here on this epoch has landed for whoever reads them."""
        with self._explained(plan, "the epoch is published; its watermark is told with the next run"):
            self._append_watermarks(plan, staged, OutputsTime.of(staged))

    def _append_watermarks(self, plan: ReleasePlan, staged: StagedRow, time: OutputsTime) -> None:
        for number, target in enumerate(self.stager.targets):
            told = staged.facts["second"] if number else staged.counts
            row = WatermarkRow(
                owner=target.name,
                generation=plan.generation,
                epoch=plan.epoch,
                landed_at=staged.staged_at,
                rows=told["to:publish"],
                timestamp=time.timestamp,
                use_processing_time=time.use_processing_time,
                idle=time.idle,
                flip_epoch=1,
                flipped_at=staged.staged_at,
                late=0,
                told=time.declared or None,
            )
            application = self.lake.application(target.name, "watermark", plan.generation)
            self.lake.watermarks.append([with_sums(self.lake, row)], application=application, version=plan.epoch)
