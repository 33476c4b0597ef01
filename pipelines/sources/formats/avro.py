"""The format `avro`: a message is one record in Avro's binary encoding, without its schema, and adds one row.

Spark's `from_avro` reads the records (docs/decisions/0022). It reads what it needs from the front of a message and
ignores the rest, and it returns NULLs for a record that it cannot read. So END_MARK is appended to every message and
read as one more field: the record has the length of the message only if the field has exactly the mark.

In Avro's binary encoding names, logical types and the kind of a whole number leave no trace: only order, shape and what
may be null count. So the schema that a table's columns have by Flink's rules (AvroSchemaConverter) names fields by
their place, and a scalar has the type in which Spark's reader loses nothing of it:

- every whole number, DATE and timestamp is a `long`: a value that is too great for its column is then seen, where
  a reader of `int` cuts it;
- BOOLEAN is one byte, since readers take any byte but 01 for false;
- a DECIMAL has all 38 digits, where a reader of fewer would drop what is beyond them.

Avro's reader drops the bits of a number beyond 64, or of a union's place beyond 32. Few messages hold bytes that look
like such a number, and are not what a writer makes of the record that was read. In these each number is looked at
(avro_numbers.py), or they are refused where writers have one way only.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

from tidegate.pipelines.connectors.spec import OptionSpec
from tidegate.pipelines.connectors.table import Column
from tidegate.pipelines.sources.formats import shape
from tidegate.pipelines.sources.formats.format import VALUE, FormatSpec, Wanted, added, inside, map_keys, other_columns
from tidegate.pipelines.syntax.dialect import parse_type
from tidegate.pipelines.syntax.secrets import needs_variables
from tidegate.pipelines.syntax.types import (
    APPROXIMATE,
    BINARIES,
    INTEGERS,
    MAX_PRECISION,
    STRINGS,
    TIMESTAMPS,
    FlinkType,
    Kind,
    quoted,
    spark_string,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

END = "end"
"""The field after the columns: the bytes that follow the record in the message."""


def schema(columns: Sequence[Column], end: int) -> str:
    """The record of `columns`, and `end` bytes behind it, as JSON."""
    names = (f"t{number}" for number in count())
    types = [_type(parse_type(column.type), names, nullable=column.nullable) for column in columns]
    fields = [*_fields(types), {"name": END, "type": {"type": "fixed", "name": END, "size": end}}]
    return json.dumps({"type": "record", "name": "message", "fields": fields})


def end_only(end: int) -> str:
    """The same record for a reader that skips the columns."""
    field = {"name": END, "type": {"type": "fixed", "name": END, "size": end}}
    return json.dumps({"type": "record", "name": "message", "fields": [field]})


def scalar(of: FlinkType) -> str:
    """Spark's DDL of a scalar, as it comes from the reader."""
    if of.kind in STRINGS:
        return "STRING"
    if of.kind in BINARIES or of.kind is Kind.BOOLEAN:
        return "BINARY"
    if of.kind in APPROXIMATE:
        return of.spark
    return f"DECIMAL({MAX_PRECISION}, {of.scale})" if of.kind is Kind.DECIMAL else "BIGINT"


def _type(of: FlinkType, names: Any, *, nullable: bool) -> Any:
    made = _not_null(of, names)
    return ["null", made] if nullable else made


def _not_null(of: FlinkType, names: Any) -> Any:
    if of.kind is Kind.ROW:
        fields = [_type(field.type, names, nullable=field.type.nullable) for field in of.fields]
        return {"type": "record", "name": next(names), "fields": _fields(fields)}
    if of.kind is Kind.ARRAY:
        return {"type": "array", "items": _type(of.element, names, nullable=of.element.nullable)}
    if of.kind is Kind.MAP:
        return {"type": "map", "values": _type(of.element, names, nullable=of.element.nullable)}
    if of.kind is Kind.BOOLEAN:
        return {"type": "fixed", "name": next(names), "size": 1}
    if of.kind is Kind.DECIMAL:
        return {"type": "bytes", "logicalType": "decimal", "precision": MAX_PRECISION, "scale": of.scale}
    if of.kind in STRINGS:
        return "string"
    if of.kind in BINARIES:
        return "bytes"
    return of.kind.lower() if of.kind in APPROXIMATE else "long"


def _fields(types: Sequence[Any]) -> list[dict[str, Any]]:
    return [{"name": f"f{number}", "type": of} for number, of in enumerate(types)]


ENCODING = OptionSpec(
    "avro.encoding",
    default="binary",
    doc="Only `binary`. Flink's other value, `json`, is refused: use the format json.",
    changes="rows",
)
LEGACY = OptionSpec(
    "avro.timestamp_mapping.legacy",
    "boolean",
    default="true",
    doc="true: as Flink before 1.19, a TIMESTAMP has at most 3 digits of a second, and TIMESTAMP_LTZ is not available. "
    "false: both have up to 6 digits, as ms up to 3 digits, else as us.",
    changes="rows",
)


def _end_mark() -> bytes:
    """Random, and of bytes that neither look like a number that is too long nor end one (`_SUSPECT`)."""
    return b"\1" + bytes(byte & 0x7F or 1 for byte in secrets.token_bytes(14)) + b"\0"


END_MARK = _end_mark()
"""No beginning of it is also its end, so bytes left over before it make another mark come out. Every process draws its
own, so no message holds it."""

_MS = (-62135596800000, 253402300799999)
"""The years 1 to 9999, as ms since 1970."""
_DAYS = (-719162, 2932896)
_RANGES = {kind: 2 ** (8 * size - 1) for kind, size in zip(INTEGERS, (1, 2, 4, 8), strict=True)}


class AvroFormat:
    """`'format' = 'avro'`."""

    spec = FormatSpec(
        "avro",
        (ENCODING, LEGACY),
        "A message is one record in Avro's binary encoding, without its schema.",
    )

    def check(self, wanted: Wanted) -> Sequence[str]:
        found = map_keys(wanted.columns, "the keys of a map in Avro are strings")
        encoding = wanted.option(ENCODING)
        if encoding == "json":
            why = "Avro's own JSON cannot be read; 'binary' can, and plain JSON with the format json"
            found.append(f"'{ENCODING.name}' = 'json': {why}")
        elif encoding != "binary" and not needs_variables(encoding):
            found.append(f"'{ENCODING.name}' is 'binary', not {encoding!r}")
        fixed = [name.name for name in (ENCODING, LEGACY) if needs_variables(wanted.option(name))]
        found += [f"'{name}' cannot come from the environment: it says what a message is" for name in fixed]
        return found if fixed else [*found, *_untimely(wanted)]

    def decode(self, messages: DataFrame, wanted: Wanted) -> DataFrame:
        others, columns = other_columns(messages), wanted.columns
        row = shape.Row(columns, lambda column: _leaf, _shown)
        seen = messages.selectExpr(
            *others, f"{VALUE} IS NULL AS _null", f"length({VALUE}) AS _length", f"concat({VALUE}, {_MARK}) AS _marked"
        )
        # A reader makes room for as many bytes as a broken message claims to have. One that passes over them does not:
        # only messages that hold what they claim are read.
        ended = seen.selectExpr("*", f"{_from_avro(columns, end_only(len(END_MARK)))}.{END} AS _end")
        record = ended.selectExpr("*", f"IF(_end = {_MARK}, {_from_avro(columns)}, NULL) AS _record")
        suspect = record.selectExpr("*", f"{_suspect(columns)} AS _suspect")
        if _has_several_encodings(columns):
            from tidegate.pipelines.sources.formats.avro_numbers import has_too_long  # it imports Arrow

            too_long = has_too_long(schema(columns, len(END_MARK)), "_suspect")
            checked = suspect.select("*", too_long().alias("_too_long"))
        else:
            checked = suspect.selectExpr("*", "_suspect IS NOT NULL AS _too_long")
        named = f"CAST(_record AS {_wire_row(columns)})"
        wire = checked.selectExpr(*others, "_null", f"{_broken(columns)} AS _broken", f"{named} AS _wire")
        fields = f"IF(_null OR _broken IS NOT NULL, NULL, {row.fields('_wire')}) AS _fields"
        read = wire.selectExpr(*others, "_null", "_broken", "_wire", fields)
        error = f"IF(_null, NULL, coalesce(_broken, {_bad_keys(columns)}, {row.error('_wire', '_fields')})) AS _error"
        return added(read.selectExpr(*others, "_null", "_fields", error), others, wanted, None)


_MARK = f"X'{END_MARK.hex()}'"


def _untimely(wanted: Wanted) -> list[str]:
    """Timestamp columns that the older mapping does not support."""
    if wanted.option(LEGACY).lower() != "true":
        return []
    return [
        f"column {column.name} is {column.type}: there are TIMESTAMP(0) to TIMESTAMP(3), and with "
        f"'{LEGACY.name}' = 'false' finer ones and TIMESTAMP_LTZ"
        for column in wanted.columns
        if any(
            of.kind is Kind.TIMESTAMP_LTZ or (of.kind is Kind.TIMESTAMP and not _in_ms(of))
            for of in inside(parse_type(column.type))
        )
    ]


def _in_ms(of: FlinkType) -> bool:
    return shape.precision(of) <= 3


def _from_avro(columns: Sequence[Column], reader: str | None = None) -> str:
    """SQL of the record in `_marked`, as `reader` sees it; a STRUCT of NULLs where there is none."""
    options = {"mode": "PERMISSIVE", **({} if reader is None else {"avroSchema": reader})}
    written = spark_string(schema(columns, len(END_MARK)))
    return f"from_avro(_marked, {written}, {shape.map_literal(options)})"


def _wire_row(columns: Sequence[Column]) -> str:
    """Spark's DDL of `_record` with the columns' names in place of Avro's; the mark gets a name that no column has."""
    return shape.wire_row(columns, scalar).removesuffix(">") + ", ` `: BINARY>"


_SUSPECT = r"(?s)[\x80-\xFF]{9}[\x02-\xFF]|[\x80\x82]\x80{3}[\x10\x20\x30\x40\x50\x60\x70]"
"""What a number of more than 64 bits, or a place in a union of more than 32, looks like; text may look so, too."""


_SEVERAL = (Kind.ARRAY, Kind.MAP, Kind.DECIMAL)
"""Types whose values writers encode differently: in blocks of any number, in any order, with more bytes than needed."""


def _has_several_encodings(columns: Sequence[Column]) -> bool:
    return any(of.kind in _SEVERAL for column in columns for of in inside(parse_type(column.type)))


def _suspect(columns: Sequence[Column]) -> str:
    """SQL of `_marked` where it may hold a number that is too great, else NULL."""
    again = f"to_avro(_record, {spark_string(schema(columns, len(END_MARK)))})"
    looks = f"decode(_marked, 'ISO-8859-1') RLIKE {spark_string(_SUSPECT)}"
    return f"CASE WHEN _record.{END} <=> {_MARK} AND {again} <> _marked AND {looks} THEN _marked END"


def _broken(columns: Sequence[Column]) -> str:
    """SQL of the sentence about a message that is no record of the table, or NULL."""
    record = f"record of {len(columns)} column{'s' if len(columns) > 1 else ''}"
    sentence = f" bytes of the message are no {record}: they end too early, or claim what cannot be"
    short = f"concat('the ', _length, {spark_string(sentence)})"
    longer = f"'bytes are left over behind the {record}: the message was written with another schema'"
    return (
        "CASE WHEN _null THEN NULL WHEN _length = 0 THEN 'the message is empty' "
        f"WHEN _end IS NULL THEN {short} WHEN _end <> {_MARK} THEN {longer} "
        f"WHEN _record.{END} IS NULL THEN {short} "
        f"WHEN _record.{END} <> {_MARK} THEN 'a block of the message has another size than it says' "
        "WHEN _too_long THEN 'the message has a number of more than 64 bits, or a place in a union of more than 32' END"
    )


def _leaf(wire: str, of: FlinkType) -> str:
    """SQL of a scalar; NULL where it does not fit its type."""
    if of.kind in STRINGS:
        return f"IF(is_valid_utf8({wire}), {shape.within(wire, of)}, NULL)"
    if of.kind is Kind.BOOLEAN:
        return f"CASE {wire} WHEN X'01' THEN true WHEN X'00' THEN false END"
    if of.kind in INTEGERS:
        end = _RANGES[of.kind]
        return _between(wire, (-end, end - 1), f"CAST({wire} AS {of.spark})")
    if of.kind is Kind.DATE:
        return _between(wire, _DAYS, f"date_from_unix_date(CAST({wire} AS INT))")
    if of.kind in TIMESTAMPS:
        return _timestamp(wire, of)
    return f"try_cast({wire} AS {of.spark})" if of.kind is Kind.DECIMAL else shape.within(wire, of)


def _timestamp(wire: str, of: FlinkType) -> str:
    """A timestamp; NULL where it is finer than its type."""
    digits = 3 if _in_ms(of) else 6
    unit = 10 ** (digits - 3)
    moment = f"{'timestamp_millis' if digits == 3 else 'timestamp_micros'}({wire})"
    finer = 10 ** (digits - shape.precision(of))
    exact = f"IF({wire} % {finer}L = 0, CAST({moment} AS {of.spark}), NULL)"
    return _between(wire, (_MS[0] * unit, (_MS[1] + 1) * unit - 1), exact)


def _between(wire: str, bounds: tuple[int, int], then: str) -> str:
    low, high = bounds
    if high == 2**63 - 1:
        return then
    return f"IF({wire} BETWEEN {low}L AND {high}L, {then}, NULL)"


def _shown(wire: str, of: FlinkType) -> str:
    return f"hex({wire})" if of.kind in BINARIES or of.kind is Kind.BOOLEAN else wire


def _bad_keys(columns: Sequence[Column]) -> str:
    """SQL of the sentence about a key of a MAP that is no text, or NULL."""
    cases = [
        f"WHEN {found} THEN {spark_string(f'column {column.name}: a key is no UTF-8 text')}"
        for column in columns
        if (found := _bad_key(f"_wire.{quoted(column.source_name)}", parse_type(column.type)))
    ]
    return f"CASE {' '.join(cases)} END" if cases else "NULL"


def _bad_key(wire: str, of: FlinkType, depth: int = 0) -> str:
    """SQL of whether a MAP in `wire` has a key that is no text; empty where there is no MAP."""
    item, found = f"m{depth}", []
    if of.kind is Kind.MAP:
        found.append(f"exists(map_keys({wire}), {item} -> NOT is_valid_utf8({item}))")
    if of.kind is Kind.ROW:
        found += [_bad_key(f"{wire}.{quoted(field.name)}", field.type, depth) for field in of.fields]
    elif of.arguments and (within := _bad_key(item, of.element, depth + 1)):
        values = f"map_values({wire})" if of.kind is Kind.MAP else wire
        found.append(f"exists({values}, {item} -> {within})")
    parts = [f"coalesce({part}, false)" for part in found if part]
    return f"({' OR '.join(parts)})" if parts else ""


FORMAT = AvroFormat()
