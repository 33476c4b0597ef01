"""Columns that the source itself fills.

SYSTEM_ROWTIME() and SYSTEM_WATERMARK() (FLIP-66): a table has both or neither. The watermark may be delayed,
`SYSTEM_WATERMARK() - INTERVAL '5' SECOND`, for sources whose times step back; FLIP-66 does not have this.

METADATA columns whose declared type is not the connector's: Flink casts them explicitly. Accepted are casts that lose
nothing, casts to a text, and casts that leave out digits of a second, as the declared type says. Flink's other casts
would change values silently.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from sqlglot import exp

from tidegate.pipelines.connectors.spec import ConnectorSpec
from tidegate.pipelines.connectors.table import Column
from tidegate.pipelines.sql.coercion import assignable
from tidegate.pipelines.sql.values import interval_value, length
from tidegate.pipelines.syntax.dialect import parse_type
from tidegate.pipelines.syntax.errors import SqlError
from tidegate.pipelines.syntax.source import Source
from tidegate.pipelines.syntax.statements import Scalar, Watermark, place
from tidegate.pipelines.syntax.types import BINARIES, NESTED, STRINGS, TIMESTAMPS, FlinkType, Kind, quoted

SOURCES_OWN = ("SYSTEM_WATERMARK", "SOURCE_WATERMARK")
"""FLIP-66's name, and the one that Flink has given it since."""

AFTER_IT = "INTERVAL '0.001' SECOND"
"""How far a watermark over ascending times stays behind them: more rows with the greatest time may come (FLIP-126)."""

_DELAY = "INTERVAL '5' SECOND"
_LONGEST = 2**63
"""In microseconds: an INTERVAL has fewer."""


def is_call(scalar: Scalar, *names: str) -> bool:
    """Whether an expression is nothing but a call of one of `names`, without arguments."""
    return _called(scalar.tree, names)


def own_call(expression: Scalar) -> exp.Anonymous | None:
    """The call of SYSTEM_WATERMARK() in a watermark's expression, wherever it is."""
    return next((call for call in expression.tree.find_all(exp.Anonymous) if call.name.upper() in SOURCES_OWN), None)


def delay_of(source: Source, expression: Scalar, call: exp.Anonymous) -> timedelta:
    """The delay after the source's watermark at which `expression`, which has `call` in it, is emitted.

    Raises SqlError for anything but the call alone, or the call minus a literal interval.
    """
    tree = expression.tree.unnest()
    if _called(tree, SOURCES_OWN):
        return timedelta(0)
    name = call.name.upper()
    hint = f"write {name}() - {_DELAY}, or {name}() alone"
    if not isinstance(tree, exp.Sub) or not _called(tree.this.unnest(), SOURCES_OWN):
        what = f"{name}() is the source's own watermark: nothing but a delay is taken off it"
        raise source.error(place(call) or expression.span, what, hint)
    delay = tree.expression.unnest()
    micros = length(delay) if isinstance(delay, exp.Interval) else None
    if not isinstance(delay, exp.Interval):
        what = f"the delay of {name}() is an interval that is written out"
    elif interval_value(delay) is None and (micros is None or micros < _LONGEST):
        what = "the interval's value does not fit its unit"
    elif micros is None:
        what = "a delay is of days, hours, minutes or seconds: months are not all as long"
    elif micros < 0:
        what = f"the delay of {name}() is negative: it would be ahead of the source"
    elif micros >= _LONGEST:
        what = "the delay is longer than an interval can be"
    else:
        return timedelta(microseconds=micros)
    raise source.error(place(delay) or expression.span, what, hint)


def not_the_sources_own(
    source: Source, table: str, watermark: Watermark, columns: Iterable[Column], connector: ConnectorSpec | None
) -> SqlError | None:
    """What is wrong with a watermark that is not the source's own, if the table has a SYSTEM_ROWTIME() column; None if
    it has none. The hint is what to write."""
    times = [column for column in columns if column.source_time]
    if not times:
        return None
    rowtime = next((column for column in times if column.name == watermark.path[0].text), None)
    column = rowtime or times[0]
    later = _delay_written(source, watermark, column)
    write = f"write WATERMARK FOR {quoted(column.name)} AS SYSTEM_WATERMARK(){later}"
    if rowtime is not None:
        what = f"`{column.name}` is SYSTEM_ROWTIME(), whose watermark is SYSTEM_WATERMARK(), and not an expression"
        return source.error(watermark.expression.span, what, write)
    named = watermark.path[0].span.to(watermark.path[-1].span)
    what = f"`{column.name}` is SYSTEM_ROWTIME(), and the watermark of {table} is not the source's own"
    return source.error(named, what, f"{write}, or {_ordinary(column, watermark, connector)}")


def _ordinary(column: Column, watermark: Watermark, connector: ConnectorSpec | None) -> str:
    """What to do with a SYSTEM_ROWTIME() column if the table has a rowtime of its own."""
    if column.name not in {node.name for node in watermark.expression.tree.find_all(exp.Column)}:
        return "leave the column out"
    known = connector.metadata if connector is not None else {}
    key = next((key for key, of in known.items() if parse_type(of).kind is Kind.TIMESTAMP_LTZ), None)
    if key is None:
        return f"name a column of the rows in place of {quoted(column.name)}"
    return f"declare {quoted(column.name)} {known[key]} METADATA FROM '{key}', which is an ordinary column"


def _delay_written(source: Source, watermark: Watermark, column: Column) -> str:
    """The delay of an expression over SYSTEM_ROWTIME(), as it is to be written after SYSTEM_WATERMARK(); an example if
    that cannot be derived."""
    tree = watermark.expression.tree.unnest()
    if _is(tree, column):
        return ""
    interval = tree.expression.unnest() if isinstance(tree, exp.Sub) and _is(tree.this.unnest(), column) else None
    micros = length(interval) if isinstance(interval, exp.Interval) else None
    span = place(interval) if isinstance(interval, exp.Interval) else None
    if micros is None or span is None or not 0 <= micros < _LONGEST:
        return f" - {_DELAY}"
    if micros <= 1000:  # the source's own is so much behind
        return ""
    written = source.shown(span)
    return f" - {written}" if written.upper().startswith("INTERVAL") else f" - INTERVAL {written}"


def _is(tree: exp.Expr, column: Column) -> bool:
    return isinstance(tree, exp.Column) and len(tree.parts) == 1 and tree.name == column.name


def _called(tree: exp.Expr, names: Iterable[str]) -> bool:
    return isinstance(tree, exp.Anonymous) and tree.name.upper() in names and not tree.expressions


def declarable(delivered: FlinkType, declared: FlinkType) -> bool:
    """Whether a METADATA column that is `delivered` may be `declared`: CAST then has Flink's result. A CHAR(n) or
    VARCHAR(n) is filled up and cut, a timestamp has the digits of a second that it is declared with."""
    if declared.kind in STRINGS:
        return delivered.kind not in BINARIES | NESTED
    if {delivered.kind, declared.kind} <= TIMESTAMPS:
        return True
    return assignable(delivered, declared)
