"""Quarantined rows from Dagster, three jobs, whose config says which rows: listed by epoch and reason, with some of the
rows themselves; released again; discarded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import dagster as dg

from tidegate.assets.operations.operation import Operation, OperationConfig, Started
from tidegate.assets.text import in_short, listed
from tidegate.pipelines.connectors.options import OnUnmatched
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.sql.compile import MissedKey, Pipeline
from tidegate.pipelines.text import counted
from tidegate.pipelines.watermarks.watermark import instant

if TYPE_CHECKING:
    from tidegate.pipelines.runtime.epochs import Asked
    from tidegate.pipelines.runtime.quarantine import QuarantinedRow, QuarantinedRows
    from tidegate.pipelines.runtime.releasing.insert_runner import Published


class QuarantineConfig(OperationConfig):
    """Which rows are taken (in the launchpad).

    Attributes:
        target: The INSERT: its target's name, or the target's 'insert.id'. May be left out where there is one.
        reasons: Only rows with these reasons, such as key-absent@u; all when empty.
        epochs: Only rows that these epochs have quarantined; all when empty.
        dry_run: Only show which rows it would be.
    """

    target: str = ""
    reasons: list[str] = []  # noqa: RUF012 pydantic copies it
    epochs: list[int] = []  # noqa: RUF012
    dry_run: bool = False


class QuarantineReleaseConfig(QuarantineConfig):
    """Which rows are joined again.

    Attributes:
        on_unmatched: What becomes of those that find no match again; they go back to quarantine when empty.
    """

    on_unmatched: Literal["", "quarantine", "block", "publish"] = ""


class QuarantineDiscardConfig(QuarantineConfig):
    """Which rows are given up, and why.

    Attributes:
        because: Why; it is stored with the decision. Nothing is discarded without it.
        dry_run: Only show which rows it would be, unless it is set to false.
    """

    because: str = ""
    dry_run: bool = True


def _release(started: Started, config: QuarantineReleaseConfig) -> int:
    from tidegate.pipelines.runtime.epochs import Asked

    request = Asked((), tuple(config.reasons), tuple(config.epochs), by=_who(started.context))
    return sum(item.rows for item in _taken(started, config, request, config.on_unmatched or None))


def _discard(started: Started, config: QuarantineDiscardConfig) -> int:
    from tidegate.pipelines.runtime.epochs import Asked

    because = config.because.strip()
    if not because and not config.dry_run:
        raise PlanningError(
            "a discard needs a reason",
            state="nothing was changed",
            next_command="fill in `because`: why they are given up",
        )
    who = _who(started.context)
    request = Asked((), tuple(config.reasons), tuple(config.epochs), discards=True, by=who, because=because)
    return _claimed(_requeues(_taken(started, config, request)))


QUARANTINE_RELEASE = Operation(
    name="quarantine_release",
    title="Release quarantined rows again. Choose them in the launchpad.",
    step="release_quarantined",
    description="Joins quarantined rows again, as an epoch that goes through the gate; publishes those that match.",
    gives="Rows that were published.",
    config=QuarantineReleaseConfig,
    run=_release,
)

QUARANTINE_DISCARD = Operation(
    name="quarantine_discard",
    title="Discard quarantined rows. Choose them in the launchpad, and say why. A dry run without `dry_run: false`.",
    step="discard_quarantined",
    description="Gives quarantined rows up: they stay in the quarantine, counted as discarded.",
    gives="Rows that were discarded.",
    config=QuarantineDiscardConfig,
    run=_discard,
)


def _taken(
    started: Started, config: QuarantineConfig, request: Asked, on_unmatched: OnUnmatched | None = None
) -> Sequence[Published]:
    """Do it, and report it in the metadata of the op's output."""
    from tidegate.pipelines.lake.delta_log import logged_rows
    from tidegate.pipelines.runtime.quarantine import as_shown, chosen, quarantined_by_epoch

    runner, pipeline, context = started.runner, started.runner.pipeline, started.context
    insert = _insert(pipeline, config.target)
    wanted = chosen(insert, quarantined_by_epoch(runner.lake, pipeline, pipeline.insert(insert)), request)
    done = () if config.dry_run else runner.out_of_quarantine(insert, as_shown(request, wanted), on_unmatched)
    after = quarantined_by_epoch(runner.lake, pipeline, pipeline.insert(insert))
    context.add_output_metadata(of_taken(insert, wanted, done, after, config.dry_run))
    if any(item.rows for item in done):
        rows = logged_rows(runner.lake.target_path(pipeline.table(pipeline.insert(insert).target)))
        context.log_event(
            dg.AssetMaterialization(
                started.on.names.published(pipeline.insert(insert)),
                description="Quarantined rows were released again.",
                metadata={
                    "rows published": sum(item.rows for item in done),
                    **({} if rows is None else {"dagster/row_count": rows}),
                },
            )
        )
    return done


def of_taken(
    insert: str,
    wanted: Sequence[QuarantinedRows],
    done: Sequence[Published],
    after: Sequence[QuarantinedRows],
    dry_run: bool,
) -> dict[str, Any]:
    """What was done: numbers, and a line for each epoch and reason that was taken."""
    headers = ("quarantined by epoch", "reason", "rows")
    own = _requeues(done)
    taken = _claimed(own)
    published, again, left = (
        sum(item.staged.counts["to:publish"] for item in own),
        sum(item.staged.counts["to:quarantine"] for item in own),
        sum(item.rows for item in after if item.state == "open"),
    )
    would = sum(item.rows for item in wanted)
    text = f"{counted(taken, 'row')} of {insert} taken out of quarantine: {published:,} published, {again:,} back in it"
    if dry_run:
        text = f"a dry run: it would take {counted(would, 'row')} of {insert}; next: set `dry_run: false`"
    elif not own:
        text = f"no row of {insert} that was asked for is in quarantine"
    elif all(item.plan.discards for item in own):
        text = f"{counted(taken, 'row')} of {insert} given up; they stay in the quarantine, counted as discarded"
    return in_short(
        text,
        {
            "rows taken": taken,
            "rows it would take": would if dry_run else None,
            "rows published": published,
            "rows back in quarantine": again,
            "rows in quarantine now": left,
        },
        {"insert": insert, "dry run": dry_run, "epochs": [item.epoch for item in own]},
        **listed("rows", "line", headers, [(item.epoch, item.reason, item.rows) for item in wanted]),
    )


def _requeues(done: Sequence[Published]) -> list[Published]:
    """Of what was published, the epochs that took rows of the quarantine: not one that was finished before them."""
    return [item for item in done if item.plan.out_of_quarantine]


def _claimed(requeues: Sequence[Published]) -> int:
    """How many quarantined rows they took."""
    return sum(item.plan.rows_claimed for item in requeues)


def _insert(pipeline: Pipeline, target: str) -> str:
    state = "nothing was changed"
    found = _inserts(pipeline, target, state)
    if len(found) != 1:
        raise _not_one("the pipeline has several INSERTs", pipeline, state)
    return found[0]


def _inserts(pipeline: Pipeline, target: str, state: str) -> list[str]:
    """The INSERT of a target; all of them where none is named. Raises PlanningError where the pipeline has it not."""
    known = [item.id for item in pipeline.inserts]
    if target and target not in known:
        raise _not_one(f"the pipeline has no INSERT {target}", pipeline, state)
    return [target] if target else known


def _not_one(what: str, pipeline: Pipeline, state: str) -> PlanningError:
    known = ", ".join(item.id for item in pipeline.inserts)
    return PlanningError(what, state=state, next_command=f"set `target` to one of {known}")


def _who(context: dg.OpExecutionContext) -> str:
    user = context.run.tags.get("user", "")
    return f"{user} (dagster run {context.run.run_id})" if user else f"dagster run {context.run.run_id}"


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
    from tidegate.pipelines.runtime.quarantine import asked_for, quarantined_by_epoch, rows_of

    lake, pipeline = started.runner.lake, started.runner.pipeline
    lots: list[tuple[str, QuarantinedRows]] = []
    rows: list[tuple[str, QuarantinedRow]] = []
    keys: list[tuple[str, QuarantinedRow, MissedKey]] = []
    for insert in _inserts(pipeline, config.target, "nothing was looked at"):
        quarantined = quarantined_by_epoch(lake, pipeline, pipeline.insert(insert))
        own = [
            item
            for item in quarantined
            if asked_for(item, config.reasons, config.epochs) and config.state in ("all", item.state)
        ]
        lots += [(_named(insert, item), item) for item in own]
        most = max(config.limit, 0) - len(rows)
        shown = rows_of(lake, pipeline, pipeline.insert(insert), own, most)
        rows += [(_named(insert, row.group), row) for row in shown]
        found = nearest_keys(lake, pipeline, pipeline.insert(insert), shown, SHOWN_KEYS - len(keys))
        keys += [(insert, row, missed) for row, missed in found]
    started.context.add_output_metadata(of_quarantine(lots, rows, keys))
    return sum(item.rows for _, item in lots)


QUARANTINE_LIST = Operation(
    name="quarantine_list",
    title="Show quarantined rows. Choose which, and how many, in the launchpad.",
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
        (
            insert,
            item.epoch,
            item.short,
            item.rows,
            item.state,
            instant(item.at),
            ", ".join(map(str, item.plan.pins)),
            _since(item),
        )
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


def _named(insert: str, item: QuarantinedRows) -> str:
    return f"{insert}, output {item.output}" if item.output else insert


def _json(values: Mapping[str, Any]) -> str:
    return json.dumps(dict(values), default=str, ensure_ascii=False)


def _since(item: QuarantinedRows) -> str:
    """Which epoch has released or discarded the rows, and who."""
    if item.taken is None:
        return ""
    who = item.request
    taken = f"epoch {item.taken.epoch}, {instant(item.taken.instant)}"
    return ", ".join(part for part in (taken, who.by if who else "", who.because if who else "") if part)
