"""The same clicks without the gate: each joined, when it arrived, to what of the table had landed by then.

That is what a processing-time join does whose build side is still loading. It is computed from the real run: when each
click was due, and when each epoch of the table was committed. A click whose user is only loaded later gets a NULL, and
nothing distinguishes it from one whose user is not there: it is silent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.orchestration.demo.proof import PinnedEpoch, read
from tidegate.pipelines.location import Location

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
