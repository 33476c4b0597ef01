"""The proof of every match: released after the flip of its builds, and made inside the pins of the epoch's plan."""

from __future__ import annotations

from tidegate.pipelines.joins.outcome import NOT_ASKED
from tidegate.pipelines.runtime.gate import CheckResult
from tidegate.pipelines.text import counted
from tidegate.quality_checks.evidence import Evidence, subject
from tidegate.quality_checks.outcome_counts import OutcomeCounts

FLIPS = "released-after-flip"


def flips(evidence: Evidence) -> CheckResult:
    """Each build of the INSERT is pinned once, its pinned epoch has landed, and its flip is at or before the pin.

    Holds under every policy: a row that was released before the flip never leaves.
    """
    staged = evidence.staged
    problems: list[str] = []
    pins = {pin.table: pin for pin in staged.plan.pins}
    if len(pins) != len(staged.plan.pins):
        problems.append("a build is pinned twice")
    for build in staged.insert.builds:
        pin, log = pins.get(build), staged.landed.get(build)
        if pin is None:
            problems.append(f"{build} is not pinned")
        elif log is None:
            problems.append(
                f"{build} is pinned at generation {pin.generation}, epoch {pin.epoch}, which has no row in the "
                "watermark log"
            )
        elif (log.owner, log.generation, log.epoch) != (build, pin.generation, pin.epoch):
            problems.append(
                f"{build} is pinned at generation {pin.generation}, epoch {pin.epoch}, the watermark log answers for "
                f"{log.owner}, generation {log.generation}, epoch {log.epoch}"
            )
        elif log.flip_epoch is None or log.flip_epoch > pin.epoch:
            problems.append(f"{build} had not flipped at its pinned epoch {pin.epoch}: its snapshot was still loading")
        elif log.flip_epoch != pin.flip_epoch:
            problems.append(
                f"{build} flipped at epoch {log.flip_epoch} by its watermark log, at {pin.flip_epoch} by the plan"
            )
    problems += [
        f"{table} is pinned, but the INSERT does not join it" for table in pins if table not in staged.insert.builds
    ]
    return CheckResult(
        FLIPS,
        passed=not problems,
        observed={name: [log.generation, log.epoch, log.flip_epoch] for name, log in sorted(staged.landed.items())},
        expected={name: [pin.generation, pin.epoch, pin.flip_epoch] for name, pin in sorted(pins.items())},
        detail=", ".join(
            f"{pin.table} flipped at epoch {pin.flip_epoch}, pinned at {pin.epoch}" for pin in pins.values()
        )
        if not problems
        else f"{subject(staged)}: {'; '.join(problems)}. Its rows were released too early and are not published. "
        "Let the build finish loading, then join again",
    )


MATCHES = "matches-in-pin"


def matches(evidence: Evidence) -> CheckResult:
    """The match proof: what the join has counted of every matched version, against the plan's pins."""
    staged = evidence.staged
    facts, pins = staged.staged.facts, {pin.table: pin for pin in staged.plan.pins}
    matched = OutcomeCounts(staged.staged.counts).matched
    problems: list[str] = []
    observed: dict[str, list[int | None]] = {}
    for join in staged.insert.joins:
        matches, outside = facts.get(f"matches@{join.alias}"), facts.get(f"outside-pin@{join.alias}")
        others = facts.get(f"{NOT_ASKED}@{join.alias}") or 0
        greatest, pin = facts.get(f"greatest-epoch@{join.alias}"), pins.get(join.build)
        observed[join.alias] = [matches, outside, greatest]
        if matches is None or outside is None or pin is None:
            problems.append(f"nothing is known of the matches with {join.build}")
            continue
        if outside:
            problems.append(f"{counted(outside, 'match')} with {join.build} lie outside its pin")
        if matches and (greatest is None or greatest > pin.epoch):
            problems.append(f"a match with {join.build} is of epoch {greatest}, the pin is epoch {pin.epoch}")
        if matches + others < matched:
            problems.append(
                f"{counted(matched, 'row')} count as matched, but only {matches:,} found a version of {join.build}"
                + (f", and {others:,} need none" if others else "")
            )
    return CheckResult(
        MATCHES,
        passed=not problems,
        observed=observed,
        expected={
            join.alias: [None, 0, pins[join.build].epoch if join.build in pins else None]
            for join in staged.insert.joins
        },
        detail="every match lies inside its pin"
        if not problems
        else f"{subject(staged)}: {'; '.join(problems)}. Rows that were matched against another state of the build are "
        "not published. Join again",
    )
