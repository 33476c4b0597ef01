"""`'connector' = 'hybrid'`: its options. The tables that it names are looked up by pipelines/sql/tables/hybrid.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidegate.pipelines.connectors.protocol import Source, SourceContext
from tidegate.pipelines.connectors.registry import connector
from tidegate.pipelines.connectors.spec import ConnectorSpec, OptionSpec
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.sources.hybrid.source import HybridSource

SOURCES = OptionSpec(
    "hybrid.sources",
    required=True,
    doc="Names of tables of the script, in order: `history, live`. All but the last are read up to their flip.",
    changes="identity",
)
SWITCH = OptionSpec(
    "hybrid.switch",
    "choice",
    default="options",
    choices=("options", "rowtime"),
    doc="Where the last table begins: where its own options say (options), or at the greatest rowtime of the rows that "
    "came before it (rowtime), by the record times of a topic.",
    changes="rows",
)
OVERLAP = OptionSpec(
    "hybrid.switch.overlap",
    "duration",
    default="0 s",
    doc="For rowtime: so much earlier. Rows of that time come twice.",
    changes="rows",
)


def parts(options: Mapping[str, str]) -> Sequence[str]:
    """The names that the option lists."""
    return [name.strip() for name in options[SOURCES.name].split(",")]


def check(table: Table) -> Sequence[str]:
    """What is wrong with where the last table begins."""
    if table.options.get(SWITCH.name, "options") == "options":
        return [f"'{OVERLAP.name}' is for '{SWITCH.name}' = 'rowtime'"] if OVERLAP.name in table.options else []
    last, said = table.parts[-1], f"'{SWITCH.name}' = 'rowtime'"
    start = connector(last.connector).spec.start_options
    watermark = table.watermark
    if not start:
        return [f"{said}: {last.name} is a {last.connector} table, which cannot begin at a time"]
    if watermark is None or table.column(watermark.column).source_time:
        return [f"{said} needs WATERMARK FOR a column of {table.name}, which names the rowtime that its rows carry"]
    given = next((name for name in start if name in last.options), None)
    return [f"{said}: {last.name} begins there, and its '{given}' says otherwise: leave one out"] if given else []


class HybridConnector:
    """`'connector' = 'hybrid'`."""

    spec = ConnectorSpec(
        name="hybrid",
        doc="Several tables of the script, one after another: bounded ones, then one that goes on.",
        options=(SOURCES, SWITCH, OVERLAP),
        system_time=True,
        system_watermark=True,
        phases=lambda options: True,
        signals=lambda options: True,
        parts=parts,
        check=check,
    )

    def source(self, context: SourceContext) -> Source:
        return HybridSource(context)


CONNECTOR = HybridConnector()
