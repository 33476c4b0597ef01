"""INSERT INTO … SELECT … FROM TABLE(TUMBLE(…)) GROUP BY window_start, window_end: a process function of SQL's own.

What is grouped, and what is aggregated, are expressions over the table's rows; SELECT and HAVING are over what comes of
that, which the function emits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from tidegate.pipelines.connectors.table import severest_first
from tidegate.pipelines.process.extension import EventTimeExtension
from tidegate.pipelines.process.spec import BUCKETS, ProcessInput, ProcessSpec
from tidegate.pipelines.process.windows.aggregation import WindowAggregation
from tidegate.pipelines.process.windows.windowed import WINDOW_END, Group, WindowedQuery, WindowTable
from tidegate.pipelines.sql.coercion import castable
from tidegate.pipelines.sql.functions.function import Call, Function
from tidegate.pipelines.sql.functions.refused import AGGREGATES
from tidegate.pipelines.sql.functions.times import INSTANT_SQL
from tidegate.pipelines.sql.functions.user import UserFunctions
from tidegate.pipelines.sql.inserts.aggregates import Parts, aggregate
from tidegate.pipelines.sql.inserts.statement import InsertStatement, Output
from tidegate.pipelines.sql.inserts.window_call import WindowCallCompiler, WindowTime
from tidegate.pipelines.sql.model import Insert
from tidegate.pipelines.sql.scope import InsertScope, unused
from tidegate.pipelines.sql.translate import Translator
from tidegate.pipelines.sql.values import Value
from tidegate.pipelines.syntax.errors import SqlError
from tidegate.pipelines.syntax.source import Span
from tidegate.pipelines.syntax.statements import Known, Name, Scalar, place, spanned
from tidegate.pipelines.syntax.types import APPROXIMATE, INTERVALS, NESTED, STRING, FlinkType, Kind, quoted

BOUNDS = ("window_start", "window_end")
WINDOW_COLUMNS = (*BOUNDS, "window_time")
GROUP_BY_WINDOWS = "GROUP BY window_start, window_end"
_MOMENT = FlinkType(Kind.TIMESTAMP, 3, nullable=False)


@dataclass
class RowScope:
    """The columns of the table, and those of its windows: `bounds` of them may stand alone in GROUP BY, and nowhere
    else before rows are grouped. `seen`: those that were named."""

    table: InsertScope
    bounds: dict[str, Value]
    seen: list[Name] = field(default_factory=list)

    @property
    def functions(self) -> UserFunctions | None:
        return self.table.functions

    def function(self, name: str, span: Span) -> Function | None:
        return self.table.function(name, span)

    def resolve(self, path: Sequence[Name]) -> Value:
        """The value of a column. Raises SqlError: unknown."""
        alias = self.table.relations[0].alias
        own = path[1:] if len(path) == 2 and path[0].text == alias else path
        if len(own) == 1 and own[0].text in self.bounds:
            self.seen.append(own[0])
            return self.bounds[own[0].text]
        return self.table.resolve(path)


@dataclass
class GroupedScope:
    """What SELECT and HAVING may name beside groups and aggregates, whose values are known already: nothing."""

    rows: RowScope

    @property
    def functions(self) -> UserFunctions | None:
        return self.rows.functions

    def function(self, name: str, span: Span) -> Function | None:
        return self.rows.function(name, span)

    def resolve(self, path: Sequence[Name]) -> Value:
        """Raises SqlError: unknown, or neither grouped nor aggregated."""
        value = self.rows.resolve(path)
        written = ".".join(name.text for name in path)
        span = path[0].span.to(path[-1].span)
        hint = f"add it to GROUP BY, or write MIN({written})"
        if path[-1].text in WINDOW_COLUMNS and value in self.rows.bounds.values():
            hint = f"add it to GROUP BY: {GROUP_BY_WINDOWS}, {written}"
        raise self.rows.table.source.error(span, f"`{written}` is neither grouped nor aggregated", hint)


class WindowedCompiler:
    """Compiles one INSERT over windows."""

    def __init__(self, insert: InsertStatement) -> None:
        self.insert, self.source, self.statement = insert, insert.source, insert.statement

    def compile(self) -> Insert:
        """The INSERT. Raises SqlError."""
        statement, call = self.statement, self.statement.window
        assert call is not None
        target, probe = self.insert.target(), self.insert.read(self.statement.probe, "FROM")
        relation = self.insert.relation(statement.probe, probe, [])
        if not probe.spec.only_grows(probe.table.options):
            what = f"{probe.table.name} ({probe.spec.name}) has updates, and windows are of tables that only grow"
            raise self._error(statement.probe.table.span, what, "aggregate a table that only grows")
        for join in statement.joins:
            raise self._error(join.span, "windows are not joined", "join in an INSERT of its own, or in Python")
        for column in probe.table.columns:
            if column.name in WINDOW_COLUMNS:
                what = f"{probe.table.name} has a column {column.name} of its own"
                raise self._error(statement.probe.table.span, what, "give it another name in its CREATE TABLE")
        window = WindowCallCompiler(self.source, call, relation)
        windows, time = window.table(), window.time()
        rows = RowScope(InsertScope(self.source, [relation], functions=self.insert.functions), _bounds(windows, time))
        where = self._where(rows)
        groups = self._groups(rows)
        parts = Parts({WINDOW_END, *(group.name.casefold() for group in groups.named.values())})
        parts.need("sum", "count(1)", FlinkType(Kind.BIGINT), "rows")
        outputs = self._selected(rows, groups, parts)
        having = self._having(rows, groups, parts)
        query = WindowedQuery(
            alias=relation.alias,
            table=windows,
            time_column=time.column,
            event_time=time.event_time,
            where=where,
            groups=tuple(groups.named.values()),
            # In an order of their own: what is selected may be written in another one.
            parts=tuple(sorted(parts.found.values(), key=lambda part: part.name)),
            having=having,
        )
        projections = self.insert.projections(target.table, outputs)
        return Insert(
            id=target.table.options.get("insert.id", target.table.name),
            target=target.table.name,
            probe=probe.table.name,
            probe_alias=relation.alias,
            joins=(),
            where=where,
            projections=projections,
            sql=statement.written,
            location=self.source.location(statement.span.start),
            constraints=severest_first(target.table.constraints),
            process=_process(query, probe.table.name, target.table.name),
        )

    def _error(self, span: Span, what: str, hint: str | None = None) -> SqlError:
        return self.source.error(span, what, hint)

    # --- over rows -----------------------------------------------------------------------------------------------

    def _where(self, rows: RowScope) -> str | None:
        if self.statement.where is None:
            return None
        translator = Translator(self.source, rows)
        terms = [value for _, value in translator.conjuncts(self.statement.where)]
        self._no_bounds(rows, "WHERE", "write it behind HAVING")
        return " AND ".join(term.sql for term in terms)

    def _no_bounds(self, rows: RowScope, clause: str, hint: str) -> None:
        for name in rows.seen:
            raise self._error(name.span, f"`{name.text}` cannot stand in {clause}", hint)

    def _groups(self, rows: RowScope) -> Groups:
        """What GROUP BY names. Raises SqlError where it lacks the window's bounds."""
        statement = self.statement
        found, translator = Groups(), Translator(self.source, rows)
        for scalar in statement.group_by:
            rows.seen.clear()
            value = translator.value(scalar)
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
            at = statement.grouped or statement.select_span
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

    def _selected(self, rows: RowScope, groups: Groups, parts: Parts) -> list[Output]:
        found = []
        for item in self.statement.items:
            if item.expression is None:
                what = "`*` names columns that are neither grouped nor aggregated"
                raise self._error(item.span, what, "name what is grouped, and aggregates: item, COUNT(*)")
            value = self._grouped(item.expression, rows, groups, parts)
            written = item.alias.text if item.alias else item.expression.written
            found.append(Output(value, item.expression.span, written))
        return found

    def _having(self, rows: RowScope, groups: Groups, parts: Parts) -> str | None:
        having = self.statement.having
        if having is None:
            return None
        tree = self._known(having, rows, groups, parts)
        return Translator(self.source, GroupedScope(rows)).truth(tree, having.span).sql

    def _grouped(self, scalar: Scalar, rows: RowScope, groups: Groups, parts: Parts) -> Value:
        """The value of an expression over groups. Raises SqlError."""
        tree = self._known(scalar, rows, groups, parts)
        return Translator(self.source, GroupedScope(rows)).of(tree, scalar.span)

    def _known(self, scalar: Scalar, rows: RowScope, groups: Groups, parts: Parts) -> exp.Expr:
        """The tree of an expression, with the values of its groups and aggregates in their places."""
        translator = Translator(self.source, rows)

        def known(node: exp.Expr) -> exp.Expr:
            if isinstance(node, exp.Anonymous) and node.name.upper() in AGGREGATES:
                value = self._aggregate(node, scalar, translator, parts)
            else:
                value = self._group(node, scalar, translator, groups)
            if value is None:
                return node
            found = spanned(Known(), place(node) or scalar.span)
            found.meta["value"] = value
            return found

        return scalar.tree.transform(known)

    def _aggregate(self, node: exp.Anonymous, scalar: Scalar, translator: Translator, parts: Parts) -> Value:
        span, star = place(node) or scalar.span, any(isinstance(item, exp.Star) for item in node.expressions)
        trees = [] if star else node.expressions
        for tree in trees:
            for inner in tree.find_all(exp.Anonymous):
                if inner.name.upper() in AGGREGATES:
                    raise self._error(place(inner) or span, "an aggregate of an aggregate", "write it into two INSERTs")
        rows = translator.scope
        assert isinstance(rows, RowScope)
        rows.seen.clear()
        arguments = tuple(translator.of(tree, span) for tree in trees)
        self._no_bounds(rows, "an aggregate", "it is the same for all rows of a window")
        spans = tuple(place(tree) or span for tree in trees)
        call = Call(node.name.upper(), arguments, spans, span, self.source)
        return aggregate(call, bool(node.meta.get("distinct")), star, parts)

    def _group(self, node: exp.Expr, scalar: Scalar, translator: Translator, groups: Groups) -> Value | None:
        """The value of a node that GROUP BY names; None for any other, which may have parts that it names."""
        try:
            value = translator.of(node, scalar.span)
        except SqlError:  # reported when the whole is translated, if it is wrong there, too
            return None
        return None if value.literal else groups.value(value)


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
    name = f"{type(function.function).__name__} {query.definition}"
    return ProcessSpec(
        function=function,
        inputs=(ProcessInput(probe, query.key),),
        outputs=(target,),
        buckets=BUCKETS,
        identity=f"{name} {query.having}",
        windowed=query,
    )
