"""What a step has done, as the metadata of its event: the records of `quality_checks.steps`, shown by `assets.text`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec

from tidegate.assets.checks import IN_DAGSTER, data_docs
from tidegate.assets.text import metadata
from tidegate.pipelines.commands import Commands, either, resolving
from tidegate.pipelines.sql.model import Insert
from tidegate.quality_checks import steps
from tidegate.quality_checks.steps import InsertStep, SourceStep

if TYPE_CHECKING:
    from tidegate.pipelines.runtime.epochs.position import HeldEpoch

Given = ParamSpec("Given")


def of_step(record: SourceStep | InsertStep) -> dict[str, Any]:
    """A step as metadata; with the page that the script's suite wrote, if it has one."""
    verdict = getattr(record, "judged", None)
    return metadata(record) | (data_docs(verdict) if verdict else {})


def _shown(found: Callable[Given, SourceStep | InsertStep]) -> Callable[Given, dict[str, Any]]:
    """The record that `found` returns, as metadata."""

    @wraps(found)
    def shown(*given: Given.args, **named: Given.kwargs) -> dict[str, Any]:
        return of_step(found(*given, **named))

    return shown


of_advance = _shown(steps.advanced)
of_landed = _shown(steps.landed)
of_loading = _shown(steps.loading)
of_staged = _shown(steps.staged)
of_staged_epoch = _shown(steps.staged_elsewhere)
of_waiting = _shown(steps.waits)
of_published = _shown(steps.published)
of_epochs = _shown(steps.published_elsewhere)


def of_held(insert: Insert, held: HeldEpoch, waiting: int, commands: Commands) -> dict[str, Any]:
    """The newest epoch is held; with the ways out of it as they are typed, and as they are clicked."""
    found = metadata(steps.held(insert.id, held, waiting), commands)
    out = either(*resolving(insert.id))
    summary = found["summary"].replace(str(out), commands.shown(out))
    return {**found, "summary": summary, "next in Dagster": IN_DAGSTER}
