"""UNNEST: each row with each element of an ARRAY, or each entry of a MAP. To what reads it, these are rows of one
table, as those of a UNION ALL of one query."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.sql.inserts.unions import united
from tidegate.pipelines.sql.scope import InsertScope, Relation
from tidegate.pipelines.sql.translate import Translator
from tidegate.pipelines.sql.tree import Branch, Column, Elements, Node, Union, Unnested
from tidegate.pipelines.sql.values import Value
from tidegate.pipelines.syntax.source import Source
from tidegate.pipelines.syntax.statements import Name, Query, Unnest
from tidegate.pipelines.syntax.types import INT, FlinkType, Kind, quoted
from tidegate.pipelines.text import counted

MOST = 3
"""How many UNNEST a row may go through in a statement: its place has so many ordinals."""
IN_TWO = "INSERT INTO a table of its own what the inner query gives, and UNNEST in a statement that reads that"


def unnested(
    source: Source, query: Query, node: Node, scope: InsertScope, unnest: Unnest
) -> tuple[Union, list[Relation]]:
    """The rows of `node` with their elements, and what `scope` can name of them. Raises SqlError."""
    value = Translator(source, scope).value(unnest.elements)
    _check(source, node, unnest, value.type)
    names, kinds = _elements(value.type, unnest)
    alias = node.scan.alias
    made = [(name, Value(sql, of, aliases=frozenset({alias}))) for name, (sql, of) in _named(source, kinds, unnest)]
    gives = tuple(Column(name, each, unnest.use.table.span, name) for name, each in made)
    under = Unnested(node, Elements(value.sql, names, unnest.outer), gives)
    union = united(source, (replace(query, joins=()),), (under,), alias)
    values, found = iter([column.value for column in union.columns]), list[Relation]()
    own = Relation(unnest.use.name.text, dict(made), union.declared.table, unnest.use.name.text, alias)
    for relation in (*scope.relations, own):
        columns = {name: next(values) for name in relation.columns}
        found.append(replace(relation, columns=columns, table=union.declared.table, base=alias))
    return union, found


def lean(table: Table, branch: Branch, alias: str, texts: Iterable[str | None]) -> tuple[Table, Branch]:
    """A branch, and the `table` of its rows, without arrays and maps that only UNNEST reads: else each element would
    carry all of them. `texts` name the table's columns, as those of `alias`."""
    there = "\n".join(text or "" for text in texts).casefold()
    large = {column.name for column in table.columns if column.spark_type.startswith(("ARRAY", "MAP"))}
    gone = {name for name in large if f"{quoted(alias)}.{quoted(name)}".casefold() not in there}
    columns = tuple(column for column in table.columns if column.name not in gone)
    last = replace(branch.steps[-1], columns=tuple(each for each in branch.steps[-1].columns if each[0] not in gone))
    return replace(table, columns=columns), replace(branch, steps=(*branch.steps[:-1], last))


def _check(source: Source, node: Node, unnest: Unnest, of: FlinkType) -> None:
    """Raises SqlError."""
    span, probe = unnest.elements.span, node.scan.declared
    if of.kind not in (Kind.ARRAY, Kind.MAP):
        what = f"UNNEST takes an ARRAY or a MAP, and `{unnest.elements.written}` is {of.null()}"
        raise source.error(span, what, "leave UNNEST out, or take an ARRAY: ARRAY[…] makes one")
    if node.joins:
        hint = f"UNNEST in the inner query, in front of its JOIN; or {IN_TWO}"
        raise source.error(unnest.span, "UNNEST of the rows of a query that joins is not supported", hint)
    if not probe.only_grows:
        what = f"{probe.table.name} ({probe.spec.name}) has updates, and UNNEST takes rows of tables that only grow"
        raise source.error(
            unnest.span, what, f"leave UNNEST out, or {probe.table.name}: updates are for temporal joins"
        )
    if isinstance(node.scan, Union) and max(branch.unnests for branch in node.scan.taken) >= MOST:
        raise source.error(unnest.span, f"a row goes through more than {MOST} UNNEST in this statement", IN_TWO)


def _elements(of: FlinkType, unnest: Unnest) -> tuple[tuple[str, ...], list[tuple[str | None, str, FlinkType]]]:
    """What a generator's columns are called, and the columns: name, if it has one, Spark SQL, type."""
    found: list[tuple[str | None, str, FlinkType]]
    if of.kind is Kind.MAP:
        names, found = ("_key", "_value"), [(None, "_key", of.arguments[0]), (None, "_value", of.element)]
    elif of.element.kind is Kind.ROW:
        fields = [(each.name, each.type if not of.element.nullable else each.type.null()) for each in of.element.fields]
        names, found = ("_element",), [(name, f"_element.{quoted(name)}", kind) for name, kind in fields]
    else:
        names, found = ("_element",), [(None, "_element", of.element)]
    if unnest.numbered:
        found.append(("ORDINALITY", "CAST(_position + 1 AS INT)", INT.not_null()))
    return names, [(name, sql, kind.null() if unnest.outer else kind) for name, sql, kind in found]


def _named(
    source: Source, columns: Sequence[tuple[str | None, str, FlinkType]], unnest: Unnest
) -> list[tuple[str, tuple[str, FlinkType]]]:
    """The columns by their names; no two have one. Raises SqlError."""
    of, names = unnest.use.name, unnest.use.columns
    own = [name for name, *_ in columns]
    if names is None and (None in own or len(set(own)) < len(own)):
        given = ", ".join(
            name if name and name not in own[:place] else f"c{place + 1}" for place, name in enumerate(own)
        )
        what = f"`{of.text}` has columns that have no name of their own"
        raise source.error(of.span, what, f"name them: AS {of.text} ({given})")
    names = names or tuple(Name(name or "", of.span) for name in own)
    if len(names) != len(columns):
        parts = ", ".join(f"{name} {kind.null()}" if name else f"{kind.null()}" for name, _, kind in columns)
        what = f"`{of.text}` names {counted(len(names), 'column')}, UNNEST gives {len(columns)} ({parts})"
        raise source.error(names[0].span.to(names[-1].span), what, "name each of them once")
    for place, name in enumerate(names):
        if name.text in [other.text for other in names[:place]]:
            raise source.error(name.span, f"two columns are called `{name.text}`", "give one another name")
    return [(name.text, (sql, kind)) for name, (_, sql, kind) in zip(names, columns, strict=True)]
