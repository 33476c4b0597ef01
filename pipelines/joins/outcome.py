"""What becomes of a released probe row: exactly one outcome, which decides where it goes (its disposition).

  matched       every build had a version for it: published
  unmatched     a build had none: quarantined, or published null-extended where the policy says so
  dropped       INNER (under the policy `publish`) or WHERE left it out: only counted
  violated      it violates a constraint of the target that quarantines rows (joins.violations): quarantined
  time-null     it has no place in event time: quarantined, whatever the policy
  discarded     a person gave up a held epoch: quarantined

WHERE must not remove an unmatched row without a count. So the terms on the probe alone are tested first; the rest of
WHERE is tested only on rows that matched (or that are published null-extended).

While a release runs, an outcome is a number (`Outcomes`), and so is the reason why a build gave no version
(`why_number`), since text would be compared and copied for every row. Numbers become names where a row is quarantined,
and in the counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from tidegate.pipelines.connectors.table import Constraint
from tidegate.pipelines.sql.model import Insert, Join

KEY_NULL = "key-null"
KEY_ABSENT = "key-absent"
DELETED = "deleted"
PREDICATE = "predicate"
BEFORE_FIRST = "before-first"
BEYOND_RETENTION = "beyond-retention"
WHYS = (KEY_NULL, KEY_ABSENT, DELETED, PREDICATE, BEFORE_FIRST, BEYOND_RETENTION)
"""Why a build gave no version: a key column is null; the key was never there; it was deleted (or its table truncated);
the chosen version fails the rest of ON; the probe's time is before the key's first version; retention has removed
versions that were valid at the probe's time or before it."""

NOT_ASKED = "not-asked"
"""With a join's alias, the count of rows that asked its build for no version: those of other branches of a UNION ALL.
They have no reason, as rows that it gave a version."""

MATCHED = "matched"
WHERE = "dropped:where"
DISCARDED = "discarded"
TIME_NULL = "time-null"
VIOLATED = "violated:"
"""Prefix of the outcome of a violation; the name of the severest constraint that the row violates follows."""


WITHOUT_TIME = len(WHYS)
"""What `_why<number>` holds in event time where the row has no time, whatever its key."""


def why_number(name: str) -> int:
    """The number of one of WHYS, which is what `_why<number>` holds."""
    return WHYS.index(name)


def outcomes(insert: Insert, *, retained: bool = False) -> list[str]:
    """Every outcome that a row of this INSERT can have. `retained`: retention has removed versions of a build."""
    never = {TIME_NULL} if insert.time != "event" else set()
    never |= {_named(kind, name, join) for join in insert.joins for kind in _KINDS for name in _never(join)}
    if not retained:
        never |= {_named(kind, BEYOND_RETENTION, join) for join in insert.joins for kind in _KINDS}
    return [name for name in Outcomes(insert).names if name not in never]


@dataclass(frozen=True)
class Outcomes:
    """The outcomes of an INSERT as numbers, in an order that makes every disposition a range: what is published comes
    first, what is dropped last."""

    insert: Insert

    @cached_property
    def names(self) -> list[str]:
        """The name of each number. Some are of outcomes that no row can have, since the numbers of a join follow
        WHYS."""
        violated = [f"{VIOLATED}{each.name}" for each in self.insert.constraints if each.action != "warn"]
        quarantined = [*self._missed("unmatched"), *violated, TIME_NULL, DISCARDED]
        return [MATCHED, *quarantined, WHERE, *self._missed("dropped")]

    def number(self, name: str) -> int:
        return self.names.index(name)

    def missed_sql(self, kind: Literal["unmatched", "dropped"], joins: Sequence[tuple[int, Join]]) -> str:
        """SQL: the outcome by the first of the numbered `joins` that gave no version; null where all gave one."""
        reasons = [f"{self.first_missed(kind, join)} + _why{number}" for number, join in joins]
        return f"coalesce({', '.join([*reasons, 'CAST(NULL AS INT)'])})"

    def first_missed(self, kind: Literal["unmatched", "dropped"], join: Join) -> int:
        """The number of "this join gave no version", to which the `why_number` is added."""
        return self.number(_named(kind, WHYS[0], join))

    def dropped_sql(self) -> str:
        """SQL: whether a row is only counted, by its `_outcome`."""
        return f"_outcome >= {self.number(WHERE)}"

    def last_published(self, *, publish_unmatched: bool) -> int:
        """The greatest number of an outcome that is published."""
        unmatched = self._missed("unmatched") if publish_unmatched else []
        return self.number(unmatched[-1] if unmatched else MATCHED)

    def _missed(self, kind: Literal["unmatched", "dropped"]) -> list[str]:
        return [_named(kind, name, join) for join in self.insert.joins for name in WHYS]


_KINDS: tuple[Literal["unmatched", "dropped"], ...] = ("unmatched", "dropped")


def _named(kind: Literal["unmatched", "dropped"], why: str, join: Join) -> str:
    return f"{kind}:{why}@{join.alias}"


def _never(join: Join) -> set[str]:
    """Of WHYS, those that this join never gives."""
    never = {BEFORE_FIRST, BEYOND_RETENTION} if join.time == "processing" else set()
    return never | ({PREDICATE} if join.predicate is None else set())


MASK = "_violated"


def bits(constraints: Sequence[Constraint]) -> dict[str, int]:
    """Name -> bit, of constraints that come the severest first."""
    return {each.name: 1 << place for each, place in zip(constraints, reversed(range(len(constraints))), strict=True)}


def quarantined_from(constraints: Sequence[Constraint]) -> int:
    """The least mask with which a row is kept out of the target; a mask that no row can have if no constraint does
    that."""
    return 1 << sum(each.action == "warn" for each in constraints)
