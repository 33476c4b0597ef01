"""Numbers and names as the sentences of a verdict show them."""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.pipelines.runtime.gate import StagedEpoch


def many(count: int, thing: str) -> str:
    """ "1 row", "2,000 rows", "3 matches"."""
    plural = "es" if thing.endswith("ch") else "s"
    return f"{count:,} {thing}{'' if count == 1 else plural}"


def listed(counts: Mapping[str, int]) -> str:
    """ "10 key-absent@u, 2 deleted@u", the greatest first; "none" when there is nothing."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count:,} {name}" for name, count in ordered) or "none"


def subject(staged: StagedEpoch) -> str:
    """Which epoch a sentence is about."""
    return f"INSERT {staged.plan.insert}, epoch {staged.plan.epoch}"
