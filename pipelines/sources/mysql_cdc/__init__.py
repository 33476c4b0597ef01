"""mysql-cdc: a MySQL or MariaDB table as a changelog, by an exact snapshot and then the binlog."""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.pipelines.connectors import flink
from tidegate.pipelines.connectors.protocol import Source, SourceContext
from tidegate.pipelines.connectors.spec import ConnectorSpec
from tidegate.pipelines.sources.mysql_cdc.options import METADATA, OPTIONS, SNAPSHOT_MODES, check_table


def has_phases(options: Mapping[str, str]) -> bool:
    """Whether a snapshot comes first."""
    return options.get("scan.startup.mode", "initial") in SNAPSHOT_MODES


class MysqlCdcConnector:
    """The connector's entry point. Importing it needs no Spark, so that a script compiles fast."""

    spec = ConnectorSpec(
        name="mysql-cdc",
        options=OPTIONS,
        doc="Changes of a MySQL or MariaDB table: an exact snapshot, then the binlog.",
        append_only=False,
        by_name=True,
        foreign=tuple(flink.CONNECTORS["mysql-cdc"]),
        system_time=True,
        system_watermark=True,
        metadata=METADATA,
        phases=has_phases,
        signals=has_phases,
        comparable=lambda options: options.get("scan.startup.mode", "initial") == "initial",
        check=check_table,
    )

    def source(self, context: SourceContext) -> Source:
        """A reader of one table. Opens no connection yet."""
        from tidegate.pipelines.sources.mysql_cdc.source import MysqlCdcSource

        return MysqlCdcSource(context)


CONNECTOR = MysqlCdcConnector()

__all__ = ["CONNECTOR"]
