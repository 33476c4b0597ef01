"""SELECT … FROM probe JOIN build FOR SYSTEM_TIME AS OF probe.time ON …: an INSERT of one table's rows, with temporal
joins or without; the time, the keys, and what must hold for each join.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from tidegate.pipelines.connectors.spec import ConnectorSpec, never_signalling, ways_out
from tidegate.pipelines.sql.coercion import assignable, converted
from tidegate.pipelines.sql.inserts.statement import Declared, InsertStatement, Output
from tidegate.pipelines.sql.model import Condition, Insert, Join, Key, TimeAttribute
from tidegate.pipelines.sql.scope import InsertScope, Relation, type_of, value_of
from tidegate.pipelines.sql.tables.with_options import with_role
from tidegate.pipelines.sql.translate import Translator
from tidegate.pipelines.sql.translate.operands import column_path
from tidegate.pipelines.sql.values import Value
from tidegate.pipelines.syntax.errors import SqlError, one_of
from tidegate.pipelines.syntax.source import Span
from tidegate.pipelines.syntax.statements import SelectItem, TemporalJoin, place
from tidegate.pipelines.syntax.types import APPROXIMATE, TIMESTAMPS, FlinkType, Kind


@dataclass(frozen=True)
class JoinCompiler:
    """Compiles one join. `left` are the tables left of it, the probe first; `later` are names joined further on."""

    insert: InsertStatement
    statement: TemporalJoin
    left: Sequence[Relation]
    build: Relation
    probe: Declared
    build_spec: ConnectorSpec
    later: Sequence[str]

    def compile(self) -> Join:
        """The join. Raises SqlError."""
        self._check_build()
        time, column = self._time()
        self._check_time(time)
        keys, predicate = self._condition()
        return Join(
            build=self.build.table.name,
            alias=self.build.alias,
            kind="LEFT" if self.statement.kind == "LEFT" else "INNER",
            keys=keys,
            predicate=predicate,
            time=time,
            time_column=column,
            location=self.insert.source.location(self.statement.span.start),
        )

    @property
    def _probe(self) -> Relation:
        return self.left[0]

    @property
    def _at_build(self) -> Span:
        return self.statement.build.table.span

    # What a build must be

    def _check_build(self) -> None:
        table = self.build.table
        if not table.primary_key:
            what = f"{table.name} has no primary key, so it cannot be a build side"
            raise self.insert.error(
                self._at_build, what, "declare PRIMARY KEY (…) NOT ENFORCED: a version belongs to a key"
            )
        if never_signalling(self.build_spec, table.options):
            ways = ways_out(self.build_spec, table.options)
            names = list(dict.fromkeys(name for name, _ in ways)) or ["connector"]
            settings = " or ".join(f"'{name}' = '{value}'" for name, value in ways)
            what = (
                f"{table.name} has a bounded phase and never says when it is over, so no probe row could ever be "
                f"released: see its option {' or '.join(repr(name) for name in names)}"
            )
            raise self.insert.error(self._at_build, what, f"set {settings}" if settings else "use another connector")

    # Time

    def _time(self) -> tuple[TimeAttribute, str]:
        """The probe's time attribute in FOR SYSTEM_TIME AS OF: its kind, and its column's path."""
        time = self.statement.time
        names = column_path(time.tree, time.span)
        if names is None:
            what = "FOR SYSTEM_TIME AS OF takes a column: the probe's time attribute"
            raise self.insert.error(time.span, what, self._hint_for_time())
        value = self.insert.scope([*self.left, self.build]).resolve(names)
        owner = next(relation for relation in (*self.left, self.build) if relation.alias in value.aliases)
        if owner.alias != self._probe.alias:
            what = (
                f"`{time.written}` is a column of {owner.alias}; the time must be one of the probe, {self._probe.alias}"
            )
            raise self.insert.error(time.span, what, self._hint_for_time())
        columns = [known.name for known in owner.table.columns]
        qualified = len(names) > 1 and names[0].text == owner.alias and names[1].text in columns
        column = ".".join(name.text for name in (names[1:] if qualified else names))
        table = self._probe.table
        if any(known.proctime and known.name == column for known in table.columns):
            return "processing", column
        if table.watermark is not None and table.watermark.column == column:
            return "event", column
        what = f"`{column}` is no time attribute of {table.name}"
        if not self._attributes():
            what = f"{table.name} has no time attribute"
        hint = self._hint_for_time()
        if table.watermark is None and value.type.kind in TIMESTAMPS:
            hint = f"declare WATERMARK FOR {column} AS {column} - INTERVAL '5' SECOND in {table.name}; {hint}"
        raise self.insert.error(time.span, what, hint)

    def _attributes(self) -> list[str]:
        table = self._probe.table
        found = [column.name for column in table.columns if column.proctime]
        return [*found, *([table.watermark.column] if table.watermark else [])]

    def _hint_for_time(self) -> str:
        attributes = self._attributes()
        if attributes:
            return f"its time attributes: {one_of(f'{self._probe.alias}.{name}' for name in attributes)}"
        return f"declare proctime AS PROCTIME() in {self._probe.table.name}, and name it"

    def _check_time(self, time: TimeAttribute) -> None:
        probe, build = self._probe.table, self.build.table
        if time == "processing" and not self.probe.only_grows:
            for problem in self.probe.spec.check(with_role(probe, "probe")):
                raise self.insert.error(self.statement.time.span, f"{self.probe.spec.name}: {problem}")
            what = f"a processing-time join needs a probe that only grows; {probe.name} has updates"
            hint = f"{self.probe.spec.name} delivers them: declare WATERMARK FOR on both sides and join in event time"
            raise self.insert.error(self.statement.time.span, what, hint)
        if time == "event" and build.watermark is None:
            what = f"an event-time join needs WATERMARK FOR on both sides; {build.name} has none"
            hint = f"declare WATERMARK FOR in {build.name}, or join AS OF a PROCTIME() column"
            raise self.insert.error(self._at_build, what, hint)

    # ON

    def _condition(self) -> tuple[tuple[Key, ...], str | None]:
        condition = self.statement.condition
        scope = self.insert.scope([*self.left, self.build], self.later)
        translator = Translator(self.insert.source, scope)
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
        alias = self.build.alias
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
            raise self.insert.error(span, what, f"CAST it AS {wanted}")
        sql = converted(left.sql, left.type, wanted) if assignable(left.type, wanted) else left.sql
        return Key(sql, name)

    def _not_covered(self, missing: list[str], equal: bool) -> SqlError:
        table, alias = self.build.table, self.build.alias
        names = [column.name for column in self._probe.table.columns]
        pairs = [f"{self._probe.alias}.{name if name in names else '…'} = {alias}.{name}" for name in missing]
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
        return self.insert.error(self.statement.condition.span, what, f"{hint}; the column must be alone on its side")


class SelectCompiler:
    """Compiles one INSERT that selects rows of its probe, one by one."""

    def __init__(self, insert: InsertStatement) -> None:
        self.insert, self.source, self.statement = insert, insert.source, insert.statement

    def compile(self) -> Insert:
        """The INSERT. Raises SqlError."""
        target, probe = self.insert.target(), self.insert.read(self.statement.probe, "FROM")
        relations, joins = self._joined(probe)
        self._one_time(joins)
        if not joins and not probe.only_grows:
            raise self.insert.error(
                self.statement.probe.table.span,
                f"{probe.table.name} ({probe.spec.name}) has updates, and this INSERT joins nothing in event time",
                "a probe that is read in processing time only grows",
            )
        scope = self.insert.scope(relations)
        conditions = self._where(scope)
        where = " AND ".join(condition.expression for condition in conditions) or None
        insert = self.insert.compiled(target.table, relations[0], self._selected(scope), where, tuple(joins))
        proof = target.table.options.get("gate.proof") == "columns"
        return replace(insert, conditions=tuple(conditions), proof=proof)

    # FROM and JOIN

    def _joined(self, probe: Declared) -> tuple[list[Relation], list[Join]]:
        relations = [self.insert.relation(self.statement.probe, probe, [])]
        joins: list[Join] = []
        for position, join in enumerate(self.statement.joins):
            build = self.insert.read(join.build, "JOIN")
            relation = self.insert.relation(join.build, build, relations)
            later = [further.build.name.text for further in self.statement.joins[position + 1 :]]
            joins.append(JoinCompiler(self.insert, join, relations, relation, probe, build.spec, later).compile())
            relations = [*relations, relation]
        return relations, joins

    def _one_time(self, joins: list[Join]) -> None:
        for join, statement in zip(joins, self.statement.joins, strict=True):
            if join.time != joins[0].time:
                raise self.insert.error(
                    statement.time.span,
                    f"one INSERT cannot mix processing time and event time ({joins[0].build}: {joins[0].time}, "
                    f"{join.build}: {join.time})",
                    "join all builds AS OF the same time attribute, or write two INSERTs",
                )

    # WHERE

    def _where(self, scope: InsertScope) -> list[Condition]:
        if self.statement.where is None:
            return []
        terms = Translator(self.source, scope).conjuncts(self.statement.where)
        return [Condition(value.sql, value.aliases) for _, value in terms]

    # SELECT

    def _selected(self, scope: InsertScope) -> list[Output]:
        return [output for item in self.statement.items for output in self._outputs(item, scope)]

    def _outputs(self, item: SelectItem, scope: InsertScope) -> list[Output]:
        if item.expression is not None:
            value = Translator(self.source, scope).value(item.expression)
            written = item.alias.text if item.alias else item.expression.written
            return [Output(value, item.expression.span, written)]
        relations = [scope.relation(item.qualifier)] if item.qualifier else scope.relations
        return [
            Output(value_of(column, relation.alias), item.span, column.name)
            for relation in relations
            for column in relation.table.columns
        ]
