"""mysql-cdc: a MySQL or MariaDB table as a changelog, by an exact snapshot and then the binlog."""

from tidegate.pipelines.sources.mysql_cdc.connector import CONNECTOR

__all__ = ["CONNECTOR"]
