"""`'connector' = 'hybrid'`: its one option. The tables that it names are looked up by pipelines/sql/hybrid.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pipelines.sources.hybrid.source import HybridSource
from pipelines.sources.protocol import ConnectorSpec, OptionSpec, Source, SourceContext

SOURCES = OptionSpec(
    "hybrid.sources",
    required=True,
    doc="Names of tables of the script, in order: `history, live`. All but the last are read up to their flip.",
)


def parts(options: Mapping[str, str]) -> Sequence[str]:
    """The names that the option lists."""
    return [name.strip() for name in options[SOURCES.name].split(",")]


class HybridConnector:
    """`'connector' = 'hybrid'`."""

    spec = ConnectorSpec(
        name="hybrid",
        doc="Several tables of the script, one after another: bounded ones, then one that goes on.",
        options=(SOURCES,),
        system_time=True,
        phases=lambda options: True,
        signals=lambda options: True,
        parts=parts,
    )

    def source(self, context: SourceContext) -> Source:
        return HybridSource(context)


CONNECTOR = HybridConnector()
