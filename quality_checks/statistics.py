"""What is known of an epoch in numbers, from counts and footers alone; stored with its verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tidegate.pipelines.lake.stream import Stream
from tidegate.quality_checks.outcome_counts import OutcomeCounts

if TYPE_CHECKING:
    from tidegate.quality_checks.evidence import Evidence

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
    landed = Stream(staged.lake, plan.probe).generation(plan.probe_generation).epoch(plan.upto)
    return EpochStatistics(
        rows, unmatched, staged.staged.late, _null_rates(evidence), landed.lag_ms if landed else None
    )


def asked(counts: Mapping[str, int]) -> tuple[int, dict[str, int]]:
    """Of an epoch's counts: the rows that had to find a match, and those that found none, by `why@alias`."""
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
