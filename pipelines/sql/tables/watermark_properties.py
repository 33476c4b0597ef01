"""A watermark as the properties of FLIP-66, both ways.

    schema.watermark.0.rowtime              the column's path: f1.q2
    schema.watermark.0.strategy.expression  SQL, columns in backquotes: `f1`.`q2` - INTERVAL '5' SECOND
    schema.watermark.0.strategy.datatype    what the expression gives: TIMESTAMP(3)

>>> to_properties(WatermarkSpec("f1.q2", "", "TIMESTAMP(3)", sql="f1.q2 - '5' SECOND"))["schema.watermark.0.rowtime"]
'f1.q2'
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from tidegate.pipelines.connectors.table import Column, WatermarkSpec
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.functions import UserFunction
from tidegate.pipelines.sql.functions.user import UserFunctions
from tidegate.pipelines.sql.tables.watermark import WatermarkCompiler
from tidegate.pipelines.syntax.dialect import read_watermark
from tidegate.pipelines.syntax.source import Source
from tidegate.pipelines.syntax.types import quoted

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
