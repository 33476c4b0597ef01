"""A real MySQL server without root: Debian's packages, unpacked into a folder, run by their own loader.

apt fetches them, and checks their signatures by Debian's own keys; the machine's packages stay as they are.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql

from tidegate.pipelines.jars import home
from tidegate.pipelines.sources.mysql_cdc.server import WatchedProcess, free_ports

KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
NOT_RUN = ("perl", "libperl", "libgdbm", "libdb5", "openssl-provider", "libc-gconv")
"""Packages that the server's depend on, and that it does not need to run."""


def archive(apt: Path = Path("/etc/apt")) -> str:
    """The address of Debian's archive, as the machine's own sources name it."""
    for path in sorted([apt / "sources.list", *apt.glob("sources.list.d/*")]):
        found = re.search(_ARCHIVE, path.read_text(), re.MULTILINE) if path.is_file() else None
        if found:
            return found[1]
    raise AssertionError(f"no source below {apt} names Debian's archive (https://…/debian)")


_ARCHIVE = r"^(?:URIs:|deb(?: \[[^]]*\])?) +(?:\S+ +)*?(https?://\S+/debian)/?(?=\s|$)"


def installed() -> Path:
    """The folder that holds the packages' files (256 MB), fetched (48 MB) where it is not there yet."""
    root = home() / "tests" / "mysql"
    if root.exists():
        return root
    root.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root.parent) as made:
        folder = Path(made)
        for name in ("lists/partial", "cache/archives/partial", "debs", "root"):
            (folder / name).mkdir(parents=True)
        (folder / "sources.list").write_text(f"deb [signed-by={KEYS}] {archive()} sid main\n")
        found = _apt(folder, "cache", "depends", "--recurse", *(f"--no-{kind}" for kind in _WEAK), "mysql-server-core")
        packages = {line for line in found.splitlines() if line[:1].isalpha() and not line.startswith(NOT_RUN)}
        _apt(folder, "get", "download", *sorted(packages))
        for package in sorted((folder / "debs").glob("*.deb")):
            subprocess.run(["dpkg", "-x", package, folder / "root"], check=True)
        with contextlib.suppress(OSError):  # another test run was as quick
            (folder / "root").rename(root)
    return root


_WEAK = ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")


def _apt(folder: Path, tool: str, *arguments: str) -> str:
    settings = {
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": folder / "lists",
        "Dir::Cache": folder / "cache",
        "APT::Sandbox::User": "root",
    }
    options = [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]
    if not any((folder / "lists").glob("*Packages*")):
        subprocess.run(["apt-get", *options, "update", "-qq"], check=True)
    ran = subprocess.run(
        [f"apt-{tool}", *options, *arguments], check=True, cwd=folder / "debs", stdout=subprocess.PIPE, text=True
    )
    return ran.stdout


@dataclass(frozen=True)
class MysqlServer:
    """A server that runs; root comes in through its socket."""

    port: int
    socket: Path
    host: str = "127.0.0.1"

    def connect(self, **settings: Any) -> pymysql.connections.Connection:
        """A connection as root, in autocommit."""
        return pymysql.connect(
            unix_socket=str(self.socket), user="root", autocommit=True, ssl_disabled=True, **settings
        )

    def execute(self, *statements: str, database: str | None = None) -> tuple[tuple[Any, ...], ...]:
        """Run statements as root and return the rows of the last one."""
        with contextlib.closing(self.connect(database=database)) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement.replace("SHOW MASTER STATUS", "SHOW BINARY LOG STATUS"))
            return tuple(cursor.fetchall()) if cursor.description else ()


@contextlib.contextmanager
def running(folder: Path, *options: str) -> Iterator[MysqlServer]:
    """A server with its data in `folder`; what was there before is gone on with."""
    root = installed()
    libraries, share, data = root / "usr/lib/x86_64-linux-gnu", root / "usr/share/mysql", folder / "data"
    sockets = Path(tempfile.mkdtemp(prefix="tidegate-", dir="/tmp"))  # a path there is short enough for a socket
    server = MysqlServer(free_ports("127.0.0.1", 1)[0], sockets / "mysql.sock")
    command = [
        *(f"{libraries}/ld-linux-x86-64.so.2", "--library-path", str(libraries), f"{root}/usr/sbin/mysqld"),
        *("--no-defaults", f"--basedir={root}/usr", f"--datadir={data}", f"--lc-messages-dir={share}"),
        *(f"--character-sets-dir={share}/charsets", f"--plugin-dir={root}/usr/lib/mysql/plugin", "--user=root"),
        "--secure-file-priv=",
    ]
    if not data.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "made.log").open("wb") as log:
            subprocess.run([*command, "--initialize-insecure"], check=True, stdout=log, stderr=log)
    command += [f"--port={server.port}", f"--bind-address={server.host}", f"--socket={server.socket}"]
    command += ["--mysqlx=OFF", "--server-id=1", "--binlog-row-metadata=FULL", f"--pid-file={sockets}/pid"]
    command += ["--gtid-mode=ON", "--enforce-gtid-consistency=ON", *options]
    process = WatchedProcess(command, folder / "server.log", farewell="TERM", temporary=sockets)
    try:
        for _ in range(1200):
            with contextlib.suppress(pymysql.err.OperationalError):
                server.connect().close()
                break
            assert process.running, (folder / "server.log").read_text()
            time.sleep(0.1)
        yield server
    finally:
        process.kill()
        shutil.rmtree(sockets, ignore_errors=True)
