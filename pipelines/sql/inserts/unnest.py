"""UNNEST: each row with each element of an ARRAY, or each entry of a MAP. To what reads it, these are rows of one
table, as those of a UNION ALL of one query."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.sql.inserts.unions import united
from tidegate.pipelines.sql.scope import InsertScope, Relation
from tidegate.pipelines.sql.translate import Translator
from tidegate.pipelines.sql.tree import Branch, Column, Elements, Node, Union, Unnested
from tidegate.pipelines.sql.values import Value
from tidegate.pipelines.syntax.source import Source
from tidegate.pipelines.syntax.statements import Query, Unnest
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
    generated, gives = _gives(source, value.type, unnest)
    alias, name = node.scan.alias, unnest.use.name
    made = {text: Value(sql, of, aliases=frozenset({alias})) for text, sql, of in gives}
    columns = tuple(Column(text, each, name.span, text) for text, each in made.items())
    under = Unnested(node, Elements(value.sql, generated, unnest.outer), columns)
    union = united(source, (replace(query, joins=()),), (under,), alias)
    values, found = iter([column.value for column in union.columns]), list[Relation]()
    own = Relation(name.text, made, union.declared.table, name.text, alias)
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
        raise source.error(unnest.span, what, "leave UNNEST out: updates are for temporal joins")
    if isinstance(node.scan, Union) and max(branch.unnests for branch in node.scan.taken) >= MOST:
        raise source.error(unnest.span, f"a row goes through more than {MOST} UNNEST in this statement", IN_TWO)


def _gives(source: Source, of: FlinkType, unnest: Unnest) -> tuple[tuple[str, ...], list[tuple[str, str, FlinkType]]]:
    """What a generator's columns are called, and what UNNEST makes of them: name, Spark SQL, type. Raises SqlError."""
    generated: tuple[str, ...] = ("_element",)
    if of.kind is Kind.MAP:
        generated = ("_key", "_value")
    found = [("", name, kind) for name, kind in zip(generated, of.arguments, strict=True)]
    if of.kind is Kind.ARRAY and of.element.kind is Kind.ROW:
        some = of.element.nullable
        fields = [(each.name, each.type.null() if some else each.type) for each in of.element.fields]
        found = [(name, f"_element.{quoted(name)}", kind) for name, kind in fields]
    if unnest.numbered:
        found.append(("ORDINALITY", "CAST(_position + 1 AS INT)", INT.not_null()))
    use = unnest.use
    named = [name.text for name in use.columns or ()] or [name for name, *_ in found]
    if len(named) != len(found) or len({*named, ""}) <= len(named):
        shown = ", ".join(f"{name} {kind.null()}".strip() for name, _, kind in found)
        span = use.columns[0].span.to(use.columns[-1].span) if use.columns else use.name.span
        new = ", ".join(f"c{place + 1}" for place in range(len(found)))
        hint = f"give each a name of its own: AS {use.name.text} ({new})"
        raise source.error(span, f"UNNEST gives {counted(len(found), 'column')} ({shown})", hint)
    kinds = [(sql, kind.null() if unnest.outer else kind) for _, sql, kind in found]
    return generated, [(name, sql, kind) for name, (sql, kind) in zip(named, kinds, strict=True)]
