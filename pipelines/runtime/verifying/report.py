"""What `verify` finds, epoch by epoch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Place = Literal["publish", "quarantine", "drop", "violation"]
EpochState = Literal["equal", "different", "rows lost", "beyond retention", "other script"]


@dataclass(frozen=True)
class Difference:
    """Rows of one epoch that are `missing` from a place though its pins give them, or `unexpected` there.

    What is dropped, and which constraints a row violates (place violation), is only counted. `keys`: up to ten of them,
    as JSON of the target's primary key (of the whole row where it has none); reasons where rows are only counted.
    """

    place: Place
    kind: Literal["missing", "unexpected"]
    rows: int
    keys: tuple[str, ...]


@dataclass(frozen=True)
class EpochReport:
    """One published epoch. `rows` were released by it; `detail` says why it was not recomputed. `beyond_retention`: how
    many of its rows found nothing because retention had removed versions of their time before it was planned."""

    generation: int
    epoch: int
    rows: int
    state: EpochState
    differences: tuple[Difference, ...] = ()
    detail: str = ""
    beyond_retention: int = 0


@dataclass(frozen=True)
class VerifyReport:
    """All published epochs of an INSERT. `problems` are findings that belong to no single epoch. `script_differs`: the
    script at hand says something else than the lake keeps, which is what the epochs are proved by."""

    insert: str
    epochs: tuple[EpochReport, ...]
    problems: tuple[str, ...] = ()
    script_differs: bool = False

    @property
    def differences(self) -> int:
        """Rows that are missing or unexpected."""
        return sum(difference.rows for epoch in self.epochs for difference in epoch.differences)

    @property
    def rows(self) -> int:
        """Released rows that were recomputed."""
        return sum(epoch.rows for epoch in self.epochs if epoch.state in ("equal", "different"))

    @property
    def passed(self) -> bool:
        """Whether nothing was found. Epochs beyond retention do not count against it: ask `unproved` for them. Those of
        another script do, since nobody can say what their rows should be, and rows that are gone though no retention
        has removed them."""
        return not self.problems and not any(
            epoch.state in ("different", "other script", "rows lost") for epoch in self.epochs
        )

    @property
    def unproved(self) -> tuple[EpochReport, ...]:
        """Epochs that cannot be recomputed any more."""
        return tuple(epoch for epoch in self.epochs if epoch.state not in ("equal", "different"))

    def to_json(self) -> dict[str, Any]:
        """The same as JSON values."""
        return {
            **asdict(self),
            "differences": self.differences,
            "rows": self.rows,
            "passed": self.passed,
            "unproved": len(self.unproved),
        }
