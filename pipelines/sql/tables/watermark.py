"""WATERMARK FOR of one CREATE TABLE, and a watermark as properties, both ways (FLIP-66)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from tidegate.pipelines.connectors.spec import ConnectorSpec
from tidegate.pipelines.connectors.table import Column, WatermarkSpec
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.functions import UserFunction
from tidegate.pipelines.sql.functions.user import UserFunctions
from tidegate.pipelines.sql.scope import TableScope
from tidegate.pipelines.sql.tables.source_columns import AFTER_IT, delay_of, not_the_sources_own, own_call
from tidegate.pipelines.sql.translate import Translator
from tidegate.pipelines.syntax.dialect import parse_type, read_watermark
from tidegate.pipelines.syntax.grammar.create import NO_STRATEGY, ascending, shown_path
from tidegate.pipelines.syntax.source import Source, Span
from tidegate.pipelines.syntax.statements import Watermark
from tidegate.pipelines.syntax.types import TIMESTAMPS, Kind, quoted

IN_PYTHON = "in Python WatermarkStrategy.for_expression takes any Spark SQL"


class WatermarkCompiler:
    """Compiles the watermark of the table called `name`, which has `columns`."""

    def __init__(self, source: Source, name: str, columns: Sequence[Column], functions: UserFunctions) -> None:
        self.source, self.name = source, name
        self._error = source.error
        self.scope = TableScope(source, name, columns, functions)
        self.columns = {column.name: column for column in columns}

    def compile(self, watermark: Watermark, connector: ConnectorSpec | None = None) -> WatermarkSpec:
        """The watermark, its expression translated. `connector` is asked whether it has one of its own.

        Raises SqlError: unknown column or field, a PROCTIME() column, a type that is no time, a rejected strategy,
        SYSTEM_WATERMARK() and SYSTEM_ROWTIME() one without the other.
        """
        place = watermark.path[0].span.to(watermark.path[-1].span)
        column = self._rowtime(watermark, place)
        call = own_call(watermark.expression)
        if call is not None:
            return self._sources_own(watermark, call, column, place, connector)
        wrong = not_the_sources_own(self.source, self.name, watermark, self.columns.values(), connector)
        if wrong is not None:
            raise wrong
        self._no_keyword(watermark)
        value = Translator(self.source, self.scope, IN_PYTHON).value(watermark.expression)
        if value.type.kind not in (*TIMESTAMPS, Kind.BIGINT):
            what = f"type clash: a watermark is TIMESTAMP, TIMESTAMP_LTZ or BIGINT (ms), not {value.type}"
            hint = f"for example {shown_path(watermark.path)} - INTERVAL '5' SECOND"
            raise self._error(watermark.expression.span, what, hint)
        return self._spec(watermark, value.sql, str(value.type.null()))

    def _rowtime(self, watermark: Watermark, place: Span) -> Column:
        """The column that the rowtime is, or is a field of."""
        rowtime = self.scope.resolve(watermark.path)
        column = self.columns[watermark.path[0].text]
        if column.proctime:
            hint = "leave WATERMARK FOR out, or name a rowtime column"
            raise self._error(place, "PROCTIME() needs no watermark", hint)
        if rowtime.type.kind not in TIMESTAMPS:
            hint = "compute one: rowtime AS TO_TIMESTAMP_LTZ(millis, 3), or rowtime AS TO_TIMESTAMP(text)"
            raise self._error(place, f"type clash: a rowtime is TIMESTAMP or TIMESTAMP_LTZ, not {rowtime.type}", hint)
        return column

    def _sources_own(
        self, watermark: Watermark, call: exp.Anonymous, column: Column, place: Span, connector: ConnectorSpec | None
    ) -> WatermarkSpec:
        delay = delay_of(self.source, watermark.expression, call)
        if connector is not None and not connector.system_watermark:
            what = f"{connector.name} has no watermark of its own for {call.name.upper()}()"
            hint = f"write it as an expression: {shown_path(watermark.path)} - INTERVAL '5' SECOND"
            raise self._error(watermark.expression.span, what, hint)
        if not column.source_time:
            what = f"{call.name.upper()}() is the watermark of SYSTEM_ROWTIME(), which `{column.name}` is not"
            raise self._error(place, what, "declare rowtime AS SYSTEM_ROWTIME(), and write WATERMARK FOR rowtime")
        own = self._spec(watermark, f"({quoted(column.name)} - {AFTER_IT})", column.type)
        return replace(own, source=True, delay=delay)

    def _no_keyword(self, watermark: Watermark) -> None:
        tree, declared = watermark.expression.tree, self.scope.functions.declared
        if not isinstance(tree, exp.Column | exp.Anonymous) or tree.name.upper() != "ASCENDING":
            return
        own = any(name.upper() == "ASCENDING" for name in declared)
        if not (own if isinstance(tree, exp.Anonymous) else tree.name in self.columns):
            raise self._error(watermark.expression.span, NO_STRATEGY, ascending(shown_path(watermark.path)))

    def _spec(self, watermark: Watermark, expression: str, of: str) -> WatermarkSpec:
        return WatermarkSpec(
            column=".".join(name.text for name in watermark.path),
            expression=expression,
            type=str(parse_type(of)),
            location=self.source.location(watermark.span.start),
            sql=watermark.expression.written,
        )


PREFIX = "schema.watermark."
ROWTIME = f"{PREFIX}0.rowtime"
EXPRESSION = f"{PREFIX}0.strategy.expression"
DATATYPE = f"{PREFIX}0.strategy.datatype"
KEYS = (ROWTIME, EXPRESSION, DATATYPE)


def to_properties(spec: WatermarkSpec) -> dict[str, str]:
    """The three properties of a watermark."""
    return {ROWTIME: spec.column, EXPRESSION: _canonical(spec), DATATYPE: spec.type}


def from_properties(
    properties: Mapping[str, str],
    columns: Sequence[Column],
    *,
    table: str = "the table",
    functions: Mapping[str, UserFunction] | None = None,
) -> WatermarkSpec | None:
    """The watermark that `properties` hold of a table with `columns`; None when they hold none.

    `functions` are those that the expression may call, by name. Keys of other kinds are passed over.
    Raises PlanningError for a key that is missing or unknown, or a datatype that the expression does not give; SqlError
    for a path or an expression that does not compile, with its place in `WATERMARK FOR … AS …`.
    """
    found = {key: value for key, value in properties.items() if key.startswith(PREFIX)}
    if not found:
        return None
    missing = [key for key in KEYS if key not in found]
    if missing:
        raise _problem(table, f"'{missing[0]}' is missing", f"give all of {', '.join(KEYS)}")
    unknown = [key for key in found if key not in KEYS]
    if unknown:
        raise _problem(table, f"'{unknown[0]}' is not known", "give one watermark, number 0: a table has one")
    path = ".".join(quoted(name) for name in found[ROWTIME].split("."))
    source = Source(f"WATERMARK FOR {path} AS {found[EXPRESSION]}")
    known = UserFunctions(source)
    for function in (functions or {}).values():
        known.add(function)
    spec = WatermarkCompiler(source, table, columns, known).compile(read_watermark(source))
    if spec.type != found[DATATYPE]:
        what = f"'{DATATYPE}' is {found[DATATYPE]}, and the expression gives {spec.type}"
        raise _problem(table, what, f"write '{DATATYPE}' = '{spec.type}', or CAST the expression")
    return spec


def _problem(table: str, what: str, next_command: str) -> PlanningError:
    where = f"the watermark of {table}"
    return PlanningError(what, where=where, state="nothing was run", next_command=next_command)


def _canonical(spec: WatermarkSpec) -> str:
    """The expression with its columns in backquotes and INTERVAL in front of every interval."""
    source = Source(f"WATERMARK FOR x AS {spec.sql}")
    expression = read_watermark(source).expression
    put: dict[int, tuple[int, str]] = {}
    for node in expression.tree.find_all(exp.Identifier):
        if not node.args.get("quoted"):
            put[node.meta["start"]] = (node.meta["end"] + 1, quoted(node.name))
    for node in expression.tree.find_all(exp.Interval):
        if source.text[node.meta["start"]] == "'":
            put[node.meta["start"]] = (node.meta["start"], "INTERVAL ")
    pieces: list[str] = []
    at = expression.span.start
    for start, (end, text) in sorted(put.items()):
        pieces += [source.text[at:start], text]
        at = end
    return "".join([*pieces, source.text[at : expression.span.end]])
