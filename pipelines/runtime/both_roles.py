"""A table that a lake has landed for one role, of which a script asks for the other: whether it can serve both.

What only grows is stored alike as a build side and as a probe, so that its rows can be taken, and joined, from the
first one on. A table that has ever served both roles goes on as a table of both, whichever of them a script names.
"""

from __future__ import annotations

import operator
from dataclasses import replace
from functools import reduce

import pyarrow.compute as pc

from tidegate.pipelines.connectors.options import CHANGELOG_RETENTION, LANDED_RETENTION
from tidegate.pipelines.connectors.registry import connector
from tidegate.pipelines.connectors.table import BOTH, Table
from tidegate.pipelines.lake import Lake, WatermarkRow, delta_log
from tidegate.pipelines.lake.adopt import rows_in
from tidegate.pipelines.lake.stream import Stream
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.sql.roles import serves_both
from tidegate.pipelines.sql.tables.with_options import with_role

_RETENTIONS = (CHANGELOG_RETENTION, LANDED_RETENTION)
_INSERT = "+I"


def with_roles_of(lake: Lake, pipeline: Pipeline) -> Pipeline:
    """A pipeline whose tables serve the role that the lake has them in, too, where they can."""
    for table in pipeline.sources:
        stored = lake.definitions.last(table.name)
        role = None if stored is None else stored.form.get("role")
        if role not in (None, table.roles) and not table.also_probe and serves_both(table):
            both = with_role(table, "build", also_probe=True)
            pipeline = replace(pipeline, tables={**pipeline.tables, table.name: both})
    return pipeline


def retention_of(table: Table) -> str | None:
    """The option by which rows of a table of both roles would go that one of them needs; None if it has none."""
    return next((name for name in _RETENTIONS if name in table.options), None) if table.roles == BOTH else None


def why_not_both(lake: Lake, table: Table, role: str, *, anew: bool) -> str | None:
    """Why a table that was landed in one `role` cannot serve both from here on; None if it can. `anew`: a generation
    begins, of which nothing has landed yet."""
    spec, stream = connector(table.connector).spec, Stream(lake, table.name)
    if not serves_both(table):
        return "it has updates"
    newest = stream.newest
    if newest is None or anew:
        return None
    logs = [stream.generation(number) for number in range(1, newest.generation + 1)]
    if not all(each.removed.nothing for each in logs):
        return "retention has removed rows of it"
    if role == "probe" and spec.ordered_by_split(table.options) and any(_splits(each.last) > 1 for each in logs):
        return "it has rows of several splits, and keys that come in two of them were not looked for"
    found = stream.table
    return None if role == "probe" or found is None or _inserts_alone(found) else "it has updates"


def keys_of_probe(lake: Lake, table: Table) -> frozenset[str]:
    """The columns that a probe which has landed gets as its primary key, so that it can be joined; nothing where a row
    has NULL in one of them."""
    found = Stream(lake, table.name).table
    if found is None:
        return frozenset(table.primary_key)
    names = [file["path"] for file in delta_log.files_of(found, "path", "min._epoch")]
    stored = {column.name for column in table.stored_columns}
    if not names or not stored.issuperset(table.primary_key):
        return frozenset()
    missing = reduce(operator.or_, (pc.field(name).is_null() for name in table.primary_key))
    return frozenset() if rows_in(found, names).count_rows(filter=missing) else frozenset(table.primary_key)


def _splits(row: WatermarkRow | None) -> int:
    return 0 if row is None else len(row.splits)


def _inserts_alone(table: delta_log.Table) -> bool:
    """Whether all rows are inserts: by the bounds of the files, and by reading where these leave it open."""
    files = delta_log.files_of(table, "path", "min._op", "max._op")
    unclear = [file["path"] for file in files if not file["min._op"] == file["max._op"] == _INSERT]
    return not unclear or rows_in(table, unclear).count_rows(filter=pc.field("_op") != _INSERT) == 0
