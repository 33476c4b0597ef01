"""What an advance of a source table reports; and its next step as a draft, planned and not stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tidegate.pipelines.connectors.protocol import Json, Step
from tidegate.pipelines.lake import WatermarkRow
from tidegate.pipelines.runtime.landing.alignment import Blocked, GroupPosition


@dataclass(frozen=True)
class LandedEpoch:
    """One epoch that this advance landed."""

    generation: int
    epoch: int
    rows: int
    phase: str
    summary: str
    flipped: bool


OnEpoch = Callable[[LandedEpoch], None]
"""Called with an epoch once it has landed."""


@dataclass(frozen=True)
class Advance:
    """What an advance of a source table did, and how far the table is now.

    Attributes:
        last: The newest row of its watermark log; None if nothing ever landed.
        aligned: Its position in its alignment group, with its blocked splits; None outside of a group.
        ends: The ends that it went up to.
    """

    table: str
    generation: int
    epochs: tuple[LandedEpoch, ...]
    last: WatermarkRow | None
    aligned: GroupPosition | None = None
    ends: Json | None = field(default=None, compare=False, repr=False)

    @property
    def rows(self) -> int:
        return sum(epoch.rows for epoch in self.epochs)

    @property
    def flipped(self) -> bool:
        return self.last is not None and self.last.flip_epoch is not None

    @property
    def blocked(self) -> tuple[Blocked, ...]:
        """The splits that alignment holds back now."""
        return self.aligned.blocked if self.aligned else ()


@dataclass(frozen=True)
class SourceDraft:
    """The next epoch of a source table. `step` is None where it has nothing to land, or alignment holds it back.

    `unfinished`: the epoch is planned already, and a run would finish it first.
    """

    table: str
    generation: int
    epoch: int
    step: Step | None
    unfinished: bool = False
