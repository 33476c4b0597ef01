"""Statements that read one another's targets: what a target must be to be read, and the order of the statements."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from tidegate.pipelines.connectors.spec import never_signalling, ways_out
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.sql.model import Insert, ProcessInsert
from tidegate.pipelines.sql.roles import read_back
from tidegate.pipelines.sql.tree import Declared
from tidegate.pipelines.syntax.source import Source, Span
from tidegate.pipelines.syntax.statements import InsertInto
from tidegate.pipelines.syntax.types import quoted


class NotWritten(Exception):
    """A statement reads, at a place, a target whose INSERT is not compiled yet."""

    def __init__(self, target: str, at: Span) -> None:
        super().__init__(target)
        self.target, self.at = target, at


Compile = Callable[[], Insert]


@dataclass(frozen=True)
class Chains:
    """The INSERTs of a script, each behind the one whose target it reads, and else as they are written. `targets`: of
    all of them."""

    source: Source
    targets: Collection[str]
    done: list[tuple[InsertInto, Insert]] = field(default_factory=list)
    _written: dict[str, Insert] = field(default_factory=dict)
    _waiting: list[tuple[NotWritten, InsertInto, Compile]] = field(default_factory=list)

    def add(self, statement: InsertInto, compiled: Compile) -> None:
        """Compile the next INSERT, or leave it until the target that it reads is written. Raises SqlError."""
        try:
            insert = compiled()
        except NotWritten as reads:
            self._waiting.append((reads, statement, compiled))
            return
        self.done.append((statement, insert))
        self._written.setdefault(insert.target, insert)
        for each in [each for each in self._waiting if each[0].target == insert.target]:
            self._waiting.remove(each)
            self.add(*each[1:])

    def require_all(self) -> None:
        """Raise SqlError where statements read one another's targets in a circle."""
        if not self._waiting:
            return
        reads = {statement.target.text: each for each, statement, _ in self._waiting}
        circle, name = list[str](), next(iter(reads))
        while name not in circle:
            circle.append(name)
            name = reads[name].target
        circle = circle[circle.index(name) :]
        lines = ", ".join(f"line {self.source.location(reads[name].at.start).line}" for name in circle)
        what = f"{' reads '.join([*circle, circle[0]])}: no row could ever enter this circle ({lines})"
        raise self.source.error(reads[circle[-1]].at, what, "let one of them read a source table")

    def read(self, found: Declared, at: Span, also: Span | None, *, waits: bool) -> Declared | None:
        """A target as what a query reads `at` a place; None for a table that is none. `waits`: its INSERT must be
        compiled. Raises NotWritten, SqlError."""
        table = found.table
        if table.name not in self.targets:
            return None
        writer = self._written.get(table.name)
        if writer is None and waits:
            raise NotWritten(table.name, at)
        problem = unreadable(table, writer) if writer is not None else None
        if problem is not None:
            raise self.source.error(at, *problem, also)
        return replace(found, is_target=True)

    def require_build(self, build: Declared, taken: Collection[str], at: Span) -> None:
        """Raise SqlError where a statement that takes the rows of tables cannot join what another one writes, `at` a
        place. Any other table passes."""
        name = build.table.name
        if not build.is_target:
            return
        if name in taken:
            what = f"{name} is the target of an INSERT, and cannot be probe and build side of one statement"
            raise self.source.error(at, what, read_back(name))
        problem = self._unjoinable(name)
        if problem is not None:
            raise self.source.error(at, *problem)

    def _unjoinable(self, name: str) -> tuple[str, str] | None:
        """Why no statement can join the target of an INSERT, and what to do instead; None if one can. It must be known
        when all of its rows up to the flip of what its INSERT takes are there."""
        above = [name]
        while above:
            table = above.pop()
            writer = self._written.get(table)
            if writer is None or writer.tree is None:
                continue
            scan, of = writer.tree.scan, name if table == name else f"{table}, which {name} is made of,"
            if isinstance(writer, ProcessInsert):
                what = f"{of} has windows, and cannot be a build side yet: nothing says when it is complete"
                return what, read_back(name)
            if any(branch.unnests for branch in scan.taken):
                return f"{of} is the target of an UNNEST, and cannot be a build side yet", read_back(name)
            for source in [leaf.declared for leaf in scan.leaves]:
                of = source.table.name
                if not source.is_target and never_signalling(source.spec, source.table.options):
                    ways = [f"'{option}' = '{value}'" for option, value in ways_out(source.spec, source.table.options)]
                    what = f"{name} is never complete: {of}, whose rows it has, has a bounded phase and never says when"
                    hint = f"set {' or '.join(ways)} in {of}" if ways else f"use another connector for {of}"
                    return f"{what} it is over", hint
                above.append(of)
        return None


def unreadable(table: Table, writer: Insert) -> tuple[str, str] | None:
    """Why no statement can read the target of an INSERT, and what to do instead; None if one can."""
    assert writer.tree is not None
    probe = writer.tree.scan.declared
    if not probe.only_grows:
        what = f"{table.name} has the updates of {writer.probe}, and no statement can read such a target"
        return what, f"read {writer.probe} itself"
    for column in table.columns:
        if column.expression is not None and not column.proctime:
            what = f"`{column.name}` of {table.name} is computed, and no target stores what is computed"
            return what, f"select it in the INSERT INTO {table.name}, or leave it out"
    spec, own = table.watermark, probe.table.watermark
    if spec is None or (spec.expression == quoted(spec.column) and spec.column in _carriers(writer, probe.table)):
        return None
    what = f"WATERMARK FOR {spec.column} in {table.name} is not that of the rows which its INSERT takes"
    if isinstance(writer, ProcessInsert):
        return what, f"leave it out, and read {table.name} by PROCTIME(): a window's row comes once it is emitted"
    if own is None:
        return what, f"{writer.probe} has no WATERMARK FOR: leave this one out, and read {table.name} by PROCTIME()"
    return what, f"select {own.column} of {writer.probe} as it is, and declare WATERMARK FOR it AS it, without more"


def _carriers(writer: Insert, probe: Table) -> list[str]:
    """The columns of a target that hold the event time of the `probe`'s rows as it is."""
    own = probe.watermark
    if own is None or len(own.path) > 1:
        return []
    time = f"{quoted(writer.probe_alias)}.{quoted(own.column)}"
    return [item.name for item in writer.projections if item.expression == time]


def time_column(writer: Insert, target: Table) -> str | None:
    """The column of a target that holds the event time of the rows which its INSERT takes; None if none does."""
    assert writer.tree is not None
    found = _carriers(writer, writer.tree.scan.declared.table)
    declared = target.watermark.column if target.watermark is not None else None
    return declared if declared in found else next(iter(found), None)
