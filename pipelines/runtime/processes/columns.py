"""The columns of a process: of its state, whose table grows with what is declared, of its inputs and outputs."""

from __future__ import annotations

import json

import pyarrow as pa
from deltalake import CommitProperties, Schema, write_deltalake
from deltalake.exceptions import DeltaError

from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import LakeError
from tidegate.pipelines.lake.commits import NO_CLEANING, by_delta_rs, create
from tidegate.pipelines.lake.delta_log import opened
from tidegate.pipelines.location import Address, Location
from tidegate.pipelines.process.engine.bucket import StateColumns
from tidegate.pipelines.process.spec import ProcessSpec
from tidegate.pipelines.process.state.declared import StateDeclaration, column_type
from tidegate.pipelines.sources.arrow_types import arrow_type
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.syntax.dialect import parse_type
from tidegate.pipelines.syntax.types import FlinkType

KEY_PREFIX = "_key_"


def record_columns(table: Table) -> dict[str, str]:
    """The columns of a table's records: name -> Spark type."""
    return {column.name: column.spark_type for column in table.stored_columns}


def input_columns(pipeline: Pipeline, spec: ProcessSpec, place: int) -> dict[str, str]:
    """The columns of an input as the function gets them: name -> Spark type."""
    return spec.windowed.records if spec.windowed else record_columns(pipeline.table(spec.inputs[place].table))


def output_columns(pipeline: Pipeline, spec: ProcessSpec, place: int) -> dict[str, str]:
    """The columns that the function gives to an output: name -> Spark type."""
    return spec.windowed.emitted if spec.windowed else record_columns(pipeline.table(spec.outputs[place]))


def output_schema(columns: dict[str, str]) -> pa.Schema:
    """An output's columns as Arrow has them."""
    return pa.schema([pa.field(name, arrow_type(kind)) for name, kind in columns.items()])


def output_types(table: Table) -> tuple[FlinkType, ...]:
    """The types of an output's columns as they are declared."""
    return tuple(parse_type(column.type) for column in table.stored_columns)


def state_columns(pipeline: Pipeline, spec: ProcessSpec) -> StateColumns:
    """The columns that a process's state is stored in. Raises SqlError for a state of no known type."""
    first, shape = spec.inputs[0], spec.shape
    known = input_columns(pipeline, spec, 0)
    keys = [(KEY_PREFIX + name, arrow_type(known[name])) for name in first.key]
    return StateColumns(
        keys=tuple(keys) or ((KEY_PREFIX + "split", pa.string()),),
        states=tuple(map(_column, shape.keyed)),
        broadcast=tuple(map(_column, shape.broadcast_states)),
    )


def key_columns(columns: StateColumns) -> tuple[tuple[str, str], ...]:
    """The columns of the key, in order, each with its Arrow type; for an input without a key, its split."""
    return tuple((name.removeprefix(KEY_PREFIX), str(kind)) for name, kind in columns.keys)


def _column(declaration: StateDeclaration) -> tuple[str, pa.DataType]:
    return declaration.name, arrow_type(parse_type(column_type(declaration)).spark)


def ensure_state(path: Address, columns: StateColumns, name: str) -> None:
    """Make the table of a process's state, or let it grow to what is declared now.

    Raises LakeError that names a state whose type is another than the stored one.
    """
    wanted = columns.schema
    try:
        there = opened(path)
        if there is None:
            Location(path).make()
            create(path, schema=Schema.from_arrow(wanted))
            return
        stored = {field.name: field for field in pa.schema(there.schema.to_arrow())}
        for field in wanted:
            if field.name in stored and not _grows(stored[field.name].type, field.type):
                raise LakeError(
                    f"state {field.name.removeprefix(KEY_PREFIX)!r} of {name} is stored as {stored[field.name].type}, "
                    f"and declared as {field.type}",
                    where=str(path),
                    state="nothing was changed",
                    next_command="declare the new one under another name, or put the old type back",
                )
        if any(field.name not in stored or not _covers(stored[field.name].type, field.type) for field in wanted):
            note = CommitProperties(custom_metadata={"userMetadata": json.dumps("state has grown")})
            rows = wanted.empty_table()
            by_delta_rs(
                path,
                lambda at: write_deltalake(
                    at,
                    rows,
                    mode="append",
                    schema_mode="merge",
                    commit_properties=note,
                    post_commithook_properties=NO_CLEANING,
                ),
            )
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise LakeError(
            f"the table for the state of {name} cannot be made: {error}",
            where=str(path),
            state="nothing was changed",
            next_command="check the folder's owner and the disk's space, then run the same command again",
        ) from error


def _covers(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether what is stored has every field of `wanted`, to which it `_grows`."""
    if pa.types.is_struct(stored) and pa.types.is_struct(wanted):
        there = {field.name: field.type for field in stored}
        return all(field.name in there and _covers(there[field.name], field.type) for field in wanted)
    if pa.types.is_map(stored) and pa.types.is_map(wanted):
        return _covers(stored.item_type, wanted.item_type)
    return not _is_list(stored) or _covers(stored.value_type, wanted.value_type)


def _grows(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether what is stored can be read as `wanted`: the same type, whose rows may have more or fewer fields."""
    if pa.types.is_struct(stored) and pa.types.is_struct(wanted):
        there = {field.name: field.type for field in stored}
        return all(field.name not in there or _grows(there[field.name], field.type) for field in wanted)
    if pa.types.is_map(stored) and pa.types.is_map(wanted):
        return _grows(stored.key_type, wanted.key_type) and _grows(stored.item_type, wanted.item_type)
    if _is_list(stored) and _is_list(wanted):
        return _grows(stored.value_type, wanted.value_type)
    return _plain(stored) == _plain(wanted)


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind)


def _plain(kind: pa.DataType) -> pa.DataType:
    """One Arrow type where Arrow has several for the same values."""
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    return kind
