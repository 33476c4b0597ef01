"""The processing-time temporal join in plain Python: what DESIGN's rulings say, with nothing of Tidegate in it.

A release matches every probe row that has landed since the last one against the build's state at that moment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Row = Mapping[str, Any]


@dataclass
class Oracle:
    """One build side keyed by `key`, one probe, one INSERT.

    `kind` is LEFT or INNER, `on_unmatched` is quarantine or publish.
    """

    key: str
    kind: str = "LEFT"
    on_unmatched: str = "quarantine"
    state: dict[Any, Row] = field(default_factory=dict)
    seen: set[Any] = field(default_factory=set)
    flipped: bool = False
    landed: list[Row] = field(default_factory=list)
    published: list[tuple[Row, Row | None]] = field(default_factory=list)
    quarantined: list[tuple[Row, str]] = field(default_factory=list)
    dropped: list[tuple[Row, str]] = field(default_factory=list)

    def change(self, op: str, row: Row) -> None:
        """A change of the build side."""
        key = row[self.key]
        self.seen.add(key)
        if op == "-D":
            self.state.pop(key, None)
        elif op in ("+I", "+U"):
            self.state[key] = row

    def probe(self, row: Row) -> None:
        """A probe row lands."""
        self.landed.append(row)

    def release(self) -> None:
        """All that has landed is released, if the build side has flipped."""
        if not self.flipped:
            return
        for row in self.landed:
            why = self._why(row[self.key])
            if why is None:
                self.published.append((row, self.state[row[self.key]]))
            elif self.on_unmatched == "quarantine":
                self.quarantined.append((row, why))
            elif self.kind == "LEFT":
                self.published.append((row, None))
            else:
                self.dropped.append((row, why))
        self.landed.clear()

    def _why(self, key: Any) -> str | None:
        if key is None:
            return "key-null"
        if key in self.state:
            return None
        return "deleted" if key in self.seen else "key-absent"
