"""UNION ALL: the columns that its queries have in common, by place. To what reads it, it is one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tidegate.pipelines.connectors.table import Column as TableColumn
from tidegate.pipelines.connectors.table import Table, WatermarkSpec
from tidegate.pipelines.sql.coercion import castable, common_exact
from tidegate.pipelines.sql.scope import storable, unused, value_of
from tidegate.pipelines.sql.tree import KEPT, Column, Declared, Node, Scan, TimeAttribute, Union
from tidegate.pipelines.syntax.errors import SqlError
from tidegate.pipelines.syntax.source import Source, Span
from tidegate.pipelines.syntax.statements import Query
from tidegate.pipelines.syntax.types import INTERVALS, FlinkType, Kind, quoted

BEHIND = (
    "join behind it: FROM (… UNION ALL …) AS u JOIN …; or INSERT what joins INTO a table of its own, and take that in "
    "the UNION ALL"
)


def united(source: Source, queries: Sequence[Query], branches: Sequence[Node], alias: str) -> Union:
    """The rows of `branches`, made of `queries`, as those of a table called `alias` in SQL. Raises SqlError."""
    for query, branch in zip(queries, branches, strict=True):
        _check(source, query, branch, queries[0], branches[0])
    made, named, time = list[TableColumn](), list[Column](), None
    for place, first in enumerate(branches[0].columns):
        kind = _kind(source, branches, place)
        of = _type(source, [branch.columns[place] for branch in branches])
        column = TableColumn(
            unused(storable(first.name), {other.name.casefold() for other in made}),
            str(of.null()),
            of.spark,
            of.nullable,
            proctime=kind == "processing",
        )
        made.append(column)
        value = value_of(column, alias)
        if kind == "event":
            # Two columns of one event time are one: each of them is the time attribute.
            time = time or column
            value = replace(value_of(time, alias), type=value.type) if time.spark_type == of.spark else value
        named.append(replace(first, value=value, of=None))
    spec = _nested(branches, made) if time is None else WatermarkSpec(time.name, quoted(time.name), time.type)
    tables = [leaf.declared.table.name for branch in branches for leaf in _leaves(branch)]
    owner = branches[0].scan.declared
    table = Table(" and ".join(tables), tuple(made), owner.table.options, watermark=spec)
    # That it only grows, as a target, is checked of each branch.
    union = Union(replace(owner, table=table, is_target=True), alias, queries[0].span, tuple(branches), tuple(named))
    if any(branch.filters for branch in union.taken):
        kept = TableColumn(KEPT, "BOOLEAN", "BOOLEAN")
        union = replace(union, declared=replace(union.declared, table=replace(table, columns=(*made, kept))))
    return union


def _nested(branches: Sequence[Node], made: Sequence[TableColumn]) -> WatermarkSpec | None:
    """The time attribute that is a field of a column of every branch, if one is."""
    for place, column in enumerate(made):
        paths = {tuple(branch.scan.times_among({column.name: branch.columns[place].value})) for branch in branches}
        spec = branches[0].scan.declared.table.watermark
        if len(paths) == 1 and spec is not None and (path := paths.pop()):
            return WatermarkSpec(path[0], ".".join(map(quoted, path[0].split("."))), spec.type)
    return None


def _leaves(node: Node) -> Sequence[Scan]:
    scan = node.scan
    return [leaf for branch in scan.branches for leaf in _leaves(branch)] if isinstance(scan, Union) else [scan]


def _check(source: Source, query: Query, branch: Node, first: Query, node: Node) -> None:
    if branch.joins:
        raise source.error(query.joins[0].span if query.joins else query.span, "a query of UNION ALL joins", BEHIND)
    probe: Declared = branch.scan.declared
    if not probe.only_grows:
        what = f"{probe.table.name} ({probe.spec.name}) has updates, and UNION ALL takes tables that only grow"
        raise source.error(branch.scan.span, what, f"leave {probe.table.name} out: updates are for event-time joins")
    if len(branch.columns) != len(node.columns):
        shown = [", ".join(column.written for column in each.columns) for each in (branch, node)]
        what = (
            f"a query of UNION ALL gives {len(branch.columns)} columns ({shown[0]}), the first one "
            f"{len(node.columns)} ({shown[1]})"
        )
        raise source.error(query.span, what, "give as many in each: CAST(NULL AS type) fills a place", first.span)


def _kind(source: Source, branches: Sequence[Node], place: int) -> TimeAttribute | None:
    """Which time attribute the column in a place is; None where it is not in every query."""
    first, kinds = branches[0].columns[place], list[TimeAttribute | None]()
    for branch in branches:
        column = branch.columns[place]
        kinds.append(branch.scan.times_among({"": column.value}).get(""))
        known = next((kind for kind in kinds if kind is not None), None)
        if kinds[-1] not in (None, known):
            what = f"`{column.written}` is {kinds[-1]} time, `{first.written}` of the first query {known} time"
            raise source.error(column.span, what, f"select one kind of time as {first.name} in each", first.span)
    return kinds[0] if len(set(kinds)) == 1 else None


def _type(source: Source, columns: Sequence[Column]) -> FlinkType:
    for number, column in enumerate(columns):
        of = common_exact([each.value for each in columns[: number + 1]])
        if of is None:
            raise _clash(source, columns[0], column)
    nullable, last = any(column.type.nullable for column in columns), columns[-1]
    if of.kind is Kind.NULL:
        raise source.error(last.span, f"`{last.written}` is NULL in every query", "CAST(NULL AS type) gives it a type")
    if of.kind in INTERVALS:
        raise source.error(last.span, f"`{last.written}` is an interval, and no query stores one", None)
    return of.null() if nullable else of.not_null()


def _clash(source: Source, first: Column, column: Column) -> SqlError:
    what = (
        f"type clash: `{column.written}` is {column.type.null()}, `{first.written}` of the first query is "
        f"{first.type.null()}"
    )
    hint = None
    if castable(column.type, first.type):
        written: Span | str = source.shown(column.span)
        shown = column.written if str(written).endswith("*") else written
        hint = f"write CAST({shown} AS {first.type.null()})"
    return source.error(column.span, what, hint, first.span)
