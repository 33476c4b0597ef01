"""What was verified by recomputing it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidegate.pipelines.facts.problem import Problem
from tidegate.pipelines.records.kinds import Count, Note, fact
from tidegate.pipelines.runtime.verifying.verify import VerifyReport
from tidegate.pipelines.text import counted


@dataclass(frozen=True)
class Verification:
    """All INSERTs that were recomputed. `not_recomputed`: windows and processes, which were left out. `problems`: one
    for each INSERT that differs."""

    inserts: tuple[VerifyReport, ...]
    not_recomputed: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    @fact()
    def passed(self) -> bool:
        return all(report.passed for report in self.inserts)

    @property
    @fact()
    def differences(self) -> Count:
        """Rows that are missing or unexpected."""
        return sum(report.differences for report in self.inserts)

    @property
    def notes(self) -> tuple[Note, ...]:
        return tuple(self._notes())

    def _notes(self) -> Iterator[Note]:
        for report in self.inserts:
            yield report.note
        for process in self.not_recomputed:
            began = f"{process}: not recomputed:"
            yield Note(f"{began} windows and processes keep state from epoch to epoch", "warn", len(began))
        begun = [report for report in self.inserts if report.epochs]
        if self.not_recomputed and begun and self.passed:
            proved = sum(not report.unproved for report in begun)
            every = counted(len(begun) + len(self.not_recomputed), "INSERT")
            yield Note(f"So {proved} of {every} {'is' if proved == 1 else 'are'} proved by recomputing.")
