"""What is in quarantine, as a job of Dagster: by epoch and reason, and some of the rows themselves."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from tidegate.assets.operations.operation import Operation, OperationConfig, Started
from tidegate.assets.text import listed
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.sql.compile import MissedKey, Pipeline
from tidegate.pipelines.watermarks.watermark import instant

if TYPE_CHECKING:
    from tidegate.pipelines.runtime.quarantine.quarantined import QuarantinedRows
    from tidegate.pipelines.runtime.quarantine.rows import QuarantinedRow

SHOWN_LOTS = 100
"""Lines of the list before the rest is only counted."""
SHOWN_KEYS = 10
"""Keys without a match that are shown with the version that comes nearest."""


class QuarantineListConfig(OperationConfig):
    """What is shown (in the launchpad).

    Attributes:
        target: The INSERT: its target's name, or the target's 'insert.id'; all when empty.
        reasons: Only rows with these reasons, such as key-absent@u; all when empty.
        epochs: Only rows that these epochs have quarantined; all when empty.
        state: What has become of them: open, released, discarded, or all.
        limit: At most so many rows themselves, and of them the nearest versions of ten keys; 0 keeps all values out of
            Dagster's history.
    """

    target: str = ""
    reasons: list[str] = []  # noqa: RUF012 pydantic copies it
    epochs: list[int] = []  # noqa: RUF012
    state: Literal["open", "released", "discarded", "all"] = "open"
    limit: int = 20


def _show(started: Started, config: QuarantineListConfig) -> int:
    from tidegate.pipelines.runtime.nearest import nearest_keys
    from tidegate.pipelines.runtime.quarantine.quarantined import quarantined_by_epoch
    from tidegate.pipelines.runtime.quarantine.rows import rows_of

    lake, pipeline = started.runner.lake, started.runner.pipeline
    lots: list[tuple[str, QuarantinedRows]] = []
    rows: list[tuple[str, QuarantinedRow]] = []
    keys: list[tuple[str, QuarantinedRow, MissedKey]] = []
    for insert in _inserts(pipeline, config.target):
        quarantined = quarantined_by_epoch(lake, pipeline, pipeline.insert(insert))
        own = [item for item in quarantined if _wanted(item, config)]
        lots += [(insert, item) for item in own]
        most = max(config.limit, 0) - len(rows)
        shown = rows_of(lake, pipeline, pipeline.insert(insert), own, most)
        rows += [(insert, row) for row in shown]
        found = nearest_keys(lake, pipeline, pipeline.insert(insert), shown, SHOWN_KEYS - len(keys))
        keys += [(insert, row, missed) for row, missed in found]
    started.context.add_output_metadata(of_quarantine(lots, rows, keys))
    return sum(item.rows for _, item in lots)


QUARANTINE_LIST = Operation(
    name="quarantine_list",
    title="Show quarantined rows; the launchpad says which, and how many.",
    step="list_quarantined",
    description="Shows which rows are in quarantine, why and since when, and what has become of them.",
    gives="Rows that were found.",
    config=QuarantineListConfig,
    run=_show,
)
"""It changes nothing, and needs no lease and no Spark."""


def of_quarantine(
    lots: Sequence[tuple[str, QuarantinedRows]],
    rows: Sequence[tuple[str, QuarantinedRow]],
    keys: Sequence[tuple[str, QuarantinedRow, MissedKey]],
) -> dict[str, Any]:
    """Numbers, a line for each epoch and reason, the rows, and what is nearest to the keys of some."""
    total = sum(item.rows for _, item in lots)
    lines = [
        (insert, item.epoch, item.short, item.rows, item.state, instant(item.at), _pins(item), _since(item))
        for insert, item in lots[-SHOWN_LOTS:]
    ]
    headers = ("INSERT", "epoch", "reason", "rows", "state", "quarantined at", "joined to", "taken by")
    more = "" if len(lots) <= SHOWN_LOTS else f"\n\n… and {len(lots) - SHOWN_LOTS:,} older lines"
    shown: dict[str, Any] = {"rows found": total, **listed("rows by reason", "reason", headers, lines, more)}
    if rows:
        values = [
            (insert, row.group.epoch, row.group.short, _json(row.values), "" if row.probe is None else _json(row.probe))
            for insert, row in rows
        ]
        left = "" if total == len(rows) else f"\n\n… and {total - len(rows):,} more: `limit`"
        shown |= listed("rows", "row", ("INSERT", "epoch", "reason", "row", "came as"), values, left)
    if keys:
        nearest = [
            (
                insert,
                row.group.epoch,
                missed.reason,
                _json(missed.key) if missed.key else "an expression",
                missed.nearest,
            )
            for insert, row, missed in keys
        ]
        headers = ("INSERT", "epoch", "reason", "key", "nearest version")
        shown |= listed("nearest versions", "nearest version", headers, nearest)
    return shown


def _json(values: Mapping[str, Any]) -> str:
    return json.dumps(dict(values), default=str, ensure_ascii=False)


def _wanted(item: QuarantinedRows, config: QuarantineListConfig) -> bool:
    from tidegate.pipelines.runtime.quarantine.quarantined import asked_for

    return asked_for(item, config.reasons, config.epochs) and config.state in ("all", item.state)


def _pins(item: QuarantinedRows) -> str:
    """The build epochs that the rows were joined to."""
    return ", ".join(f"{pin.table} {pin.generation}/{pin.epoch}" for pin in item.plan.pins)


def _since(item: QuarantinedRows) -> str:
    """Which epoch has released or discarded the rows, and who."""
    if item.taken is None:
        return ""
    who = item.request
    taken = f"epoch {item.taken.epoch}, {instant(item.taken.instant)}"
    return ", ".join(part for part in (taken, who.by if who else "", who.because if who else "") if part)


def _inserts(pipeline: Pipeline, target: str) -> list[str]:
    known = [item.id for item in pipeline.inserts]
    if target and target not in known:
        raise PlanningError(
            f"the pipeline has no INSERT {target}",
            state="nothing was looked at",
            next_command=f"set `target` to one of {', '.join(known)}",
        )
    return [target] if target else known
