"""`tidegate maintain`: retention, OPTIMIZE and VACUUM."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidegate.orchestration.commands.options import (
    AsJson,
    Debug,
    LakePath,
    Master,
    Script,
    duration,
    examples,
    screen_of,
)
from tidegate.orchestration.commands.run import runner
from tidegate.orchestration.console.bars import Bars
from tidegate.orchestration.console.screen import reported
from tidegate.pipelines.commands import DEFAULT_LAKE

if TYPE_CHECKING:
    from tidegate.pipelines.runtime.maintenance import Maintained

EPILOG = examples("tidegate maintain pipeline.sql", "tidegate maintain pipeline.sql --keep '1 d'")


def maintain(
    script: Script,
    lake: LakePath = DEFAULT_LAKE,
    keep: Annotated[
        timedelta,
        typer.Option(parser=duration, metavar="DURATION", help="Files that a version younger than this names stay."),
    ] = "7 d",  # type: ignore[assignment]
    master: Master = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Let rows go ('changelog.retention', 'landed.retention', 'quarantine.retention'), put small files together, and
    free the disk of dead ones.

    No row that anybody can still ask for changes. What another runner works on is passed over, and named.
    """
    from tidegate.pipelines.lake import Lake
    from tidegate.pipelines.runtime.scripts import load_script

    screen = screen_of(script, lake, as_json, debug)
    with reported(screen):
        pipeline = load_script(script)
        Lake(lake, create=False)
        with (
            Bars(screen.err) as bars,
            runner(pipeline, lake, master, bars, "tidegate maintain") as active,
        ):
            found = active.maintenance(keep).run()
        of_tables = {"tables": [_table(item) for item in found], "freed": sum(item.freed for item in found)}
        screen.result(of_tables, *(f"{item.name}: {_result(item)}" for item in found))


def _table(item: Maintained) -> dict[str, Any]:
    """The same as JSON values; sizes in bytes."""
    retained = item.retained
    what, number = (retained.what, retained.removed) if retained else ("", None)
    return {
        "table": item.name,
        "skipped": item.skipped or None,
        "files_before": item.files_before,
        "files": item.files_after,
        "files_removed": sum(part.removed for part in item.tidied),
        "freed": item.freed,
        "versions": retained.examined if retained and what == "old versions" else None,
        "versions_removed": number if what == "old versions" else None,
        "landed_rows_removed": number if what == "landed rows" else None,
        "quarantined_rows_removed": number if what == "quarantined rows" else None,
        "nothing_removed_because": None if retained is None else retained.reason or None,
        "note": item.note,
    }


def _result(item: Maintained) -> str:
    if item.skipped:
        return f"passed over, {item.skipped}"
    parts = [f"{item.files_before:,} files, now {item.files_after:,}", f"{item.freed / 1e6:,.1f} MB freed"]
    if item.retained is not None:
        parts.append(
            f"{item.retained.removed:,} {item.retained.what} gone" if item.retained.removed else item.retained.reason
        )
    parts += [item.note] if item.note else []
    return ", ".join(parts)
