"""Where in the database's log a Debezium message says that its change stands."""

from __future__ import annotations

from tidegate.pipelines.sources.formats import Wanted
from tidegate.pipelines.sources.formats.literals import text

NO_PLACE = (
    "the message does not say where in the database's log it stands (source.file and source.pos, or source.lsn), "
    "which 'scan.changes.order' = 'source' goes by"
)
_SOURCE = "source STRUCT<file STRING, pos STRING, `row` STRING, lsn STRING>"
_SHAPE = "file: BIGINT, position: BIGINT, row: INT"


def place(wanted: Wanted) -> str:
    """SQL of STRUCT<file, position, row> of the column `value`, a message; NULL where it names none.

    MySQL and MariaDB: the number at the end of the binlog file's name, the position, the row in its event.
    PostgreSQL: the LSN as the position. A row of an incremental snapshot names an empty file, so it has none.
    """
    inside = wanted.flag("debezium-json.schema-include")
    shape = f"payload STRUCT<{_SOURCE.replace('source STRUCT', 'source: STRUCT')}>" if inside else _SOURCE
    told = f"from_json(CAST(value AS STRING), {text(shape)}).{'payload.' if inside else ''}source"
    number = f"try_cast(regexp_extract(s.file, {text(r'([0-9]+)$')}, 1) AS BIGINT)"
    row = "coalesce(try_cast(s.`row` AS INT), 0)"
    log = f"named_struct('file', {number}, 'position', try_cast(s.pos AS BIGINT), 'row', {row})"
    lsn = "named_struct('file', 0L, 'position', try_cast(s.lsn AS BIGINT), 'row', 0)"
    found = f"IF(s.lsn IS NOT NULL, {lsn}, {log})"
    whole = f"IF(p.file IS NULL OR p.position IS NULL, NULL, CAST(p AS STRUCT<{_SHAPE}>))"
    # A lambda over one element names a value, so that the message is parsed once.
    parsed = f"transform(array({told}), s -> {found})"
    return f"get(transform({parsed}, p -> {whole}), 0)"
