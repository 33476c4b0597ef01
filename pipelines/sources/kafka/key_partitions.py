"""A build side's key lies in one partition only: between partitions Kafka knows no order, so "latest" would be a guess.

Looked at after every epoch: within it, and against the partitions in which its keys came before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tidegate.pipelines.commands import both
from tidegate.pipelines.connectors.protocol import SourceContext, StoredStep
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.kafka.checks import anew
from tidegate.pipelines.sources.kafka.fields import APPEND_FORMATS, value_format
from tidegate.pipelines.sources.kafka.options import KEY_CHECK_OPTION, ORDER_OPTION
from tidegate.pipelines.sources.kafka.steps import KafkaStep
from tidegate.pipelines.syntax.types import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_KEPT = "the epoch's rows are committed and its watermark is not, so nothing reads them; epochs before it stand"


def check_keys(context: SourceContext, stored: StoredStep, rows: DataFrame, step: KafkaStep) -> None:
    """Raise SourceError when some key of the epoch has come in two partitions. `rows` are its committed rows."""
    table = context.table
    checked = context.options.get(KEY_CHECK_OPTION.name, "true").lower() == "true"
    if table.role != "build" or len(step.stops) < 2 or context.options.get(ORDER_OPTION.name) == "source":
        return
    _no_truncate(context, stored, rows)
    if not table.primary_key or not checked:
        return
    keys = [quoted(name) for name in table.primary_key]
    seen = rows.where("_op <> 't'").select(*keys, "_split")
    if stored.epoch > 1 and context.earlier_rows is not None:
        earlier = context.earlier_rows(stored).where("_op <> 't'").select(*keys, "_split")
        known = earlier.join(seen.select(*keys).distinct(), [*table.primary_key], "left_semi")
        seen = seen.unionAll(known.select(*keys, "_split"))
    twice = seen.groupBy(*keys)
    twice = twice.agg(F.min("_split").alias("_one"), F.max("_split").alias("_other")).where("_one <> _other")
    found = twice.select("_one", "_other", F.to_json(F.struct(*keys)).alias("_key")).limit(1).collect()  # one row
    if not found:
        return
    raise SourceError(
        f"{table.name}: the key {found[0]['_key']} came in {found[0]['_one']} and in {found[0]['_other']}: "
        "which of the two is its latest cannot be known",
        where=f"generation {stored.generation}, epoch {stored.epoch}: {stored.step.summary}",
        state=_KEPT,
        next_command=both(
            "write each key to one partition only (a topic whose partitions were added needs a new topic)",
            anew(table.name),
        ),
    )


def _no_truncate(context: SourceContext, stored: StoredStep, rows: DataFrame) -> None:
    if value_format(context.options) in APPEND_FORMATS:
        return
    found = rows.where("_op = 't'").select("_split", "_offset").limit(1).collect()  # one row
    if found:
        raise SourceError(
            f"{context.table.name}: {found[0]['_split']} holds a truncate of the whole table, and what it comes after "
            "in the other partitions cannot be known",
            where=f"generation {stored.generation}, epoch {stored.epoch}: {stored.step.summary}",
            state=_KEPT,
            next_command=both(
                "write 'scan.changes.order' = 'source', or use a topic of one partition", anew(context.table.name)
            ),
        )
