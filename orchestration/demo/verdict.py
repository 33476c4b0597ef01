"""The result of the demo, written for a newcomer; and the same clicks without the gate: each joined, when it arrived,
to the part of the table that had landed by then.

That is what a processing-time join does while its build side is still loading. It is computed from the real run: when
each click arrived, and when each epoch of the table was committed. A click whose user is loaded later gets a NULL, and
nothing distinguishes it from one whose user does not exist: it is a silent error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.orchestration.demo.proof import PinnedEpoch, Proof, read
from tidegate.pipelines.location import Location
from tidegate.pipelines.records.kinds import Column, Hidden, Note, fact
from tidegate.pipelines.runtime.ledger import WhereRowsAre
from tidegate.pipelines.text import counted, moment, seconds, why

NO_USER = 0
"""Stands for a NULL key; user ids begin at 1."""


@dataclass(frozen=True)
class Ungated:
    """Of `clicks` joined as they arrived, `nulls` found no user; `silent` of them have one, as the gated run proves.

    `wait_ms` are the median and the longest wait of a click in the gated run, from its arrival to the gate's verdict.
    """

    clicks: int
    nulls: int
    silent: int
    wait_ms: tuple[float, float]


def ungated(
    epochs: list[PinnedEpoch],
    *,
    clicks: Location,
    changelog: Location,
    quarantine: Location,
    landed_at: Mapping[int, int],
) -> Ungated:
    """Join the released clicks as they arrived.

    Args:
        clicks, changelog, quarantine: Where these tables lie.
        landed_at: When each epoch of the changelog was committed, in ms, UTC.
    """
    table = read(clicks, "user_id", "_epoch", "_offset", "_rowtime")
    epoch = _numbers(table, "_epoch")
    released = epoch <= max((item.upto for item in epochs), default=0)
    user = _numbers(table, "user_id")[released]
    offset = _numbers(table, "_offset")[released]
    arrival = _millis(table, "_rowtime")[released]
    found = _found(user, arrival, changelog, landed_at)
    unmatched = np.isin(offset, _numbers(read(quarantine, "_offset"), "_offset"))
    waits = _let_through(epoch[released], epochs) - arrival
    return Ungated(
        clicks=len(user),
        nulls=int((~found).sum()),
        silent=int((~found & ~unmatched).sum()),
        wait_ms=(float(np.median(waits)), float(waits.max())) if len(waits) else (0.0, 0.0),
    )


def _found(user: np.ndarray, arrival: np.ndarray, changelog: Location, landed_at: Mapping[int, int]) -> np.ndarray:
    """For each click, whether its user was there among the rows that had landed when it arrived."""
    changes = read(changelog, "_epoch", "_op", "_seq", "user_id")
    epoch, key = _numbers(changes, "_epoch"), _numbers(changes, "user_id")
    there = changes.column("_op").to_numpy() != "d"
    order = np.lexsort([*_seq(changes), epoch])
    present = np.zeros(max(key.max(initial=0), user.max(initial=0)) + 1, dtype=bool)
    found = np.zeros(len(user), dtype=bool)
    waiting = np.argsort(arrival, kind="stable")
    coming = arrival[waiting]
    done = 0
    for number in sorted(landed_at, key=lambda number: landed_at[number]):
        upto = int(np.searchsorted(coming, landed_at[number], side="left"))
        found[waiting[done:upto]] = present[user[waiting[done:upto]]]
        done = upto
        rows = order[np.searchsorted(epoch[order], number, "left") : np.searchsorted(epoch[order], number, "right")]
        # Of a key that changes twice in an epoch, the later change is assigned later.
        present[key[rows]] = there[rows]
    found[waiting[done:]] = present[user[waiting[done:]]]
    return found & (user != NO_USER)


def _seq(changes: pa.Table) -> list[np.ndarray]:
    """The order of changes as sort keys, the least significant first."""
    seq = changes.column("_seq").combine_chunks()
    return [
        pc.fill_null(seq.field(part), 0).to_numpy(zero_copy_only=False)
        for part in ("row", "position", "file", "log", "phase")
    ]


def _let_through(epoch: np.ndarray, epochs: list[PinnedEpoch]) -> np.ndarray:
    moments = np.zeros(len(epoch), dtype=np.int64)
    for item in epochs:
        moments[(epoch > item.after) & (epoch <= item.upto)] = item.let_through
    return moments


def _numbers(table: pa.Table, name: str) -> np.ndarray:
    return pc.fill_null(table.column(name), NO_USER).to_numpy().astype(np.int64)


def _millis(table: pa.Table, name: str) -> np.ndarray:
    return (
        pc.cast(table.column(name), pa.timestamp("ms"), safe=False).to_numpy().astype("datetime64[ms]").astype(np.int64)
    )


@dataclass(frozen=True)
class Loading:
    """How the table was loaded: `chunks`, the least and the greatest cut, the flip (position; ms, UTC) and its rows."""

    table: str
    rows: int
    chunks: int
    first_cut: str
    last_cut: str
    flip: str
    flipped_at: int
    started_at: int


@dataclass(frozen=True)
class Verdict:
    """The whole demo. `tables` are names and folders, `next_commands` what to type now."""

    clicks: WhereRowsAre
    loading: Loading
    proof: Proof
    ungated: Ungated
    tables: dict[str, str]
    seconds: float
    next_commands: Annotated[Mapping[str, str], Hidden()]

    @property
    @fact()
    def holds(self) -> bool:
        """Whether the gated run is right: all clicks accounted for, none waiting, no row disagrees."""
        return self.clicks.balanced and not self.clicks.waiting and self.proof.holds

    @property
    @fact(said=True)
    def compared(self) -> tuple[Compared, ...]:
        """The same clicks with the gate and without it."""
        clicks, without = self.clicks, self.ungated
        middle, longest = without.wait_ms
        return (
            Compared("clicks in", f"{clicks.landed:,}", f"{without.clicks:,}"),
            Compared("joined to their user", f"{clicks.published:,}", f"{without.clicks - without.nulls:,}"),
            *(Compared(f"quarantined: {_why(name)}", f"{count:,}", "") for name, count in _sorted(clicks.quarantined)),
            Compared("NULL, nobody there", "0", f"{without.nulls - without.silent:,}"),
            Compared("NULL in silence: the user was not loaded yet", "0", f"{without.silent:,}"),
            Compared("a click waited (median, longest)", f"{seconds(middle)}, {seconds(longest)}", "0.0 s"),
        )

    @property
    def notes(self) -> tuple[Note, ...]:
        """The whole text. Its last lines begin with `Verdict:`."""
        width = max(map(len, self.tables), default=0)
        paths = "\n".join(f"{name.ljust(width)}  {path}" for name, path in self.tables.items())
        return (
            *_told(self.loading, self.proof),
            Note("Delta tables", apart=True),  # lines, and no table: what is to be pasted must not be folded
            Note(f"{paths}\n"),
            *(Note(f"next:  {command}   ({what})") for command, what in self.next_commands.items()),
            Note(""),
            *map(Note, verdict_lines(self)),
        )


@dataclass(frozen=True)
class Compared:
    what: Annotated[str, Column("")]
    gated: Annotated[str, Column("with the gate", right=True)]
    ungated: Annotated[str, Column("without it", right=True)]


def verdict_lines(found: Verdict) -> Iterator[str]:
    """The last lines."""
    clicks, proof = found.clicks, found.proof
    unmatched = sum(clicks.quarantined.values())
    reasons = ", ".join(f"{count:,} because {_why(name)}" for name, count in _sorted(clicks.quarantined))
    yield (
        f"Verdict: {clicks.landed:,} clicks in = {clicks.published:,} matched + {unmatched:,} without a match"
        + (f" ({reasons})" if reasons else "")
        + (f" + {clicks.waiting:,} waiting" if clicks.waiting else "")
        + "."
    )
    yield (
        f"Verdict: {proof.disagreeing:,} of {proof.rows:,} output rows disagree with a replay of the writer's own log; "
        f"{proof.lost:,} clicks lost, {proof.extra:,} twice."
    )
    yield (
        f"Verdict: without the gate, {found.ungated.silent:,} of the same clicks would have got a NULL in silence, "
        "though their user exists."
    )
    yield f"Verdict: {'all as promised' if found.holds else 'NOT as promised'}, in {found.seconds:.0f} s."


def _told(loading: Loading, proof: Proof) -> Iterator[Note]:
    """How the table was loaded, and how the output was proved."""
    yield Note(
        f"{loading.table}: {counted(loading.rows, 'changelog row')}, from {counted(loading.chunks, 'chunk')} read "
        "while it was being written to, each in a read view of its own;",
        details=(
            f"their cuts lie between {loading.first_cut} and {loading.last_cut} of the binlog.",
            f"The flip: {moment(loading.flipped_at)} UTC, {seconds(loading.flipped_at - loading.started_at)} after the "
            f"start, with the binlog read up to {loading.flip}: at or past every cut.",
        ),
        apart=True,
    )
    replayed = f"{counted(proof.transactions, 'transaction')} ({counted(proof.changes, 'change')}) of the writer's log"
    text = f"Proof: {replayed} were replayed in plain Python to the binlog position of every release."
    yield Note(text, details=tuple(map(str, proof.examples)))


def _sorted(reasons: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(reasons.items(), key=lambda item: -item[1])


def _why(reason: str) -> str:
    """A reason without the table's name: there is only one."""
    return why(reason.partition("@")[0])
