"""The demo's Delta tables, read whole and without Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from tidegate.pipelines.lake import delta_log


def read(path: Path, *columns: str) -> pa.Table:
    """Today's rows of the table at `path`."""
    return delta_log.read(DeltaTable(str(path)), *columns)
