"""UNION ALL: the columns that its queries have in common, by place. To what reads it, it is one table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tidegate.pipelines.connectors.table import RESERVED_PREFIX, Table, WatermarkSpec
from tidegate.pipelines.connectors.table import Column as TableColumn
from tidegate.pipelines.functions import all_of, called_where
from tidegate.pipelines.sql.coercion import castable, common_exact
from tidegate.pipelines.sql.scope import storable, unused, value_of
from tidegate.pipelines.sql.tree import (
    HERE,
    KEPT,
    Column,
    Condition,
    Declared,
    Entry,
    Join,
    Node,
    Scan,
    Step,
    TimeAttribute,
    Union,
    Unnested,
    here,
)
from tidegate.pipelines.sql.values import Value
from tidegate.pipelines.syntax.errors import SqlError
from tidegate.pipelines.syntax.source import Source, Span
from tidegate.pipelines.syntax.statements import Query
from tidegate.pipelines.syntax.types import INTERVALS, FlinkType, Kind, quoted

_PLAIN = re.compile(r"`[^`]*`\.`[^`]*`")
"""A key that fails for no row."""
_MARK = "_in"
"""What begins the name of a union's column that is true in the rows of one query."""


def united(source: Source, queries: Sequence[Query], branches: Sequence[Node], alias: str) -> Union:
    """The rows of `branches`, made of `queries`, as those of a table called `alias` in SQL. Raises SqlError."""
    for query, branch in zip(queries, branches, strict=True):
        _check(source, query, branch, queries[0], branches[0])
    _check_times(source, queries, branches)
    made, named, time = list[TableColumn](), list[Column](), None
    filled = [dict[str, str]() for _ in branches]
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
        if kind != "processing":
            value = _value(value, place, of, branches, [(column.name, own) for own in filled])
        named.append(replace(first, value=value, of=None))
    spec = _nested(branches, made) if time is None else WatermarkSpec(time.name, quoted(time.name), time.type)
    entries, extra = _entered(branches, filled, made)
    stored = [(column.name, f"CAST(NULL AS {column.spark_type})") for column in [*made, *extra] if not column.proctime]
    steps = list[Step]()
    for branch, own in zip(branches, filled, strict=True):
        kept = [term.expression for term in branch.conditions if not term.aliases & _builds(branch)]
        columns = tuple((name, own.get(name, none)) for name, none in stored)
        elements = branch.elements if isinstance(branch, Unnested) else None
        steps.append(Step(branch.scan.alias, all_of(kept) if kept else None, columns, elements))
    tables = [leaf.declared.table.name for branch in branches for leaf in branch.scan.leaves]
    owner = branches[0].scan.declared
    table = Table(" and ".join(tables), (*made, *extra), owner.table.options, watermark=spec)
    union = Union(
        # That it only grows, as a target, is checked of each branch.
        replace(owner, table=table, is_target=True),
        alias,
        queries[0].span,
        entries,
        tuple(join for branch in branches for join in _joins(branch)),
        tuple(term for branch in branches for term in _terms(branch)),
        tuple(branches),
        tuple(named),
        tuple(steps),
    )
    if any(branch.filters for branch in union.taken):
        hidden = TableColumn(KEPT, "BOOLEAN", "BOOLEAN")
        table = replace(table, columns=(*table.columns, hidden))
        union = replace(union, declared=replace(union.declared, table=table))
    return union


def _nested(branches: Sequence[Node], made: Sequence[TableColumn]) -> WatermarkSpec | None:
    """The time attribute that is a field of a column of every branch, if one is."""
    for place, column in enumerate(made):
        paths = {tuple(branch.scan.times_among({column.name: branch.columns[place].value})) for branch in branches}
        spec = branches[0].scan.declared.table.watermark
        if len(paths) == 1 and spec is not None and (path := paths.pop()):
            return WatermarkSpec(path[0], ".".join(map(quoted, path[0].split("."))), spec.type)
    return None


def _value(
    value: Value, place: int, of: FlinkType, branches: Sequence[Node], filled: Sequence[tuple[str, dict[str, str]]]
) -> Value:
    """A column of a union. What needs a build is made behind the joins; all else is a step's: `filled`, name -> SQL."""
    cases, aliases = list[str](), value.aliases
    for branch, (name, own) in zip(branches, filled, strict=True):
        found, asked = branch.columns[place].value, here(branch.scan.alias)
        sql = found.to(of.null())
        if found.aliases & _builds(branch):
            cases.append(f"WHEN {asked} THEN CAST({called_where(asked, sql)} AS {of.spark})")
            aliases |= found.aliases
        else:
            own[name] = sql
    if not cases:
        return value
    return Value(f"CASE {' '.join(cases)} ELSE {value.sql} END", of, aliases=aliases)


def _entered(
    branches: Sequence[Node], filled: Sequence[dict[str, str]], made: Sequence[TableColumn]
) -> tuple[tuple[Entry, ...], list[TableColumn]]:
    """The rows of each query that joins as they are before: what each of their columns is called in the union, and the
    columns that are added for them. Queries share a column of one name and type."""
    types, entries, extra = {each.name: each for each in made if not each.proctime}, list[Entry](), list[TableColumn]()
    taken = {each.name.casefold() for each in made}
    for branch, own in zip(branches, filled, strict=True):
        scan = branch.scan
        if not branch.joins:
            continue
        called = dict[str, str]()
        for column in (*_whole(scan), None):
            # The last one is true in the rows of this query alone.
            sql = "true" if column is None else f"{quoted(scan.alias)}.{quoted(column.name)}"
            column = column or TableColumn(_MARK, "BOOLEAN", "BOOLEAN")
            like = [each for each in types.values() if each.spark_type == column.spark_type]
            shared = [each.name for each in like if own.get(each.name) == sql != "true"]
            if not column.name.startswith(RESERVED_PREFIX):
                shared += [each.name for each in like if each in extra and each.name == column.name not in own]
            if shared:
                known = shared[0]
            else:
                known = unused(column.name, taken)
                types[known] = replace(column, name=known, nullable=True)
                extra.append(types[known])
                taken.add(known.casefold())
            own[known] = sql
            called[HERE if sql == "true" else column.name] = known
        entries += [Entry(scan.alias, name, known) for name, known in called.items()]
        entries += [replace(entry, stored=called[entry.stored]) for entry in scan.entries]
    return tuple(entries), extra


def _whole(scan: Scan) -> list[TableColumn]:
    return [column for column in scan.declared.table.stored_columns if column.name != KEPT]


def _builds(branch: Node) -> set[str]:
    return {join.alias for join in branch.joins}


def _joins(branch: Node) -> Iterator[Join]:
    """The joins of a query, which ask for its own rows alone."""
    alias = branch.scan.alias
    asked = here(alias)
    for join in branch.joins:
        if join.of is not None:
            yield join
            continue
        keys = [
            key
            if _PLAIN.fullmatch(key.probe)
            else replace(key, probe=f"CASE WHEN {asked} THEN {called_where(asked, key.probe)} END")
            for key in join.keys
        ]
        rest = join.predicate and f"CASE WHEN {asked} THEN {called_where(asked, join.predicate)} ELSE true END"
        yield replace(join, keys=tuple(keys), predicate=rest, of=alias)


def _terms(branch: Node) -> Iterator[Condition]:
    """What a query's WHERE tests of builds, of its own rows alone."""
    asked = here(branch.scan.alias)
    for term in branch.conditions:
        if term.aliases & _builds(branch):
            tested = f"CASE WHEN {asked} THEN {called_where(asked, term.expression)} ELSE true END"
            yield replace(term, expression=tested)


def _check(source: Source, query: Query, branch: Node, first: Query, node: Node) -> None:
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


def _check_times(source: Source, queries: Sequence[Query], branches: Sequence[Node]) -> None:
    """Raise SqlError unless the joins of all queries are in one kind of time, and every row has one for it."""
    kinds = [
        (query, "event" if any(join.time == "event" for join in branch.joins) else "processing")
        for query, branch in zip(queries, branches, strict=True)
        if branch.joins
    ]
    for query, kind in kinds:
        if kind != kinds[0][1]:
            what = f"this query joins in {kind} time, another one of the UNION ALL in {kinds[0][1]} time"
            hint = "name time attributes of one kind in their FOR SYSTEM_TIME AS OF"
            raise source.error(_at(query), what, hint, _at(kinds[0][0]))
    for query, branch in zip(queries, branches, strict=True) if kinds and kinds[0][1] == "event" else ():
        for leaf in branch.scan.leaves:
            if leaf.declared.table.watermark is None:
                name = leaf.declared.table.name
                what = f"{name} has no WATERMARK, and the UNION ALL joins in event time: its rows have no time"
                raise source.error(_at(query), what, f"declare WATERMARK FOR … in {name}", _at(kinds[0][0]))


def _at(query: Query) -> Span:
    return query.joins[0].span if query.joins else query.span


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
