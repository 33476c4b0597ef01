"""The one Spark session of a process, set up for Delta, and for small and large epochs."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import IO, Any, NoReturn, Self, TypeGuard

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from tidegate.pipelines.errors import TidegateError
from tidegate.pipelines.jars import java, resolve
from tidegate.pipelines.progress import Progress, SilentProgress, step
from tidegate.pipelines.runtime.engine import DEFAULTS, Engine, EngineNotStarted, fits_class_path, is_local, settings
from tidegate.pipelines.runtime.failures import first_line
from tidegate.pipelines.spark_versions import spark_jars, supported


def start_session(
    *,
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    log: Path | None = None,
    started: Callable[[Engine], None] = lambda engine: None,
) -> SparkSession:
    """The active session, or a new one on `master` ($TIDEGATE_MASTER, else all cores of this machine).

    `config` overrides `settings`; both override spark-defaults.conf. The JVM's output goes into the file `log`, unless
    $TIDEGATE_SPARK_LOG is set. `started` is given the JVM before it can be reached. Starting takes 6 to 8 s.

    An existing session is taken as it is, with its own Delta and jars: nothing of it is changed. Raises JavaMissing,
    JarsUnavailable, SparkNotSupported, EngineNotStarted and SessionNotSuited.
    """
    active = SparkSession.getActiveSession() or _of_another_thread()
    if active is not None:
        _check(active)
        return active
    if wrong := _other_values(config or {}):
        raise SessionNotSuited(
            "with these settings of spark_config Spark would read or write other values",
            wrong,
            f"take {', '.join(wrong)} out of spark_config",
        )
    launcher = java()
    progress = progress or SilentProgress()
    jars = own_jars(progress)
    # Workers must run this very Python: `python3` on PATH may be another one.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    master = master or os.environ.get("TIDEGATE_MASTER", "local[*]")
    builder = SparkSession.builder.appName("tidegate")
    class_path = class_path_of(jars)
    by_name = {"spark.jars": ",".join(map(str, jars))} if not class_path or not is_local(master) else {}
    given = {"spark.master": master, **by_name, **settings(master, config)}
    for key, value in given.items():
        builder = builder.config(key, value)
    try:
        with step(progress, "start Spark"):
            _start_engine(given, log, started, launcher, class_path)
            session = builder.getOrCreate()
            session.sparkContext.setLogLevel(os.environ.get("TIDEGATE_SPARK_LOG", "ERROR"))
            for name in _LOGS_WHAT_IT_RAISES:
                PySparkLogger.getLogger(name).disabled = True
    except (PySparkException, Py4JError, EOFError) as error:
        raise EngineNotStarted(
            f"Spark did not start: {first_line(error)}",
            where=f"master {master}, driver memory {given['spark.driver.memory']}, Java {launcher}"
            + (f"; what Java said: the end of {log}" if _goes_into(log) else ""),
            state="nothing was read or written",
            next_command="check --master (or $TIDEGATE_MASTER), $TIDEGATE_DRIVER_MEMORY, $TIDEGATE_SPARK_LOG and "
            "`java -version`, then run the same command again",
        ) from error
    return session


def own_jars(progress: Progress) -> list[Path]:
    """The jars of a session beside Spark's: Delta's; and those of Kafka and Avro, though few scripts need them: a
    session is shared, and they cost it nothing that shows."""
    wanted = spark_jars()
    alone = resolve([*wanted.kafka, wanted.avro], transitive=False, progress=progress)
    return [*resolve([wanted.delta], progress=progress), *alone]


def class_path_of(jars: Sequence[Path]) -> Sequence[Path]:
    """Those of `jars` that are, or will be, on the class path of this process' JVM: all or none."""
    if SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        return jars if fits_class_path(jars) else ()
    there = getattr(SparkContext._gateway, "class_path", ())  # of an Engine
    return jars if set(jars) <= set(there) else ()


_LOGS_WHAT_IT_RAISES = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Loggers to which pyspark writes each error that it raises, with the JVM's whole stack, on standard error."""


class SessionNotSuited(TidegateError):
    """A session, an existing one or one about to start, lacks settings. `settings`: those, with the values that they
    need."""

    def __init__(self, what: str, settings: Mapping[str, str], next_command: str) -> None:
        self.settings = settings
        super().__init__(
            what,
            where=", ".join(f"{name}={value}" for name, value in settings.items()),
            state="nothing was read or written",
            next_command=next_command,
        )


_OF_DELTA = ("spark.sql.extensions", "spark.sql.catalog.spark_catalog")
_OF_VALUES = (
    "spark.sql.session.timeZone",
    "spark.sql.ansi.enabled",
    "spark.sql.parquet.outputTimestampType",
    "spark.sql.parser.escapedStringLiterals",
    "spark.sql.parser.quotedRegexColumnNames",
    "spark.sql.legacy.timeParserPolicy",
    "spark.sql.decimalOperations.allowPrecisionLoss",
    "spark.sql.mapKeyDedupPolicy",
)
"""Settings that rows depend on: the zone of a text without one, what overflows, which times a file can hold, quotes and
backslashes in the script's texts, whether a column's name is a pattern, how a time's pattern is read, how many digits a
product of decimals has, and what happens to a map's duplicate keys."""
_UTC = {"etc/utc", "z", "gmt", "etc/gmt", "+00:00"}


def _check(session: SparkSession) -> None:
    """Raise SparkNotSupported or SessionNotSuited if Tidegate cannot work with the session."""
    if "connect" in type(session).__module__:
        raise SessionNotSuited(
            "the existing Spark session is one of Spark Connect, whose JVM cannot be reached",
            {},
            "run where the driver is, without $SPARK_REMOTE and $SPARK_CONNECT_MODE (Databricks: dedicated access)",
        )
    supported(session.version, f"the session {session.sparkContext.appName}")
    lacking = {name: DEFAULTS[name] for name in _OF_DELTA if DEFAULTS[name] not in (session.conf.get(name, None) or "")}
    if lacking and "DATABRICKS_RUNTIME_VERSION" not in os.environ:  # whose Delta needs no settings
        raise SessionNotSuited(
            "the existing Spark session has no Delta Lake",
            lacking,
            f"start it with these settings and the jar {spark_jars().delta}, or stop it: Tidegate starts one with both",
        )
    wrong = _other_values({name: session.conf.get(name) for name in _OF_VALUES})  # what Spark has, where nobody set it
    if wrong:
        raise SessionNotSuited(
            "the existing Spark session would read or write other values",
            wrong,
            "; ".join(f'spark.conf.set("{name}", "{value}")' for name, value in wrong.items()),
        )


def _other_values(found: Mapping[str, str | None]) -> dict[str, str]:
    """The settings that rows depend on and that are `found` to be others, with the values that they need."""
    lower = {name: (value or "").lower() for name, value in found.items() if name in _OF_VALUES}
    if lower.get("spark.sql.session.timeZone") in _UTC:
        lower["spark.sql.session.timeZone"] = "utc"
    return {name: DEFAULTS[name] for name, value in lower.items() if value != DEFAULTS[name].lower()}


def _of_another_thread() -> SparkSession | None:
    """The session of this process, made active in this thread."""
    found = SparkSession._instantiatedSession
    if found is None or found._sc._jsc is None or SparkContext._jvm is None:
        return None
    of_java: Any = SparkSession._get_j_spark_session_class(SparkContext._jvm)
    of_java.setActiveSession(found._jsparkSession)
    return found


def _start_engine(
    config: Mapping[str, str],
    log: Path | None,
    started: Callable[[Engine], None],
    launcher: str,
    class_path: Sequence[Path],
) -> None:
    """Start the JVM, unless this process has one. If that fails or is interrupted, no JVM is left behind."""
    if SparkContext._gateway is not None:
        return
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit started this program, and a JVM before it
        SparkContext._ensure_initialized()
        return
    with _opened(log) as file:
        engine = Engine(config, file, launcher, class_path)
    try:
        started(engine)
        SparkContext._ensure_initialized(gateway=engine.gateway())
    except BaseException:
        engine.kill()
        raise


def _goes_into(log: Path | None) -> TypeGuard[Path]:
    return log is not None and "TIDEGATE_SPARK_LOG" not in os.environ  # with it, a person wants to read along


def _opened(log: Path | None) -> AbstractContextManager[IO[bytes] | None]:
    if not _goes_into(log):
        return nullcontext()
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # a lake makes it so, and may not be there yet
    return log.open("ab")


ENDS_WITHIN_S = 10.0
"""How long an abandoned start may take to notice it."""


class SessionAhead:
    """A session that a thread starts while its owner gets ready. Used as a context manager: leaving the block before
    the session has started gives up the start, and the JVM.

    Called, it returns the session, or raises the error of the start. `progress` shows what is still waited for.
    """

    def __init__(self, *, master: str | None = None, log: Path | None = None) -> None:
        self._start = partial(start_session, master=master, log=log)
        self._engine: Engine | None = None
        self._given_up = False
        self._threads = ThreadPoolExecutor(1, "start Spark")

    def __enter__(self) -> Self:
        self._session = self._threads.submit(self._start, started=self._started)
        self._threads.submit(self._first_job)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._session.done():
            self._given_up = True
            if self._engine is not None:
                self._engine.kill()
            wait([self._session], ENDS_WITHIN_S)
            if self._engine is not None:
                _forget()
        self._threads.shutdown(wait=False)

    def __call__(self, progress: Progress | None = None) -> SparkSession:
        if not self._session.done():
            with step(progress or SilentProgress(), "start Spark"):
                self._session.result()
        self._session.result()
        session = self._start(progress=progress)
        if threading.current_thread() is threading.main_thread():
            _cancel_jobs_on_interrupt(session.sparkContext)
        return session

    def _first_job(self) -> None:
        """A job that does nothing: while the owner plans, Spark loads what its first job needs, and its Python workers
        start. If it fails, so will the owner's first job, which says why."""
        if self._session.exception() is None and not self._given_up:
            rows = self._session.result().range(1)
            with suppress(PySparkException, Py4JError):
                rows.mapInArrow(lambda batches: batches, rows.schema).write.format("noop").mode("overwrite").save()

    def _started(self, engine: Engine) -> None:
        self._engine = engine
        if self._given_up:
            engine.kill()


def _forget() -> None:
    """The engine of this process is gone: the next caller gets a new session."""
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def _cancel_jobs_on_interrupt(context: SparkContext) -> None:
    """Cancel Spark's jobs on Ctrl-C, as Spark itself does if the main thread has started it."""

    def interrupted(number: int, frame: object) -> NoReturn:
        try:
            context.cancelAllJobs()
        finally:
            raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupted)
