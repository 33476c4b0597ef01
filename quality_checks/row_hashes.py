"""Rows as hashes: the same Spark SQL for the source's table and for the lake's latest state, so that equal rows have
equal numbers and only differences have to be examined.

Every row becomes its key, `_bucket` (by key), `_row` (64 bits over all columns) and `_cells` (32 bits a column, so that
a differing column can be named). A checksum is count, xor and sum over the `_row`s of a bucket.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.pipelines.connectors.protocol import LogPlace
from tidegate.pipelines.syntax.types import quoted, spark_string

ROWS_PER_BUCKET = 20_000


def hashed(keys: Sequence[str], columns: Sequence[str], buckets: int) -> list[str]:
    """The expressions to select from rows with these `columns`. A null has a hash of its own: xxhash64 alone would skip
    it."""
    own = [quoted(key) for key in keys]
    parts = [part for column in columns for part in (quoted(column), f"{quoted(column)} IS NULL")]
    cells = ", ".join(f"hash({quoted(column)}, {quoted(column)} IS NULL)" for column in columns)
    return [
        *own,
        f"CAST(pmod(xxhash64({', '.join(own)}), {int(buckets)}) AS INT) AS _bucket",
        f"xxhash64({', '.join(parts)}) AS _row",
        f"array({cells}) AS _cells",
    ]


def checksums(rows: str) -> str:
    """One line a bucket: how many rows, and two sums that do not depend on their order."""
    return (
        "SELECT _bucket, count(1) AS _rows, bit_xor(_row) AS _xor, sum(CAST(_row AS DECIMAL(38, 0))) AS _sum "
        f"FROM {rows} GROUP BY _bucket"
    )


def differing_buckets(source: str, lake: str) -> str:
    """Buckets whose checksums differ, and how many rows both sides have in all."""
    same = " AND ".join(f"s.{name} <=> l.{name}" for name in ("_rows", "_xor", "_sum"))
    return (
        "SELECT sum(coalesce(s._rows, 0)) AS _source, sum(coalesce(l._rows, 0)) AS _lake, "
        f"collect_list(IF({same}, NULL, coalesce(s._bucket, l._bucket))) AS _differing "
        f"FROM ({checksums(source)}) s FULL OUTER JOIN ({checksums(lake)}) l ON s._bucket = l._bucket"
    )


def differences(source: str, lake: str, keys: Sequence[str], columns: Sequence[str]) -> str:
    """Keys for which both sides differ: the key, `_kind` (missing, extra, changed; in the lake) and the names of the
    columns that differ."""
    equal = " AND ".join(f"s.{quoted(key)} = l.{quoted(key)}" for key in keys)
    shown = ", ".join(f"coalesce(s.{quoted(key)}, l.{quoted(key)}) AS {quoted(key)}" for key in keys)
    names = ", ".join(map(spark_string, columns))
    changed = f"filter(array({names}), (name, i) -> s._cells[i] <> l._cells[i])"
    return (
        f"SELECT {shown}, "
        "CASE WHEN l._row IS NULL THEN 'missing' WHEN s._row IS NULL THEN 'extra' ELSE 'changed' END AS _kind, "
        f"IF(s._row IS NULL OR l._row IS NULL, array(), {changed}) AS _columns "
        f"FROM {source} s FULL OUTER JOIN {lake} l ON {equal} WHERE NOT (s._row <=> l._row)"
    )


def before(place: LogPlace) -> str:
    """Rows of a changelog that a read view at `place` sees: those of the snapshot, and what comes before it in the
    log."""
    return (
        f"(_seq.phase = 0 OR _seq.file < {int(place.file)} OR "
        f"(_seq.file = {int(place.file)} AND _seq.position < {int(place.position)}))"
    )


def between(low: LogPlace, high: LogPlace) -> str:
    """Changes of the log that some read view between the two places sees and another does not."""
    return f"(_seq.phase <> 0 AND {before(high)} AND NOT {before(low)})"
