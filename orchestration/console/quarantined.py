"""The quarantine of INSERTs: for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.markup import escape

from tidegate.orchestration.console.grid import grid
from tidegate.pipelines.commands import AS_WRITTEN, Commands, NextCommand
from tidegate.pipelines.runtime.epochs import Asked
from tidegate.pipelines.runtime.quarantine import QuarantinedRow, QuarantinedRows, QuarantinedSum, short, summed
from tidegate.pipelines.runtime.releasing.insert_runner import Published
from tidegate.pipelines.sql.compile import MissedKey
from tidegate.pipelines.text import counted, key, moment, number, why

SHOWN_EPOCHS = 40
LONGEST = 200
"""Characters of a row that is shown to a person."""
_STATES = {"open": "in quarantine", "released": "released since", "discarded": "discarded"}


def of_listing(found: Mapping[str, Sequence[QuarantinedRows]]) -> dict[str, Any]:
    """All of it by epoch and reason; times in ms, UTC."""
    return {
        "inserts": [
            {"insert": insert, **_totals(quarantined), "kept": [_of_rows(item) for item in quarantined]}
            for insert, quarantined in found.items()
        ]
    }


def _totals(quarantined: Sequence[QuarantinedRows] | Sequence[QuarantinedSum]) -> dict[str, int]:
    return {state: sum(item.rows for item in quarantined if item.state == state) for state in _STATES}


def _of_rows(item: QuarantinedRows) -> dict[str, Any]:
    return {
        "epoch": item.epoch,
        "reason": item.reason,
        "rows": item.rows,
        "at": item.at,
        "state": item.state,
        "pins": [{"table": pin.table, "generation": pin.generation, "epoch": pin.epoch} for pin in item.plan.pins],
        "taken": _of_taken(item),
        **({"output": item.output} if item.output else {}),
    }


def _of_taken(item: QuarantinedRows) -> dict[str, Any] | None:
    if item.taken is None:
        return None
    who = item.request
    taken = {"epoch": item.taken.epoch, "at": item.taken.instant, "kind": item.taken.kind}
    return {**taken, **({"by": who.by, "because": who.because} if who else {})}


def listing(
    found: Mapping[tuple[str, str], Sequence[QuarantinedSum]], commands: Commands = AS_WRITTEN
) -> Iterator[RenderableType]:
    """The same for people, by INSERT and second output (or ""): what is in quarantine first, then what became of the
    rest."""
    for (insert, output), quarantined in found.items():
        totals = _totals(quarantined)
        text = ", ".join(f"{counted(rows, 'row')} {_STATES[state]}" for state, rows in totals.items() if rows)
        name = f"{insert}, second output {output}" if output else insert
        yield escape(f"{name}: {text or 'no row was ever quarantined'}")
        for state in _STATES:
            own = [item for item in quarantined if item.state == state]
            if own:
                yield ""
                yield _table(own, state)
        if totals["open"]:
            yield escape(f"\n  next:  {commands.shown(NextCommand('quarantine show', (insert,)))}")
        yield ""


def _table(found: Sequence[QuarantinedSum], state: str) -> RenderableType:
    after = {"open": (), "released": ("by epoch",), "discarded": ("by", "because")}[state]
    shown = grid(_STATES[state], "rows", "epoch", "first (UTC)", "last", *after, right=("rows",))
    for item in sorted(found, key=lambda item: (item.reason, item.decided, item.first))[:SHOWN_EPOCHS]:
        (first, at), (last, until) = item.first, item.last
        epochs, until = (str(first), "") if item.epochs == 1 else (f"{first} to {last} ({item.epochs})", moment(until))
        more = map(escape, _after(item, state))
        shown.add_row(escape(short(item.reason)), number(item.rows), epochs, moment(at), until, *more)
    if len(found) > SHOWN_EPOCHS:
        shown.add_row("…", "", "", "", "", *("" for _ in after))
    return shown


def _after(item: QuarantinedSum, state: str) -> tuple[str, ...]:
    epoch, at = item.decided
    if state == "open":
        return ()
    if not epoch:
        return ("", "its held epoch was discarded")
    if state == "released":
        return (f"{epoch}, {moment(at)}",)
    return ", ".join(filter(None, (item.by, moment(at)))), item.because


def of_rows(
    insert: str, rows: Sequence[QuarantinedRow], nearest: Sequence[MissedKey | None], total: int, removed: int = 0
) -> dict[str, Any]:
    """Rows for programs; `removed` more are gone by retention."""
    return {
        "insert": insert,
        "rows": [
            {
                **_of_rows(row.group),
                "op": row.op,
                "place": {name.removeprefix("_"): value for name, value in row.place.items()},
                "values": dict(row.values),
                "probe": None if row.probe is None else dict(row.probe),
                "key": dict(missed.key) if missed else None,
                "nearest": missed.nearest if missed else None,
            }
            for row, missed in zip(rows, nearest, strict=True)
        ],
        "of": total,
        "removed": removed,
    }


def none_lines(every: Sequence[QuarantinedRows], fitting: Sequence[QuarantinedRows]) -> Iterator[str]:
    """That no row fits, and which rows there are. `fitting`: rows of `every` that are in another state."""
    if fitting:
        states = ", ".join(sorted({item.state for item in fitting}))
        rows = counted(sum(item.rows for item in fitting), "row")
        yield f"There is no such row; {rows} that fit are {states}: --state all"
    elif every:
        reasons = ", ".join(dict.fromkeys(item.short for item in every))
        first, last = min(item.epoch for item in every), max(item.epoch for item in every)
        yield escape(f"There is no such row; epochs {first} to {last} have quarantined rows for: {reasons}")
    else:
        yield "There is no such row: nothing was ever quarantined."


def row_lines(
    rows: Sequence[QuarantinedRow], nearest: Sequence[MissedKey | None], total: int, removed: int = 0
) -> Iterator[RenderableType]:
    """Rows for people: a heading for each epoch and reason, the rows below it; `removed` more are gone by retention."""
    if removed:
        yield f"{counted(removed, 'row')} that fit are gone ('quarantine.retention')."
    last: QuarantinedRows | None = None
    for row, missed in zip(rows, nearest, strict=True):
        if row.group is not last:
            last = row.group
            pins = f", joined to {', '.join(map(str, last.plan.pins))}" if last.plan.pins else ""
            output = f", second output {last.output}" if last.output else ""
            yield escape(f"epoch {last.epoch}, {moment(last.at)} UTC{pins}{output}: {why(last.short)}")
        yield escape(f"  {_values(row.values)}")
        if row.probe is not None:
            yield escape(f"    came as {_values(row.probe)}")
        if missed is not None:
            yield escape(f"    {key(missed.key) or 'the key is an expression'}; nearest version: {missed.nearest}")
    if total > len(rows):
        yield f"… and {total - len(rows):,} more: --limit, or --json"


def _values(row: Mapping[str, Any]) -> str:
    text = json.dumps(dict(row), default=str, ensure_ascii=False)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def of_taken(
    insert: str, request: Asked, wanted: Sequence[QuarantinedRows], done: Sequence[Published] | None
) -> dict[str, Any]:
    """The result of a release or a discard or, if `done` is None, what it would be."""
    own = [item for item in done or () if item.plan.out_of_quarantine]
    took = sum(item.plan.rows_claimed for item in own)
    return {
        "insert": insert,
        "discards": request.discards,
        "dry_run": done is None,
        "taken": sum(item.rows for item in wanted) if done is None else took,
        "lots": [{"epoch": item.epoch, "reason": item.reason, "rows": item.rows} for item in wanted],
        "epochs": [item.epoch for item in own],
        "published": sum(item.staged.counts["to:publish"] for item in own),
        "quarantined": sum(item.staged.counts["to:quarantine"] for item in own),
    }


def would_take(insert: str, request: Asked, wanted: Sequence[QuarantinedRows]) -> Iterator[RenderableType]:
    """What a release or a discard would do."""
    if not wanted:
        yield escape(nothing(insert, request))
        return
    verb = "discard" if request.discards else "join again"
    yield escape(f"{insert}: this would {verb} {counted(sum(item.rows for item in wanted), 'row')}.")
    yield _table(summed(QuarantinedSum.of(item).shown for item in wanted), "open")


def taken_lines(insert: str, request: Asked, done: Sequence[Published]) -> Iterator[RenderableType]:
    """What a release or a discard did."""
    if not any(item.plan.out_of_quarantine for item in done):
        yield escape(nothing(insert, request))
    for item in done:
        took = item.plan.asked if item.plan.out_of_quarantine else None
        if took is None:
            yield escape(f"Epoch {item.epoch} of {insert} was unfinished, and is published first.")
        elif took.discards:
            yield escape(f"{counted(item.plan.rows_claimed, 'row')} of {insert} discarded (epoch {item.epoch}).")
        else:
            # By what was staged: a run that was killed may have committed a part of it.
            went = item.staged.counts
            rest = went["to:drop"]
            dropped = f", {rest:,} left out by WHERE or INNER" if rest else ""
            claimed = counted(item.plan.rows_claimed, "quarantined row")
            yield escape(
                f"Epoch {item.epoch} of {insert} has joined {claimed} again: "
                f"{went['to:publish']:,} published, {went['to:quarantine']:,} back in quarantine{dropped}."
            )


def nothing(insert: str, request: Asked) -> str:
    """There was nothing to take."""
    verb = "discard" if request.discards else "release"
    return f"There is nothing to {verb}: no row of {insert} that fits is in quarantine. Nothing was changed."
