"""`tidegate ui`: Dagster on a lake."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Annotated
from urllib.parse import quote, urlsplit

import typer

from tidegate.orchestration.commands.options import Debug, DemoFolder, LakePath, asked_to_end, examples
from tidegate.orchestration.console.bars import Bars
from tidegate.orchestration.console.screen import Screen, reported
from tidegate.orchestration.demo.site import DEFAULT_DEMO
from tidegate.pipelines.commands import DEFAULT_LAKE

EPILOG = examples(
    "tidegate ui --demo",
    "tidegate ui pipeline.sql",
    "tidegate ui clicks.sql orders.sql --lake /data/lake --port 3001",
)


def ui(
    scripts: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[SCRIPT]...", exists=True, dir_okay=False, help="The pipelines to show.", show_default=False
        ),
    ] = None,
    lake: LakePath = DEFAULT_LAKE,
    demo: Annotated[bool, typer.Option("--demo", help="Open the demo's lake, with its database running.")] = False,
    folder: DemoFolder = DEFAULT_DEMO,
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Where the UI listens.")] = 3000,
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    docs_port: Annotated[
        int | None,
        typer.Option(
            "--docs-port",
            min=0,
            max=65535,
            help="Where Data Docs are served, on this machine alone; 0: any port that is free.",
            show_default="the UI's port + 1",
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Open Dagster on a lake: assets, checks, metadata, history, and a button to materialise.

    Its own history is kept beside the lake. Schedules and alerts run as long as this command does.
    """
    from tidegate.assets.checks import DOCS_VARIABLE
    from tidegate.orchestration.web_server import serving
    from tidegate.pipelines.jars import java
    from tidegate.pipelines.lake import Layout
    from tidegate.quality_checks.docs import QUALITY

    screen = Screen(debug=debug)
    with reported(screen), contextlib.ExitStack() as stack:
        java()  # a run needs it: better said now than by the first one
        _require_free(host, port)
        if demo:
            from tidegate.orchestration.demo.site import Site
            from tidegate.orchestration.demo.stage import reopened

            stack.enter_context(reopened(Site(folder), stack.enter_context(Bars(screen.err))))
        else:
            os.environ["TIDEGATE_LAKE"] = str(lake.absolute())
            os.environ.setdefault("DAGSTER_HOME", str(lake.absolute().parent / "dagster"))
            if scripts:
                os.environ["TIDEGATE_SCRIPT"] = os.pathsep.join(str(script.absolute()) for script in scripts)
        address = address_of(host, port)
        os.environ["TIDEGATE_DAGSTER_URL"] = linked(os.environ.get("TIDEGATE_DAGSTER_URL", ""), address)
        if DOCS_VARIABLE not in os.environ:
            pages = Path(Layout(os.environ["TIDEGATE_LAKE"]).root / QUALITY)
            chosen = port + 1 if docs_port is None else docs_port
            os.environ[DOCS_VARIABLE] = stack.enter_context(serving(pages, chosen))
        graphs = [graph(address, name) for name in (["clicks"] if demo else [each.stem for each in scripts or ()])]
        _serve(screen, host, port, graphs[0] if len(graphs) == 1 else f"{address}/asset-groups")


def address_of(host: str, port: int) -> str:
    """Where a browser of this machine finds what listens on `host`, which may stand for every address."""
    here = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{here}]' if ':' in here else here}:{port}"


def linked(given: str, address: str) -> str:
    """Where links in alerts point to: to this very server, unless people reach it by another machine's address."""
    here = urlsplit(given).hostname in (None, "localhost", "127.0.0.1", "::1")
    return address if here else given


def graph(address: str, pipeline: str) -> str:
    """The page with the graph of a pipeline's assets."""
    from tidegate.assets.names import identifier

    return f"{address}/locations/tidegate/asset-groups/{quote(identifier(pipeline))}/lineage"


def _require_free(host: str, port: int) -> None:
    from tidegate.pipelines.errors import TidegateError

    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise TidegateError(
                f"port {port} cannot be used: {(error.strerror or str(error)).lower()}",
                where=f"{host}:{port}",
                state="nothing was started",
                next_command="give another one: tidegate ui --port 3001   (or with make: make ui ARGS='--port 3001')",
            ) from error


def _serve(screen: Screen, host: str, port: int, page: str) -> None:
    from tidegate.orchestration.web_server import prepare

    workspace = prepare(Path(os.environ["DAGSTER_HOME"]))
    command = [sys.executable, "-m", "dagster", "dev", "-w", str(workspace)]
    command += ["--host", host, "--port", str(port), "--log-level", "warning"]
    # Dagster's own notices for those who write code against it are nothing for those who look at a lake.
    quiet = {"PYTHONWARNINGS": "ignore", **os.environ}
    process: subprocess.Popen[bytes] | None = None

    def leave() -> None:
        if process is not None:
            process.send_signal(signal.SIGINT)

    # A child ignores what its parent ignores, as a command of the background does SIGINT; what is handled here does in
    # the child what it does by itself.
    with asked_to_end(leave):
        # In a session of its own it is ended by us, once, and not by the terminal's Ctrl-C as well.
        process = subprocess.Popen(command, start_new_session=True, env=quiet)
        screen.say(f"Dagster: {page}   (ready in some seconds; Ctrl-C ends it)")
        if host in ("", "0.0.0.0", "::"):
            screen.say(f"         from other machines: http://{socket.gethostname()}:{port}{urlsplit(page).path}")
        status = process.wait()
    if status > 0:
        raise typer.Exit(1)
