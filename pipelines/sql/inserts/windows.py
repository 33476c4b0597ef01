"""INSERT INTO … SELECT … FROM TABLE(TUMBLE(…)) GROUP BY window_start, window_end: a process function of SQL's own.

What is grouped, and what is aggregated, are expressions over the table's rows; SELECT and HAVING are over what comes of
that, which the function emits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from tidegate.pipelines.functions import used_in
from tidegate.pipelines.process.extension import EventTimeExtension
from tidegate.pipelines.process.spec import BUCKETS, ProcessInput, ProcessSpec
from tidegate.pipelines.process.windows.aggregation import WindowAggregation
from tidegate.pipelines.process.windows.windowed import WINDOW_END, Group, WindowedQuery, WindowTable
from tidegate.pipelines.sql.coercion import castable
from tidegate.pipelines.sql.functions.function import Call, Function
from tidegate.pipelines.sql.functions.refused import AGGREGATES
from tidegate.pipelines.sql.functions.times import INSTANT_SQL
from tidegate.pipelines.sql.inserts.aggregates import Parts, aggregate
from tidegate.pipelines.sql.inserts.statement import InsertStatement
from tidegate.pipelines.sql.inserts.window_call import WindowCallCompiler, WindowTime
from tidegate.pipelines.sql.model import Condition, Insert, ProcessInsert
from tidegate.pipelines.sql.scope import InsertScope, Relation, unused
from tidegate.pipelines.sql.translate import Translator
from tidegate.pipelines.sql.tree import Column, Filter, Node, Union, WindowAggregate
from tidegate.pipelines.sql.values import Value
from tidegate.pipelines.syntax.errors import SqlError
from tidegate.pipelines.syntax.source import Span
from tidegate.pipelines.syntax.statements import Known, Name, Scalar, place, spanned
from tidegate.pipelines.syntax.types import APPROXIMATE, INTERVALS, NESTED, STRING, FlinkType, Kind, quoted

WRITTEN_FIRST = (
    "write the inner one INTO a table WITH ('connector' = 'delta', 'path' = …), and read it by a second table"
)

BOUNDS = ("window_start", "window_end")
WINDOW_COLUMNS = (*BOUNDS, "window_time")
GROUP_BY_WINDOWS = "GROUP BY window_start, window_end"
_MOMENT = FlinkType(Kind.TIMESTAMP, 3, nullable=False)


@dataclass(frozen=True)
class RowScope(InsertScope):
    """The columns of the table, and those of its windows: `bounds` of them may stand alone in GROUP BY, and nowhere
    else before rows are grouped. `seen`: those that were named."""

    bounds: Mapping[str, Value] = field(default_factory=dict)
    seen: list[Name] = field(default_factory=list)

    def function(self, name: str, span: Span) -> Function | None:
        """Raises SqlError for every user function."""
        if super().function(name, span) is not None:
            raise self.no_function(name, span)
        return None

    def no_function(self, name: str, span: Span, also: Span | None = None) -> SqlError:
        """The error for a function of the script."""
        probe = self.relations[0].table.name
        hint = f"declare a computed column in {probe}, and use that: {name.lower()}_of AS {name}(…)"
        return self.source.error(span, f"function {name} cannot stand in an INSERT over windows", hint, also)

    def resolve(self, path: Sequence[Name]) -> Value:
        """The value of a column. Raises SqlError: unknown."""
        own = path[1:] if len(path) == 2 and path[0].text == self.relations[0].alias else path
        if len(own) == 1 and own[0].text in self.bounds:
            self.seen.append(own[0])
            return self.bounds[own[0].text]
        return super().resolve(path)


@dataclass(frozen=True)
class GroupedScope(RowScope):
    """What SELECT and HAVING may name beside groups and aggregates, whose values are known already: nothing."""

    def resolve(self, path: Sequence[Name]) -> Value:
        """Raises SqlError: unknown, or neither grouped nor aggregated."""
        value = super().resolve(path)
        written = ".".join(name.text for name in path)
        span = path[0].span.to(path[-1].span)
        hint = f"add it to GROUP BY, or write MIN({written})"
        if path[-1].text in WINDOW_COLUMNS and value in self.bounds.values():
            hint = f"add it to GROUP BY: {GROUP_BY_WINDOWS}, {written}"
        raise self.source.error(span, f"`{written}` is neither grouped nor aggregated", hint)


class WindowedCompiler:
    """Compiles one INSERT over windows."""

    def __init__(self, insert: InsertStatement) -> None:
        self.insert, self.source, self.statement = insert, insert.source, insert.statement.query
        self._error = insert.source.error

    def compile(self) -> Insert:
        """The INSERT. Raises SqlError."""
        statement, call = self.statement, self.statement.window
        assert call is not None
        target, (rows, relation) = self.insert.target(), self._probe()
        self._check(rows, relation)
        window = WindowCallCompiler(self.insert, call, relation, rows.scan)
        windows, time = window.table(), window.time()
        self.rows = RowScope(self.source, [relation], self.insert.binder.functions, bounds=_bounds(windows, time))
        self.over_rows = Translator(self.source, self.rows)
        self.over_groups = Translator(self.source, GroupedScope(**vars(self.rows)))
        own = self._where()
        rows = Filter(rows, own) if own else rows
        where = " AND ".join(condition.expression for condition in rows.conditions) or None
        self.groups = self._grouped_by()
        self.parts = Parts({WINDOW_END, *(group.name.casefold() for group in self.groups.named.values())})
        self.parts.need("sum", "count(1)", FlinkType(Kind.BIGINT), "rows")
        outputs = self._selected()
        having = None
        if statement.having is not None:
            having = self.over_groups.truth(self._known(statement.having), statement.having.span).sql
        query = WindowedQuery(
            alias=relation.base,
            table=windows,
            time_column=time.column,
            event_time=time.event_time,
            where=where,
            groups=tuple(self.groups.named.values()),
            # In an order of their own: what is selected may be written in another one.
            parts=tuple(sorted(self.parts.found.values(), key=lambda part: part.name)),
            having=having,
        )
        self._check_functions(query, relation)
        insert = self.insert.compiled(target.table, WindowAggregate(rows, query, tuple(outputs)))
        return ProcessInsert(
            **vars(replace(insert, conditions=(), proof=False)),
            process=_process(query, relation.table.name, target.table.name),
        )

    def _probe(self) -> tuple[Node, Relation]:
        """The rows whose windows these are, and their names."""
        binder = self.insert.binder
        found = binder.probe(self.statement.probe, binder.with_views(self.statement, {}))
        binder.all_read(self.statement)
        return found

    def _check(self, rows: Node, relation: Relation) -> None:
        """Raise SqlError for rows that have no windows."""
        declared, at, of = rows.scan.declared, self.statement.probe.table.span, relation.defined
        name = declared.table.name
        if isinstance(rows.scan, Union):
            hint = "INSERT INTO a table of its own what UNION ALL gives, and write the windows over that"
            raise self._error(at, f"windows are of one table, and these rows are of {name}", hint, of)
        if not declared.only_grows:
            what = f"{name} ({declared.spec.name}) has updates, and windows are of tables that only grow"
            raise self._error(at, what, "aggregate a table that only grows", of)
        for span in [join.span for join in self.statement.joins] + [at] * len(rows.joins):
            raise self._error(span, "windows are not joined", "join in an INSERT of its own, or in Python", of)
        for column in relation.columns:
            if column in WINDOW_COLUMNS:
                what = f"{relation.name} has a column {column} of its own"
                where = "AS, in the view" if of else "its CREATE TABLE"
                raise self._error(at, what, f"give it another name in {where}", of)

    def _check_functions(self, query: WindowedQuery, relation: Relation) -> None:
        """Raise SqlError where a view calls functions of the script."""
        texts = [each.expression for each in (*query.groups, *query.parts)]
        for function in used_in(self.insert.binder.functions.declared.values(), query.where, *texts):
            raise self.rows.no_function(function.name, self.statement.probe.table.span, relation.defined)

    # --- over rows -----------------------------------------------------------------------------------------------

    def _where(self) -> tuple[Condition, ...]:
        if self.statement.where is None:
            return ()
        terms = [value for _, value in self.over_rows.conjuncts(self.statement.where)]
        self._no_bounds("WHERE", "write it behind HAVING")
        return tuple(Condition(term.sql, term.aliases) for term in terms)

    def _no_bounds(self, clause: str, hint: str) -> None:
        for name in self.rows.seen:
            raise self._error(name.span, f"`{name.text}` cannot stand in {clause}", hint)

    def _grouped_by(self) -> Groups:
        """What GROUP BY names. Raises SqlError where it lacks the window's bounds."""
        statement, rows, found = self.statement, self.rows, Groups()
        for scalar in statement.group_by:
            rows.seen.clear()
            value = self.over_rows.value(scalar)
            bound = next((name for name, known in rows.bounds.items() if known == value), None)
            if bound is not None:
                found.bounds[bound] = value
                continue
            if rows.seen:
                raise self._error(scalar.span, "a window's bounds stand alone in GROUP BY", GROUP_BY_WINDOWS)
            self._check_group(scalar, value)
            found.add(value)
        rows.seen.clear()
        missing = [name for name in BOUNDS if name not in found.bounds]
        if missing:
            at = statement.grouped or statement.span
            raise self._error(at, f"windows are grouped by window_start and window_end: {missing[0]} is missing",
                              f"write {GROUP_BY_WINDOWS}, …")  # fmt: skip
        return found

    def _check_group(self, scalar: Scalar, value: Value) -> None:
        kind = value.type.kind
        if value.literal:
            raise self._error(scalar.span, "GROUP BY takes expressions over columns", "name the columns themselves")
        if INSTANT_SQL in value.sql:
            what = "the time of processing is another one in each run: rows are not grouped by it"
            raise self._error(scalar.span, what, GROUP_BY_WINDOWS)
        if kind in {*NESTED, *APPROXIMATE, *INTERVALS, Kind.NULL}:
            hint = "CAST it to a DECIMAL or a STRING" if castable(value.type, STRING) else None
            raise self._error(scalar.span, f"no key is of {value.type.null()}", hint)

    # --- over groups ---------------------------------------------------------------------------------------------

    def _selected(self) -> list[Column]:
        found = []
        for item in self.statement.items:
            if item.expression is None:
                what = "`*` names columns that are neither grouped nor aggregated"
                raise self._error(item.span, what, "name what is grouped, and aggregates: item, COUNT(*)")
            value = self.over_groups.of(self._known(item.expression), item.expression.span)
            written = item.alias.text if item.alias else item.expression.written
            found.append(Column(written, value, item.expression.span, written))
        return found

    def _known(self, scalar: Scalar) -> exp.Expr:
        """The tree of an expression, with the values of its groups and aggregates in their places."""

        def known(node: exp.Expr) -> exp.Expr:
            if isinstance(node, exp.Anonymous) and node.name.upper() in AGGREGATES:
                value = self._aggregate(node, place(node) or scalar.span)
            else:
                value = self._group(node, scalar.span)
            if value is None:
                return node
            found = spanned(Known(), place(node) or scalar.span)
            found.meta["value"] = value
            return found

        return scalar.tree.transform(known)

    def _aggregate(self, node: exp.Anonymous, span: Span) -> Value:
        star = any(isinstance(item, exp.Star) for item in node.expressions)
        trees = [] if star else node.expressions
        for inner in (call for tree in trees for call in tree.find_all(exp.Anonymous)):
            if inner.name.upper() in AGGREGATES:
                raise self._error(place(inner) or span, "an aggregate of an aggregate", WRITTEN_FIRST)
        self.rows.seen.clear()
        arguments = tuple(self.over_rows.of(tree, span) for tree in trees)
        self._no_bounds("an aggregate", "it is the same for all rows of a window")
        spans = tuple(place(tree) or span for tree in trees)
        call = Call(node.name.upper(), arguments, spans, span, self.source)
        return aggregate(call, bool(node.meta.get("distinct")), star, self.parts)

    def _group(self, node: exp.Expr, around: Span) -> Value | None:
        """The value of a node that GROUP BY names; None for any other, which may have parts that it names."""
        try:
            value = self.over_rows.of(node, around)
        except SqlError:  # reported when the whole is translated, if it is wrong there, too
            return None
        return None if value.literal else self.groups.value(value)


@dataclass
class Groups:
    """What rows are grouped by: bounds of their window, and expressions by their Spark SQL."""

    bounds: dict[str, Value] = field(default_factory=dict)
    named: dict[str, Group] = field(default_factory=dict)
    types: dict[str, FlinkType] = field(default_factory=dict)

    def add(self, value: Value) -> None:
        """Group by `value`, too."""
        if value.sql in self.named:
            return
        taken = {WINDOW_END, *(group.name.casefold() for group in self.named.values())}
        name = unused(value.column[1] if value.column else "group", taken)
        self.named[value.sql], self.types[value.sql] = Group(name, value.sql, value.type.spark), value.type

    def value(self, value: Value) -> Value | None:
        """What replaces `value` once rows are grouped; None where they are not grouped by it."""
        if value in self.bounds.values():
            return value
        group = self.named.get(value.sql)
        return None if group is None else Value(quoted(group.name), self.types[value.sql], column=("", group.name))


def _bounds(windows: WindowTable, time: WindowTime) -> dict[str, Value]:
    end = quoted(WINDOW_END)
    last = f"timestamp_millis({end} - 1L)"
    return {
        "window_start": Value(f"CAST(timestamp_millis({windows.start(end)}) AS TIMESTAMP_NTZ)", _MOMENT),
        "window_end": Value(f"CAST(timestamp_millis({end}) AS TIMESTAMP_NTZ)", _MOMENT),
        "window_time": Value(f"CAST({last} AS {time.type.spark})", time.type.not_null()),
    }


def _process(query: WindowedQuery, probe: str, target: str) -> ProcessSpec:
    function = EventTimeExtension.wrap_process_function(WindowAggregation(len(query.groups), query.parts))
    return ProcessSpec(
        function=function,
        inputs=(ProcessInput(probe, query.key),),
        outputs=(target,),
        buckets=BUCKETS,
        windowed=query,
    )
