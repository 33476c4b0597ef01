"""What a script says once it is compiled: frozen records that hold no Spark object and no secret.

Expressions are kept as Spark SQL text for a session in UTC. Inside an INSERT they name columns in full, as
`` `alias`.`column` ``, where alias is the name (or AS name) of the table in that INSERT; inside a table they name the
table's own columns. Two hidden names may appear in them: `_instant` (the plan's instant, TIMESTAMP) stands for
PROCTIME() and CURRENT_TIMESTAMP, and `_rowtime`, inside a table, for SYSTEM_ROWTIME(). Inside a table they may also
call the pipeline's user functions, by their `spark_name` and with `_split` and `_offset` in front of the arguments.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, Self

if TYPE_CHECKING:
    from tidegate.pipelines.functions import UserFunction
    from tidegate.pipelines.process.generator import WatermarkGeneratorBuilder
    from tidegate.pipelines.process.spec import ProcessSpec
    from tidegate.pipelines.process.windows.windowed import WindowedQuery
    from tidegate.pipelines.watermarks import WatermarkStrategy

JoinKind = Literal["INNER", "LEFT"]
TimeAttribute = Literal["processing", "event"]
Role = Literal["build", "probe", "sink", "part", "unused"]
OnUnmatched = Literal["quarantine", "block", "publish"]
OnViolation = Literal["fail", "quarantine", "warn"]

RESERVED_PREFIX = "_"
"""Columns of the lake's own begin with it, so columns of a script must not."""

SOURCE_TIME = "_rowtime"
"""What stands for SYSTEM_ROWTIME(): the source's own time of the change."""

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
SECRET_NAMES = (
    r"(?i:password|passwd|secret|credential|passphrase|(private|access|api|keystore).?key|jaas)"
    r"|([Tt]oken|[Pp]wd)s?(?![a-z])|TOKENS?(?![A-Z])"
    r"|(?!(?<=^)PWD$)(?!(?<=^OLD)PWD$)PWDS?(?![A-Z])"
)
"""A regular expression, for Python and for Java, of names whose values are secrets; `ssl.keystore.key` is a private
key, written out. `token` and `pwd` end a part of a name (TOKENIZERS_PARALLELISM is none); a shell's PWD and OLDPWD are
folders."""
_SECRET = re.compile(SECRET_NAMES)
_SECRET_WORDS = ("password", "secret", "token", "credential", "passphrase")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_CREDENTIALS = re.compile(r"(//[^/@:\s]*):[^@\s]+@")


@lru_cache(maxsize=4096)
def is_secret(name: str) -> bool:
    """Whether the value of an option of this name must not be shown; `pasword` is as good a name for it as any."""
    if _SECRET.search(name) is not None:
        return True
    return any(get_close_matches(word.lower(), _SECRET_WORDS, 1, 0.85) for word in _WORD.findall(name) if len(word) > 4)


def is_variable(value: str) -> bool:
    """Whether a value is nothing but `${VAR}`, which may be shown whatever the option is called."""
    return _VARIABLE.fullmatch(value) is not None


def needs_variables(value: str) -> bool:
    """Whether the real value is known only once `${VAR}` in it is replaced."""
    return _VARIABLE.search(value) is not None


def secret_words(text: str) -> list[int]:
    """The offsets at which words that name a secret end in `text`."""
    words = [found.end() for found in _WORD.finditer(text) if is_secret(found.group())]
    return sorted({*words, *(found.end() for found in _SECRET.finditer(text))})


def passwords_in(text: str) -> list[tuple[int, int]]:
    """Where passwords of addresses stand in `text` (`scheme://user:password@host`): start and end of each."""
    return [(found.end(1) + 1, found.end() - 1) for found in _CREDENTIALS.finditer(text)]


@dataclass(frozen=True)
class Location:
    """A place in the script; line and column count from 1."""

    line: int
    column: int


@dataclass(frozen=True)
class Column:
    """A column of a table.

    `type` is Flink's spelling ("TIMESTAMP(3)"), `spark_type` Spark's DDL ("TIMESTAMP_NTZ").
    A computed column has an `expression`; `proctime` marks one that is PROCTIME(), which no table stores.
    `metadata` is the key of a METADATA column, `delivered` the type that the connector has it in, in Flink's spelling;
    None where that is `type`. `sql` is a computed column's expression as the script has it.
    Where a column was written does not make it another column.
    """

    name: str
    type: str
    spark_type: str
    nullable: bool = True
    expression: str | None = None
    proctime: bool = False
    metadata: str | None = None
    comment: str | None = None
    location: Location = field(default=Location(0, 0), compare=False, repr=False)
    sql: str | None = None
    delivered: str | None = field(default=None, repr=False)  # Pipeline.digest is of the repr: stored plans keep theirs

    @property
    def physical(self) -> bool:
        """Whether the connector itself delivers the column."""
        return self.expression is None and not self.proctime

    @property
    def source_time(self) -> bool:
        """Whether the column is SYSTEM_ROWTIME()."""
        return self.expression == SOURCE_TIME


@dataclass(frozen=True)
class WatermarkSpec:
    """WATERMARK FOR `column` AS `expression` (FLIP-66).

    `column` may be a dotted path. `type` is what the expression gives, in Flink's spelling: TIMESTAMP(p),
    TIMESTAMP_LTZ(p), or BIGINT (ms since the epoch, UTC). `sql` is the expression as the script has it; how it was
    written does not make it another watermark.

    `source`: AS SYSTEM_WATERMARK(), the source's own. What the source emits counts (`Landed.watermarks`); for one that
    leaves it to the runtime, `expression` is FLIP-126's monotonous timestamps: 1 ms before the row's SYSTEM_ROWTIME().
    `delay`: AS SYSTEM_WATERMARK() - INTERVAL …: either is told so much later; `expression` is without it.
    """

    column: str
    expression: str
    type: str
    location: Location = field(default=Location(0, 0), compare=False, repr=False)
    sql: str | None = field(default=None, compare=False)
    source: bool = False
    delay: timedelta = timedelta(0)

    @property
    def path(self) -> tuple[str, ...]:
        """`column` in parts: the column's name, then names of fields."""
        return tuple(self.column.split("."))


class Options(Mapping[str, str]):
    """WITH options as written, so `${VAR}` stays a name. `resolve()` gives the real values; nothing else does."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)

    def __getitem__(self, key: str) -> str:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Options({self.redacted()})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Options) and self._values == other._values

    def __hash__(self) -> int:
        return hash(tuple(sorted(self._values.items())))

    def redacted(self) -> dict[str, str]:
        """The options as they may be shown: values of secret names are replaced by `***`, so are passwords inside of
        addresses; `${VAR}` stays a name."""
        return {
            key: "***" if is_secret(key) and not is_variable(value) else _CREDENTIALS.sub(r"\1:***@", value)
            for key, value in self._values.items()
        }

    def variables(self) -> set[str]:
        """The names of the environment variables that the values need."""
        return {name for value in self._values.values() for name in _VARIABLE.findall(value)}

    def one(self, name: str, environment: Mapping[str, str] | None = None) -> str | None:
        """The real value of one option, whatever the others need; None where it is not given. Raises PlanningError."""
        return Options({name: self[name]}).resolve(environment)[name] if name in self else None

    def resolve(self, environment: Mapping[str, str] | None = None) -> dict[str, str]:
        """The real values. Raises PlanningError that names the variables which are not set."""
        known: Mapping[str, str] = os.environ if environment is None else environment
        require_variables([self], known)
        return {key: _VARIABLE.sub(lambda found: known[found.group(1)], value) for key, value in self._values.items()}


def require_variables(options: Iterable[Options], environment: Mapping[str, str]) -> None:
    """Raise PlanningError that names every variable of all of them that is not set."""
    from tidegate.pipelines.errors import PlanningError

    missing = sorted({name for each in options for name in each.variables() if name not in environment})
    if missing:
        raise PlanningError(
            f"the environment has no {', '.join(missing)}",
            where="WITH options",
            state="nothing was run",
            next_command=f"export {' '.join(f'{name}=…' for name in missing)}",
        )


@dataclass(frozen=True)
class Constraint:
    """CONSTRAINT `name` EXPECT (`condition`) ON VIOLATION `action`, of a target.

    `condition` is Spark SQL over the columns that an INSERT writes; a row violates it where it is false (not where it
    is NULL, as with SQL's CHECK). `sql` is the condition as the script has it.
    """

    name: str
    condition: str
    action: OnViolation
    sql: str = field(default="", compare=False)
    location: Location = field(default=Location(0, 0), compare=False, repr=False)


@dataclass(frozen=True)
class Suite:
    """'quality.suite' of a target: the `path` as written, the file's `text` when the script was compiled (JSON), and
    the text's `digest`."""

    path: str
    text: str = field(repr=False)
    digest: str


SEVEREST_FIRST: tuple[OnViolation, ...] = ("fail", "quarantine", "warn")


def severest_first(constraints: Iterable[Constraint]) -> tuple[Constraint, ...]:
    """FAIL before QUARANTINE before WARN, and as written among equals: the first one that a row violates says where
    the row goes."""
    return tuple(sorted(constraints, key=lambda constraint: SEVEREST_FIRST.index(constraint.action)))


@dataclass(frozen=True)
class Table:
    """A CREATE TABLE. `role` follows from the INSERTs: right of a temporal join, left of one, or a target; `part` is
    one that only another table reads. `parts` are the tables that this one reads in its place, in its role.
    `partition_columns` is PARTITIONED BY: columns that the connector tells from where a row lies, in order. `home` is
    the folder of the script, where a relative 'path' begins; None of one that is no file.

    Two tables are equal when their CREATE TABLEs say the same; role and place do not count.
    """

    name: str
    columns: tuple[Column, ...]
    options: Options
    primary_key: tuple[str, ...] = ()
    watermark: WatermarkSpec | None = None
    role: Role = field(default="unused", compare=False)
    comment: str | None = None
    location: Location = field(default=Location(0, 0), compare=False, repr=False)
    parts: tuple[Table, ...] = field(default=(), compare=False)
    partition_columns: tuple[str, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    suite: Suite | None = field(default=None, compare=False)
    home: str | None = field(default=None, compare=False, repr=False)

    @property
    def connector(self) -> str:
        return self.options["connector"]

    @property
    def physical_columns(self) -> tuple[Column, ...]:
        """What the connector delivers."""
        return tuple(column for column in self.columns if column.physical)

    @property
    def message_columns(self) -> tuple[Column, ...]:
        """The physical columns that are in the messages or files themselves."""
        beside = self.partition_columns
        return tuple(c for c in self.physical_columns if c.metadata is None and c.name not in beside)

    @property
    def stored_columns(self) -> tuple[Column, ...]:
        """What the lake stores: all but PROCTIME() columns, which are an instant of the release."""
        return tuple(column for column in self.columns if not column.proctime)

    def column(self, name: str) -> Column:
        """The column called `name` (as written). Raises KeyError."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)


@dataclass(frozen=True)
class Key:
    """One equality of an ON: `probe` is Spark SQL over what is left of the join, `column` is a column of the build."""

    probe: str
    column: str


@dataclass(frozen=True)
class Join:
    """… JOIN build [AS alias] FOR SYSTEM_TIME AS OF probe.time ON keys AND predicate.

    `predicate` is what ON holds beside the key equalities; it is tested on the chosen version only.
    `time_column` is the probe's time attribute.
    """

    build: str
    alias: str
    kind: JoinKind
    keys: tuple[Key, ...]
    predicate: str | None
    time: TimeAttribute
    time_column: str
    location: Location = field(default=Location(0, 0), compare=False, repr=False)


@dataclass(frozen=True)
class Projection:
    """One output column of an INSERT, already cast to the target column's type."""

    name: str
    expression: str
    spark_type: str


@dataclass(frozen=True)
class Condition:
    """One of the terms that WHERE joins by AND; `aliases` are the tables of the INSERT that it names."""

    expression: str
    aliases: frozenset[str]


@dataclass(frozen=True)
class Insert:
    """An INSERT INTO … SELECT. `id` is stable: its target's name, or the target's 'insert.id'.

    `where` is the whole WHERE, `conditions` the same term by term, so that what says something of the probe's row
    alone can be tested before any build is looked at. `constraints` are the target's, the severest first. `proof`: the
    target keeps each row's match proof ('gate.proof' = 'columns'). `process`: its rows are what a process function
    gives, instead of joined ones (`Pipeline.process`).
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
    process: ProcessSpec | None = None

    @property
    def windowed(self) -> WindowedQuery | None:
        """What it asks of windows, where it is an INSERT over SQL's window table functions."""
        return self.process.windowed if self.process else None

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the tables that it reads, each once, the probe first."""
        read = [item.table for item in self.process.inputs] if self.process else [self.probe, *self.builds]
        return tuple(dict.fromkeys(read))

    @property
    def proofs(self) -> tuple[tuple[str, str], ...]:
        """For each join, the columns of the target that hold the epoch and the seq of the version that a row met.

        `_build_epoch` and `_build_seq`; with several joins `_build_epoch_<alias>` and `_build_seq_<alias>`.
        """
        ends = [""] if len(self.joins) == 1 else [f"_{join.alias}" for join in self.joins]
        return tuple((f"_build_epoch{end}", f"_build_seq{end}") for end in ends[: len(self.joins)])

    @property
    def builds(self) -> tuple[str, ...]:
        """The names of the build tables, each once, in join order."""
        return tuple(dict.fromkeys(join.build for join in self.joins))

    @property
    def time(self) -> TimeAttribute:
        return self.joins[0].time if self.joins else "processing"


@dataclass(frozen=True)
class CompiledScript:
    """What a whole script says. `functions` by name, as declared. `auto_watermark_interval`: what the script sets as
    Flink's `pipeline.auto-watermark-interval`; None for nothing. What a run is given takes its place.
    `not_null_enforcer`: ERROR or DROP, as `table.exec.sink.not-null-enforcer`; None for nothing."""

    name: str
    tables: Mapping[str, Table]
    inserts: tuple[Insert, ...]
    script: str = field(repr=False)
    strategies: Mapping[str, WatermarkStrategy] = field(default_factory=dict)
    functions: Mapping[str, UserFunction] = field(default_factory=dict)
    auto_watermark_interval: timedelta | None = None
    not_null_enforcer: str | None = None

    def table(self, name: str) -> Table:
        """The table called `name`. Raises KeyError."""
        return self.tables[name]

    def insert(self, insert_id: str) -> Insert:
        """The INSERT with this id. Raises KeyError."""
        for insert in self.inserts:
            if insert.id == insert_id:
                return insert
        raise KeyError(insert_id)

    @property
    def sources(self) -> tuple[Table, ...]:
        """The source tables that some INSERT reads, builds first."""
        used = [table for table in self.tables.values() if table.role in ("build", "probe")]
        return tuple(sorted(used, key=lambda table: table.role != "build"))

    def process_output(self, table: str) -> bool:
        """Whether a process gives this table."""
        return any(insert.process is not None and table in insert.process.outputs for insert in self.inserts)

    def generators(self, table: str) -> list[WatermarkGeneratorBuilder]:
        """How the generators that processes were given for this table tell its event time; all alike."""
        inputs = [item for insert in self.inserts if insert.process for item in insert.process.inputs]
        return [item.time for item in inputs if item.table == table and item.time is not None]

    def with_strategy(self, table: str, strategy: WatermarkStrategy) -> Self:
        """The same, with `strategy` in place of what the DDL of `table` says. Raises PlanningError."""
        from tidegate.pipelines.errors import PlanningError
        from tidegate.pipelines.watermarks import WatermarkStrategy

        problem = None
        if table not in self.tables:
            close = get_close_matches(str(table), self.tables, 1)
            problem = f"there is no table {table!r}" + (f", did you mean {close[0]!r}?" if close else "")
        elif not isinstance(strategy, WatermarkStrategy):
            problem = f"a strategy is a WatermarkStrategy, not {strategy!r}"
        elif any(
            insert.windowed is not None and not insert.windowed.event_time
            for insert in self.inserts
            if insert.probe == table
        ):
            problem = f"windows of {table!r} are in processing time: declare WATERMARK FOR, or the table once more"
        if problem is not None:
            raise PlanningError(
                problem,
                where=f"with_strategy of the pipeline {self.name}",
                state="nothing was run",
                next_command="correct the file, then: tidegate explain SCRIPT",
            )
        return replace(self, strategies={**self.strategies, table: strategy})

    def digest(self, insert: Insert) -> str:
        """Identifies an INSERT by its text, as plans of lakes without definitions do. The rule since then is
        `tidegate.pipelines.sql.canonical`. 16 hex digits."""
        text = repr((insert.sql, insert.projections, [self.tables[name].columns for name in insert.inputs]))
        if insert.process is not None:
            text += insert.process.identity
        if insert.proof:
            text += "proof"
        if insert.constraints:  # a text without any keeps the digest that stored plans have
            text += repr([(each.name, each.condition, each.action) for each in insert.constraints])
        return hashlib.sha256(text.encode()).hexdigest()[:16]
