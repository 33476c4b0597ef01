"""The counts of a staged epoch, read by what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.pipelines.joins.outcome import DISCARDED, MATCHED, TIME_NULL, VIOLATED, outcomes
from tidegate.pipelines.process.windows.windowed import LEFT_OUT
from tidegate.pipelines.runtime.epochs.process import NOT_HAVING
from tidegate.pipelines.runtime.releasing.violations import fact
from tidegate.pipelines.sql.model import Insert

PLACES = ("publish", "quarantine", "drop")

PROCESSED = "processed"
"""Probe rows that a process function has taken."""

OF_PROCESSES = ("emitted", "watermark", "broadcast", "state")
"""Facts of an epoch of a process: how many rows it gave, what its outputs say of time, the digest of its broadcast
state, its state."""


@dataclass(frozen=True)
class OutcomeCounts:
    """How many released rows had which outcome, and which place they went to. What is missing counts as 0 here;
    that nothing is missing is a check of its own."""

    counts: Mapping[str, int]

    @property
    def rows(self) -> int:
        return self.counts.get("rows", 0)

    @property
    def matched(self) -> int:
        return self.counts.get(MATCHED, 0)

    @property
    def discarded(self) -> int:
        return self.counts.get(DISCARDED, 0)

    @property
    def timeless(self) -> int:
        """Rows whose time is null."""
        return self.counts.get(TIME_NULL, 0)

    @property
    def unmatched(self) -> dict[str, int]:
        """`why@alias` -> rows that a build had no version for."""
        return self._of("unmatched:")

    @property
    def dropped(self) -> dict[str, int]:
        """`where` or `why@alias` -> rows that WHERE or INNER left out."""
        return self._of("dropped:")

    @property
    def violated(self) -> dict[str, int]:
        """Constraint -> rows that it quarantines."""
        return self._of(VIOLATED)

    @property
    def by_outcome(self) -> dict[str, int]:
        """Every outcome that some row had."""
        return {name: n for name, n in self.counts.items() if n and name != "rows" and not name.startswith("to:")}

    def to(self, place: str) -> int:
        """Rows sent to publish, quarantine or drop."""
        return self.counts.get(f"to:{place}", 0)

    def _of(self, prefix: str) -> dict[str, int]:
        return {name.removeprefix(prefix): n for name, n in self.counts.items() if n and name.startswith(prefix)}


def expected_names(insert: Insert, *, retained: bool = False) -> set[str]:
    """Every count that a staged epoch of this INSERT must have, and no other. `retained`: retention had removed
    versions when it was planned."""
    if insert.process is not None:
        kept_out = {VIOLATED + each.name for each in insert.constraints if each.action != "warn"}
        left_out = LEFT_OUT if insert.windowed else ()
        return {"rows", PROCESSED, DISCARDED, *kept_out, *left_out, *(f"to:{place}" for place in PLACES)}
    return {"rows", *outcomes(insert, retained=retained), *(f"to:{place}" for place in PLACES)}


def expected_facts(insert: Insert) -> set[str]:
    """Every fact of the matches and of the constraints that a staged epoch of this INSERT must have."""
    of_joins = {
        f"{fact}@{join.alias}" for join in insert.joins for fact in ("matches", "outside-pin", "greatest-epoch")
    }
    of_joins |= {fact(each) for each in insert.constraints}
    if insert.process is not None:
        second = {"second"} if len(insert.process.outputs) > 1 else set[str]()
        of_joins |= {NOT_HAVING} if insert.windowed else set()
        return of_joins | second | {*OF_PROCESSES, f"late@{insert.probe_alias}"}
    if insert.time == "processing":
        return of_joins
    return of_joins | {f"{fact}@{insert.probe_alias}" for fact in ("late", "least-time", "greatest-time")}
