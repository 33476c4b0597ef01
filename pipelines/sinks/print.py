"""The target `print`: its INSERT publishes to a Delta table of its own, and committed epochs are shown, at least once.

An epoch is shown behind its commit; one that a crash cut short is shown again by the next run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from tidegate.pipelines.connectors import flink
from tidegate.pipelines.connectors.protocol import Source, SourceContext
from tidegate.pipelines.connectors.spec import ConnectorSpec, OptionSpec
from tidegate.pipelines.connectors.table import RESERVED_PREFIX, Table
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.location import Location
from tidegate.pipelines.sinks.protocol import TableSink
from tidegate.pipelines.syntax.types import quoted
from tidegate.pipelines.text import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

IDENTIFIER = "print-identifier"
LIMIT = 20
"""Rows of an epoch that are shown; all of them are in the table."""


def show_epoch(rows: DataFrame, identifier: str = "", limit: int = LIMIT, console: Console | None = None) -> int:
    """Print up to `limit` of the committed rows of one epoch, as `identifier> +I[1, f, NULL]`; return how many.

    `rows` are the target's own: its columns, beside the lake's (whose names begin with `_`; `_op` is shown). Which rows
    are shown of a larger epoch is left open.
    """
    console = console or Console()
    columns = [name for name in rows.columns if not name.startswith(RESERVED_PREFIX)]
    op = "_op" if "_op" in rows.columns else "'+I'"
    # Values become text in Spark, so that a row of any width comes over as a few words.
    values = [f"coalesce(CAST({quoted(name)} AS STRING), 'NULL')" for name in columns]
    shown = rows.selectExpr(f"concat({op}, '[', concat_ws(', ', {', '.join(values)}), ']') AS line")
    lines = [row["line"] for row in shown.limit(limit + 1).collect()]
    prefix = f"{identifier}> " if identifier else ""
    for line in lines[:limit]:
        console.print(Text(prefix + line), soft_wrap=True)
    if len(lines) > limit:
        console.print(
            Text(f"{prefix}… and more: {counted(limit, 'row')} of this epoch shown, all in the table"),
            soft_wrap=True,
        )
    return min(len(lines), limit)


@dataclass(frozen=True)
class PrintSink(TableSink):
    """A table whose epochs are shown."""

    identifier: str = ""

    def published(self, rows: DataFrame) -> None:
        show_epoch(rows, self.identifier)


class PrintConnector:
    """`'connector' = 'print'`, a target only."""

    spec = ConnectorSpec(
        name="print",
        doc="A target that shows what was published. The rows also lie in a Delta table of its own in the lake.",
        options=(
            OptionSpec(IDENTIFIER, doc="A word that is printed before every row, as `word> `.", changes="neither"),
        ),
        foreign=tuple(flink.CONNECTORS["print"]),
        source=False,
        sink=True,
    )

    def source(self, context: SourceContext) -> Source:
        raise PlanningError(
            f"{context.table.name} cannot be read: print is a target only",
            where=f"WITH options of {context.table.name}",
            state="nothing was run",
            next_command="choose another connector for the tables after FROM and JOIN",
        )

    def sink(self, table: Table, path: Location) -> PrintSink:
        return PrintSink(path, table.options.get(IDENTIFIER, ""))


CONNECTOR = PrintConnector()
