"""The step between staged and published. The checks themselves are a plug-in (entry point group `tidegate.gates`): the
runtime only has their input and their result, and publishes nothing without a result.

A gate is somebody else's code. Whatever it does (raise, hang, end its thread, return something else, judge another
epoch, leave one of its checks out), the epoch stays staged and unjudged, and the next run judges it again: only a
complete answer in time is a verdict.
"""

from __future__ import annotations

import importlib
import logging
import sys
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, TypeGuard

from tidegate.pipelines.errors import TidegateError
from tidegate.pipelines.location import Location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidegate.pipelines.connectors.table import Table
    from tidegate.pipelines.lake import Lake, StagedFile, StagedRow, VerdictRow, WatermarkRow
    from tidegate.pipelines.runtime.epochs import ReleasePlan
    from tidegate.pipelines.sql.compile import Pipeline
    from tidegate.pipelines.sql.model import Insert

logger = logging.getLogger(__name__)

GROUP = "tidegate.gates"

MEND = "mend the checks, then run the same command again"
LOOK = (
    "look where it failed (--debug shows the stack, Dagster has it at the step), mend it, "
    "then run the same command again"
)


class NoGate(TidegateError):
    """No checks are installed, so nothing can be published."""


class NoVerdict(TidegateError):
    """The gate gave no valid verdict."""


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
        return self.lake.new_attempt(self.target, self.insert, attempt)[file.disposition] / file.path

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


# --- asking it --------------------------------------------------------------------------------------------------------


@dataclass
class _Asked:
    """One call of a gate, in a thread of its own that is left behind if it does not return."""

    gate: Gate
    staged: StagedEpoch
    spark: Callable[[], SparkSession]
    group: str = field(default_factory=lambda: f"tidegate-gate-{uuid.uuid4().hex[:8]}")
    session: SparkSession | None = None
    answer: Any = None
    error: BaseException | None = None

    def run(self) -> None:
        try:
            self.answer = self.gate(self.staged, self._session)
        except BaseException as error:  # noqa: BLE001  it is raised again, in the thread that asked
            self.error = error

    def _session(self) -> SparkSession:
        """The session; its jobs get a group from here on, so that they can be stopped."""
        self.session = self.spark()
        self.session.sparkContext.setJobGroup(self.group, "checks of a staged epoch", interruptOnCancel=True)
        return self.session

    def stop(self) -> None:
        """Stop the Spark jobs of an abandoned gate. Its thread goes on, and a suite may begin its next expectation when
        one fails: the jobs of that are stopped, too."""
        if self.session is not None:
            context: Any = self.session.sparkContext
            context._jsc.sc().cancelJobGroupAndFutureJobs(self.group)


@cache
def prepare(gate: Gate) -> None:
    """Let a gate get ready in the background, once a process: call `prepare()` of its module, if it has one. Failures
    there are ignored, as `ask` meets them again."""
    ready = getattr(sys.modules.get(getattr(gate, "__module__", "")), "prepare", None)
    if callable(ready):
        if "sqlalchemy" in sys.modules:
            # Great Expectations imports its ORM; Dagster, which asks its history meanwhile, must not find half of it.
            importlib.import_module("sqlalchemy.orm")
        threading.Thread(target=_get_ready, args=[ready], name="tidegate-gate-prepares").start()


def _get_ready(ready: Callable[[], object]) -> None:
    try:
        ready()
    except Exception:
        logger.info("the gate could not get ready ahead of its first question", exc_info=True)


def ask(gate: Gate, staged: StagedEpoch, spark: Callable[[], SparkSession], within_s: float) -> GateVerdict:
    """The gate's verdict on this staged epoch.

    Raises NoVerdict if the gate fails, takes longer than `within_s`, or its answer is not complete; typed errors, and
    those of Spark, Delta Lake and the disk, are raised as they are.
    """
    asked = _Asked(gate, staged, spark)
    thread = threading.Thread(target=asked.run, name=asked.group, daemon=True)
    thread.start()
    thread.join(min(within_s, threading.TIMEOUT_MAX))
    if thread.is_alive():
        asked.stop()
        what = f"did not answer within {within_s:g} s"
        raise _no_verdict(staged, what, "find out what they wait for, or raise 'gate.timeout', then run again")
    if isinstance(asked.error, TidegateError) or _of_the_engine(asked.error):
        raise asked.error
    if isinstance(asked.error, Exception):
        # By its type alone: what it says may hold a secret, and this text goes into alerts.
        raise _no_verdict(staged, f"failed ({type(asked.error).__name__})", LOOK) from asked.error
    if asked.error is not None:
        raise _no_verdict(staged, f"ended their thread ({type(asked.error).__name__})") from asked.error
    for problem in problems(asked.answer, staged, declared(gate)):
        raise _no_verdict(staged, problem)
    return asked.answer


def _of_the_engine(error: BaseException | None) -> TypeGuard[Exception]:
    """Whether Spark, Delta Lake or the disk failed, and not a check's code. What a user's function raises does not
    count, though Spark passes it on; nor do the OSErrors of HTTP libraries, whose text holds the address."""
    if isinstance(error, OSError):
        return type(error).__module__ == "builtins"
    from pyspark.errors import PythonException  # who loads definitions does without

    from tidegate.pipelines.runtime.failures import ENGINE

    return isinstance(error, ENGINE) and not isinstance(error, PythonException)


def declared(gate: Gate) -> tuple[str, ...]:
    """The names of the checks that a gate's module declares (CHECK_NAMES); none if it does not declare them."""
    module = sys.modules.get(getattr(gate, "__module__", ""))
    return tuple(getattr(module, "CHECK_NAMES", ()))


def problems(answer: Any, staged: StagedEpoch, names: Sequence[str]) -> list[str]:
    """Why an answer is no verdict on this epoch; empty if it is one."""
    if not isinstance(answer, GateVerdict):
        return [f"answered with {type(answer).__name__}, which is no verdict"]
    plan = staged.plan
    judged = (answer.insert, answer.generation, answer.epoch, answer.plan_digest)
    if judged != (plan.insert, plan.generation, plan.epoch, plan.digest):
        return [f"answered for another epoch ({answer.insert}, {answer.generation}/{answer.epoch})"]
    checks = answer.checks
    if not isinstance(checks, tuple) or not all(isinstance(check, CheckResult) for check in checks) or not checks:
        return ["answered without results of checks"]
    if not all(type(flag) is bool for flag in (answer.passed, *(check.passed for check in checks))):
        return ["answered neither yes nor no"]
    found = [check.name for check in checks]
    if len(set(found)) != len(found):
        return ["answered twice for one check"]
    missing = [name for name in names if name not in found]
    if missing:
        return [f"left out {', '.join(missing)}"]
    failed = [check.name for check in checks if not check.passed]
    if answer.passed and failed:
        return [f"passed it though {', '.join(failed)} failed"]
    if not answer.passed and not answer.reasons:
        return ["held it without a reason"]
    if answer.passed and answer.reasons:
        return [f"passed it with reasons against it ({answer.reasons[0]})"]
    return []


def _no_verdict(staged: StagedEpoch, what: str, then: str = MEND) -> NoVerdict:
    plan = staged.plan
    return NoVerdict(
        f"the checks of epoch {plan.epoch} of {plan.insert} {what}",
        where=f"{plan.insert}, epoch {plan.epoch}",
        state="the epoch is staged and not judged; nothing of it is published",
        next_command=then,
    )
