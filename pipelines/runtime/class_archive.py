"""An archive of the classes that Spark loads when it starts, so that its JVM does not read and verify them one by one.

It is Java's own feature (class data sharing). The archive lies beside the jars; its name holds the Java, the Spark and
the jars that it was made with. `python -m tidegate.pipelines.runtime.class_archive` makes it, once. Java checks whether
an archive fits, and starts without one that does not; a damaged one is not used. Without an archive Spark starts
slower, nothing else.

A note beside it says what it belongs to, and on which machine: once one of its jars or its Java is gone or another, no
environment can use it, and the next archive that is made here removes it. One without a note stays.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from tidegate.pipelines.errors import TidegateError
from tidegate.pipelines.jars import home, java, release_of
from tidegate.pipelines.progress import SilentProgress
from tidegate.pipelines.runtime.engine import (
    QUIET,
    VARIABLE,
    archive_of,
    archived_from,
    digest_of,
    is_whole,
)
from tidegate.pipelines.runtime.session import class_path_of, own_jars, start_session

NOTE = ".json"
"""How the name of an archive's note ends."""
ENDS_WITHIN_S = 600
"""How long the JVM may take to write the archive."""


def make() -> Path:
    """The archive; made if it is missing or damaged: a session does a little of everything, and writes down at its end
    what it has loaded. Takes a minute, and 190 MB of disk. Raises TidegateError if no session starts, or no archive was
    written."""
    launcher, jars = java(), class_path_of(own_jars(SilentProgress()))
    path = archive_of(launcher, jars)
    if is_whole(path):
        return path
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.with_suffix(NOTE).write_text(json.dumps([socket.gethostname(), archived_from(launcher, jars)]))
    with tempfile.TemporaryDirectory(prefix=".made-", dir=path.parent) as work:
        made = Path(work) / "classes.jsa"
        os.environ[VARIABLE] = f'"-XX:ArchiveClassesAtExit={made}" {QUIET}'
        _exercise(Path(work))
        if not made.exists():
            own = Path(launcher).resolve().parents[1] / "lib" / "server" / "classes.jsa"
            mend = f"see that the disk of {home()} has 200 MB free" if own.exists() else f"{launcher} -Xshare:dump"
            raise TidegateError(
                "Java has written no archive of Spark's classes"
                + ("" if own.exists() else ", since it has none of its own classes, which that one goes on from"),
                where=str(path if own.exists() else own),
                state="runs start without it, some seconds later",
                next_command=f"{mend}   (and run the same command again)",
            )
        made.chmod(0o600)
        stamp = made.with_suffix(".sha256")
        stamp.write_text(digest_of(made))
        made.replace(path)
        stamp.replace(path.with_suffix(".sha256"))
    remove_unusable(path.parent)
    return path


def remove_unusable(folder: Path) -> None:
    """Remove the archives of a folder that no environment can use any more. A JVM that has mapped one keeps it."""
    for note in folder.glob(f"*{NOTE}"):
        if _is_unusable(note):
            for path in (note.with_suffix(".jsa"), note.with_suffix(".sha256"), note):
                path.unlink(missing_ok=True)


def _is_unusable(note: Path) -> bool:
    """Whether an archive is known to be of no use: it was made on this machine, of a Java or jars that are gone or
    others by now."""
    try:
        machine, (launcher, release, jars) = json.loads(note.read_text())
    except (OSError, ValueError):
        return False
    return machine == socket.gethostname() and not (release_of(launcher) == release and all(map(_is_there, jars)))


def _is_there(jar: tuple[str, int, int]) -> bool:
    path, size, time = jar
    try:
        found = Path(path).stat()
    except OSError:
        return False
    return (found.st_size, found.st_mtime_ns) == (size, time)


def _exercise(work: Path) -> None:
    """Start Spark, let it load what a run needs, and wait until its JVM has ended."""
    session = start_session(master="local[2]", log=work / "spark.log")
    gateway: Any = SparkContext._gateway
    rows = session.range(1000).selectExpr(
        "id", "id % 7 AS key", "CAST(id AS STRING) AS text", "current_timestamp() AS t"
    )
    rows.write.csv(str(work / "csv"), header=True)
    read = session.read.csv(str(work / "csv"), header=True, schema="id BIGINT, key INT, text STRING, t TIMESTAMP")
    read.mapInArrow(lambda batches: batches, read.schema).createOrReplaceTempView("rows")
    counted = session.sql("SELECT key, count(*) AS n, max(t) AS t FROM rows WHERE text <> '5' GROUP BY key")
    counted.write.format("delta").partitionBy("key").save(str(work / "table"))
    session.read.format("delta").load(str(work / "table")).join(rows.select("key"), "key").write.parquet(
        str(work / "parquet")
    )
    session.stop()
    gateway.proc.stdin.close()
    gateway.proc.wait(ENDS_WITHIN_S)


if __name__ == "__main__":
    try:
        print(make())
    except TidegateError as error:
        sys.exit(str(error))
