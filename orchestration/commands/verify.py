"""`tidegate verify`: recompute every published row from its pins, and compare."""

from __future__ import annotations

from typing import Annotated

import typer

from tidegate.orchestration.commands.options import (
    AsJson,
    Debug,
    LakePath,
    Master,
    Script,
    examples,
    screen_of,
)
from tidegate.orchestration.commands.run import session
from tidegate.orchestration.console.bars import Bars
from tidegate.orchestration.console.screen import reported
from tidegate.pipelines.commands import DEFAULT_LAKE

EPILOG = examples(
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
    from tidegate.orchestration.console.views import of_reports, report_lines
    from tidegate.pipelines.lake import Lake
    from tidegate.pipelines.runtime.scripts import load_script
    from tidegate.pipelines.runtime.verifying.verify import verify as recompute

    screen = screen_of(script, lake, as_json, debug)
    with reported(screen):
        pipeline = load_script(script)
        known = [insert.id for insert in pipeline.inserts]
        for name in inserts or []:
            if name not in known:
                raise typer.BadParameter(f"the script has no INSERT {name}; it has {', '.join(known)}")
        folder = Lake(lake, create=False)
        processes = [insert.id for insert in pipeline.inserts if insert.process is not None]
        wanted = inserts or [name for name in known if name not in processes] or known
        left_out = [name for name in processes if name not in wanted]
        with Bars(screen.err) as bars:
            spark = session(lake, master, bars)
            reports = [recompute(pipeline, folder, spark, name, bars) for name in wanted]
        screen.result(of_reports(reports) | {"not_recomputed": left_out}, *report_lines(reports, left_out))
    if not all(report.passed for report in reports):
        raise typer.Exit(1)
