"""Where the last table of a hybrid table begins: at the greatest rowtime of the rows before it ('hybrid.switch').

It is computed once, from rows that are committed, so a restart before the first step of the last table finds the same.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from tidegate.pipelines.commands import resnapshot, then
from tidegate.pipelines.connectors.protocol import PlanRequest, SourceContext
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.syntax.durations import parse_duration
from tidegate.pipelines.syntax.types import quoted


def start_at(context: SourceContext, request: PlanRequest) -> int | None:
    """The time (ms, UTC) that the last table begins at; None where its own options say it, or no row came before.

    Both are the hybrid table's, whose last step is that of the table before. Raises SourceError when the time lies past
    the plan's instant: all that is live would be left out.
    """
    if context.options.get("hybrid.switch", "options") != "rowtime":
        return None
    previous, instant, watermark = request.previous, request.instant, context.table.watermark
    assert previous is not None
    assert watermark is not None
    assert context.earlier_rows is not None
    rows = context.earlier_rows(replace(previous, epoch=previous.epoch + 1))
    path = ".".join(map(quoted, watermark.path))
    # A delete's own rowtime column is that of the row it takes away.
    newest = f"unix_millis(max(CAST({path} AS TIMESTAMP))) AS at"
    greatest = rows.where("_op IN ('c', 'r', 'u', '+I', '+U')").selectExpr(newest).collect()[0]["at"]
    if greatest is None:
        return None
    overlap = parse_duration(context.options.get("hybrid.switch.overlap", "0 s"))
    start = greatest - overlap // timedelta(milliseconds=1)
    if start > instant:
        name, last = context.table.name, context.table.parts[-1].name
        reach = f"reach up to {spoken(greatest)} by {watermark.column}, which is yet to come"
        raise SourceError(
            f"{name}: the rows before {last} {reach}",
            where=f"generation {previous.generation}, after epoch {previous.epoch}; it is {spoken(instant)} now",
            state=f"the rows before {last} have landed, nothing of it is planned",
            next_command=then(
                "correct the rows",
                resnapshot(name, f"or let {last} begin where its own options say: 'hybrid.switch' = 'options'"),
            ),
        )
    return start


def spoken(at: int) -> str:
    """A time (ms, UTC) for people."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at)).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
