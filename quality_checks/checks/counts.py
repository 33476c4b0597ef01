"""Where every row of a staged epoch is: its counts are all there, and they add up."""

from __future__ import annotations

from tidegate.pipelines.runtime.gate import CheckResult, StagedEpoch
from tidegate.pipelines.runtime.releasing.doubled import KEY_TWICE
from tidegate.pipelines.runtime.stored_definitions import mixed_definitions
from tidegate.pipelines.sql.canonical import computes
from tidegate.pipelines.text import counted
from tidegate.quality_checks.evidence import Evidence, listed, subject
from tidegate.quality_checks.outcome_counts import OF_PROCESSES, PLACES, OutcomeCounts, expected_facts, expected_names

COUNTS_COMPLETE = "counts-complete"


def counts_complete(evidence: Evidence) -> CheckResult:
    """Fails on a count that is missing, negative or of an unknown name: the gate never guesses. Also on an epoch that
    was staged under another text of the INSERT, as its counts are for other constraints; and on one whose rows, or the
    versions that they may meet, were stored under two definitions of their table."""
    staged = evidence.staged
    retained = any(pin.horizon is not None for pin in staged.plan.pins)
    expected = expected_names(staged.insert, retained=retained) | expected_facts(staged.insert)
    found = {**staged.staged.counts, **staged.staged.facts}
    found.pop(KEY_TWICE, None)  # no row's place depends on it
    missing = sorted(expected - set(found))
    unknown = sorted(set(found) - expected)
    wrong = sorted(name for name in expected & set(found) if not _fits(name, found[name]))
    same_plan = staged.staged.plan_digest == staged.plan.digest
    problems = [
        f"{what} {', '.join(names)}"
        for what, names in (("is without", missing), ("has unknown", unknown), ("has no number for", wrong))
        if names
    ]
    if staged.plan.computes != computes(staged.pipeline, staged.insert):
        problems.insert(0, "was staged under another text of the INSERT or its constraints")
    mixed = mixed_definitions(staged.lake, staged.plan)
    if mixed:
        problems.insert(0, f"has rows of two definitions of {' and '.join(mixed)}")
    if not same_plan:
        problems.insert(0, "was staged from another plan")
    return CheckResult(
        COUNTS_COMPLETE,
        passed=not problems,
        observed={"missing": missing, "unknown": unknown, "wrong": wrong, "plan": staged.staged.plan_digest},
        expected={"missing": [], "unknown": [], "wrong": [], "plan": staged.plan.digest},
        detail=f"{subject(staged)}: what was staged {' and '.join(problems)}, so nothing can be proved of it. "
        "Join its rows again"
        if problems
        else f"all {len(expected)} counts are there",
    )


def _fits(name: str, value: object) -> bool:
    """Whether a value is possible for a fact of this name: a count; an epoch, if there is a match; a time of either
    sign."""
    if value is None:
        return name.startswith("greatest-epoch")
    if name in (*OF_PROCESSES, "second") and name != "emitted":
        return True  # what is in them is looked at by whoever reads them
    a_time = name.startswith(("least-time@", "greatest-time@"))
    return isinstance(value, int) and not isinstance(value, bool) and (a_time or value >= 0)


RELEASED_ROWS = "released-rows"


def released_rows(evidence: Evidence) -> CheckResult:
    """The rows that went through the join, compared with the watermark log's count of what landed: two separate counts.
    What UNNEST gave beyond a row for each that landed is counted apart."""
    staged = evidence.staged
    joined, landed = OutcomeCounts(staged.staged.counts).rows - staged.staged.further, staged.released
    what = "fewer" if joined < landed else "more"
    return CheckResult(
        RELEASED_ROWS,
        passed=joined == landed,
        observed=joined,
        expected=landed,
        detail=f"{counted(joined, 'row')} of {staged.plan.probe} released, as many as landed"
        if joined == landed
        else f"{subject(staged)}: the join saw {counted(joined, 'row')} of {staged.plan.probe}, but "
        f"{_expected(staged)}: {abs(landed - joined):,} {what} than there are. Nothing was published. "
        f"Look at the table of {staged.plan.probe}, then join again",
    )


def _expected(staged: StagedEpoch) -> str:
    if staged.plan.out_of_quarantine:
        return f"earlier epochs have quarantined {staged.released:,} of what it releases again"
    after, upto = staged.plan.reads
    return f"by the watermark log {staged.released:,} landed in its epochs {after + 1} to {upto}"


ONE_PLACE = "one-place"


def one_place(evidence: Evidence) -> CheckResult:
    """The counts of places add up to the rows, those of outcomes too, and dropped rows add up by their reasons."""
    staged = evidence.staged
    counts = OutcomeCounts(staged.staged.counts)
    places = {place: counts.to(place) for place in PLACES}
    by_place, by_outcome, dropped = sum(places.values()), sum(counts.by_outcome.values()), sum(counts.dropped.values())
    passed = by_place == by_outcome == counts.rows and dropped == places["drop"]
    return CheckResult(
        ONE_PLACE,
        passed=passed,
        observed={"rows": counts.rows, **places, "outcomes": by_outcome, "dropped with a reason": dropped},
        expected={"rows": counts.rows, "places": counts.rows, "outcomes": counts.rows},
        detail=listed(places)
        if passed
        else f"{subject(staged)}: {counted(counts.rows, 'row')} released, {by_place:,} went on ({listed(places)}), "
        f"{by_outcome:,} have an outcome ({listed(counts.by_outcome)}): a row is lost or in two places. "
        "Nothing was published. Join its rows again",
    )


DISCARDS = "discard-publishes-nothing"


def discards(evidence: Evidence) -> CheckResult:
    """A discard quarantines every row that would be published, as discarded; one of quarantined rows has no rows to
    move. Other plans pass."""
    staged = evidence.staged
    if not staged.plan.discards:
        return CheckResult(DISCARDS, True, staged.plan.kind, None, "not a discard")
    counts = OutcomeCounts(staged.staged.counts)
    leaving = max(counts.to("publish"), evidence.rows("publish"))
    stray = counts.matched + sum(counts.unmatched.values())
    passed = leaving == 0 and stray == 0 and counts.discarded == counts.to("quarantine")
    return CheckResult(
        DISCARDS,
        passed=passed,
        observed={"publish": leaving, "quarantine": counts.to("quarantine"), "discarded": counts.discarded},
        expected={"publish": 0, "quarantine": counts.discarded},
        detail=f"{counted(counts.discarded, 'row')} to quarantine, none published"
        if passed
        else f"{subject(staged)}: it was discarded, yet {counted(leaving, 'row')} would be published and "
        f"{counts.discarded:,} of {counted(counts.to('quarantine'), 'row')} count as discarded. Nothing was "
        "published. Discard it again",
    )
