"""The protocol of a process: that of every INSERT, with its state and its outputs' watermark as commits of their own.

    plan n -> staged files and their row -> verdict -> second output -> quarantine -> state -> target -> watermark

The target's commit is what makes an epoch published, as ever. State comes before it and is read up to the last
published epoch only: what a crash leaves half done is done again, each commit once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pipelines.lake import StagedRow, WatermarkRow
from pipelines.lake.adopt import Epochs, adopt
from pipelines.lake.records import StagedFile
from pipelines.runtime import faults
from pipelines.runtime.plans import ReleasePlan
from pipelines.runtime.processing.planning import ProcessPlanner
from pipelines.runtime.processing.staging import ProcessStager
from pipelines.runtime.processing.state import StateFiles
from pipelines.runtime.releasing import Published, Releasing, Waiting
from pipelines.runtime.releasing.standing import held
from pipelines.sql.model import Table


@dataclass(frozen=True)
class ProcessReleasing(Releasing):
    """The runner of one process. Holds its lease while it works."""

    @cached_property
    def planner(self) -> ProcessPlanner:  # type: ignore[override]
        return ProcessPlanner(self, self.clock)

    @cached_property
    def stager(self) -> ProcessStager:  # type: ignore[override]
        return ProcessStager(self, self.spark, self.clock, self.progress, self.ready)

    def plan(self) -> ReleasePlan | Waiting:
        """See `Releasing.plan`. What a crash has left untold of the last published epoch is told first."""
        self.leases.acquire(self.owner)
        position = self.position()
        if position.state == "published" and position.plan is not None and position.staged is not None:
            self._tell_watermark(position.plan, position.staged)
        return super().plan()

    def publish(self) -> Published | None:
        """Add the staged epoch to its outputs and to the state, each once. None when there is nothing to publish.

        Re-reads the stored verdict of that very staged epoch; raises GateHeld without one, or when it says no.
        """
        self.leases.acquire(self.owner)
        position = self.position()
        plan, staged = position.plan, position.staged
        if plan is None or staged is None or plan.process is None:
            return None
        if position.verdict is None or not position.verdict.passed or position.verdict.plan_digest != plan.digest:
            raise held(self.insert, position)
        with self._explained(plan, "the epoch passed the gate; where it was added it stands, and is added once"):
            for target in self.stager.targets[1:]:
                files = [StagedFile(**file) for file in staged.facts["second"]["files"]]
                self._adopt(plan, staged, target, files)
            kept_out = self._quarantine(plan, staged, self.target, staged.of("quarantine"))
            faults.point("insert.quarantined", plan.insert)
            self._commit_state(plan, staged)
            faults.point("process.state", plan.insert)
            folder = self.staged_path / staged.folder
            application = self._application("publish", plan)
            added = adopt(self.target_path, folder, staged.of("publish"), application=application, epoch=plan.epoch)
        faults.point("insert.published", plan.insert)
        self._tell_watermark(plan, staged)
        return Published(self.insert.id, plan.generation, plan.epoch, added, kept_out, plan, staged)

    def _adopt(self, plan: ReleasePlan, staged: StagedRow, target: Table, files: list[StagedFile]) -> None:
        self._quarantine(plan, staged, target, [file for file in files if file.disposition == "quarantine"])
        adopt(
            self.lake.target_path(target),
            self.lake.staged_path(target, self.insert) / staged.folder,
            [file for file in files if file.disposition == "publish"],
            application=self._application("publish", plan),
            epoch=plan.epoch,
        )

    def _quarantine(self, plan: ReleasePlan, staged: StagedRow, target: Table, files: list[StagedFile]) -> int:
        return adopt(
            self.lake.quarantine_path(target, self.insert),
            self.lake.staged_path(target, self.insert) / staged.folder,
            files,
            application=self._application("quarantine", plan),
            epoch=plan.epoch,
        )

    def _commit_state(self, plan: ReleasePlan, staged: StagedRow) -> None:
        """What the epoch has written of the state; a base takes the place of all before it."""
        assert plan.process is not None
        path, told = self.lake.state_path(self.insert), StateFiles.of(staged)
        files = [StagedFile(file["path"], "", file["size"], file["rows"], file["stats"]) for file in told.files]
        earlier = Epochs(plan.generation, [(1, plan.epoch - 1)]) if plan.process.rewrite and plan.epoch > 1 else None
        application = self._application("state", plan)
        adopt(path, path / told.folder, files, application=application, epoch=plan.epoch, instead_of=earlier)

    def _tell_watermark(self, plan: ReleasePlan, staged: StagedRow) -> None:
        """The outputs' rows of the watermark log: from here on this epoch has landed for whoever reads them."""
        timestamp, processing = staged.facts["watermark"]
        with self._explained(plan, "the epoch is published; its watermark is told with the next run"):
            self._append_watermarks(plan, staged, timestamp, processing)

    def _append_watermarks(self, plan: ReleasePlan, staged: StagedRow, timestamp: int, processing: bool) -> None:
        for number, target in enumerate(self.stager.targets):
            told = staged.facts["second"] if number else staged.counts
            row = WatermarkRow(
                owner=target.name,
                generation=plan.generation,
                epoch=plan.epoch,
                landed_at=staged.staged_at,
                rows=told["to:publish"],
                timestamp=timestamp,
                use_processing_time=processing,
                flip_epoch=1,
                flipped_at=staged.staged_at,
                late=0,
            )
            application = self.lake.application(target.name, "watermark", plan.generation)
            self.lake.watermarks.append([row], application=application, version=plan.epoch)
