"""What the writer committed, in order: one JSON line a transaction. Nothing of Tidegate's is needed to read it.

    {"transaction": 17, "at": 1767225600000, "changes": [["u", 4711, "f"], ["d", 42], ["k", 7, 1000007]]}

`transaction` counts up with the server's own commits (the number of its GTID), `at` is ms, UTC. A change is an insert
(i), an update (u), a delete (d), or a key that became another (k).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Change = Sequence[Any]


@dataclass(frozen=True)
class Transaction:
    """One commit."""

    number: int
    at: int
    changes: tuple[Change, ...]

    def line(self) -> str:
        return json.dumps({"transaction": self.number, "at": self.at, "changes": self.changes}) + "\n"


def read(path: Path) -> Iterator[Transaction]:
    """All commits, in order."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            found = json.loads(line)
            yield Transaction(found["transaction"], found["at"], tuple(map(tuple, found["changes"])))


def apply(state: MutableMapping[int, str], change: Change) -> None:
    """Make one change in a table held as user_id -> gender."""
    kind, user_id = change[0], change[1]
    if kind in "iu":
        state[user_id] = change[2]
    elif kind == "d":
        del state[user_id]
    else:
        state[change[2]] = state.pop(user_id)
