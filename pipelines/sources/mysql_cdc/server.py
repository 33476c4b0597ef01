"""An embedded MariaDB for demos and tests: a real server on loopback, in a folder of its own, without root.

    with EmbeddedMariaDb(Path(".tidegate/mariadb")) as server:
        with server.connect() as connection: ...

The server dies with the process that started it, in good order where there is time
(`WatchedProcess`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import pymysql
from pymysql.connections import Connection

from tidegate.pipelines.progress import Progress
from tidegate.pipelines.sources.mysql_cdc.connection import Client
from tidegate.pipelines.sources.mysql_cdc.server_install import (
    Installation,
    ServerUnavailable,
    explain,
    find_installation,
    require_space,
    template,
)
from tidegate.pipelines.syntax.types import quoted

# The read ends when the owner has gone, however it went.
_WATCHDOG = 'read -r _; kill -"$1" "$2" 2>/dev/null; [ -z "$3" ] || rm -rf -- "$3"'


class WatchedProcess:
    """A child process in a session of its own, so that a Ctrl-C for its owner does not end it.

    A watchdog waits at the end of a pipe that only the owner holds. When the owner has gone it sends `farewell` to the
    process, and takes the folder `temporary` away.

    Args:
        command: What to run.
        log: Where its output goes, from the file's beginning.
        held: File descriptors that it inherits.

    Raises OSError for a program that cannot be run.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        farewell: Literal["TERM", "KILL"],
        temporary: Path | None = None,
        held: Sequence[int] = (),
    ) -> None:
        self._temporary = temporary
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                pass_fds=held,
            )
        self._watchdog = subprocess.Popen(
            ["sh", "-c", _WATCHDOG, "sh", farewell, str(self._process.pid), str(temporary or "")],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def stop(self, seconds: float) -> None:
        """Ask it to end; one that has not gone after `seconds` is killed."""
        if self.running:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
        self.kill()

    def kill(self) -> None:
        """SIGKILL, and let go of the watchdog and of `temporary`. May be called again."""
        if self.running:
            self._process.kill()
            self._process.wait()
        self._watchdog.kill()
        self._watchdog.communicate()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)


def free_ports(host: str, number: int) -> list[int]:
    """Ports of `host` that nothing listens on now; another program may take them first."""
    held = [socket.socket() for _ in range(number)]
    try:
        for probe in held:
            probe.bind((host, 0))
        return [int(probe.getsockname()[1]) for probe in held]
    finally:
        for probe in held:
            probe.close()


Option = str | int | bool | Path | None

DEFAULT_OPTIONS: Mapping[str, Option] = {
    "server_id": 1,
    "log_bin": "binlog",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "binlog_row_metadata": "FULL",
    "character_set_server": "utf8mb4",
    "default_time_zone": "+00:00",
    "max_connections": 200,
    "max_allowed_packet": "64M",
    "skip_name_resolve": True,
    # Made-up certificates would cost 6 s at every start; the server listens on loopback only.
    "skip_ssl": True,
    # A killed server loses nothing by these two, only a machine that loses power would.
    "innodb_flush_log_at_trx_commit": 2,
    "sync_binlog": 0,
    "innodb_buffer_pool_size": "128M",
    "innodb_log_file_size": "64M",
    "innodb_buffer_pool_dump_at_shutdown": False,
    "innodb_buffer_pool_load_at_startup": False,
    "performance_schema": False,
}
_START_SECONDS = 60.0
_STOP_SECONDS = 60.0
_LOCK_SECONDS = 15.0
_DATA_BYTES = 150 * 2**20
_PORT_TRIES = 3


class EmbeddedMariaDb:
    """One server. `options` are laid over DEFAULT_OPTIONS; None takes a default away, True is a bare switch.

    `directory` holds `data/` and `mariadb.log`; an existing one is started again with its data.
    `port` None means a free one. `.port` and `.socket` are known once it has started.
    """

    def __init__(
        self,
        directory: Path | str,
        *,
        options: Mapping[str, Option] | None = None,
        port: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.directory = Path(directory).absolute()
        self.host = "127.0.0.1"
        self.log = self.directory / "mariadb.log"
        self._options = {**DEFAULT_OPTIONS, **(options or {})}
        self._wanted_port = port
        self._port: int | None = None
        self._installation: Installation | None = None
        self._progress = progress
        self._process: WatchedProcess | None = None
        self._run: Path | None = None
        self._lock: int | None = None

    def __enter__(self) -> EmbeddedMariaDb:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def port(self) -> int:
        """The TCP port. Raises ServerUnavailable before the first start."""
        if self._port is None:
            raise self._not_running()
        return self._port

    @property
    def socket(self) -> str:
        """The path of the unix socket. Raises ServerUnavailable when the server does not run."""
        if self._run is None:
            raise self._not_running()
        return str(self._run / "s")

    @property
    def pid(self) -> int:
        """The server's process id. Raises ServerUnavailable when it does not run."""
        if self._process is None:
            raise self._not_running()
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.running

    @property
    def installation(self) -> Installation:
        """The program that is run; found, or downloaded, at first need."""
        if self._installation is None:
            self._installation = find_installation(self._progress)
        return self._installation

    def start(self) -> EmbeddedMariaDb:
        """Start and wait until a connection is answered. Does nothing if it runs. Raises ServerUnavailable.

        A server that was stopped comes back on the port it had.
        """
        if self.running:
            return self
        self._clear()
        self.directory.mkdir(parents=True, exist_ok=True)
        self._take_lock()
        self._prepare()
        wanted = self._port or self._wanted_port
        for attempt in range(_PORT_TRIES):
            self._port = wanted or free_ports(self.host, 1)[0]
            try:
                self._wait(self._launch())
                return self
            except ServerUnavailable as error:
                self._end_process()
                # Between choosing a free port and taking it another program may have been quicker.
                if wanted is not None or attempt + 1 == _PORT_TRIES or "port is taken" not in error.what:
                    self._port = None
                    self._clear()
                    raise
        raise AssertionError("unreachable")

    def stop(self) -> None:
        """Shut down in good order; a server that does not go within a minute is killed."""
        if self._process is not None:
            self._process.stop(_STOP_SECONDS)
        self._clear()

    def kill(self) -> None:
        """SIGKILL, as a crash would do; `start` then recovers from what is on disk."""
        self._clear()

    def connect(self, **settings: Any) -> Connection:
        """A pymysql connection, by default as root through the unix socket, in autocommit.

        `settings` go to pymysql.connect; naming a `user` other than root goes over TCP as any client would.
        """
        chosen: dict[str, Any] = {"charset": "utf8mb4", "autocommit": True, **settings}
        if "host" not in chosen and chosen.get("user", "root") == "root":
            chosen.update(user="root", unix_socket=self.socket, ssl_disabled=True)
        else:
            chosen.setdefault("host", self.host)
            chosen.setdefault("port", self.port)
        return Client(**chosen)

    def execute(self, *statements: str, database: str | None = None) -> tuple[tuple[Any, ...], ...]:
        """Run statements as root, each in autocommit, and return the rows of the last one."""
        with contextlib.closing(self.connect(database=database)) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return tuple(cursor.fetchall())

    def create_user(self, name: str, password: str, *, database: str | None = None) -> None:
        """A user that comes in over TCP and has what the connector needs: reading `database` (all), and the binlog."""
        scope = f"{quoted(database)}.*" if database else "*.*"
        with contextlib.closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE OR REPLACE USER %s@'127.0.0.1' IDENTIFIED BY %s", (name, password))
            cursor.execute(f"GRANT SELECT ON {scope} TO %s@'127.0.0.1'", (name,))
            cursor.execute("GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO %s@'127.0.0.1'", (name,))

    def _take_lock(self) -> None:
        """Hold the directory until the server itself has gone, which may be after its owner: it inherits the lock."""
        self._lock = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        end = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError as error:
                if time.monotonic() > end:
                    self._clear()
                    raise explain("Unable to lock", where=str(self.directory)) from error
                time.sleep(0.1)

    def _prepare(self) -> None:
        data = self.directory / "data"
        if data.exists():
            return
        require_space(self.directory, _DATA_BYTES)
        made = self.directory / "data.new"
        shutil.rmtree(made, ignore_errors=True)  # of a start that was interrupted
        shutil.copytree(template(self.installation, self._progress), made)
        made.rename(data)

    def _launch(self) -> WatchedProcess:
        # A path in a deep folder would be longer than the 107 bytes that a unix socket may have.
        self._run = Path(tempfile.mkdtemp(prefix="tidegate-", dir="/tmp" if Path("/tmp").is_dir() else None))
        temporary = self.directory / "tmp"
        temporary.mkdir(exist_ok=True)
        settings = {
            **self._options,
            "bind_address": self.host,
            "port": self.port,
            "socket": self.socket,
            # A server that starts removes the temporary tables that lie there, also those of one that runs.
            "tmpdir": temporary,
        }
        command = [*self.installation.command(self.directory / "data"), *_arguments(settings)]
        held = [self._lock] if self._lock is not None else []
        try:
            self._process = WatchedProcess(command, self.log, farewell="TERM", temporary=self._run, held=held)
        except OSError as error:
            raise explain(str(error), where=command[0]) from error
        return self._process

    def _wait(self, process: WatchedProcess) -> None:
        end = time.monotonic() + _START_SECONDS
        while time.monotonic() < end:
            if not process.running:
                raise explain(self.log.read_text(errors="replace"), where=str(self.log))
            try:
                self.connect(connect_timeout=5).close()
                return
            except pymysql.err.OperationalError:
                time.sleep(0.05)
        raise ServerUnavailable(
            f"the MariaDB server was not ready after {_START_SECONDS:.0f} s",
            where=str(self.log),
            state="it was stopped again; its data is kept",
            next_command="read the log named above and run the same command again",
        )

    def _end_process(self) -> None:
        """SIGKILL, and let go of the watchdog and the socket's folder."""
        if self._process is not None:
            self._process.kill()
            self._process = None
        if self._run is not None:
            shutil.rmtree(self._run, ignore_errors=True)
            self._run = None

    def _clear(self) -> None:
        """Let go of everything of a server that does not run any more."""
        self._end_process()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _not_running(self) -> ServerUnavailable:
        return ServerUnavailable(
            "the MariaDB server does not run", where=str(self.directory), next_command="call start() first"
        )


def _arguments(settings: Mapping[str, Option]) -> list[str]:
    arguments = []
    for name, value in settings.items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            arguments.append(flag)
        elif value is False:
            arguments.append(f"{flag}=OFF")
        elif value is not None:
            arguments.append(f"{flag}={value}")
    return arguments
