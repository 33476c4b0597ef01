"""Which parts of a script get assets: `select` and `exclude`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase

from tidegate.assets.presentation import Presentation
from tidegate.pipelines.connectors.registry import comparable
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.sql.model import Insert


@dataclass(frozen=True)
class Parts:
    """The source tables and INSERTs of a pipeline that get assets; an INSERT's gate is never apart from it."""

    sources: tuple[Table, ...]
    inserts: tuple[Insert, ...]
    comparable: tuple[Table, ...]
    """The build tables that can be compared with their sources."""


def selected(pipeline: Pipeline, look: Presentation) -> Parts:
    """The parts that `look.select` and `look.exclude` leave. A selected INSERT brings what it reads.

    Raises PlanningError for a name that the script does not have, and where nothing is left.
    """
    known = [*(table.name for table in pipeline.sources), *(insert.id for insert in pipeline.inserts)]
    wanted = _with_inputs(pipeline, _matched(look.select, known, "select")) if look.select else set(known)
    wanted -= _matched(look.exclude, known, "exclude")
    if known and not wanted:
        raise PlanningError(
            f"`select` and `exclude` leave nothing of {pipeline.name}",
            state="nothing was loaded",
            next_command=f"leave some of {', '.join(known)}",
        )
    return Parts(
        sources=tuple(table for table in pipeline.sources if table.name in wanted),
        inserts=tuple(insert for insert in pipeline.inserts if insert.id in wanted),
        comparable=tuple(table for table in comparable(pipeline.sources) if table.name in wanted),
    )


def _matched(patterns: Iterable[str], known: Sequence[str], option: str) -> set[str]:
    found: set[str] = set()
    for pattern in patterns:
        names = [name for name in known if fnmatchcase(name, pattern)]
        if not names:
            near = get_close_matches(pattern, known, n=1)
            raise PlanningError(
                f"the script has no source table and no INSERT {pattern}",
                where=option,
                state="nothing was loaded",
                next_command=f"did you mean {near[0]}?" if near else f"name some of {', '.join(known)}",
            )
        found.update(names)
    return found


def _with_inputs(pipeline: Pipeline, names: set[str]) -> set[str]:
    """The same, with all that the INSERTs among them read, down to the source tables."""
    makes = {name: insert for insert in pipeline.inserts if insert.process for name in insert.process.outputs}
    open_, found = list(names), set(names)
    inserts = {insert.id: insert for insert in pipeline.inserts}
    while open_:
        insert = inserts.get(open_.pop())
        for name in insert.inputs if insert else ():
            read = makes[name].id if name in makes else name
            if read not in found:
                found.add(read)
                open_.append(read)
    return found
