"""What is said of a table elsewhere: OPTIONS hints override its options, LIKE declares a table by another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tidegate.pipelines.sql.tree import Declared
from tidegate.pipelines.syntax.errors import suggest
from tidegate.pipelines.syntax.source import Source, Span
from tidegate.pipelines.syntax.statements import (
    ColumnDefinition,
    CreateTable,
    InsertInto,
    Option,
    Query,
    Statement,
    View,
)


def with_hints(source: Source, statements: Sequence[Statement]) -> list[Statement]:
    """The statements, with the options of hints beside those of the CREATE TABLE: a table is read in one way only.

    Raises SqlError where one place that reads a table has other options than another.
    """
    found: dict[str, tuple[Span, Sequence[Option]]] = {}
    for name, span, options in (use for statement in statements for use in _uses(statement)):
        place, known = found.setdefault(name, (span, options))
        if _values(options) != _values(known):
            line = source.location(place.start).line
            what = f"{name} has other options in line {line}: a table is read in one way"
            raise source.error(span, what, "declare it once more, under another name, with these options", place)
    return [
        replace(statement, hinted=tuple(found[statement.name.text][1]))
        if isinstance(statement, CreateTable) and statement.name.text in found
        else statement
        for statement in statements
    ]


def _uses(statement: Statement) -> Iterator[tuple[str, Span, Sequence[Option]]]:
    """The tables that a statement names, each with its hint."""
    if isinstance(statement, InsertInto):
        yield statement.target.text, statement.target.span, statement.options
    if isinstance(statement, InsertInto | View):
        yield from _uses_of(statement.query)


def _uses_of(query: Query) -> Iterator[tuple[str, Span, Sequence[Option]]]:
    for view in query.views:
        yield from _uses_of(view.query)
    for use in (query.probe, *(join.build for join in query.joins)):
        if use.query is not None:
            yield from _uses_of(use.query)
        else:
            yield use.table.text, use.table.span, use.options


def _values(options: Sequence[Option]) -> dict[str, str]:
    return {option.key.text: option.value.text for option in options}


def _overwritten(options: Sequence[Option], by: Sequence[Option]) -> tuple[Option, ...]:
    """`options`, with those of `by` in place of others with the same key."""
    keys = _values(by)
    return (*(option for option in options if option.key.text not in keys), *by)


def by_another(source: Source, statement: CreateTable, declared: Mapping[str, Declared]) -> CreateTable:
    """The CREATE TABLE that one with LIKE, or hints, stands for. Raises SqlError."""
    statement = _like(source, statement, declared)
    if not statement.hinted:
        return statement
    options = _overwritten(statement.options, statement.hinted)
    return replace(statement, options=options, plain=statement.options)


def _like(source: Source, statement: CreateTable, declared: Mapping[str, Declared]) -> CreateTable:
    """By Flink's rules. What the other table has comes first; hints are not taken over."""
    like = statement.like
    if like is None:
        return statement
    if like.table.text not in declared:
        hint = suggest(like.table.text, declared, "the tables declared above") or "declare it above"
        raise source.error(like.table.span, f"unknown table `{like.table.text}`", hint)
    base = declared[like.table.text].statement
    how: dict[str, str] = {}
    for rule, kind, span in like.rules:
        if kind in how:
            raise source.error(span, f"LIKE says of {kind} twice what is taken", "leave one of them out")
        if rule == "OVERWRITING" and kind in ("ALL", "CONSTRAINTS", "PARTITIONS"):
            raise source.error(span, f"{kind} cannot be overwritten", f"write INCLUDING {kind} or EXCLUDING {kind}")
        how[kind] = rule

    def rule_of(kind: str) -> str:
        return how.get(kind) or how.get("ALL") or ("OVERWRITING" if kind == "OPTIONS" else "INCLUDING")

    own = {column.name.text for column in statement.columns}

    def taken(column: ColumnDefinition) -> bool:
        if column.computed is None and column.metadata is None:
            return True
        rule = rule_of("METADATA" if column.computed is None else "GENERATED")
        return rule == "INCLUDING" or (rule == "OVERWRITING" and column.name.text not in own)

    keys, marks, options = rule_of("CONSTRAINTS"), rule_of("WATERMARKS"), rule_of("OPTIONS")
    overwritten = marks == "OVERWRITING" and bool(statement.watermarks)
    partitioned = base if rule_of("PARTITIONS") == "INCLUDING" and base.partitions else statement
    if partitioned is base and statement.partitions:
        what = f"{statement.name.text} has partitions of its own, and those of {like.table.text}"
        raise source.error(like.span, what, "write EXCLUDING PARTITIONS behind LIKE, or leave PARTITIONED BY out")
    older = () if options == "EXCLUDING" else base.options if base.plain is None else base.plain
    return replace(
        statement,
        columns=(*(column for column in base.columns if taken(column)), *statement.columns),
        primary_keys=(*(base.primary_keys if keys == "INCLUDING" else ()), *statement.primary_keys),
        constraints=(*(base.constraints if keys == "INCLUDING" else ()), *statement.constraints),
        watermarks=(*(() if marks == "EXCLUDING" or overwritten else base.watermarks), *statement.watermarks),
        options=_overwritten(older, statement.options) if options == "OVERWRITING" else (*older, *statement.options),
        partitions=partitioned.partitions,
        partitioned=partitioned.partitioned,
    )
