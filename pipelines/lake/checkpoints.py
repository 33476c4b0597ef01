"""The checkpoint of a log that Tidegate alone writes: a `TableState` has all of it but what was removed lately. It
takes a few ms; delta-rs, which reads the log anew, takes 30 to 70."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from tidegate.pipelines.clock import system_clock
from tidegate.pipelines.lake.by_name import TableState, removed_since
from tidegate.pipelines.location import parquet_of

_TEXTS = pa.map_(pa.string(), pa.string())
_FILE = {"path": pa.string(), "partitionValues": _TEXTS, "size": pa.int64(), "dataChange": pa.bool_()}
_ACTIONS: dict[str, dict[str, pa.DataType]] = {
    "protocol": {"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32()},
    "metaData": {
        "id": pa.string(),
        "description": pa.string(),
        "format": pa.struct({"provider": pa.string(), "options": _TEXTS}),
        "schemaString": pa.string(),
        "partitionColumns": pa.list_(pa.string()),
        "configuration": _TEXTS,
    },
    "txn": {"appId": pa.string(), "version": pa.int64()},
    "add": {**_FILE, "modificationTime": pa.int64(), "stats": pa.string()},
    "remove": {**_FILE, "deletionTimestamp": pa.int64(), "extendedFileMetadata": pa.bool_()},
}
_SCHEMA = pa.schema({name: pa.struct(fields) for name, fields in _ACTIONS.items()})


def checkpoint_of_state(table: TableState, listed_ms: int) -> tuple[bytes, bytes]:
    """The checkpoint's file, and what `_last_checkpoint` says of it. `listed_ms`: for how long a file that was removed
    is listed. Raises ValueError where the log does not show what was removed, or asks for more than its own kind."""
    removed = removed_since(table, system_clock() - listed_ms)
    if removed is None or table.protocol.writer_features or table.protocol.reader_features:
        raise ValueError(f"{table.root} is no log that Tidegate alone has written")
    actions = list(_actions(table, removed))
    hint = {"version": table.version, "size": len(actions), "numOfAddFiles": len(table.files)}
    return parquet_of(pa.Table.from_pylist(actions, schema=_SCHEMA)), json.dumps(hint).encode()


def _actions(table: TableState, removed: Mapping[str, Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    described = table.metadata
    yield {"protocol": {"minReaderVersion": table.protocol[0], "minWriterVersion": table.protocol[1]}}
    yield {
        "metaData": {
            "id": described.id,
            "description": described.description,
            "format": {"provider": "parquet", "options": []},
            "schemaString": described.schema,
            "partitionColumns": described.partition_columns,
            "configuration": list(described.configuration.items()),
        }
    }
    for application, version in table.applications.items():
        yield {"txn": {"appId": application, "version": version}}
    for file in table.files.values():
        added = {"path": file.name, "size": file.size, "modificationTime": file.modified, "stats": file.text}
        yield {"add": {**added, "partitionValues": list(file.partition.items()), "dataChange": False}}
    for file in removed.values():
        kept = {name: file.get(name) for name in ("path", "deletionTimestamp", "size")}
        partition = list(dict(file.get("partitionValues") or {}).items())
        yield {"remove": {**kept, "partitionValues": partition, "dataChange": False, "extendedFileMetadata": True}}
