"""The key that a snapshot is cut into chunks by: its bounds in the server's own SQL.

A bound leaves the server as bytes and goes back as a literal of the same character set and collation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.cdc.chunks import SnapshotKey
from tidegate.pipelines.sources.mysql_cdc.types import quote

KeyKind = Literal["number", "text", "bytes", "moment", "address"]

_KINDS: Mapping[str, KeyKind] = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "year"), "number"),
    **dict.fromkeys(("char", "varchar"), "text"),
    **dict.fromkeys(("binary", "varbinary"), "bytes"),
    **dict.fromkeys(("date", "datetime", "timestamp", "time"), "moment"),
    **dict.fromkeys(("uuid", "inet4", "inet6"), "address"),
}
_INTEGERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})
_FORMS: Mapping[KeyKind, re.Pattern[str]] = {
    "number": re.compile(r"-?\d+(\.\d+)?"),
    "text": re.compile(r"([0-9A-F]{2})*"),
    "bytes": re.compile(r"([0-9A-F]{2})*"),
    "moment": re.compile(r"-?[0-9:. -]+"),
    "address": re.compile(r"[0-9A-Fa-f:.-]+"),
}
_NAME = re.compile(r"\w+")


class NoBound(SourceError):
    """A text of the splits table that no bound of the key can be."""


@dataclass(frozen=True)
class KeyColumn:
    """A key column that can be compared with a literal. `integer`: whole numbers, whose bounds can be computed."""

    name: str
    kind: KeyKind
    integer: bool = False
    charset: str | None = None
    collation: str | None = None

    @classmethod
    def of(cls, name: str, data_type: str, charset: str | None, collation: str | None) -> KeyColumn | None:
        """None for a type whose order and literals do not agree (ENUM sorts by number and compares by name, …)."""
        kind = _KINDS.get(data_type)
        if kind is None:
            return None
        return cls(name, kind, data_type in _INTEGERS, charset, collation)

    @property
    def quoted(self) -> str:
        return quote(self.name)

    @property
    def fetch(self) -> str:
        """The server's SQL for a bound's text."""
        if self.kind in ("text", "bytes"):
            return f"HEX({quote(self.name)})"
        return f"CAST({quote(self.name)} AS CHAR)"

    def literal(self, value: str) -> str:
        """The server's SQL for a bound. Raises NoBound for a text that no bound of this column can be."""
        if not _FORMS[self.kind].fullmatch(value):
            raise NoBound(
                f"{value!r} is no bound of the key column {self.name}", where="splits table", state="nothing was read"
            )
        if self.kind == "number":
            return value
        if self.kind == "bytes":
            return f"X'{value}'"
        if self.kind == "text":
            charset, collation = _NAME.fullmatch(self.charset or ""), _NAME.fullmatch(self.collation or "")
            if charset is None or collation is None:
                raise SourceError(f"the key column {self.name} has no character set", where="snapshot plan")
            return f"_{charset.group()} X'{value}' COLLATE {collation.group()}"
        return f"'{value}'"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> KeyColumn:
        return cls(**values)


@dataclass(frozen=True)
class MysqlKey(SnapshotKey):
    """`SnapshotKey` of a table of MySQL or MariaDB."""

    @property
    def hint(self) -> str:
        """FORCE INDEX: without it a chunk that is a good part of the table would be read by scanning all of it."""
        return f" FORCE INDEX ({quote(self.index)})" if self.columns else ""

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> MysqlKey:
        columns = tuple(KeyColumn.from_json(column) for column in values["columns"])
        return cls(columns, values["index"], values["unique"])
