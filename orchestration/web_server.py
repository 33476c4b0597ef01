"""How Dagster's web server is set up: the DAGSTER_HOME of a lake, where Dagster stores its history and its settings;
and Data Docs over HTTP, as a browser follows no link from Dagster's page to a local file.

Of a lake only its `_quality` folder is served, on the loopback address. The pages hold values of rows; no script runs
in them.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tidegate.pipelines.errors import TidegateError
from tidegate.quality_checks.docs import POLICY

HOST = "127.0.0.1"


class _Pages(SimpleHTTPRequestHandler):
    """Files of one folder; no listings, so that nobody finds what no check links to."""

    def list_directory(self, path: Any) -> None:
        self.send_error(HTTPStatus.NOT_FOUND)

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")  # a page is renewed under its name
        # Pages of before say no policy of their own.
        self.send_header("Content-Security-Policy", f"{POLICY}; frame-ancestors 'none'")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def serving(folder: Path, port: int) -> Iterator[str]:
    """Serve `folder`, which may come into being later, as long as the block lasts. Gives its address.

    Raises TidegateError where the port is taken.
    """
    handler = functools.partial(_Pages, directory=str(folder))
    try:
        server = ThreadingHTTPServer((HOST, port), handler)
    except OSError as error:
        raise TidegateError(
            f"port {port} cannot be used for Data Docs: {(error.strerror or str(error)).lower()}",
            where=f"{HOST}:{port}",
            state="nothing was started",
            next_command="give another one: tidegate ui --docs-port 3005   (0: any that is free)",
        ) from error
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="tidegate-data-docs", daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


_SETTINGS = """\
telemetry:
  enabled: false
# The dialog that asks for an address, for news of Dagster.
nux:
  enabled: false
concurrency:
  runs:
    # Runs of one pipeline would wait for each other's leases, and each starts a Spark of its own.
    max_concurrent_runs: 1
run_monitoring:
  # Ends runs that do not start, or are not cancelled in time.
  enabled: true
  # Of pools with a limit, from steps that were killed.
  free_slots_after_run_end_seconds: 60
"""

_WORKSPACE = """\
load_from:
  - python_module:
      module_name: tidegate.orchestration.definitions
      location_name: tidegate
"""


def prepare(home: Path) -> Path:
    """Make the folder with its settings where they are missing; returns the workspace file that Dagster opens."""
    home.mkdir(parents=True, exist_ok=True)
    for name, text in (("dagster.yaml", _SETTINGS), ("workspace.yaml", _WORKSPACE)):
        if not (home / name).exists():
            (home / name).write_text(text, encoding="utf-8")
    return home / "workspace.yaml"
