"""Run the gate on a staged epoch; only a complete answer in time is a verdict.

A gate is somebody else's code. Whatever it does (raise, hang, end its thread, return something else, judge another
epoch, leave one of its checks out), the epoch stays staged and unjudged, and the next run judges it again.
"""

from __future__ import annotations

import importlib
import logging
import sys
import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeGuard

from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from tidegate.pipelines.errors import TidegateError
from tidegate.pipelines.runtime.failures import ENGINE
from tidegate.pipelines.runtime.gate import CheckResult, Gate, GateVerdict, StagedEpoch

logger = logging.getLogger(__name__)

MEND = "mend the checks, then run the same command again"
LOOK = (
    "look where it failed (--debug shows the stack, Dagster has it at the step), mend it, "
    "then run the same command again"
)


class NoVerdict(TidegateError):
    """The gate gave no valid verdict."""


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
