"""`tidegate verify`: every published row recomputed from its pins, and compared; `tidegate reconcile`: a build table in
the lake against the source's own table."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Annotated

import typer

from tidegate.orchestration.commands.options import (
    AsJson,
    Debug,
    LakePath,
    Master,
    Script,
    examples,
    insert_of,
    patience,
    screen_of,
    stored_pipeline,
)
from tidegate.orchestration.commands.runner import runner, session
from tidegate.orchestration.console.bars import Bars
from tidegate.orchestration.console.screen import FAILED, reported
from tidegate.pipelines.commands import DEFAULT_LAKE

VERIFY_EPILOG = examples(
    "tidegate verify pipeline.sql",
    "tidegate verify pipeline.sql --insert enriched_click",
    "tidegate verify pipeline.sql --json",
)


def verify(
    script: Script,
    lake: LakePath = DEFAULT_LAKE,
    inserts: Annotated[
        list[str] | None,
        typer.Option("--insert", metavar="INSERT", help="Only this one; may be repeated.", show_default="all"),
    ] = None,
    master: Master = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Recompute every published epoch from its pins by plain window SQL, and report what differs.

    Shares no code with the join, changes nothing and needs no source. Leaves with status 1 where something differs.
    Rows that have passed out of retention are reported as such, never as equal. A process cannot be recomputed epoch by
    epoch: it is named and left out, and an error where nothing else is asked for.
    """
    from tidegate.pipelines.clock import system_clock
    from tidegate.pipelines.facts.problems import differing
    from tidegate.pipelines.facts.verification import Verification
    from tidegate.pipelines.lake import Lake
    from tidegate.pipelines.runtime.scripts import load_script
    from tidegate.pipelines.runtime.verifying.verify import verify as recompute

    screen = screen_of(script, lake, as_json, debug)
    with reported(screen):
        pipeline = load_script(script)
        for name in inserts or []:
            insert_of(pipeline, name)
        folder = Lake(lake, create=False)
        processes = [insert.id for insert in pipeline.processes]
        wanted = inserts or [insert.id for insert in pipeline.inserts if insert.id not in processes] or processes
        left_out = [name for name in processes if name not in wanted]
        with Bars(screen.err) as bars:
            spark = session(lake, master, bars)
            reports = [recompute(pipeline, folder, spark, name, bars) for name in wanted]
        differ = [differing(folder, report, system_clock(), pipeline.name) for report in reports]
        found = Verification(tuple(reports), tuple(left_out), tuple(item for item in differ if item is not None))
        screen.result(found)
    if found.problems:
        raise typer.Exit(FAILED)


RECONCILE_EPILOG = examples(
    "tidegate reconcile pipeline.sql",
    "tidegate reconcile pipeline.sql --table user_info",
    "tidegate reconcile pipeline.sql --json",
)


def reconcile(
    script: Script,
    lake: LakePath = DEFAULT_LAKE,
    tables: Annotated[
        list[str] | None,
        typer.Option(
            "--table", metavar="TABLE", help="Only this one; may be repeated.", show_default="all that can be compared"
        ),
    ] = None,
    wait: Annotated[
        timedelta,
        typer.Option(
            "--wait", parser=patience, metavar="DURATION", help="How long to wait for another runner to land the rows."
        ),
    ] = "5 min",  # type: ignore[assignment]
    master: Master = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Read build tables again at their source, and compare them with the lake at a known place of the source's log.

    Both sides are read by Spark, as checksums first, then down to the keys that differ. What the source has that has
    not landed yet is landed first; nothing else changes. Leaves with status 1 where a key differs. Tables of mysql-cdc
    with a snapshot can be compared.
    """
    from tidegate.pipelines.connectors.registry import comparable
    from tidegate.pipelines.connectors.table import require_variables
    from tidegate.pipelines.lake import Lake
    from tidegate.pipelines.runtime.scripts import load_script
    from tidegate.quality_checks.against_source import reconcile as compared

    screen = screen_of(script, lake, as_json, debug)
    with reported(screen):
        pipeline = load_script(script)
        known = [table.name for table in comparable(pipeline.sources)]
        for name in tables or []:
            if name not in known:
                changed = f"those that can be are {', '.join(known)}" if known else "none of this script can be"
                raise typer.BadParameter(f"{name} cannot be compared with its source; {changed}")
        if not known:
            raise typer.BadParameter("no build table of this script can be compared with its source (mysql-cdc can)")
        wanted = tables or known
        require_variables({name: pipeline.table(name).options for name in wanted}, os.environ)
        pipeline = stored_pipeline(screen, pipeline, Lake(lake, create=False))
        with Bars(screen.err) as bars, runner(pipeline, lake, master, bars, "tidegate reconcile") as active:
            result = compared(active, wanted, wait.total_seconds())
        screen.result(result)
        if result.stopped is not None and not as_json:
            raise result.stopped
    if not result.passed:
        raise typer.Exit(FAILED)
