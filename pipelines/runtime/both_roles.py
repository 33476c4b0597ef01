"""A table that a lake has landed for one role, of which a script asks for the other: whether it can serve both.

What only grows is stored alike as a build side and as a probe, so that its rows can be taken, and joined, from the
first one on. A table that has ever served both roles goes on as a table of both, whichever of them a script names.
"""

from __future__ import annotations

import operator
from dataclasses import replace
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.pipelines.connectors.options import CHANGELOG_RETENTION, LANDED_RETENTION
from tidegate.pipelines.connectors.registry import ordered_by_split
from tidegate.pipelines.connectors.table import BOTH, Table
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.lake.by_name import TableState
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
    if not serves_both(table):
        return "it has updates"
    if anew:
        return None
    stream = Stream(lake, table.name)
    newest, found = stream.newest, stream.table
    logs = [stream.generation(number) for number in range(1, newest.generation + 1 if newest else 1)]
    if not all(each.removed.nothing for each in logs):
        return "retention has removed rows of it"
    if role == "probe" and found is not None and ordered_by_split(table) and _several_splits(found):
        return "it has rows of several splits, and keys that come in two of them were not looked for"
    return None if found is None or _inserts_alone(found) else "it has updates"


def keys_of_probe(lake: Lake, table: Table) -> frozenset[str]:
    """The columns that a probe which has landed gets as its primary key, so that it can be joined; nothing where a row
    has NULL in one of them."""
    found = Stream(lake, table.name).table
    if found is None:
        return frozenset(table.primary_key)
    stored = {column.name for column in table.stored_columns}
    if not found.files or not stored.issuperset(table.primary_key):
        return frozenset()
    missing = reduce(operator.or_, (pc.field(name).is_null() for name in table.primary_key))
    return frozenset() if found.rows().count_rows(filter=missing) else frozenset(table.primary_key)


def _several_splits(table: TableState) -> bool:
    """Whether a generation has rows of more than one split, by the rows: the log of a table without WATERMARK FOR does
    not name its splits."""
    found = dict[int, str]()
    for batch in table.rows().to_batches(columns=["_generation", "_split"]):
        pairs = pa.Table.from_batches([batch]).group_by(["_generation", "_split"]).aggregate([])
        for number, split in zip(*(pairs[name].to_pylist() for name in ("_generation", "_split")), strict=True):
            if found.setdefault(number, split) != split:
                return True
    return False


def _inserts_alone(table: TableState) -> bool:
    """Whether all rows are inserts: by the bounds of the files, and by reading where these leave it open."""
    unclear = [file for file in table.files.values() if not file.least("_op") == file.greatest("_op") == _INSERT]
    return not unclear or table.rows(unclear).count_rows(filter=pc.field("_op") != _INSERT) == 0
