"""Quarantined rows released again or discarded from Dagster: two jobs; their config says which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import dagster as dg

from tidegate.assets.operations.operation import Operation, OperationConfig, Started
from tidegate.assets.text import in_short, listed
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.sql.model import OnUnmatched
from tidegate.pipelines.text import counted

if TYPE_CHECKING:
    from tidegate.pipelines.runtime.epochs import FromQuarantine
    from tidegate.pipelines.runtime.quarantine.quarantined import QuarantinedRows
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
    from tidegate.pipelines.runtime.epochs import FromQuarantine

    request = FromQuarantine(False, tuple(config.reasons), tuple(config.epochs), by=_who(started.context))
    return sum(item.rows for item in _taken(started, config, request, config.on_unmatched or None))


def _discard(started: Started, config: QuarantineDiscardConfig) -> int:
    from tidegate.pipelines.runtime.epochs import FromQuarantine

    because = config.because.strip()
    if not because and not config.dry_run:
        raise PlanningError(
            "a discard needs a reason",
            state="nothing was changed",
            next_command="fill in `because`: why they are given up",
        )
    request = FromQuarantine(
        True, tuple(config.reasons), tuple(config.epochs), by=_who(started.context), because=because
    )
    return _claimed(_requeues(_taken(started, config, request)))


QUARANTINE_RELEASE = Operation(
    name="quarantine_release",
    title="Release quarantined rows again; the launchpad says which.",
    step="release_quarantined",
    description="Joins quarantined rows again, as an epoch that goes through the gate; publishes those that match.",
    gives="Rows that were published.",
    config=QuarantineReleaseConfig,
    run=_release,
)

QUARANTINE_DISCARD = Operation(
    name="quarantine_discard",
    title="Discard quarantined rows; the launchpad says which, and why. A dry run unless it says `dry_run: false`.",
    step="discard_quarantined",
    description="Gives quarantined rows up: they stay in the quarantine, counted as discarded.",
    gives="Rows that were discarded.",
    config=QuarantineDiscardConfig,
    run=_discard,
)


def _taken(
    started: Started, config: QuarantineConfig, request: FromQuarantine, on_unmatched: OnUnmatched | None = None
) -> Sequence[Published]:
    """Do it, and report it in the metadata of the op's output."""
    from tidegate.assets.metadata import table_rows
    from tidegate.pipelines.runtime.quarantine.quarantined import as_shown, chosen, quarantined_by_epoch

    runner, pipeline, context = started.runner, started.runner.pipeline, started.context
    insert = _insert(pipeline, config.target)
    wanted = chosen(insert, quarantined_by_epoch(runner.lake, pipeline, pipeline.insert(insert)), request)
    done = () if config.dry_run else runner.out_of_quarantine(insert, as_shown(request, wanted), on_unmatched)
    after = quarantined_by_epoch(runner.lake, pipeline, pipeline.insert(insert))
    context.add_output_metadata(of_taken(insert, wanted, done, after, config.dry_run))
    if any(item.rows for item in done):
        path = str(runner.lake.target_path(pipeline.table(pipeline.insert(insert).target)))
        context.log_event(
            dg.AssetMaterialization(
                started.on.names.published(pipeline.insert(insert)),
                description="Quarantined rows were released again.",
                metadata={"dagster/row_count": table_rows(path), "rows published": sum(d.rows for d in done)},
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
    said = f"{counted(taken, 'row')} of {insert} taken out of quarantine: {published:,} published, {again:,} back in it"
    if dry_run:
        said = f"a dry run: it would take {counted(would, 'row')} of {insert}; next: set `dry_run: false`"
    elif not own:
        said = f"nothing of {insert} was in quarantine that was asked for"
    elif all(item.plan.discards for item in own):
        said = f"{counted(taken, 'row')} of {insert} given up; they stay in the quarantine, counted as discarded"
    return in_short(
        said,
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
    from tidegate.pipelines.runtime.epochs import RequeuePlan

    return [item for item in done if isinstance(item.plan, RequeuePlan)]


def _claimed(requeues: Sequence[Published]) -> int:
    """How many quarantined rows they took."""
    return sum(lot.rows for item in requeues for lot in item.plan.claims)


def _insert(pipeline: Pipeline, target: str) -> str:
    known = [item.id for item in pipeline.inserts]
    if not target and len(known) == 1:
        return known[0]
    if target not in known:
        what = f"the pipeline has no INSERT {target}" if target else "the pipeline has several INSERTs"
        raise PlanningError(
            what, state="nothing was changed", next_command=f"set `target` to one of {', '.join(known)}"
        )
    return target


def _who(context: dg.OpExecutionContext) -> str:
    user = context.run.tags.get("user", "")
    return f"{user} (dagster run {context.run.run_id})" if user else f"dagster run {context.run.run_id}"
