"""What the demo found, as a newcomer reads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import RenderableType
from rich.markup import escape

from tidegate.orchestration.console.grid import grid
from tidegate.orchestration.demo.proof import Proof
from tidegate.orchestration.demo.ungated import Ungated
from tidegate.pipelines.runtime.accounting import WhereRowsAre
from tidegate.pipelines.text import moment, seconds, why


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
    next_commands: Mapping[str, str]

    @property
    def holds(self) -> bool:
        """Whether the gated run is right: all clicks accounted for, none waiting, no row disagrees."""
        return self.clicks.balanced and not self.clicks.waiting and self.proof.holds

    def to_json(self) -> dict[str, Any]:
        """The same as JSON values."""
        clicks = asdict(self.clicks) | {"published": self.clicks.published, "balanced": self.clicks.balanced}
        return {
            "holds": self.holds,
            "clicks": clicks,
            "loading": asdict(self.loading),
            "proof": asdict(self.proof) | {"holds": self.proof.holds},
            "ungated": asdict(self.ungated),
            "tables": self.tables,
            "seconds": round(self.seconds, 1),
        }


def shown(found: Verdict) -> Iterator[RenderableType]:
    """The whole text. Its last lines begin with `Verdict:`."""
    yield ""
    yield _comparison(found)
    yield ""
    yield from _loading(found.loading)
    yield from _proof(found.proof)
    yield ""
    tables = grid("table", "folder (Delta Lake)")
    for name, path in found.tables.items():
        tables.add_row(escape(name), escape(path))
    yield tables
    yield ""
    commands = grid("next", "")
    for command, what in found.next_commands.items():
        commands.add_row(f"[bold]{escape(command)}[/]", escape(what))
    yield commands
    yield ""
    yield from verdict_lines(found)


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


def _comparison(found: Verdict) -> RenderableType:
    clicks, without = found.clicks, found.ungated
    table = grid("", "with the gate", "without it", right=("with the gate", "without it"))
    table.add_row("clicks in", f"{clicks.landed:,}", f"{without.clicks:,}")
    table.add_row("joined to their user", f"{clicks.published:,}", f"{without.clicks - without.nulls:,}")
    for name, count in _sorted(clicks.quarantined):
        table.add_row(f"  quarantined: {escape(_why(name))}", f"{count:,}", "")
    table.add_row("NULL, nobody there", "0", f"{without.nulls - without.silent:,}")
    table.add_row("NULL in silence: the user was not loaded yet", "0", f"[bold red]{without.silent:,}[/]")
    middle, longest = without.wait_ms
    table.add_row("a click waited (median, longest)", f"{seconds(middle)}, {seconds(longest)}", "0.0 s")
    return table


def _loading(found: Loading) -> Iterator[RenderableType]:
    yield escape(
        f"{found.table}: {found.rows:,} changelog rows. {found.chunks} chunks were read while the table was being "
        "written to, each in a read view of its own;"
    )
    yield escape(f"  their cuts lie between {found.first_cut} and {found.last_cut} of the binlog.")
    yield escape(
        f"  The flip: {moment(found.flipped_at)} UTC, {seconds(found.flipped_at - found.started_at)} after the start, "
        f"with the binlog read up to {found.flip}: at or past every cut."
    )


def _proof(found: Proof) -> Iterator[RenderableType]:
    yield escape(
        f"Proof: {found.transactions:,} transactions ({found.changes:,} changes) of the writer's log were replayed in "
        "plain Python to the binlog position of every release."
    )
    for example in found.examples:
        yield f"  [red]{escape(example)}[/]"


def _sorted(reasons: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(reasons.items(), key=lambda item: -item[1])


def _why(reason: str) -> str:
    """A reason without the table's name: there is only one."""
    return why(reason.partition("@")[0])
