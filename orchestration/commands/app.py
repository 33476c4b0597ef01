"""The `tidegate` command with all of its commands."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from tidegate.orchestration.commands import demo, explain, held, maintain, quarantine, report, run, status, ui, verify

app = typer.Typer(
    name="tidegate",
    help="Joins streams to tables that are still loading, and never lets a row through early.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    add_completion=True,
)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"tidegate {version('tidegate')}")
        raise typer.Exit


@app.callback()
def _options(
    asked: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None: ...


app.command(epilog=demo.EPILOG)(demo.demo)
app.command(epilog=run.EPILOG)(run.run)
app.command(epilog=explain.EPILOG)(explain.explain)
app.command(epilog=status.EPILOG)(status.status)
app.command(epilog=verify.VERIFY_EPILOG)(verify.verify)
app.command(epilog=verify.RECONCILE_EPILOG)(verify.reconcile)
app.command(epilog=report.EPILOG)(report.report)
app.command(epilog=ui.EPILOG)(ui.ui)
app.command(epilog=maintain.EPILOG)(maintain.maintain)
app.command(epilog=held.RELEASE_EPILOG)(held.release)
app.command(epilog=held.DISCARD_EPILOG)(held.discard)
app.add_typer(quarantine.app, name="quarantine")
