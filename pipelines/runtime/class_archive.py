"""An archive of the classes that Spark loads when it starts, so that its JVM does not read and verify them one by one.

It is Java's own feature (class data sharing). The archive lies beside the jars; its name holds the Java, the Spark and
the jars that it was made with. `python -m tidegate.pipelines.runtime.class_archive` makes it, once. Java checks whether
an archive fits, and starts without one that does not; a damaged one is not used. Without an archive Spark starts
slower, nothing else.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from tidegate.pipelines.errors import TidegateError
from tidegate.pipelines.jars import home, java
from tidegate.pipelines.progress import SilentProgress
from tidegate.pipelines.runtime.engine import QUIET, VARIABLE, archive_of, digest_of, is_whole
from tidegate.pipelines.runtime.session import class_path_of, own_jars, start_session

ENDS_WITHIN_S = 600
"""How long the JVM may take to write the archive."""


def make() -> Path:
    """The archive; made if it is missing or damaged: a session does a little of everything, and writes down at its end
    what it has loaded. Takes a minute, and 190 MB of disk. Raises TidegateError if no session starts, or no archive was
    written."""
    launcher = java()
    path = archive_of(launcher, class_path_of(own_jars(SilentProgress())))
    if is_whole(path):
        return path
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
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
    return path


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
