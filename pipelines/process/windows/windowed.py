"""Aggregates over windows as SQL defines them: what is added up before the function sees it, and what is emitted.

Rows of one landed epoch see the same time, so those of one window and key may be added up beforehand: Spark does that,
and passes the function one record for each. Expressions are Spark SQL; times are BIGINT, ms, UTC.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

WINDOW_END = "window_end"
"""The first part of the key, and of what is emitted: where the window ends."""

LEFT_OUT = ("dropped:where", "dropped:time-null", "dropped:late")
"""The counts of rows that are in no window, by reason: WHERE, no time, or all of its windows were emitted."""


@dataclass(frozen=True)
class WindowTable:
    """TUMBLE, HOP or CUMULATE; `size`, `step` and `offset` in ms.

    `step`: HOP's slide, CUMULATE's step; TUMBLE's is its size. `size` is a multiple of it.
    """

    kind: Literal["TUMBLE", "HOP", "CUMULATE"]
    size: int
    step: int
    offset: int = 0

    def __str__(self) -> str:
        lengths = [timedelta(milliseconds=length) for length in (self.size, self.step)]
        text = {"TUMBLE": "TUMBLE of {0}", "HOP": "HOP of {0} every {1}", "CUMULATE": "CUMULATE up to {0} every {1}"}
        moved = f", moved by {self.offset} ms" if self.offset else ""
        return text[self.kind].format(*lengths) + moved

    def ends(self, time: str) -> str:
        """Where the windows of a time end: an ARRAY."""
        first = f"{self._floor(time, self.step)} + {self.step}L"
        return f"sequence({first}, {self.last_end(time)}, {self.step}L)"

    def last_end(self, time: str) -> str:
        """Where the last of the windows of a time ends: once it is emitted, the time is in no open window."""
        start = self._floor(time, self.step if self.kind == "HOP" else self.size)
        return f"({start} + {self.size}L)"

    def start(self, end: str) -> str:
        """Where the window that ends at `end` starts."""
        return self._floor(f"({end} - 1L)", self.size) if self.kind == "CUMULATE" else f"({end} - {self.size}L)"

    def _floor(self, time: str, step: int) -> str:
        return f"({time} - pmod({time} - {self.offset}L, {step}L))"


@dataclass(frozen=True)
class Group:
    """One of the expressions that rows are grouped by."""

    name: str
    expression: str
    spark_type: str


@dataclass(frozen=True)
class Part:
    """What is stored of a window for an aggregate.

    Attributes:
        kind: How two of it become one; a set is emitted as its size.
        expression: A Spark aggregate over rows.
        type: Of what is stored, in Flink SQL's spelling; `spark_type` in Spark's.
    """

    name: str
    kind: Literal["sum", "min", "max", "set"]
    expression: str
    type: str
    spark_type: str

    @property
    def emitted_type(self) -> str:
        """The Spark type of what is emitted for it."""
        return "BIGINT" if self.kind == "set" else self.spark_type


@dataclass(frozen=True)
class WindowedQuery:
    """SELECT … FROM TABLE(TUMBLE(…)) WHERE … GROUP BY window_start, window_end, … HAVING …, without what is selected.

    Attributes:
        alias: What `where`, `groups` and `parts` call the table.
        time_column: The table's time attribute; its rowtime in `event_time`, else a PROCTIME() column.
        having: Over what is emitted.
    """

    alias: str
    table: WindowTable
    time_column: str
    event_time: bool
    where: str | None
    groups: tuple[Group, ...]
    parts: tuple[Part, ...]
    having: str | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that make the key."""
        return (WINDOW_END, *(group.name for group in self.groups))

    @property
    def records(self) -> dict[str, str]:
        """What the function is handed: name -> Spark type."""
        return {**self._keys, **{part.name: part.spark_type for part in self.parts}}

    @property
    def emitted(self) -> dict[str, str]:
        """What the function emits: name -> Spark type."""
        return {**self._keys, **{part.name: part.emitted_type for part in self.parts}}

    @property
    def _keys(self) -> dict[str, str]:
        return {WINDOW_END: "BIGINT", **{group.name: group.spark_type for group in self.groups}}

    @property
    def definition(self) -> str:
        """Identifies what is stored, whatever the table's alias: state made under another definition means something
        else. 16 hex digits."""
        parts = repr((self.table, self.time_column, self.event_time, self.where, self.groups, self.parts))
        return hashlib.sha256(parts.replace(f"`{self.alias}`.", "").encode()).hexdigest()[:16]
