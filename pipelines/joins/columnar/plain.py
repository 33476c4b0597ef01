"""Which INSERTs ask for columns alone: equal keys, no other condition, and nothing computed of what is found."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from pipelines.lake.rows import quoted
from pipelines.sources.arrow_types import arrow_type
from pipelines.sql.model import Insert, Join, Table

_WIDTHS = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_CAST = re.compile(rf"CAST\((`[^`]*`\.`[^`]*`) AS ({'|'.join(_WIDTHS)})\)")


@dataclass(frozen=True)
class Ref:
    """A column of one of the INSERT's tables, by the alias that it has there."""

    alias: str
    column: str


@dataclass(frozen=True)
class PlainJoin:
    """`keys`: pairs of a column of what is left of the join, and the build's; `columns` of the build are asked for
    afterwards."""

    alias: str
    build: str
    keys: tuple[tuple[Ref, str], ...]
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Plain:
    """An INSERT of this kind. `types`: the Arrow type of every column that is read; `output`: what the target gets."""

    insert: Insert
    probe: str
    probe_columns: tuple[str, ...]
    joins: tuple[PlainJoin, ...]
    output: tuple[tuple[str, Ref], ...]
    types: Mapping[Ref, pa.DataType]


def plain_of(insert: Insert, tables: Mapping[str, Table]) -> Plain | None:
    """What an INSERT in event time asks for, if that is columns alone; else None."""
    if insert.time != "event" or insert.where is not None or insert.constraints or insert.proof or insert.process:
        return None
    if any(join.predicate is not None or join.time != "event" for join in insert.joins):
        return None
    spark_types, refs = _columns_of(insert, tables)
    output = [(item.name, refs.get(item.expression), item.spark_type) for item in insert.projections]
    # Of the probe or of an earlier build, and of this one.
    keys = [
        [(_key(key.probe, refs, spark_types), Ref(join.alias, key.column)) for key in join.keys]
        for join in insert.joins
    ]
    if any(ref is None or spark_types[ref] != kind for _, ref, kind in output):
        return None
    if any(one is None or not _comparable(spark_types[one], spark_types[two]) for pairs in keys for one, two in pairs):
        return None
    asked = {ref for _, ref, _ in output if ref} | {one for pairs in keys for one, _ in pairs if one}
    read = asked | {two for pairs in keys for _, two in pairs}
    if any(_scalar(spark_types[ref]) is None for ref in read):
        return None
    return Plain(
        insert,
        insert.probe_alias,
        _columns(asked, insert.probe_alias),
        tuple(
            PlainJoin(
                join.alias,
                join.build,
                tuple((one, two.column) for one, two in pairs if one),
                _columns(asked, join.alias),
            )
            for join, pairs in zip(insert.joins, keys, strict=True)
        ),
        tuple((name, ref) for name, ref, _ in output if ref),
        {ref: arrow_type(spark_types[ref]) for ref in read},
    )


def _key(text: str, refs: Mapping[str, Ref], spark_types: Mapping[Ref, str]) -> Ref | None:
    """The column that a key is, without the cast to a wider whole number that the equality may have given it: all
    widths are looked up as one."""
    cast = _CAST.fullmatch(text)
    if cast is None:
        return refs.get(text)
    found = refs.get(cast[1])
    narrower = _WIDTHS[: _WIDTHS.index(cast[2])]
    return found if found is not None and spark_types[found] in narrower else None


def compares(insert: Insert, join: Join, tables: Mapping[str, Table]) -> bool:
    """Whether the keys of a join are columns, equal to Arrow where they are equal to Spark."""
    types, refs = _columns_of(insert, tables)
    pairs = [(_key(key.probe, refs, types), Ref(join.alias, key.column)) for key in join.keys]
    return all(one is not None and _comparable(types[one], types[two]) for one, two in pairs)


def _columns_of(insert: Insert, tables: Mapping[str, Table]) -> tuple[dict[Ref, str], dict[str, Ref]]:
    """The columns of all tables of an INSERT with their Spark types, and the columns by how SQL names them."""
    named = {insert.probe_alias: tables[insert.probe]} | {join.alias: tables[join.build] for join in insert.joins}
    types = {
        Ref(alias, column.name): column.spark_type for alias, table in named.items() for column in table.stored_columns
    }
    return types, {f"{quoted(ref.alias)}.{quoted(ref.column)}": ref for ref in types}


def _columns(refs: set[Ref], alias: str) -> tuple[str, ...]:
    return tuple(sorted(ref.column for ref in refs if ref.alias == alias))


def _scalar(spark_type: str) -> pa.DataType | None:
    """The Arrow type of a plain value; None for types of several values, and for those that Arrow has none for."""
    try:
        found = arrow_type(spark_type)
    except ValueError:
        return None
    return None if pa.types.is_nested(found) else found


def _comparable(one: str, two: str) -> bool:
    """Whether equal values of two types are equal to Arrow as they are to Spark: of floating-point numbers they are
    not (NaN, and zero with a sign)."""
    left, right = _scalar(one), _scalar(two)
    if left is None or right is None or pa.types.is_floating(left):
        return False
    return left == right or (pa.types.is_integer(left) and pa.types.is_integer(right))
