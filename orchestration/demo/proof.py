"""The demo's own proof: replay what the writer recorded, in plain Python, and compare every output row.

The table at a pinned binlog position is the table as it was filled, changed by every transaction that MariaDB reports
before that position. Nothing of the join, of the changelog or of the gate is used for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from tidegate.orchestration.demo import writer
from tidegate.pipelines.lake.adopt import there
from tidegate.pipelines.location import Location
from tidegate.pipelines.records.kinds import fact


def read(path: Location, *columns: str) -> pa.Table:
    """Today's rows of the table at `path`."""
    return there(path).rows().to_table(columns=list(columns))


EXAMPLES = 3
ABSENT = object()


@dataclass(frozen=True)
class PinnedEpoch:
    """One release: clicks of the epochs after < epoch <= upto, joined to the table as of `position`.

    `let_through` (ms, UTC) is when the gate's verdict fell.
    """

    epoch: int
    after: int
    upto: int
    position: str
    let_through: int


@dataclass(frozen=True)
class Proof:
    """`rows` were compared and `disagreeing` of them differ from the replay. `lost` clicks are in no output row,
    `extra` output rows have no click. `transactions` and `changes` were replayed."""

    rows: int
    disagreeing: int
    lost: int
    extra: int
    transactions: int
    changes: int
    examples: tuple[str, ...] = ()

    @property
    @fact()
    def holds(self) -> bool:
        return not (self.disagreeing or self.lost or self.extra)


class Replay:
    """The table as user_id -> gender, moved forward transaction by transaction."""

    def __init__(self, start: Iterable[tuple[int, str]], transactions: Iterator[writer.Transaction]) -> None:
        self.state = dict(start)
        self.transactions = 0
        self.changes = 0
        self._coming = transactions
        self._next = next(transactions, None)

    def upto(self, number: int) -> None:
        """Apply every transaction up to `number`."""
        while self._next is not None and self._next.number <= number:
            for change in self._next.changes:
                writer.apply(self.state, change)
            self.transactions += 1
            self.changes += len(self._next.changes)
            self._next = next(self._coming, None)


def prove(
    epochs: Iterable[PinnedEpoch],
    *,
    start: Iterable[tuple[int, str]],
    journal: Path,
    transaction_at: Callable[[str], int],
    clicks: Location,
    published: Location,
    quarantine: Location,
) -> Proof:
    """Compare every output row of `epochs`.

    Args:
        start: The table as it was filled.
        transaction_at: Asks the database which transaction a binlog position comes after.
        clicks, published, quarantine: Where these tables lie.
    """
    landed = _by_epoch(clicks, ("user_id", "item_id"))
    good = _by_epoch(published, ("user_id", "item_id", "gender"))
    quarantined = _by_epoch(quarantine, ("user_id", "item_id", "_reason"))
    replay = Replay(start, writer.read(journal))
    rows = disagreeing = lost = extra = 0
    examples: list[str] = []
    for epoch in sorted(epochs, key=lambda epoch: epoch.epoch):
        replay.upto(transaction_at(epoch.position))
        matched, unmatched = good.get(epoch.epoch, []), quarantined.get(epoch.epoch, [])
        wrong = [*_wrong_matches(replay.state, matched), *_wrong_reasons(replay.state, unmatched)]
        examples += [f"epoch {epoch.epoch}: {text}" for text in wrong[: EXAMPLES - len(examples)]]
        disagreeing += len(wrong)
        rows += len(matched) + len(unmatched)
        came = Counter(row for number in range(epoch.after + 1, epoch.upto + 1) for row in landed.get(number, ()))
        went = Counter((user, item) for user, item, _ in [*matched, *unmatched])
        lost += (came - went).total()
        extra += (went - came).total()
    known = {epoch.epoch for epoch in epochs}
    extra += sum(len(found) for number, found in [*good.items(), *quarantined.items()] if number not in known)
    return Proof(rows, disagreeing, lost, extra, replay.transactions, replay.changes, tuple(examples))


def _wrong_matches(state: dict[int, str], rows: list[tuple]) -> list[str]:
    return [
        f"user {user} was published as {gender}, the replay says {state.get(user, 'not there')}"
        for user, _, gender in rows
        if state.get(user, ABSENT) != gender
    ]


def _wrong_reasons(state: dict[int, str], rows: list[tuple]) -> list[str]:
    return [
        f"user {user} was quarantined ({reason}), the replay says {state.get(user, 'not there')}"
        for user, _, reason in rows
        if user in state or (user is None) != reason.startswith("unmatched:key-null")
    ]


def _by_epoch(path: Location, columns: tuple[str, ...]) -> dict[int, list[tuple]]:
    table = read(path, "_epoch", *columns)
    found: dict[int, list[tuple]] = {}
    values = [table.column(name).to_pylist() for name in columns]
    for epoch, *row in zip(table.column("_epoch").to_pylist(), *values, strict=True):
        found.setdefault(epoch, []).append(tuple(row))
    return found
