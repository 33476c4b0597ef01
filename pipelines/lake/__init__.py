"""Delta tables are the only state: what a source has landed, what was planned, staged, judged and published.

Rows go through Spark; the control tables (plans, watermark log, splits, staged files, verdicts, leases) do not, so that
the state can be read without a JVM.

Names are imported when they are used: code that only needs the Layout imports neither delta-rs nor Arrow.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tidegate.pipelines.lake.layout import Layout

if TYPE_CHECKING:
    from tidegate.pipelines.lake.lake import Lake
    from tidegate.pipelines.lake.leases import Lease
    from tidegate.pipelines.lake.records import (
        DefinitionRow,
        EpochRow,
        LedgerRow,
        SplitRow,
        SplitWatermark,
        StagedFile,
        StagedRow,
        StuckRow,
        VerdictRow,
        WatermarkRow,
    )

__all__ = [
    "DefinitionRow", "EpochRow", "Lake", "Layout", "Lease", "LedgerRow", "SplitRow", "SplitWatermark", "StagedFile",
    "StagedRow", "StuckRow", "VerdictRow", "WatermarkRow",
]  # fmt: skip

_LAZY = {"Lake": "lake", "Lease": "leases"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY.get(name, 'records')}"), name)
