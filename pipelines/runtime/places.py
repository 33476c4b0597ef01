"""Whether what lies at a path is what the lake knows under it. A definition has a path as its script writes it, so a
project may be moved, copied, linked or mounted elsewhere; another folder in the place of the one that was read, or
published to, is found by the folder's own id and by what was read of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.pipelines.clock import Clock
from tidegate.pipelines.connectors.protocol import KnowsItsPlace
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import TidegateError
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.lake.delta_log import committed, opened
from tidegate.pipelines.paths import placed
from tidegate.pipelines.progress import SilentProgress
from tidegate.pipelines.runtime.epochs import ReleasePlan, insert_owner
from tidegate.pipelines.runtime.opening import context_of, position_of
from tidegate.pipelines.runtime.opening import opened as opened_source
from tidegate.pipelines.sql.model import Insert


def same_place(one: str, other: str, home: str | None) -> bool:
    """Whether two paths of a script lead to one place now."""
    return placed(one, home).resolve() == placed(other, home).resolve()


def same_source(lake: Lake, table: Table, environment: Mapping[str, str] | None, clock: Clock) -> bool:
    """Whether the place that a script gives a source table has what the lake has read of it."""
    planned = lake.epochs.last(table.name)
    if planned is None:
        return False
    try:
        context = context_of(lake, table, planned.generation, environment, clock, SilentProgress())
        with opened_source(context) as source:
            return isinstance(source, KnowsItsPlace) and source.is_the_same(position_of(context, lake))
    except TidegateError:
        return False


def another_table(lake: Lake, target: Table, insert: Insert, plan: ReleasePlan) -> bool:
    """Whether the table at the place of an INSERT's output is not the one that it has published to. `plan`: the
    INSERT's newest."""
    path, owner = lake.target_path(target), insert_owner(insert.id)
    if committed(path, lake.application(owner, "publish", plan.generation)) >= 0:
        return False
    staged = lake.staged.last(owner, plan.generation)
    if staged is None:
        return False
    if opened(path) is None:  # it is made before anything is staged
        return True
    own = target.name == insert.target
    earlier = lake.verdicts.newest_first(owner, generation=plan.generation, upto=plan.epoch - 1)
    if own and any(row.passed for row in earlier):
        return True
    files = staged.files if own else staged.facts.get("second", {}).get("files", ())
    folder = lake.new_attempt(target, insert, staged.folder)["publish"]
    return any(file["disposition"] == "publish" for file in files) and not folder.is_there()
