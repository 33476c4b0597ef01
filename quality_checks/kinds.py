"""One spelling of column types, so that Parquet footers and Delta schemas can be compared: Spark's short names."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pat

_PLAIN = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
}


def kind(found: pa.DataType) -> str:
    """Spark's simple name of an Arrow type; Arrow's own name where Spark has none. Nullability does not count."""
    if found in _PLAIN:
        return _PLAIN[found]
    if pat.is_string(found) or pat.is_large_string(found) or pat.is_string_view(found):
        return "string"
    if pat.is_binary(found) or pat.is_large_binary(found) or pat.is_binary_view(found):
        return "binary"
    if pat.is_timestamp(found):
        return "timestamp" if found.tz else "timestamp_ntz"
    if pat.is_decimal(found):
        return f"decimal({found.precision},{found.scale})"
    if pat.is_list(found) or pat.is_large_list(found):
        return f"array<{kind(found.value_type)}>"
    if pat.is_map(found):
        return f"map<{kind(found.key_type)},{kind(found.item_type)}>"
    if pat.is_struct(found):
        return f"struct<{','.join(f'{field.name}:{kind(field.type)}' for field in found)}>"
    return str(found)
