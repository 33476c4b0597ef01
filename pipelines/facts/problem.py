"""A problem: something about a lake that a person must know. And what a look for problems is given: whose, beyond which
bounds, and what sources have reported.

A problem lasts as long as its key is found again. It names what it explains: only the cause is shown and sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tidegate.pipelines.commands import AS_WRITTEN, Advised, Commands, either
from tidegate.pipelines.generations import insert_of, insert_owner
from tidegate.pipelines.lake import Lake, WatermarkRow
from tidegate.pipelines.lake.stream import Stream
from tidegate.pipelines.location import Location
from tidegate.pipelines.records.document import as_json
from tidegate.pipelines.records.kinds import Hidden, Moment, Note
from tidegate.pipelines.runtime.epochs.generations import all_beside, is_over, on_lake
from tidegate.pipelines.runtime.epochs.history import target_of
from tidegate.pipelines.text import moment

if TYPE_CHECKING:
    from tidegate.pipelines.connectors.protocol import Unread
    from tidegate.pipelines.sql.compile import KeyedJoin, Pipeline

Kind = Literal[
    "gate-held",
    "refused",
    "stuck",
    "not-flipped",
    "lag",
    "retention",
    "quarantine-growing",
    "imbalanced",
    "unfinished",
    "differs",
    "run-failed",
    "check-not-run",
    "check-failed",
    "runs-queued",
    "daemon-away",
]
"""The last five are Dagster's: the alerting sensor adds them. `differs` is found by `tidegate verify`."""

FAIL: tuple[Kind, ...] = ("gate-held", "refused", "stuck", "imbalanced", "differs")
"""Kinds that make a command fail: something was not done, or is wrong. The others pass when it is run, or grow."""


@dataclass(frozen=True)
class Problem:
    """One problem. Never holds a secret of a source: texts of errors have none.

    Attributes:
        key: identifies the problem for as long as it lasts.
        subject: what it is about, for the message of its end: an epoch, a partition, a table.
        owner: the table or the INSERT (`insert_owner`) that it is about; empty for none.
        title: the verdict: one sentence.
        text: further sentences.
        counts: rows by reason.
        keys: some of the rows that it is about (MissedKey).
        positions: source table -> how far it is.
        next: what to do, the likeliest first.
        details: small JSON values for programs.
        explains: keys, or beginnings of keys (kind and table), of problems that it is the cause of.
        explained_by: the key of the problem that is the cause of this one; empty for none.
        replaces: the key of a problem that has become this one, so that no message reports its end.
    """

    key: str
    kind: Kind
    title: str
    subject: str = ""
    pipeline: str = ""
    owner: str = ""
    since: Moment = 0
    text: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    keys: tuple[Any, ...] = ()
    positions: Mapping[str, str] = field(default_factory=dict)
    next: tuple[Advised, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    explains: tuple[str, ...] = ()
    explained_by: str = ""
    replaces: Annotated[str, Hidden()] = ""

    @property
    def fails(self) -> bool:
        """Whether a command that finds it leaves with status 1."""
        return self.kind in FAIL

    def is_cause_of(self, other: Problem) -> bool:
        """Whether it explains another problem."""
        return other.key != self.key and any(f"{other.key} ".startswith(f"{begin} ") for begin in self.explains)

    def to_json(self, commands: Commands = AS_WRITTEN) -> dict[str, Any]:
        """The same as JSON values; next commands are written as `commands` shows them."""
        return as_json(self, commands)

    @property
    def headline(self) -> str:
        """Its title, as the beginning of a text; others than this begin with the name of a table."""
        return f"{self.title[:1].upper()}{self.title[1:]}" if self.kind == "gate-held" else self.title

    @property
    def note(self) -> Note:
        """It in a terminal."""
        title = self.headline
        when = f"   (since {moment(self.since)} UTC)"
        ways = either(*self.next) if self.next else ""
        return Note(title + when, "bad" if self.fails else "warn", len(title), ways, self.text, apart=True)


def rooted(problems: Iterable[Problem]) -> list[Problem]:
    """The problems, each with the key of the one that explains it. A cause may be explained itself, by its own."""
    found = list(problems)
    causes = [each for each in found if each.explains]

    def cause(of: Problem) -> str:
        return of.explained_by or next((each.key for each in causes if each.is_cause_of(of)), "")

    return [replace(each, explained_by=cause(each)) for each in found]


def roots(problems: Iterable[Problem]) -> list[Problem]:
    """The problems that no other one explains: what is shown, and sent."""
    return [each for each in problems if not each.explained_by]


@dataclass(frozen=True)
class Bounds:
    """Beyond what something is a problem.

    Attributes:
        flip_within: for a build, from its first plan to its flip.
        max_lag: how far a source may be behind.
        retention_left: the part of its retention that a source's log has to last yet (0 to 1).
        quarantine_rows: rows that may go to an INSERT's quarantine within `quarantine_window`.
        unfinished_within: how long an epoch may be planned while nobody works on it.
        keys: so many keys, with their nearest version, stand in a problem; 0 keeps values of rows out of its texts.
    """

    flip_within: timedelta = timedelta(minutes=30)
    max_lag: timedelta = timedelta(minutes=15)
    retention_left: float = 0.25
    quarantine_rows: int = 100
    quarantine_window: timedelta = timedelta(hours=1)
    unfinished_within: timedelta = timedelta(0)
    keys: int = 10


def in_ms(span: timedelta) -> int:
    """A length of time in ms."""
    return round(span.total_seconds() * 1000)


@dataclass(frozen=True)
class SourceScope:
    """A source table. `build`: it is joined to. `waits`: (INSERT, probe) of the INSERTs that wait for its flip, where
    they are known."""

    table: str
    build: bool = False
    waits: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class InsertScope:
    """An INSERT: where the table of its target lies, where its epochs stage what they quarantine, and its joins. None
    and none, where only the lake is known."""

    insert: str
    target: Location | None = None
    staged: Location | None = None
    joins: tuple[KeyedJoin, ...] = ()

    @property
    def owner(self) -> str:
        return insert_owner(self.insert)


@dataclass(frozen=True)
class Scope:
    """Whose problems are looked for. `qualified`: texts name tables with their pipeline."""

    pipeline: str = ""
    sources: tuple[SourceScope, ...] = ()
    inserts: tuple[InsertScope, ...] = ()
    qualified: bool = False

    @classmethod
    def of(cls, lake: Lake, pipeline: Pipeline | None = None) -> Scope:
        """What a pipeline names; without one, everything that ever ran on the lake."""
        if pipeline is None:
            owners = lake.epochs.owners() if lake.exists() else []
            return cls(
                sources=tuple(
                    SourceScope(name, Stream(lake, name).kind == "build") for name in owners if insert_of(name) is None
                ),
                inserts=tuple(
                    InsertScope(name, target_of(lake, None, name))
                    for name in map(insert_of, owners)
                    if name is not None and not is_over(lake, name)
                ),
            )
        pipeline = on_lake(lake, pipeline)
        apart = all_beside(lake, pipeline)
        waits: dict[str, list[tuple[str, str]]] = {}
        for insert in pipeline.inserts:
            for build in insert.builds:
                waits.setdefault(build, []).append((insert.id, insert.probe))
        return cls(
            pipeline.name,
            tuple(
                SourceScope(table.name, table.name in waits, tuple(waits.get(table.name, ())))
                for table in pipeline.sources
            ),
            tuple(
                InsertScope(name, target_of(lake, apart.get(name, pipeline), name))
                for name in (*(insert.id for insert in pipeline.inserts), *apart)
            ),
        )

    def name(self, of: str) -> str:
        """A table or an INSERT, as texts name it."""
        return f"{self.pipeline}/{of}" if self.qualified else of


@dataclass(frozen=True)
class Asked:
    """What a source has reported after a landed epoch.

    Attributes:
        generation, epoch: the landed epoch.
        even: when it last reported nothing (ms, UTC); None where it never did after this epoch.
        mute: it cannot be queried without being read.
        rest: how much there is, as text; empty for nothing.
        number: `rest` as a number.
        since: the time of the oldest of it (ms, UTC), where the source has one.
    """

    generation: int
    epoch: int
    even: int | None = None
    rest: str = ""
    since: int | None = None
    mute: bool = False
    number: int = 0

    def is_of(self, log: WatermarkRow) -> bool:
        return (self.generation, self.epoch) == (log.generation, log.epoch)

    def unread_since(self, log: WatermarkRow) -> int | None:
        """Since when, at most, there is something after this landed epoch (ms, UTC); None if there is nothing, or
        the source was not queried since it landed."""
        if not self.rest or not self.is_of(log):
            return None
        if self.since is not None:
            return self.since
        return max(log.landed_at - (log.lag_ms or 0), self.even or 0)


def after(before: Asked | None, log: WatermarkRow, unread: Unread | None, now: int) -> Asked:
    """The report to store for a source's answer, given the report `before`. None: it cannot be asked."""
    if unread is None:
        return Asked(log.generation, log.epoch, mute=True)
    if not unread.rest:
        return Asked(log.generation, log.epoch, even=now)
    even = before.even if before is not None and before.is_of(log) else None
    return Asked(log.generation, log.epoch, even, unread.rest, unread.since, number=unread.number)


@dataclass(frozen=True)
class Reported:
    """What a source of this connector has reported: what has not landed, and how long it still keeps what comes after
    `position`: `left_s` of `kept_s` seconds; None where nothing is removed by age, or it does not say."""

    unread: Asked | None = None
    left_s: float | None = None
    kept_s: float | None = None
    position: str = ""
    connector: str = ""
