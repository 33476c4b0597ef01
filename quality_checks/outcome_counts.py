"""The counts of a staged epoch, by what they mean; and its statistics, from counts and footers alone, which are stored
with its verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tidegate.pipelines.joins.outcome import DISCARDED, MATCHED, NOT_ASKED, TIME_NULL, VIOLATED, outcomes
from tidegate.pipelines.lake.stream import Stream
from tidegate.pipelines.process.windows.windowed import LEFT_OUT
from tidegate.pipelines.runtime.epochs.processed import NOT_HAVING
from tidegate.pipelines.runtime.releasing.violations import fact
from tidegate.pipelines.sql.model import Insert, ProcessInsert

if TYPE_CHECKING:
    from tidegate.quality_checks.evidence import Evidence

PLACES = ("publish", "quarantine", "drop")

PROCESSED = "processed"
"""The count of probe rows that went into a process function."""

OF_PROCESSES = ("emitted", "watermark", "broadcast", "state")
"""Facts of an epoch of a process: how many rows it gave, its outputs' time, the digest of its broadcast state, its
state."""


@dataclass(frozen=True)
class OutcomeCounts:
    """How many released rows had which outcome, and which place they went to. A missing count is 0 here; that none is
    missing is a check of its own."""

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
        """`why@alias` -> rows for which a build had no version."""
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
    if isinstance(insert, ProcessInsert):
        quarantined = {VIOLATED + each.name for each in insert.constraints if each.action != "warn"}
        left_out = LEFT_OUT if insert.windowed else ()
        return {"rows", PROCESSED, DISCARDED, *quarantined, *left_out, *(f"to:{place}" for place in PLACES)}
    return {"rows", *outcomes(insert, retained=retained), *(f"to:{place}" for place in PLACES)}


def expected_facts(insert: Insert) -> set[str]:
    """Every fact of the matches and of the constraints that a staged epoch of this INSERT must have."""
    of_joins = {
        f"{fact}@{join.alias}" for join in insert.joins for fact in ("matches", "outside-pin", "greatest-epoch")
    }
    of_joins |= {f"{NOT_ASKED}@{join.alias}" for join in insert.joins if join.of}
    of_joins |= {fact(each) for each in insert.constraints}
    if isinstance(insert, ProcessInsert):
        second = {"second"} if len(insert.outputs) > 1 else set[str]()
        of_joins |= {NOT_HAVING} if insert.windowed else set()
        return of_joins | second | {*OF_PROCESSES, f"late@{insert.probe_alias}"}
    of_joins |= {f"further@{insert.probe_alias}"} if insert.unnests else set()
    if insert.time == "processing":
        return of_joins
    return of_joins | {f"{fact}@{insert.probe_alias}" for fact in ("late", "least-time", "greatest-time")}


DIGITS = 6


@dataclass(frozen=True)
class EpochStatistics:
    """One staged epoch.

    Attributes:
        rows: released rows that had to find a match: what WHERE said of the probe alone, and rows without a time, are
            left out.
        unmatched: of them, those that some build had no version for, by `why@alias`.
        late: rows that came late; None in processing time.
        null_rates: target column -> share of nulls among the rows to publish; None where the footers do not say.
        lag_ms: how far behind its source the probe was when its last released epoch landed; None where nobody knows.
    """

    rows: int
    unmatched: Mapping[str, int]
    late: int | None
    null_rates: Mapping[str, float | None]
    lag_ms: int | None

    @property
    def unmatched_ratio(self) -> float:
        return round(sum(self.unmatched.values()) / self.rows, DIGITS) if self.rows else 0.0

    def to_json(self) -> dict[str, Any]:
        """The same as small JSON values, with both ratios."""
        matched = round(1 - self.unmatched_ratio, DIGITS)
        return {**asdict(self), "matched_ratio": matched, "unmatched_ratio": self.unmatched_ratio}


def statistics(evidence: Evidence) -> EpochStatistics:
    """The numbers of a staged epoch."""
    staged = evidence.staged
    plan = staged.plan
    rows, unmatched = asked(staged.staged.counts)
    logs = [Stream(staged.lake, item.table).generation(item.generation).epoch(item.upto) for item in plan.branches]
    lags = [row.lag_ms for row in logs if row is not None and row.lag_ms is not None]
    return EpochStatistics(rows, unmatched, staged.staged.late, _null_rates(evidence), max(lags, default=None))


def asked(counts: Mapping[str, int]) -> tuple[int, dict[str, int]]:
    """From an epoch's counts: the rows that had to find a match, and those that found none, by `why@alias`."""
    found = OutcomeCounts(counts)
    unmatched = dict(found.unmatched)
    for name, number in found.dropped.items():
        if name != "where":  # INNER, under the policy `publish`
            unmatched[name] = unmatched.get(name, 0) + number
    return found.rows - found.dropped.get("where", 0) - found.timeless - found.discarded, unmatched


def _null_rates(evidence: Evidence) -> dict[str, float | None]:
    files = [footer for footer in evidence.footers if footer.disposition == "publish" and footer.rows]
    rows, rates = sum(footer.rows for footer in files), {}
    for column in evidence.staged.target.physical_columns if rows else ():
        nulls = [footer.nulls.get(column.name) for footer in files]
        known = [number for number in nulls if number is not None]
        rates[column.name] = round(sum(known) / rows, DIGITS) if len(known) == len(nulls) else None
    return rates
