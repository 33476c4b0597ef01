"""What the declared columns of a table are followed as, from plan to plan: as wide as any that has been seen.

An ALTER rewrites rows that the log does not show. It is followed where every value stays the same one, whatever type
the column had before it. That type is not in the log; but the server describes the column as it is now, after all that
a plan may read. So each plan stores for each column the widest type that the server has shown so far, and the log is
followed past an ALTER to no type but that: the one before it was no wider, for it was followed by the same rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tidegate.pipelines.connectors.table import Column
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.sources.cdc.changelog import compatible, cut_off
from tidegate.pipelines.sources.mysql_cdc.binlog.statements.shape import charset_holds, shape_of
from tidegate.pipelines.sources.mysql_cdc.names import lowered
from tidegate.pipelines.sources.mysql_cdc.types import SourceColumn
from tidegate.pipelines.syntax.dialect import parse_type


def unfit(found: SourceColumn, column: Column) -> str | None:
    """Why the declared type of `column` cannot hold every value of the server's; None when it can. Raises PlanningError
    for a type that cannot be read."""
    return compatible(found.canonical, column.spark_type) or cut_off(
        parse_type(column.type), found.longest, found.fraction or 0
    )


def followed(
    known: Sequence[SourceColumn], now: Sequence[SourceColumn], declared: Sequence[Column]
) -> tuple[SourceColumn, ...]:
    """The `known` columns as the log is followed from here on. `now`: the table's columns, as the server describes them
    after it was asked for its end; none where there is no table. `declared`: those of the script."""
    if not now:
        return tuple(known)
    server = {lowered(column.name): column for column in now}
    script = {lowered(column.name): column for column in declared}
    return tuple(_followed(each, server.get(lowered(each.name)), script.get(lowered(each.name))) for each in known)


def _followed(known: SourceColumn, now: SourceColumn | None, declared: Column | None) -> SourceColumn:
    if now is None:
        return replace(known, dropped=True)
    held = replace(
        known,
        nullable=known.nullable or now.nullable,
        generated=known.generated or now.generated,
        auto_increment=now.auto_increment,
        numbered=known.numbered or (now.auto_increment and not known.auto_increment),
        recoded=known.recoded or not charset_holds(now.charset, known.charset),
    )
    if declared is None or known.dropped or not _is_wider(now, known, declared):
        return held
    kept = {name: getattr(held, name) for name in ("name", "nullable", "generated", "numbered", "recoded")}
    return replace(now, **kept)


def _is_wider(now: SourceColumn, known: SourceColumn, declared: Column) -> bool:
    """Whether `now` has every value of `known`, and the declared type every value of `now`."""
    try:
        fits = unfit(now, declared) is None
    except PlanningError:
        return False
    return fits and shape_of(now).holds(shape_of(known)) and charset_holds(now.charset, known.charset)
