"""The demo's Delta tables, read whole and without Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable


def read(path: Path, *columns: str) -> pa.Table:
    """Today's rows of the table at `path`."""
    return DeltaTable(str(path)).to_pyarrow_table(columns=list(columns))
