"""Bounded reads of a MySQL or MariaDB binlog into Arrow and Spark.

From bytes to rows: `transport` (or `framing.read_file`) gives chunks of whole events; `stream` places and checks them;
`decoder` follows statements and table ids; `table_reader` finds row images (`lockstep`) and has `columns` decode them;
`output` adds what a changelog carries. `scan` finds transaction borders. `datasource` hands it all to Spark.
"""

from typing import TYPE_CHECKING, Any

from tidegate.pipelines.sources.mysql_cdc.binlog.model import (
    BinlogPosition,
    BinlogRange,
    ServerOptions,
    WantedTable,
    split_by_file,
)
from tidegate.pipelines.sources.mysql_cdc.binlog.reading import read_range
from tidegate.pipelines.sources.mysql_cdc.binlog.scan import (
    Borders,
    commit_time,
    last_border,
    next_border,
    scan_borders,
    shares,
)

if TYPE_CHECKING:
    from tidegate.pipelines.sources.mysql_cdc.binlog.datasource import read_binlog

__all__ = [
    "BinlogPosition",
    "BinlogRange",
    "Borders",
    "ServerOptions",
    "WantedTable",
    "commit_time",
    "last_border",
    "next_border",
    "read_binlog",
    "read_range",
    "scan_borders",
    "shares",
    "split_by_file",
]


def __getattr__(name: str) -> Any:
    """`read_binlog` needs pyspark, which takes most of a second to import: it is had when it is asked for."""
    if name == "read_binlog":
        from tidegate.pipelines.sources.mysql_cdc.binlog.datasource import read_binlog

        return read_binlog
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
