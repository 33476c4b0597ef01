"""What a run of the demo will download, make and reuse, said before it begins."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

from orchestration.demo.site import Site
from pipelines.jars import DELTA, KAFKA, home
from pipelines.sources.mysql_cdc.server_install import ARCHIVE


def announce(site: Site, say: Callable[[str], None]) -> None:
    """Say it."""
    missing = [coordinate.split(":")[1] for coordinate in (DELTA, *KAFKA[:1]) if not _have(coordinate)]
    if not _own_server() and not _have(ARCHIVE):
        missing.append("a MariaDB server (149 MB)")
    if missing:
        say(f"The first run downloads {', '.join(missing)} into {home()}: about 200 MB, 1 to 2 minutes, once.")
    if site.database.exists():
        say(f"Using the database server in {site.database} again; user_info, the lake and its history are made anew.")
    say(f"Everything of the demo lies in {site.root}; remove that folder to be rid of it.")


def _have(coordinate: str) -> bool:
    return (home() / "jars" / coordinate.replace(":", "_")).exists()


def _own_server() -> bool:
    return bool(os.environ.get("TIDEGATE_MARIADBD") or shutil.which("mariadbd"))
