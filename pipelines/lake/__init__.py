"""Delta tables are the only state: what a source has landed, what was planned, staged, judged and published.

Rows go through Spark; the control tables (plans, watermark log, splits, staged files, verdicts, leases) go through
delta-rs, so that the state can be known without a JVM.
"""

from tidegate.pipelines.lake.lake import Lake, Layout
from tidegate.pipelines.lake.leases import Lease
from tidegate.pipelines.lake.records import (
    AlertRow,
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
    "AlertRow",
    "DefinitionRow",
    "EpochRow",
    "Lake",
    "Layout",
    "Lease",
    "LedgerRow",
    "SplitRow",
    "SplitWatermark",
    "StagedFile",
    "StagedRow",
    "StuckRow",
    "VerdictRow",
    "WatermarkRow",
]
