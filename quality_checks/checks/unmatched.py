"""Did rows without a match go where 'gate.on-unmatched' sends them? And is their share inside its bound, and inside its
own recent range?

The range goes up to the median of the last published epochs plus TOLERANCE times their median absolute deviation, but
at least plus FLOOR, so that a pipeline that never has an unmatched row is not held for the first one in a hundred. Both
bounds are options of the target; a share below the range is no problem. An epoch that a person releases after it was
held is only checked against the fixed bound, and its share is remembered: a share that has changed for good becomes
usual. An epoch of rows out of quarantine is checked against neither bound, and not remembered.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from tidegate.pipelines.connectors.table import Options
from tidegate.pipelines.runtime.epochs import insert_owner, stored_plan
from tidegate.pipelines.runtime.gate import CheckResult, StagedEpoch
from tidegate.pipelines.text import counted
from tidegate.quality_checks.evidence import Evidence, listed, subject
from tidegate.quality_checks.outcome_counts import DIGITS, OutcomeCounts, asked, statistics

RATIO = "unmatched-ratio"

TOLERANCE = 6.0
FLOOR = 0.02
LEAST_EPOCHS = 5
"""The least number of remembered epochs for a range."""

LOOKED_AT = 1_000
"""The most epochs that are read for the range, however long the history is."""


@dataclass(frozen=True)
class Limits:
    """'gate.unmatched-ratio.*' of a target. `window` 0: no range. Epochs of fewer than `least_rows` rows are neither
    judged nor remembered."""

    greatest: float | None
    window: int
    least_rows: int

    @classmethod
    def of(cls, options: Options) -> Limits:
        """Raises PlanningError where the environment lacks a variable."""
        named = {name: options[name] for name in options if name.startswith("gate.unmatched-ratio.")}
        found = {name.rpartition(".")[2]: value for name, value in Options(named).resolve().items()}
        return cls(
            float(found["max"]) if "max" in found else None,
            int(found.get("window", "0")),
            int(found.get("min-rows", "100")),
        )


def ratio_usual(evidence: Evidence) -> CheckResult:
    """The statistics of the epoch, and whether its share of unmatched rows is allowed."""
    staged = evidence.staged
    found, limits = statistics(evidence), Limits.of(staged.target.options)
    ratio, expected, problems = found.unmatched_ratio, {}, []
    release = "and release; a release passes the usual share by, so that of an epoch which is right becomes usual"
    # Most of what was in quarantine may well stay there.
    looks_back = staged.plan.out_of_quarantine
    if not staged.plan.discards and not looks_back and found.rows >= limits.least_rows:
        if limits.greatest is not None:
            expected["max"] = limits.greatest
            if ratio > limits.greatest:
                problems.append(f"at most {limits.greatest:.2%} may be ('gate.unmatched-ratio.max')")
                release = "and release; or write the bound that is right into the script, and release"
        # Who releases a held epoch has seen that it is unusual; what is never to be, stays so.
        known = recent(staged, limits) if limits.window and staged.plan.kind != "re-release" else []
        if len(known) >= LEAST_EPOCHS:
            bound = usual(known)
            expected |= {"recent": bound, "epochs": len(known)}
            if ratio > bound:
                problems.append(
                    f"after the last {len(known)} epochs (median {median(known):.2%}) at most {bound:.2%} is usual"
                )
    text = f"{ratio:.2%} of {counted(found.rows, 'row')} found no match"
    return CheckResult(
        RATIO,
        passed=not problems,
        observed=found.to_json(),
        expected=expected,
        detail=f"{subject(staged)}: {text} ({listed(found.unmatched)}); {' and '.join(problems)}. Nothing was "
        f"published. Look at what is missing in {' and '.join(staged.insert.builds)}, land it {release}. Or discard "
        "the epoch, which quarantines all of its rows"
        if problems
        else text,
    )


def recent(staged: StagedEpoch, limits: Limits) -> list[float]:
    """The shares of the last epochs that the gate let pass, the newest last; of LOOKED_AT epochs at most."""
    lake, plan, owner = staged.lake, staged.plan, insert_owner(staged.plan.insert)
    since = max(plan.epoch - LOOKED_AT, 0) + 1
    passed = {
        (row.generation, row.epoch, row.plan_digest) for row in lake.verdicts.rows(owner, since=since) if row.passed
    }
    plans = [stored_plan(row) for row in lake.epochs.rows(owner, since=since)]
    fills = [item for item in plans if item.replaces and (item.generation, item.epoch, item.digest) in passed]
    # A backfill is of another time, and what it replaced was not as it should be.
    left_out = {(item.generation, item.epoch) for item in plans if item.looks_back} | {
        (item.generation, item.epoch)
        for item in plans
        if item in fills or any(fill.takes_the_place_of(item) for fill in fills)
    }
    shares: list[float] = []
    for row in lake.staged.newest_first(owner):
        if len(shares) == limits.window or row.epoch < since:
            break
        earlier = (row.generation, row.epoch) < (plan.generation, plan.epoch)
        if (
            earlier
            and (row.generation, row.epoch) not in left_out
            and (row.generation, row.epoch, row.plan_digest) in passed
        ):
            rows, unmatched = asked(row.counts)
            if rows >= max(limits.least_rows, 1) and not OutcomeCounts(row.counts).discarded:
                shares.append(sum(unmatched.values()) / rows)
    return shares[::-1]


def usual(shares: list[float]) -> float:
    """The greatest share that is still in the range of these."""
    middle = median(shares)
    deviation = median(abs(share - middle) for share in shares)
    return round(min(1.0, middle + max(FLOOR, TOLERANCE * deviation)), DIGITS)


POLICY = "unmatched-policy"


def policy_followed(evidence: Evidence) -> CheckResult:
    """block: no row without a match. quarantine: what is published has matched, every row of it. publish: counted."""
    staged = evidence.staged
    policy, counts = staged.plan.on_unmatched, OutcomeCounts(staged.staged.counts)
    unmatched = sum(counts.unmatched.values())
    observed = {
        "publish": counts.to("publish"),
        "quarantine": counts.to("quarantine"),
        "drop": counts.to("drop"),
        "unmatched": counts.unmatched,
    }
    if staged.plan.discards:
        return CheckResult(POLICY, True, observed, {"policy": policy}, "a discard publishes nothing, matched or not")
    if policy == "block" and unmatched:
        tables = " or ".join(dict.fromkeys(_builds(evidence)))
        return CheckResult(
            POLICY,
            False,
            observed,
            {"policy": policy, "unmatched": {}},
            f"{subject(staged)}: {unmatched:,} of {counted(counts.rows, 'released row')} found no match in {tables} "
            f"({listed(counts.unmatched)}), and 'gate.on-unmatched' is 'block'. Bring the missing rows into the source "
            f"of {tables}, land them (tidegate run) and release; or release with `--on-unmatched "
            "quarantine` (`on_unmatched` in Dagster), which publishes the others; or discard the epoch, which "
            "quarantines all of its rows",
        )
    published = unmatched if policy == "publish" else 0
    expected = {
        "publish": counts.matched + published,
        "quarantine": unmatched - published + counts.timeless + sum(counts.violated.values()),
        "drop": sum(counts.dropped.values()),
    }
    inner = {name: n for name, n in counts.dropped.items() if name != "where"}
    problems = [
        f"{counted(observed[place], 'row')} to {place}, by their outcomes it should be {number:,}"
        for place, number in expected.items()
        if observed[place] != number
    ]
    if inner and policy != "publish":
        problems.append(f"{counted(sum(inner.values()), 'row')} without a match would be dropped ({listed(inner)})")
    if counts.discarded:
        problems.append(f"{counted(counts.discarded, 'row')} count as discarded, but nobody discarded the epoch")
    return CheckResult(
        POLICY,
        passed=not problems,
        observed=observed,
        expected={"policy": policy, **expected},
        detail=f"{counted(unmatched, 'row')} without a match ({listed(counts.unmatched)})"
        if not problems
        else f"{subject(staged)}: under 'gate.on-unmatched' = '{policy}' {'; '.join(problems)}. Nothing was published. "
        "Join its rows again",
    )


def _builds(evidence: Evidence) -> list[str]:
    joins = {join.alias: join.build for join in evidence.staged.insert.joins}
    aliases = [name.partition("@")[2] for name in OutcomeCounts(evidence.staged.staged.counts).unmatched]
    return [joins[alias] for alias in sorted(aliases) if alias in joins]
