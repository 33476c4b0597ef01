"""JOIN build FOR SYSTEM_TIME AS OF probe.time ON …: the time, the keys, and what must hold for each join."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from sqlglot import exp

from tidegate.pipelines.connectors.spec import never_signalling, ways_out
from tidegate.pipelines.sql.coercion import assignable
from tidegate.pipelines.sql.functions.times import INSTANT_SQL
from tidegate.pipelines.sql.model import Join, Key, TimeAttribute
from tidegate.pipelines.sql.scope import InsertScope, Relation, type_of
from tidegate.pipelines.sql.tables.with_options import with_role
from tidegate.pipelines.sql.translate import Translator
from tidegate.pipelines.sql.translate.operands import column_path
from tidegate.pipelines.sql.tree import Node
from tidegate.pipelines.sql.values import Value, null_value
from tidegate.pipelines.syntax.errors import SqlError, one_of
from tidegate.pipelines.syntax.source import Source, Span
from tidegate.pipelines.syntax.statements import TemporalJoin, place
from tidegate.pipelines.syntax.types import APPROXIMATE, TIMESTAMPS, FlinkType, Kind, quoted


@dataclass(frozen=True)
class JoinCompiler:
    """Compiles one join. `scope`: that of its ON, the probe first and `build` last; `left` and `right` give the rows of
    the two sides."""

    source: Source
    statement: TemporalJoin
    scope: InsertScope
    build: Relation
    left: Node
    right: Node

    def compile(self) -> Join:
        """The join. Raises SqlError."""
        self._check_build()
        time, column = self._time()
        self._check_time(time)
        keys, predicate = self._condition()
        return Join(
            build=self.build.table.name,
            alias=self.build.base,
            kind="LEFT" if self.statement.kind == "LEFT" else "INNER",
            keys=keys,
            predicate=predicate,
            time=time,
            time_column=column,
            location=self.source.location(self.statement.span.start),
        )

    def after(self) -> Relation:
        """The build for what comes after the join. What is computed of it, by a view or as PROCTIME(), is NULL where
        LEFT JOIN has no match."""
        key = f"{quoted(self.build.base)}.{quoted(self.build.table.primary_key[0])}"
        if self.statement.kind != "LEFT":
            return self.build

        def null_without_match(value: Value) -> Value:
            if value.column is not None and value.sql != INSTANT_SQL:
                return value
            none = null_value().to(value.type)
            sql = f"CASE WHEN (NOT ({key} IS NULL)) THEN {value.sql} ELSE {none} END"
            return Value(sql, value.type.null(), aliases=value.aliases | {self.build.base}, digits=value.digits)

        columns = {name: null_without_match(value) for name, value in self.build.columns.items()}
        return replace(self.build, columns=columns)

    @property
    def _probe(self) -> Relation:
        return self.scope.relations[0]

    @property
    def _at_build(self) -> Span:
        return self.statement.build.table.span

    # What a build must be

    def _check_build(self) -> None:
        table, spec = self.build.table, self.right.scan.declared.spec
        if not table.primary_key:
            what = f"{table.name} has no primary key, so it cannot be a build side"
            hint = "declare PRIMARY KEY (…) NOT ENFORCED: a version belongs to a key"
            raise self.source.error(self._at_build, what, hint, self.build.defined)
        for name in table.primary_key:
            if name not in self._keys:
                what = (
                    f"{self.build.name} lacks `{name}` of the primary key of {table.name}, so it cannot be a build side"
                )
                hint = f"add {name} to the SELECT of {self.build.name}: a version belongs to a key"
                raise self.source.error(self._at_build, what, hint, self.build.defined)
        if not self.right.scan.declared.is_target and never_signalling(spec, table.options):
            ways = ways_out(spec, table.options)
            names = list(dict.fromkeys(name for name, _ in ways)) or ["connector"]
            settings = " or ".join(f"'{name}' = '{value}'" for name, value in ways)
            what = (
                f"{table.name} has a bounded phase and never says when it is over, so no probe row could ever be "
                f"released: see its option {' or '.join(repr(name) for name in names)}"
            )
            raise self.source.error(self._at_build, what, f"set {settings}" if settings else "use another connector")

    @cached_property
    def _keys(self) -> dict[str, str]:
        """The columns of the primary key -> what they are called here."""
        named = {value.column: name for name, value in self.build.columns.items()}
        keys = [name for name in self.build.table.primary_key if (self.build.base, name) in named]
        return {name: named[self.build.base, name] for name in keys}

    # Time

    def _time(self) -> tuple[TimeAttribute, str]:
        """The probe's time attribute in FOR SYSTEM_TIME AS OF: its kind, and its column's path."""
        time = self.statement.time
        names = column_path(time.tree, time.span)
        if names is None:
            what = "FOR SYSTEM_TIME AS OF takes a column: the probe's time attribute"
            raise self.source.error(time.span, what, self._hint_for_time())
        owner, path = self.scope.owner(names)
        value, column = self.scope.resolve(names), ".".join(name.text for name in path)
        if owner is not self._probe:
            what = (
                f"`{time.written}` is a column of {owner.alias}; the time must be one of the probe, {self._probe.alias}"
            )
            raise self.source.error(time.span, what, self._hint_for_time())
        # By the value, and not by its name: a view may call any column `r.at`, with a dot.
        kind, table = self.left.scan.times_among({column: value}).get(column), self._probe.table
        if kind == "processing":
            return kind, column
        if kind == "event" and table.watermark is not None:
            return kind, table.watermark.column
        what = f"`{column}` is no time attribute of {self._probe.name}"
        if not self._attributes:
            what = f"{self._probe.name} has no time attribute"
        hint = self._hint_for_time()
        if table.watermark is None and value.type.kind in TIMESTAMPS and self._probe.defined is None:
            hint = f"declare WATERMARK FOR {column} AS {column} - INTERVAL '5' SECOND in {table.name}; {hint}"
        raise self.source.error(time.span, what, hint, self._probe.defined)

    @cached_property
    def _attributes(self) -> dict[str, TimeAttribute]:
        """The probe's time attributes, by what they are called here."""
        return self.left.scan.times_among(self._probe.columns)

    def _hint_for_time(self) -> str:
        probe = self._probe
        if self._attributes:
            return f"its time attributes: {one_of(f'{probe.alias}.{name}' for name in self._attributes)}"
        lost = self.left.scan.times
        if lost:
            return f"add a time attribute of {probe.table.name} to its SELECT: {one_of(lost)}"
        return f"declare proctime AS PROCTIME() in {probe.table.name}, and name it"

    def _check_time(self, time: TimeAttribute) -> None:
        probe, build, spec = self._probe.table, self.build.table, self.left.scan.declared.spec
        if time == "processing" and not self.left.scan.declared.only_grows:
            for problem in spec.check(with_role(probe, "probe")):
                raise self.source.error(self.statement.time.span, f"{spec.name}: {problem}")
            what = f"a processing-time join needs a probe that only grows; {probe.name} has updates"
            hint = f"{spec.name} delivers them: declare WATERMARK FOR on both sides and join in event time"
            raise self.source.error(self.statement.time.span, what, hint)
        if time == "event" and build.watermark is None:
            what = f"an event-time join needs WATERMARK FOR on both sides; {build.name} has none"
            hint = f"declare WATERMARK FOR in {build.name}, or join AS OF a PROCTIME() column"
            raise self.source.error(self._at_build, what, hint)

    # ON

    def _condition(self) -> tuple[tuple[Key, ...], str | None]:
        condition = self.statement.condition
        translator = Translator(self.source, self.scope)
        keys: dict[str, Key] = {}
        predicates: list[str] = []
        equal = False
        for tree, value in translator.conjuncts(condition):
            sides = self._sides(translator, tree, condition.span)
            equal = equal or sides is not None
            key = self._key(*sides, place(tree) or condition.span) if sides is not None else None
            if key is not None and key.column not in keys:
                keys[key.column] = key
            else:
                predicates.append(value.sql)
        predicates += [term.expression for term in self.right.conditions]
        missing = [name for name in self.build.table.primary_key if name not in keys]
        if missing:
            raise self._not_covered(missing, equal)
        return tuple(keys[name] for name in self.build.table.primary_key), " AND ".join(predicates) or None

    def _sides(self, translator: Translator, tree: exp.Expr, around: Span) -> tuple[Value, Value] | None:
        """The two sides of an equality between the build and what is left of it, the left one first."""
        tree = tree.unnest()
        if not isinstance(tree, exp.EQ):
            return None
        left, right = translator.of(tree.this, around), translator.of(tree.expression, around)
        alias = self.build.base
        if alias in left.aliases and alias not in right.aliases:
            left, right = right, left
        return (left, right) if alias in right.aliases and alias not in left.aliases else None

    def _key(self, left: Value, right: Value, span: Span) -> Key | None:
        if right.column is None or right.column[1] not in self.build.table.primary_key or left.type.kind is Kind.NULL:
            return None
        name = right.column[1]
        wanted: FlinkType = type_of(self.build.table.column(name))
        if left.type.kind in APPROXIMATE and wanted.kind in (Kind.BIGINT, Kind.DECIMAL):
            what = f"type clash: a {left.type} may equal several keys of type {wanted}, so it is none of them"
            raise self.source.error(span, what, f"CAST it AS {wanted}")
        sql = left.to(wanted) if assignable(left.type, wanted) else left.sql
        return Key(sql, name)

    def _not_covered(self, missing: list[str], equal: bool) -> SqlError:
        table, alias = self.build.table, self.build.alias
        names = self._probe.columns
        pairs = [
            f"{self._probe.alias}.{name if name in names else '…'} = {alias}.{self._keys[name]}" for name in missing
        ]
        hint = (
            f"write ON {' AND '.join(pairs)}"
            if len(missing) == len(table.primary_key)
            else f"add AND {' AND '.join(pairs)}"
        )
        shown = ", ".join(f"`{name}`" for name in missing)
        what = f"ON does not cover the primary key of {table.name}: {shown} is missing"
        if len(missing) > 1:
            what = f"ON does not cover the primary key of {table.name}: {shown} are missing"
        if not equal:
            key = ", ".join(f"`{name}`" for name in table.primary_key)
            what = f"ON has no equality with a column of {table.name}, whose primary key is {key}"
        return self.source.error(self.statement.condition.span, what, f"{hint}; the column must be alone on its side")
