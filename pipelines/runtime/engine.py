"""Spark's JVM: its settings, its start and its end. It is started without pyspark, whose import takes a while."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import IO, Any

from tidegate.pipelines.errors import TidegateError
from tidegate.pipelines.jars import home, release_of
from tidegate.pipelines.spark_versions import spark_home
from tidegate.pipelines.syntax.secrets import SECRET_NAMES

VARIABLE = "SPARK_SUBMIT_OPTS"
"""Environment variable with options for Spark's JVM, beside those of spark-defaults.conf."""

CLASS_PATH = "SPARK_DIST_CLASSPATH"
"""Environment variable with what comes after Spark's jars on the class path of its JVM."""

POLL_S = 0.02
"""How often a starting JVM is checked."""


class EngineNotStarted(TidegateError):
    """Spark's JVM ended while it started, or did not take its settings."""


DEFAULTS: Mapping[str, str] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.parser.quotedRegexColumnNames": "false",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    "spark.sql.mapKeyDedupPolicy": "EXCEPTION",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Small epochs dominate: a few tasks, and Delta's log replayed by few of them.
    "spark.sql.shuffle.partitions": "4",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.databricks.delta.stalenessLimit": "0",
    # Files are named one by one: listing them is not worth a job.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    # Staged rows are written one folder a disposition in a single unsorted pass.
    "spark.sql.maxConcurrentOutputFileWriters": "16",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.redaction.regex": SECRET_NAMES,
    "spark.sql.redaction.options.regex": f"{SECRET_NAMES}|(?i:url)",
    "spark.scheduler.mode": "FAIR",
    # The ticks of a few tables need more classes of generated code than the 100 that Spark keeps, and would compile
    # each of them anew.
    "spark.sql.codegen.cache.maxEntries": "1000",
}


LOOPBACK: Mapping[str, str] = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
"""For executors that are processes of this machine. Those of a cluster must reach the driver by the name that Spark
finds, or that $TIDEGATE_DRIVER_HOST gives."""


PRELOADED: Mapping[str, str] = {"spark.python.daemon.module": "tidegate.pipelines.runtime.worker_daemon"}
"""Workers are forked from a daemon that has imported Tidegate. Set only where workers are children of the driver's JVM,
since a cluster's daemon may not find Tidegate; and only on Linux, since libraries of other systems (macOS) may not be
forked."""


def is_local(master: str) -> bool:
    """Whether executors are threads of the driver's JVM."""
    return master.partition("[")[0] == "local"


def settings(master: str, config: Mapping[str, str] | None = None) -> Mapping[str, str]:
    """The settings of a session on `master`, overridden by `config`."""
    if master.startswith("local"):
        network = LOOPBACK
    else:
        host = os.environ.get("TIDEGATE_DRIVER_HOST")
        network = {} if host is None else {"spark.driver.host": host}
    own_workers = is_local(master) and sys.platform == "linux"
    workers = PRELOADED if own_workers else {}
    memory = os.environ.get("TIDEGATE_DRIVER_MEMORY", "2g")
    return {**DEFAULTS, **network, **workers, "spark.driver.memory": memory, **(config or {})}


COMPILED_LATE = " ".join(
    f"-XX:Tier4{what}Threshold={count}"
    for what, count in (("Invocation", 50_000), ("MinInvocation", 6_000), ("Compile", 150_000), ("BackEdge", 400_000))
)
"""Java's second compiler (C2) compiles a method after ten times as many calls as by default: most of what it compiles
during a start is called a few thousand times and never again."""

QUIET = "-Xshare:auto -Xlog:disable -Xlog:all=warning:stderr"
"""Java's warnings about an archive that does not fit go to standard error: standard output is the command's."""


VECTORS = "jdk.incubator.vector"
"""A module of Java that Spark's launcher always asks for. Only its matrix products use it."""


def java_variables(launcher: str) -> Mapping[str, str]:
    """Environment variables with which Spark starts this Java: if it may lack the module VECTORS, they name a launcher
    of Tidegate's that leaves the module out."""
    own = Path(__file__).with_name("java_home")
    has_it = re.search(rf'^MODULES=.*[ "]{re.escape(VECTORS)}[ "]', release_of(launcher), re.MULTILINE)
    if has_it or Path(launcher).is_relative_to(own):  # the latter in a Python worker, whose JVM was started so
        return {}
    return {"JAVA_HOME": str(own), "_TIDEGATE_JAVA": launcher}


def fits_class_path(jars: Sequence[Path]) -> bool:
    """Whether Spark's JVM gets `jars` by its class path: an archive can then hold their classes, and executors need no
    copies. False where a person's own files (spark-env.sh) may set another class path."""
    own = Path(os.environ.get("SPARK_CONF_DIR") or spark_home() / "conf")
    return not own.exists() and not any(os.pathsep in str(jar) for jar in jars)


def archived_from(launcher: str, class_path: Sequence[Path] = ()) -> tuple[str, str, list[tuple[str, int, int]]]:
    """What an archive belongs to: this Java, its release, and the jars of Spark and of `class_path`, each with its size
    and its time (ns). JSON can hold it."""
    own = sorted((spark_home() / "jars").glob("*"))
    jars = [(str(jar), jar.stat().st_size, jar.stat().st_mtime_ns) for jar in (*own, *class_path)]
    return str(Path(launcher).resolve()), release_of(launcher), jars


def archive_of(launcher: str, class_path: Sequence[Path] = ()) -> Path:
    """Where the archive for this Java, this Spark, its jars and those of `class_path` lies; it may not exist."""
    belongs_to = repr(list(archived_from(launcher, class_path)))
    return home() / "classes" / f"spark-{hashlib.sha256(belongs_to.encode()).hexdigest()[:16]}.jsa"


def digest_of(archive: Path) -> str:
    """SHA-256 of an archive, stored beside it in a file of its own; it takes a tenth of a second."""
    with archive.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_whole(archive: Path) -> bool:
    """Whether an archive is as it was written. Java checks only its head; if the rest is damaged, Java shares no class
    at all, not even its own."""
    try:
        return archive.with_suffix(".sha256").read_text() == digest_of(archive)
    except OSError:
        return False


def archive_options(launcher: str, class_path: Sequence[Path] = ()) -> str:
    """JVM options for its archive. Empty if there is none, if it is damaged, or if another user may have written it,
    since Java executes what is in an archive unchecked."""
    path = archive_of(launcher, class_path)
    try:
        there = path.stat()
    except OSError:
        return ""
    others = stat.S_IWGRP | stat.S_IWOTH
    own = there.st_uid in (0, os.geteuid()) and not (there.st_mode | path.parent.stat().st_mode) & others
    return f'"-XX:SharedArchiveFile={path}" {QUIET}' if own and ":" not in str(path) and is_whole(path) else ""


class Engine:
    """A JVM in a process session of its own, so that a signal for this process's group (Ctrl-C, a supervisor's SIGTERM)
    does not stop it in the middle of a step.

    It ends with this process, however that ends, because its standard input ends then. The exception: if the folder to
    which it writes its address is gone, it would stay for ever, so a caller that gives up before `address` has returned
    calls `kill`.
    """

    def __init__(
        self,
        config: Mapping[str, str],
        log: IO[bytes] | None = None,
        launcher: str | None = None,
        class_path: Sequence[Path] = (),
    ) -> None:
        """Begin to start it with the Java `launcher`, else with Spark's own choice, and with the jars `class_path`
        after Spark's; its output goes to `log`, else to standard error."""
        options = archive_options(launcher, class_path) if launcher else ""
        given = [part for name, value in config.items() for part in ("--conf", f"{name}={value}")]
        asked = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
        self.class_path = tuple(class_path)
        self._folder = Path(mkdtemp(prefix="tidegate-engine-"))  # nothing but this class removes it
        self._address = self._folder / "address"
        self.process = subprocess.Popen(
            [str(spark_home() / "bin" / "spark-submit"), *given, *asked],
            stdin=subprocess.PIPE,
            stderr=log,
            env={
                **os.environ,
                **(java_variables(launcher) if launcher else {}),
                "SPARK_CONNECT_MODE": "0",
                CLASS_PATH: os.pathsep.join(filter(None, (os.environ.get(CLASS_PATH), *map(str, class_path)))),
                "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._address),
                # What a person has set comes last, and so wins.
                VARIABLE: " ".join(filter(None, (COMPILED_LATE, options, os.environ.get(VARIABLE)))),
            },
            start_new_session=True,
        )

    def address(self) -> tuple[int, str]:
        """Its port and the secret, once it has started. Raises EOFError if it ends before."""
        while not self._address.exists():  # it is put there whole
            if self.process.poll() is not None:
                raise EOFError("its JVM ended before it could be reached")
            time.sleep(POLL_S)
        answer = self._address.read_bytes()  # the port, the length of the secret, the secret
        return int.from_bytes(answer[:4], "big"), answer[8:].decode()

    def gateway(self) -> Any:
        """A connection to it, which also keeps it alive."""
        from pyspark.java_gateway import launch_gateway

        port, secret = self.address()
        with _environment(PYSPARK_GATEWAY_PORT=str(port), PYSPARK_GATEWAY_SECRET=secret):
            gateway: Any = launch_gateway()
        gateway.proc = self.process  # holds its standard input open
        gateway.class_path = self.class_path
        rmtree(self._folder, ignore_errors=True)
        return gateway

    def kill(self) -> None:
        """End it, and the programs that started it."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        rmtree(self._folder, ignore_errors=True)


@contextmanager
def _environment(**more: str) -> Iterator[None]:
    os.environ.update(more)
    try:
        yield
    finally:
        for name in more:
            del os.environ[name]
