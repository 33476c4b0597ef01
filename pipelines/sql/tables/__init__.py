"""CREATE TABLE, compiled: its columns, keys, constraints, options and watermark."""

from tidegate.pipelines.syntax.source import Source
from tidegate.pipelines.syntax.statements import CreateTable


class TablePart:
    """What compiles a part of one CREATE TABLE, which declares the table `name`."""

    def __init__(self, source: Source, statement: CreateTable) -> None:
        self.source, self.statement, self.name = source, statement, statement.name.text
        self._error = source.error
