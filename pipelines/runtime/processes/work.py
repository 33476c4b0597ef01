"""What is done for the epochs of a process: as for an INSERT, with its state and its outputs' watermark as commits of
their own.

    plan n -> staged files and their row -> verdict -> second output -> quarantine -> state -> target -> watermark

The target's commit is what makes an epoch published, as ever. State comes before it and is read up to the last
published epoch only: what a crash leaves half done is done again, each commit once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.lake import StagedRow, WatermarkRow
from tidegate.pipelines.lake.adopt import Epochs
from tidegate.pipelines.lake.records import StagedFile, restored
from tidegate.pipelines.runtime.epochs import ProcessPlan, ReleasePlan
from tidegate.pipelines.runtime.epochs.commits import Commit, FileCommit, LogCommit, in_no_place
from tidegate.pipelines.runtime.processes.outputs import OutputsTime
from tidegate.pipelines.runtime.processes.planning import ProcessPlanner
from tidegate.pipelines.runtime.processes.staging import ProcessStager
from tidegate.pipelines.runtime.processes.state import StateFiles
from tidegate.pipelines.runtime.releasing.work import EpochWork
from tidegate.pipelines.sinks.protocol import TableSink


@dataclass(frozen=True)
class ProcessWork(EpochWork):
    """What is done for one process. `until`: see `ProcessPlanner`."""

    until: int | None = None

    @property
    def planner(self) -> ProcessPlanner:
        return ProcessPlanner(self.on_lake, self.clock, self.until)

    @property
    def stager(self) -> ProcessStager:
        return ProcessStager(self.on_lake, self.spark, self.clock, self.progress, self.ready, self.definitions)

    @property
    def targets(self) -> tuple[Table, ...]:
        return self.stager.targets

    def completed(self, plan: ReleasePlan) -> list[int]:
        lake, outputs = self.on_lake.lake, self.on_lake.insert.outputs
        logged = [lake.watermarks.version(lake.application(name, "watermark", plan.generation)) for name in outputs]
        return [*logged, *super().completed(plan)]

    def commits(self, plan: ReleasePlan, staged: StagedRow) -> list[Commit]:
        found: list[FileCommit] = []
        for target in self.targets[1:]:
            files = [restored(StagedFile, file, staged.place) for file in staged.facts["second"]["files"]]
            kept_out = [file for file in files if file.disposition == "quarantine"]
            published = [file for file in files if file.disposition == "publish"]
            found += [
                self._commit(staged, target, "quarantine", kept_out, "process.second-quarantined"),
                self._commit(staged, target, "publish", published, "process.second", always=True),
            ]
        own = self.on_lake.target
        target = self._commit(staged, own, "publish", staged.of("publish"), "insert.published", always=True)
        return [
            *found,
            self._commit(staged, own, "quarantine", staged.of("quarantine"), "insert.quarantined"),
            self._state(plan, staged),
            target,
            *self._log(plan, staged),
            *self._notifications(target, *found[1::2]),
        ]

    def _state(self, plan: ReleasePlan, staged: StagedRow) -> FileCommit:
        """What the epoch has written of the state. A base of it takes the place of all before it."""
        path, state = self.on_lake.lake.state_path(self.on_lake.insert), StateFiles.of(staged)
        files = [StagedFile(file["path"], "", file["size"], file["rows"], file["stats"]) for file in state.files]
        rewrites = isinstance(plan, ProcessPlan) and plan.process.rewrite and plan.epoch > 1
        instead_of = partial(Epochs, plan.generation, [(1, plan.epoch - 1)]) if rewrites else in_no_place
        folder, name = path / state.folder, self.on_lake.target.name
        return FileCommit(
            "state", name, TableSink(path), folder, files, "process.state", always=True, instead_of=instead_of
        )

    def _log(self, plan: ReleasePlan, staged: StagedRow) -> list[Commit]:
        """The outputs' rows of the watermark log: from here on this epoch has landed for whoever reads them."""
        time = OutputsTime.of(staged)
        return [
            LogCommit(
                WatermarkRow(
                    owner=target.name,
                    generation=plan.generation,
                    epoch=plan.epoch,
                    landed_at=staged.staged_at,
                    rows=(staged.facts["second"] if number else staged.counts)["to:publish"],
                    timestamp=time.timestamp,
                    use_processing_time=time.use_processing_time,
                    idle=time.idle,
                    flip_epoch=1,
                    flipped_at=staged.staged_at,
                    late=0,
                    told=time.declared or None,
                )
            )
            for number, target in enumerate(self.targets)
        ]
