"""'scan.changes.order' = 'source' goes by the database's log: the places that messages name must be places of one log.

After a failover to another server, RESET MASTER, or a restore, the log begins at lower places, and every older change
would win. Messages do not name their log: `server_id` and `gtid` name the server on which a change was first made, and
changes of several servers lie in one log. What shows another log is the order in the topic. Debezium writes the changes
of a key in the order of the log, so a key's places only rise within a partition, and a message that names a lower one
repeats one that came before (a connector that starts again writes the last messages again). Changes of different keys
do not show it: PostgreSQL's transactions overlap in its log and are written one after the other.

A key that has changed its partition (partitions were added) has no such order. Over partitions the database's own time
decides: a change that is later by it, at a lower place, is of another log. A truncate is compared with all rows of its
partition.

All of this is checked after every epoch, with all rows that have landed of its keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import Row, Window
from pyspark.sql import functions as F

from tidegate.pipelines.commands import Advised, either, then
from tidegate.pipelines.connectors.protocol import SourceContext, StoredStep
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.kafka.checks import UNCONFIRMED, anew
from tidegate.pipelines.sources.kafka.options import ORDER_OPTION
from tidegate.pipelines.sources.kafka.steps import KafkaStep
from tidegate.pipelines.syntax.types import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PLACE = "named_struct('file', _seq.file, 'position', _seq.position, 'row', _seq.row)"
_AT = "unix_millis(_rowtime)"
_MESSAGE = "named_struct('place', _place, 'split', _split, 'offset', _offset, 'at', _at)"

# A snapshot of a database where little happens may begin at the place of the change before it.
_READ_THERE = "_op = 'r' AND _place.file = {0}.place.file AND _place.position = {0}.place.position"


def check_places(context: SourceContext, stored: StoredStep, rows: DataFrame, step: KafkaStep, sub_bits: int) -> None:
    """Raise SourceError when changes of a key of the epoch lie in two logs of the database.

    `rows` are the epoch's committed rows; `_offset` is a message's offset, shifted left by `sub_bits`.
    """
    if not context.table.primary_key:
        return
    keys = [quoted(name) for name in context.table.primary_key]
    # All that follows is of one key: the rows move once.
    columns = [*keys, "_split", "_offset", "_op", f"{_PLACE} AS _place", f"{_AT} AS _at"]
    seen = _with_earlier(context, stored, rows, columns).repartition(*keys)
    found = _falls(seen, keys, several=len(step.stops) > 1 or step.last_ordinal > 0)
    what = f"the change of the key {found['_key']}" if found is not None else ""
    if found is not None and found["_tie"]:
        found = _other_image(context, stored, rows, keys)
    if found is None:
        found, what = _truncates(context, stored, rows, keys), "a truncate, or a change that comes after one,"
    if found is not None:
        raise _error(context, stored, found, what, sub_bits)


def _falls(seen: DataFrame, keys: list[str], *, several: bool) -> Row | None:
    """A change at a lower place than an earlier one of its key. `_tie`: there is none, but a row that a snapshot has
    read twice at one place."""
    first = _first(seen, [*keys, "_split", "_place", "_op", "_at"])
    before = Window.partitionBy(*keys, "_split").orderBy("_offset").rowsBetween(Window.unboundedPreceding, -1)
    first = first.withColumn("_last", F.max(F.expr(_MESSAGE)).over(before))
    back = f"_place < _last.place AND NOT ({_READ_THERE.format('_last')})"
    same = "_place = _last.place AND _at <> _last.at AND _op <> 'r'"
    conditions = {"_last": f"({back}) OR ({same})"}
    if several:
        # Times of snapshot rows are when they were read, and in old versions of Debezium 0.
        earlier = Window.partitionBy(*keys).orderBy("_at").rangeBetween(Window.unboundedPreceding, -1)
        first = first.withColumn("_older", F.max(F.expr(f"IF(_at > 0, {_MESSAGE}, NULL)")).over(earlier))
        conditions["_older"] = "_op <> 'r' AND _place < _older.place AND _split <> _older.split"
    tie = "_op = 'r' AND (_times > 1 OR _place <=> _last.place)"
    cases = " ".join(f"WHEN {condition} THEN {name}" for name, condition in conditions.items())
    found = first.selectExpr(
        f"CASE {cases} END AS _before", f"{tie} AS _tied", "_place", "_split", "_offset", _key(keys)
    ).where("_before IS NOT NULL OR _tied")
    found = found.selectExpr("_before", "_before IS NULL AS _tie", "_place", "_split", "_offset", "_key")
    return _one(found.orderBy("_tie"))


def _first(rows: DataFrame, columns: list[str]) -> DataFrame:
    """Each change where it came first; `_times`: how often it came."""
    return rows.groupBy(*columns).agg(F.min("_offset").alias("_offset"), F.count("*").alias("_times"))


def _other_image(context: SourceContext, stored: StoredStep, rows: DataFrame, keys: list[str]) -> Row | None:
    """Two rows of one key and one place that snapshots have read, and that differ: a new database's log begins where
    the log of the one before did."""
    table = context.table
    values = ", ".join(quoted(column.name) for column in table.message_columns)
    image = f"to_json(struct({values})) AS _image"
    columns = [*keys, "_split", "_offset", "_op", f"{_PLACE} AS _place", f"{_AT} AS _at", image]
    read = _with_earlier(context, stored, rows, columns)
    images = read.where("_op = 'r'").groupBy(*keys, "_split", "_place")
    twice = images.agg(
        F.min("_image").alias("_least"),
        F.max("_image").alias("_most"),
        F.expr(f"min({_MESSAGE}) AS _before"),
        F.max("_offset").alias("_offset"),
    )
    return _one(twice.where("_least <> _most").select("_before", "_place", "_split", "_offset", F.expr(_key(keys))))


def _with_earlier(context: SourceContext, stored: StoredStep, rows: DataFrame, columns: list[str]) -> DataFrame:
    """`columns` of the rows of the epoch's keys: those of the epoch, `rows`, and all of earlier ones."""
    seen = rows.where("_op <> 't'")
    if stored.epoch > 1 and context.earlier_rows is not None:
        names = list(context.table.primary_key)
        keys = seen.select(*map(quoted, names)).distinct()
        known = context.earlier_rows(stored).where("_op <> 't'").join(keys, names, "left_semi")
        return seen.selectExpr(*columns).unionAll(known.selectExpr(*columns))
    return seen.selectExpr(*columns)


def _truncates(context: SourceContext, stored: StoredStep, rows: DataFrame, keys: list[str]) -> Row | None:
    """A truncate and a row of its partition, the later of which names the lower place."""
    everything = rows.select("_op", "_split", "_offset", "_seq", "_rowtime", *keys)
    if stored.epoch > 1 and context.earlier_rows is not None:
        everything = everything.unionByName(context.earlier_rows(stored).select(*everything.columns))
    everything = everything.selectExpr(*keys, "_split", "_offset", "_op", f"{_PLACE} AS _place", f"{_AT} AS _at")
    truncates = everything.where("_op = 't'")
    if not truncates.limit(1).collect():  # one row
        return None
    truncates = _first(truncates, ["_split", "_place", "_at"]).selectExpr("_split", f"{_MESSAGE} AS _truncate")
    changes = _first(everything.where("_op <> 't'"), [*keys, "_split", "_place", "_op", "_at"])
    pairs = changes.join(F.broadcast(truncates), "_split").where(
        f"_offset > _truncate.offset AND _place <= _truncate.place AND NOT ({_READ_THERE.format('_truncate')})"
        " OR _offset < _truncate.offset AND _place >= _truncate.place"
    )
    late = "_offset > _truncate.offset"
    return _one(
        pairs.selectExpr(
            "_split",
            f"IF({late}, _truncate, {_MESSAGE}) AS _before",
            f"IF({late}, _place, _truncate.place) AS _place",
            f"IF({late}, _offset, _truncate.offset) AS _offset",
        )
    )


def _key(keys: list[str]) -> str:
    return f"to_json(struct({', '.join(keys)})) AS _key"


def _one(found: DataFrame) -> Row | None:
    return next(iter(found.limit(1).collect()), None)


def _error(context: SourceContext, stored: StoredStep, found: Row, what: str, sub_bits: int) -> SourceError:
    name, before = context.table.name, found["_before"]
    earlier = f"{before['split']}, offset {before['offset'] >> sub_bits}"
    return SourceError(
        f"{name}: {found['_split']}, offset {found['_offset'] >> sub_bits}: {what} stands at {_words(found['_place'])} "
        f"of the database's log, and what came before it ({earlier}) at {_words(before['place'])}: these are two logs "
        f"(a failover, RESET MASTER, a restore), and '{ORDER_OPTION.name}' = 'source' orders changes of one only",
        where=stored.place,
        state=UNCONFIRMED,
        next_command=_ways(name, found["_split"].rpartition("-")[0]),
    )


def _ways(table: str, topic: str) -> Advised:
    return either(
        then(f"delete the topic {topic}, make it again, and let Debezium write a new snapshot into it", anew(table)),
        f"where each key has stayed in one partition, leave '{ORDER_OPTION.name}' out, and read on another lake "
        "(--lake DIR)",
    )


def _words(place: Any) -> str:
    """A place for people. PostgreSQL's has no file."""
    if not place["file"]:
        return f"LSN {place['position']}"
    return f"file {place['file']}, position {place['position']}"
