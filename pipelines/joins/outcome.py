"""What becomes of a released probe row: exactly one outcome, which decides its disposition.

    published            it matched every build (or the policy is `publish` and it is null-extended)
    unmatched            a build had no version for it; `<why>@<alias>` says why and which
    dropped              INNER (under `publish`) or WHERE left it out

A row is staged when its disposition is `publish` or `quarantine`, and only counted when it is `drop`.
"""

from __future__ import annotations

from typing import Literal

from pipelines.sql.model import Insert

Disposition = Literal["publish", "quarantine", "drop"]
Policy = Literal["quarantine", "block", "publish"]

WHYS = ("key-null", "key-absent", "deleted", "predicate", "before-first", "time-null")
"""Why a build gave no version: a key column is null; the key was never there; it was deleted (or the table truncated);
the chosen version fails the rest of ON; the probe's time is before the key's first version; the probe's time is null."""

MATCHED = "matched"
WHERE = "dropped:where"


def policy(options: dict[str, str] | None) -> Policy:
    """'gate.on-unmatched' of a target's options."""
    value = (options or {}).get("gate.on-unmatched", "quarantine")
    return value if value in ("quarantine", "block", "publish") else "quarantine"  # type: ignore[return-value]


def unmatched(why: str, alias: str) -> str:
    """The outcome of a row for which build `alias` had no version."""
    return f"unmatched:{why}@{alias}"


def dropped(why: str, alias: str) -> str:
    """The outcome of a row that an INNER join left out under the policy `publish`."""
    return f"dropped:{why}@{alias}"


def outcomes(insert: Insert) -> list[str]:
    """Every outcome that a row of this INSERT can have."""
    found = [MATCHED, WHERE]
    for join in insert.joins:
        found += [unmatched(why, join.alias) for why in WHYS]
        found += [dropped(why, join.alias) for why in WHYS]
    return found
