"""A compiled script: frozen records without Spark objects and secrets.

Expressions are Spark SQL text for a session in UTC. Inside an INSERT they name columns in full, as
`` `alias`.`column` ``, where alias is the name (or AS name) of the table in that INSERT; inside a table they name the
table's own columns. Two hidden names may appear in them: `_instant` (the plan's instant, TIMESTAMP) stands for
PROCTIME() and CURRENT_TIMESTAMP, and `_rowtime`, inside a table, for SYSTEM_ROWTIME(). They may also call the
pipeline's user functions, by their `spark_name` and with `_split` and `_offset` in front of the arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Self

from tidegate.pipelines.commands import NextCommand, then
from tidegate.pipelines.connectors.spec import SEQ_TYPE
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.generations import generation_of, name_of, statement_name
from tidegate.pipelines.sql.tree import Branch, Entry, Join, Node, TimeAttribute
from tidegate.pipelines.sql.tree import Condition as Condition
from tidegate.pipelines.sql.tree import Key as Key
from tidegate.pipelines.syntax.errors import Location

if TYPE_CHECKING:
    from tidegate.pipelines.connectors.table import Constraint, Table
    from tidegate.pipelines.functions import UserFunction
    from tidegate.pipelines.process.generator import WatermarkGeneratorBuilder
    from tidegate.pipelines.process.spec import ProcessSpec
    from tidegate.pipelines.process.windows.windowed import WindowedQuery
    from tidegate.pipelines.watermarks import WatermarkStrategy


@dataclass(frozen=True)
class Projection:
    """One output column of an INSERT, already cast to the target column's type."""

    name: str
    expression: str
    spark_type: str


def splits_of(number: int, table: str) -> str:
    """How the splits of a union's rows begin that are of one branch (from 0 on) and its table."""
    return f"{number + 1} {table}/"


@dataclass(frozen=True)
class Insert:
    """An INSERT INTO … SELECT. `id` names a generation of it; that of the first one is the name of the statement: its
    target's name, or the target's 'insert.id'.

    `where` is the whole WHERE, `conditions` the same term by term, so that terms about the probe's row alone can be
    tested before any build is read. `constraints` are the target's, the severest first. `proof`: the target stores each
    row's match proof ('gate.proof' = 'columns'). `views`: the statements of the views that it reads, those that others
    read first; `tree`: the algebra that it was made of, None for a process of Python.
    """

    id: str
    target: str
    probe: str
    probe_alias: str
    joins: tuple[Join, ...]
    where: str | None
    projections: tuple[Projection, ...]
    sql: str
    location: Location = field(default=Location(0, 0), compare=False, repr=False)
    conditions: tuple[Condition, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    proof: bool = False
    views: tuple[str, ...] = ()
    tree: Node | None = field(default=None, compare=False, repr=False)
    united: Table | None = None
    branches: tuple[Branch, ...] = ()
    entries: tuple[Entry, ...] = ()

    def __getstate__(self) -> dict[str, Any]:
        """What a task gets: all but the tree, which holds connectors and the script's own statements."""
        return {**self.__dict__, "tree": None}

    @property
    def with_views(self) -> str:
        """Its statement, and those of its views in front."""
        return ";\n".join([*self.views, self.sql])

    @property
    def statement(self) -> str:
        """Its stable name, whichever its generation."""
        return statement_name(self.id)

    @property
    def generation(self) -> int:
        """The number of its generation, which its rows carry."""
        return generation_of(self.id)

    @property
    def windowed(self) -> WindowedQuery | None:
        """The windowed query, if it is an INSERT over SQL's window table functions."""
        return None

    @property
    def terms(self) -> tuple[list[str], list[str]]:
        """The terms of WHERE about the probe's row alone, and those that need a build."""
        builds, found = {join.alias for join in self.joins}, (list[str](), list[str]())
        for term in self.conditions:
            found[bool(term.aliases & builds)].append(term.expression)
        return found

    def calls(self, functions: Mapping[str, UserFunction]) -> tuple[UserFunction, ...]:
        """The functions of the script that SELECT, ON and WHERE call."""
        from tidegate.pipelines.functions import used_in

        ons = [text for join in self.joins for text in (join.predicate, *(key.probe for key in join.keys))]
        steps = [step for branch in self.branches for step in branch.steps]
        ons += [text for step in steps for text in (step.kept, *(made for _, made in step.columns))]
        ons += [step.elements.sql for step in steps if step.elements]
        return used_in(functions.values(), self.where, *(item.expression for item in self.projections), *ons)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the tables that it reads, each once, the probe first."""
        return tuple(dict.fromkeys([*self.probes, *self.builds]))

    @property
    def probes(self) -> tuple[str, ...]:
        """The names of the tables whose rows it reads one by one: the probe; with UNION ALL, those of its branches; of
        a process, all inputs."""
        return tuple(dict.fromkeys(self.taken))

    @property
    def taken(self) -> tuple[str, ...]:
        """The table of each branch; the probe where there is no UNION ALL or UNNEST."""
        return tuple(branch.table for branch in self.branches) or (self.probe,)

    @property
    def unnests(self) -> bool:
        """Whether UNNEST gives rows of its own for each row that is taken."""
        return any(branch.unnests for branch in self.branches)

    def splits_of(self, number: int) -> str:
        """How the splits of a branch's rows begin, so that no two rows have one place; "" without branches."""
        return splits_of(number, self.branches[number].table) if self.branches else ""

    def probe_table(self, tables: Mapping[str, Table]) -> Table:
        """The columns that its expressions name of the probe."""
        return self.united or tables[self.probe]

    @property
    def beside(self) -> tuple[str, ...]:
        """The names of the tables whose state affects a row of another table: the builds; of a process with several
        inputs, these."""
        return self.builds

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the tables that it writes: the target; of a process, one or two."""
        return (self.target,)

    @property
    def proofs(self) -> tuple[tuple[str, str], ...]:
        """For each join, the columns of the target that hold the epoch and the seq of the version that a row met.

        `_build_epoch` and `_build_seq`; with several joins `_build_epoch_<alias>` and `_build_seq_<alias>`.
        """
        ends = [""] if len(self.joins) == 1 else [f"_{join.alias}" for join in self.joins]
        return tuple((f"_build_epoch{end}", f"_build_seq{end}") for end in ends[: len(self.joins)])

    @property
    def proof_columns(self) -> dict[str, str]:
        """The columns of the match proof in a published row, with 'gate.proof' = 'columns': name -> Spark's type."""
        if not self.proof:
            return {}
        met = {name: kind for pair in self.proofs for name, kind in zip(pair, ("BIGINT", SEQ_TYPE), strict=True)}
        return {**met, "_matched": "BOOLEAN", "_reason": "STRING"}

    @property
    def builds(self) -> tuple[str, ...]:
        """The names of the build tables, each once, in join order."""
        return tuple(dict.fromkeys(join.build for join in self.joins))

    @property
    def time(self) -> TimeAttribute:
        """What its rows are released by: event time if any of its joins is in it, else as they land."""
        return "event" if any(join.time == "event" for join in self.joins) else "processing"

    @property
    def by_latest(self) -> tuple[str, ...]:
        """The builds whose latest versions its rows meet, whatever their own times, each once, in join order."""
        return tuple(dict.fromkeys(join.build for join in self.joins if join.time == "processing"))

    @property
    def by_version(self) -> tuple[str, ...]:
        """The builds of which a row meets the version of its own time, each once, in join order."""
        return tuple(dict.fromkeys(join.build for join in self.joins if join.time == "event"))

    @property
    def by_spans(self) -> bool:
        """Whether a span of its rows' times can be released anew: each row then meets what it has met."""
        return self.time == "event" and not self.by_latest


@dataclass(frozen=True)
class ProcessInsert(Insert):
    """An INSERT whose rows come from a process function (`Pipeline.process`, or windows of SQL), not from joins."""

    process: ProcessSpec = field(kw_only=True)

    @property
    def windowed(self) -> WindowedQuery | None:
        return self.process.windowed

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(item.table for item in self.process.inputs))

    @property
    def probes(self) -> tuple[str, ...]:
        return self.inputs

    @property
    def beside(self) -> tuple[str, ...]:
        return self.inputs if len(self.inputs) > 1 else ()

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(self.process.outputs)


@dataclass(frozen=True)
class CompiledScript:
    """A whole compiled script. `functions` by name, as declared. `auto_watermark_interval`: the script's setting of
    Flink's `pipeline.auto-watermark-interval`, None for none; a run's own argument overrides it. `not_null_enforcer`:
    ERROR or DROP, as `table.exec.sink.not-null-enforcer`; None for none. `without_effect`: settings of Flink that the
    script has and that have no effect here, each with why. `views`: the names of its views."""

    name: str
    tables: Mapping[str, Table]
    inserts: tuple[Insert, ...]
    script: str = field(repr=False)
    strategies: Mapping[str, WatermarkStrategy] = field(default_factory=dict)
    functions: Mapping[str, UserFunction] = field(default_factory=dict)
    auto_watermark_interval: timedelta | None = None
    not_null_enforcer: str | None = None
    without_effect: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    views: tuple[str, ...] = field(default=(), repr=False, compare=False)

    def table(self, name: str) -> Table:
        """The table called `name`. Raises KeyError."""
        return self.tables[name]

    def insert(self, insert_id: str) -> Insert:
        """The INSERT with this id, or of this statement. Raises KeyError."""
        for insert in self.inserts:
            if insert_id in (insert.id, insert.statement):
                return insert
        raise KeyError(insert_id)

    def in_generation(self, insert: Insert, generation: int, *, beside: bool = False) -> Self:
        """The script in which one of its INSERTs is this generation of its statement. `beside`: it publishes into a
        folder of its own, beside the generation that readers of the target see."""
        made = replace(insert, id=name_of(insert.statement, generation))
        outputs = {name: replace(self.tables[name], beside=generation if beside else None) for name in insert.outputs}
        inserts = tuple(made if item is insert else item for item in self.inserts)
        return replace(self, tables={**self.tables, **outputs}, inserts=inserts)

    @property
    def sources(self) -> tuple[Table, ...]:
        """The source tables that some INSERT reads, builds first."""
        used = [table for table in self.tables.values() if table.role in ("build", "probe")]
        return tuple(sorted(used, key=lambda table: table.role != "build"))

    @property
    def processes(self) -> tuple[ProcessInsert, ...]:
        """The INSERTs that are processes."""
        return tuple(insert for insert in self.inserts if isinstance(insert, ProcessInsert))

    def process_of(self, table: str) -> ProcessInsert | None:
        """The process that writes this table."""
        return next((insert for insert in self.processes if table in insert.outputs), None)

    def writer_of(self, table: str) -> Insert | None:
        """The INSERT or process that writes this table; None for a source."""
        return next((insert for insert in self.inserts if table in insert.outputs), None)

    def readers_of(self, insert: Insert) -> tuple[Insert, ...]:
        """The INSERTs and processes that read what this one publishes."""
        return tuple(each for each in self.inserts if set(each.inputs) & set(insert.outputs))

    def generators(self, table: str) -> list[WatermarkGeneratorBuilder]:
        """The generators that processes were given for this table, which all find its event time in the same way."""
        inputs = [item for insert in self.processes for item in insert.process.inputs]
        return [item.time for item in inputs if item.table == table and item.time is not None]

    def with_strategy(self, table: str, strategy: WatermarkStrategy) -> Self:
        """A copy in which `table` has `strategy` in place of the one in its DDL. Raises PlanningError."""
        from tidegate.pipelines.watermarks import WatermarkStrategy

        problem = None
        if table not in self.tables:
            close = get_close_matches(str(table), self.tables, 1)
            problem = f"there is no table {table!r}" + (f", did you mean {close[0]!r}?" if close else "")
        elif (writer := self.writer_of(table)) is not None:
            problem = f"{table} is written by {writer.id}, whose watermark it has: give {writer.probe} the strategy"
        elif not isinstance(strategy, WatermarkStrategy):
            problem = f"a strategy is a WatermarkStrategy, not {strategy!r}"
        elif any(each.windowed and not each.windowed.event_time for each in self.inserts if each.probe == table):
            problem = f"windows of {table!r} are in processing time: declare WATERMARK FOR, or the table once more"
        if problem is not None:
            raise PlanningError(
                problem,
                where=f"with_strategy of the pipeline {self.name}",
                state="nothing was run",
                next_command=then("correct the file", NextCommand("explain")),
            )
        return replace(self, strategies={**self.strategies, table: strategy})
