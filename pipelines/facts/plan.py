"""What a script means, and what a run of it would do next. Values of secrets are not in it."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from tidegate.pipelines.commands import NextCommand
from tidegate.pipelines.connectors.options import on_unmatched
from tidegate.pipelines.connectors.registry import connector
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.records.kinds import Column, Count, Hidden, Note, fact
from tidegate.pipelines.runtime.differences import BRING_BACK, Difference, left_elsewhere, not_where_published
from tidegate.pipelines.runtime.epochs import Pin
from tidegate.pipelines.sql import explain as explained
from tidegate.pipelines.sql import show_create_function, show_create_table, show_statements, to_properties
from tidegate.pipelines.sql.canonical import computes
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.sql.explanation import settings_of
from tidegate.pipelines.sql.model import Insert
from tidegate.pipelines.text import counted

if TYPE_CHECKING:
    from tidegate.pipelines.runtime.dry_run import InsertDraft
    from tidegate.pipelines.runtime.landing.advances import SourceDraft
    from tidegate.pipelines.runtime.runner import Runner


@dataclass(frozen=True)
class DeclaredFunction:
    name: str
    language: str
    reference: str
    signature: str
    create: str


@dataclass(frozen=True)
class DeclaredColumn:
    """`computed`: its expression; None for one that is stored."""

    name: str
    type: str
    nullable: bool
    computed: str | None


@dataclass(frozen=True)
class DeclaredTable:
    """`phases`, `signals`: whether a source has a bounded phase first, and reports its end."""

    OPTIONAL: ClassVar = ("phases", "signals")

    name: str
    role: str
    connector: str
    columns: tuple[DeclaredColumn, ...]
    primary_key: tuple[str, ...]
    watermark: str | None
    properties: Mapping[str, str]
    create: str
    options: Mapping[str, str]
    phases: bool | None = None
    signals: bool | None = None

    @classmethod
    def of(cls, table: Table) -> DeclaredTable:
        spec = connector(table.connector).spec if table.role in ("build", "probe") else None
        return cls(
            table.name,
            table.roles,
            table.connector,
            tuple(DeclaredColumn(item.name, item.type, item.nullable, item.sql) for item in table.columns),
            tuple(table.primary_key),
            table.watermark.sql or table.watermark.expression if table.watermark else None,
            to_properties(table.watermark) if table.watermark else {},
            show_create_table(table),
            dict(table.options.redacted()),
            spec and spec.phases(table.options),
            spec and spec.signals(table.options),
        )


@dataclass(frozen=True)
class DeclaredJoin:
    build: str
    kind: str
    time: str
    key: tuple[str, ...]


@dataclass(frozen=True)
class DeclaredInsert:
    id: str
    target: str
    probe: str
    time: str
    joins: tuple[DeclaredJoin, ...]
    columns: tuple[str, ...]
    on_unmatched: str
    digest: str

    @classmethod
    def of(cls, pipeline: Pipeline, insert: Insert) -> DeclaredInsert:
        keyed = [(join, tuple(key.column for key in join.keys)) for join in insert.joins]
        return cls(
            insert.id,
            insert.target,
            insert.probe,
            insert.time,
            tuple(DeclaredJoin(join.build, join.kind, join.time, key) for join, key in keyed),
            tuple(item.name for item in insert.projections),
            on_unmatched(pipeline.table(insert.target)),
            computes(pipeline, insert),
        )


@dataclass(frozen=True)
class Explanation:
    """A compiled script. `definitions`: where a lake keeps another definition, None without a lake; `missing`: the
    variables of `environment` that are not set; `text`: what it will do."""

    OPTIONAL: ClassVar = ("definitions",)

    pipeline: str
    settings: Mapping[str, str]
    functions: tuple[DeclaredFunction, ...]
    tables: tuple[DeclaredTable, ...]
    inserts: tuple[DeclaredInsert, ...]
    environment: tuple[str, ...]
    definitions: tuple[Difference, ...] | None
    missing: tuple[str, ...]
    text: Annotated[str, Hidden()]
    lake: Annotated[Path | None, Hidden()] = None

    @property
    def refused(self) -> bool:
        """Whether a run on the lake would be refused."""
        return any(item.refused for item in self.definitions or ())

    @property
    def head(self) -> tuple[Note, ...]:
        return (Note(self.text), *self._compared())

    def _compared(self) -> Iterator[Note]:
        if self.definitions == ():
            yield Note(f"{self.lake} keeps the same definitions.")
        for item in self.definitions or ():
            began = f"{item.owner}, {item.what}: "
            verdict = "refused" if item.refused else "goes on from the next epoch on"
            versions = (f"lake:   {item.lake}", f"script: {item.script}")
            yield Note(began + verdict, "bad" if item.refused else "plain", details=versions)

    @property
    def notes(self) -> tuple[Note, ...]:
        first = f"first: export {' '.join(f'{name}=…' for name in self.missing)}"
        refused = [item for item in self.definitions or () if item.refused]
        if refused:
            began, told = "A run of it is refused:", f"{counted(len(refused), 'definition')} of the lake changed"
            if self.missing:
                same = f"{first}   (what they say may be the same)"
                return (Note(f"{began} {told}", "bad", len(began), details=(same,)),)
            in_another = NextCommand("run", ("--lake", "DIR"), "in another lake; this one stays as it is")
            if not_where_published(refused):
                told = left_elsewhere(list(dict.fromkeys(item.owner for item in refused)))
                return (Note(f"{began} {told}", "bad", len(began), BRING_BACK + in_another),)
            ways = "put the old declarations back, or: " + in_another
            return (Note(f"{began} {told}", "bad", len(began), ways),)
        size = f"{counted(len(self.tables), 'table')}, {counted(len(self.inserts), 'INSERT')}"
        goes_on = "" if self.definitions is None else "; the lake goes on with it"
        began = "The script is right:"
        details = () if self.inserts else ("It has no INSERT, so a run of it lands nothing.",)
        details = (*details, first) if self.missing else details
        text = f"{began} {size}{goes_on}. Nothing was run."
        return (Note(text, "good", len(began), NextCommand("run"), details),)


def explain(
    pipeline: Pipeline, definitions: Collection[Difference] | None = None, lake: Path | None = None, *, statements: bool
) -> Explanation:
    """What a script means. `definitions`: how the lake's differ from it; `statements`: its text is what it declares,
    statement by statement."""
    variables = sorted({name for table in pipeline.tables.values() for name in table.options.variables()})
    functions = tuple(
        DeclaredFunction(item.name, item.language, item.reference, item.signature, show_create_function(item))
        for item in pipeline.functions.values()
    )
    return Explanation(
        pipeline.name,
        settings_of(pipeline),
        functions,
        tuple(map(DeclaredTable.of, pipeline.tables.values())),
        tuple(DeclaredInsert.of(pipeline, insert) for insert in pipeline.inserts),
        tuple(variables),
        None if definitions is None else tuple(definitions),
        tuple(name for name in variables if name not in os.environ),
        show_statements(pipeline) if statements else explained(pipeline),
        lake,
    )


# --- the next step of a run -------------------------------------------------------------------------------------------


class _Numbered:
    generation: int | None
    epoch: int | None

    @property
    @fact("next epoch", said=True)
    def number(self) -> str:
        return "" if self.epoch is None else f"{self.generation}/{self.epoch}"


@dataclass(frozen=True)
class NextLanding(_Numbered):
    """The next epoch of a source table; None where it has nothing to land. `unfinished`: it is planned already, and
    goes on first."""

    ORDER: ClassVar = ("table", "number", "phase", "what")

    table: Annotated[str, Column("source")]
    generation: int
    epoch: int | None
    unfinished: bool
    phase: Annotated[str | None, Column("phase")]
    flips: bool
    summary: str

    @classmethod
    def of(cls, item: SourceDraft) -> NextLanding:
        step = item.step
        if step is None:
            return cls(item.table, item.generation, None, item.unfinished, None, False, "")
        return cls(
            item.table, item.generation, item.epoch, item.unfinished, step.phase, step.flips, step.summary
        )  # fmt: skip

    @property
    @fact("what", said=True)
    def what(self) -> str:
        if self.epoch is None:
            return "nothing to land"
        before = "unfinished, goes on first: " if self.unfinished else ""
        return f"{before}{self.summary}{'; the flip' if self.flips else ''}"


@dataclass(frozen=True)
class NextRelease(_Numbered):
    """The next epoch of an INSERT, by what has landed; see `dry_run.InsertDraft`."""

    ORDER: ClassVar = ("insert", "number", "rows", "pins", "what")

    insert: Annotated[str, Column("INSERT")]
    state: str
    generation: int | None
    epoch: int | None
    kind: str | None
    rows: Annotated[Count, Column("rows")]
    reason: str
    pins: Annotated[tuple[Pin, ...], Column("pins")]

    @classmethod
    def of(cls, item: InsertDraft) -> NextRelease:
        plan = item.plan
        generation, epoch, kind = (plan.generation, plan.epoch, plan.kind) if plan else (None, None, None)
        pins = plan.pins if plan else ()
        return cls(item.insert, item.state, generation, epoch, kind, item.rows, item.reason, pins)

    @property
    @fact("what", said=True)
    def what(self) -> str:
        match self.state:
            case "held":
                return f"held: {self.reason}"
            case "waiting":
                return f"waits: {self.reason}"
            case "unfinished":
                return "unfinished, goes on first"
            case _:
                return self.kind or ""


@dataclass(frozen=True)
class NextSteps:
    """What a run would do first. `definitions`: the changes of the script that it would take up. Sources land before
    INSERTs release, so INSERTs may get more rows than shown here."""

    pipeline: str
    definitions: tuple[Difference, ...]
    sources: tuple[NextLanding, ...]
    inserts: tuple[NextRelease, ...]
    dry_run: bool = True

    @property
    def notes(self) -> tuple[Note, ...]:
        changes = [Note(f"{item.owner} changes from its next epoch on: {item}") for item in self.definitions]
        last = Note("Nothing was stored. INSERTs are planned of what has landed by now.", apart=not changes)
        return (*changes, last)


def next_steps(runner: Runner, resnapshot: Collection[str] = ()) -> NextSteps:
    """Plan everything and store nothing (`dry_run.dry_run`, and its errors)."""
    from tidegate.pipelines.runtime.dry_run import dry_run

    found = dry_run(runner, resnapshot)
    sources, inserts = map(NextLanding.of, found.sources), map(NextRelease.of, found.inserts)
    return NextSteps(runner.pipeline.name, tuple(found.changes), tuple(sources), tuple(inserts))
