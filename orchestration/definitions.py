"""The code location that `tidegate ui`, `dg dev` and workspace.yaml open.

$TIDEGATE_SCRIPT names scripts (several are joined by `:`), and $TIDEGATE_LAKE their lake. Without the first, the
components in orchestration/defs are loaded: the clicks example, and whatever you put beside it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import dagster as dg

from tidegate.assets.components import LAKE_VARIABLE
from tidegate.assets.factories import location_definitions, on_lake
from tidegate.assets.presentation import Partitions, Presentation, since
from tidegate.orchestration.sensors import ALERTS
from tidegate.pipelines.commands import common_lake
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.runtime.scripts import load_script

SCRIPT_VARIABLE = "TIDEGATE_SCRIPT"
PARTITIONS_FROM = "TIDEGATE_PARTITIONS_FROM"
PARTITIONS_EVERY = "TIDEGATE_PARTITIONS_EVERY"
TIMEZONE = "TIDEGATE_TIMEZONE"
AUTOMATION = "TIDEGATE_AUTOMATION"


def scripts(environment: Mapping[str, str] = os.environ) -> list[Path]:
    """The scripts that $TIDEGATE_SCRIPT names, if it names any."""
    return [Path(part).absolute() for part in environment.get(SCRIPT_VARIABLE, "").split(os.pathsep) if part]


def lake_of(paths: list[Path], environment: Mapping[str, str] = os.environ) -> Path:
    """The lake of these scripts: $TIDEGATE_LAKE, else the one beside them.

    Raises PlanningError where none is named and they lie in several folders.
    """
    if named := environment.get(LAKE_VARIABLE):
        return Path(named)
    found = common_lake(paths)
    if found is None:
        raise PlanningError(
            f"the scripts lie in several folders, and ${LAKE_VARIABLE} does not name their lake",
            where=", ".join(map(str, paths)),
            state="nothing was loaded",
            next_command=f"export {LAKE_VARIABLE}=DIR",
        )
    return found


def spans(environment: Mapping[str, str] = os.environ) -> Partitions | None:
    """The spans of time that event-time outputs can be backfilled by, if $TIDEGATE_PARTITIONS_FROM says since when.

    Raises PlanningError where the variables cannot be read.
    """
    text, every = environment.get(PARTITIONS_FROM, ""), environment.get(PARTITIONS_EVERY, "") or "day"
    if not text:
        return None
    try:
        start = since(text, environment.get(TIMEZONE, "") or "UTC")
    except ValueError as error:
        raise _unread(PARTITIONS_FROM, text, "a day or a moment, such as 2024-01-31") from error
    match every:
        case "hour" | "day" | "week" | "month":
            return Partitions(start, every)
        case _:
            raise _unread(PARTITIONS_EVERY, every, "hour, day, week or month")


def _unread(variable: str, value: str, form: str) -> PlanningError:
    return PlanningError(
        f"${variable} is {value!r}, which is not {form}",
        state="nothing was loaded",
        next_command=f"export {variable}=…   (or unset it)",
    )


def of_scripts(paths: list[Path], lake: Path, look: Presentation | None = None) -> dg.Definitions:
    """The definitions of scripts on one lake, as the code location shows them."""
    look = look or Presentation()
    found = [on_lake(load_script(path), lake=lake, look=replace(look, script=path)) for path in paths]
    return with_alerts(location_definitions(found))


def with_alerts(definitions: dg.Definitions) -> dg.Definitions:
    """`definitions`, the alerts, and one process per run: the Spark steps of a run share a session."""
    there = {sensor.name for sensor in definitions.sensors or ()}
    own = [sensor for sensor in ALERTS if sensor.name not in there]
    return dg.Definitions.merge(definitions, dg.Definitions(sensors=own, executor=dg.in_process_executor))


def of_folder(folder: Path) -> dg.Definitions:
    """The components of the project that `folder` lies in. Raises PlanningError where there is no project."""
    if not any((parent / "pyproject.toml").exists() for parent in (folder, *folder.parents)):
        raise PlanningError(
            "there is no pipeline to show",
            where=f"${SCRIPT_VARIABLE} is not set, and Tidegate runs as an installed package here",
            state="nothing was loaded",
            next_command=f"tidegate ui SCRIPT   (or: export {SCRIPT_VARIABLE}=pipeline.sql)",
        )
    return dg.load_from_defs_folder(path_within_project=folder)


def chosen(environment: Mapping[str, str] = os.environ) -> Presentation:
    """How the scripts appear, by the environment. Raises PlanningError where a variable cannot be read."""
    automation = environment.get(AUTOMATION, "") or "0"
    if automation not in ("0", "1"):
        raise _unread(AUTOMATION, automation, "0 or 1")
    return Presentation(
        partitions=spans(environment), timezone=environment.get(TIMEZONE, "") or "UTC", automation=automation == "1"
    )


@dg.definitions
def defs() -> dg.Definitions:
    """What this code location holds."""
    named = scripts()
    if named:
        return of_scripts(named, lake_of(named), chosen())
    return with_alerts(of_folder(Path(__file__).parent))
