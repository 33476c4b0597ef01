"""The step between staged and published. The checks themselves are a plug-in (entry point group `tidegate.gates`): the
runtime only knows their input and their result, and that nothing is published without a result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from tidegate.pipelines.errors import TidegateError
from tidegate.pipelines.location import Location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidegate.pipelines.connectors.table import Table
    from tidegate.pipelines.lake import Lake, StagedFile, StagedRow, VerdictRow, WatermarkRow
    from tidegate.pipelines.runtime.epochs import ReleasePlan
    from tidegate.pipelines.sql.compile import Pipeline
    from tidegate.pipelines.sql.model import Insert

GROUP = "tidegate.gates"


class NoGate(TidegateError):
    """No checks are installed, so nothing can be published."""


@dataclass(frozen=True)
class CheckResult:
    """One check of the gate. `observed` and `expected` are small JSON values, `detail` is a sentence. `warning`: what a
    person should know although the check passed; empty for none."""

    name: str
    passed: bool
    observed: Any = None
    expected: Any = None
    detail: str = ""
    warning: str = ""


@dataclass(frozen=True)
class GateVerdict:
    """The gate's verdict on one staged epoch: `passed` and why. `reasons` are sentences that a person can act on."""

    insert: str
    generation: int
    epoch: int
    plan_digest: str
    passed: bool
    checks: tuple[CheckResult, ...]
    reasons: tuple[str, ...]
    decided_at: int = 0

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the checks warn of, whether the epoch passed or not."""
        return tuple(check.warning for check in self.checks if check.warning)

    def row(self, decided_at: int) -> VerdictRow:
        from tidegate.pipelines.lake import VerdictRow
        from tidegate.pipelines.runtime.epochs import insert_owner

        return VerdictRow(
            owner=insert_owner(self.insert),
            generation=self.generation,
            epoch=self.epoch,
            plan_digest=self.plan_digest,
            decided_at=decided_at,
            passed=self.passed,
            reasons=list(self.reasons),
            checks=[asdict(check) for check in self.checks],
        )

    @classmethod
    def of(cls, row: VerdictRow) -> GateVerdict:
        """Read back. Raises LakeError where a newer Tidegate stored it."""
        from tidegate.pipelines.lake.records import restored

        return cls(
            insert=row.owner.removeprefix("insert "),
            generation=row.generation,
            epoch=row.epoch,
            plan_digest=row.plan_digest,
            passed=row.passed,
            checks=tuple(restored(CheckResult, check, row.place) for check in row.checks),
            reasons=tuple(row.reasons),
            decided_at=row.decided_at,
        )


@dataclass(frozen=True)
class StagedEpoch:
    """The input of a gate.

    Attributes:
        staged: the files, the counts of every outcome, the facts of the matches.
        released: rows of the probe that the plan releases, by the watermark log (an independent count).
        landed: the log row of every pin's build at the pinned epoch.
    """

    pipeline: Pipeline
    insert: Insert
    target: Table
    plan: ReleasePlan
    staged: StagedRow
    released: int
    landed: Mapping[str, WatermarkRow]
    lake: Lake

    def path_of(self, file: StagedFile) -> Location:
        """Where a staged file lies."""
        attempt = self.staged.folder
        return self.lake.staged_folder(self.target, self.insert, attempt, file.disposition) / file.path

    def rows(self, spark: SparkSession, disposition: str = "publish") -> DataFrame | None:
        """The staged rows of one disposition; None when there are none."""
        files = [str(self.path_of(file)) for file in self.staged.of(disposition)]
        return spark.read.parquet(*files) if files else None


Gate = Callable[[StagedEpoch, "Callable[[], SparkSession]"], GateVerdict]
"""The checks: called with a staged epoch and a function that returns a Spark session, they return a verdict. If they
raise, there is no verdict: the epoch stays staged, and the next run judges it again."""


@cache
def installed_gate() -> Gate:
    """The gate that is installed. Raises NoGate."""
    for point in entry_points(group=GROUP, name="default"):
        return point.load()
    raise NoGate(
        "no gate is installed, so nothing can be published",
        where=f"entry point group {GROUP}, name default",
        state="staged epochs stay staged",
        next_command="make install   (in the clone; else install Tidegate again into this environment: README.md)",
    )
