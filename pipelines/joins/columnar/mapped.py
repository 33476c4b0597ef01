"""Rows in files of Arrow that are mapped into memory: of a large one, only what is touched is read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

LARGE: Mapping[pa.DataType, pa.DataType] = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
"""More than 2 GiB of text do not fit into a column of the others."""


def key_type(kind: pa.DataType) -> pa.DataType:
    """The type that keys of a kind are looked up as: whole numbers of all widths among those of one."""
    return pa.int64() if pa.types.is_integer(kind) else LARGE.get(kind, kind)


def write(path: Path, rows: pa.RecordBatch) -> None:
    """Write rows to a file of their own. Raises OSError."""
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
        writer.write_batch(rows)


def mapped(path: Path) -> pa.RecordBatch:
    """The rows of a file. Raises OSError, ArrowInvalid."""
    return pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0)
