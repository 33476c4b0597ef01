"""What a session is given, by where its executors run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from tidegate.pipelines.runtime import session
from tidegate.pipelines.runtime.engine import DEFAULTS, PRELOADED, settings
from tidegate.pipelines.spark_versions import SparkNotSupported

OF_DELTA = ("spark.sql.extensions", "spark.sql.catalog.spark_catalog")
LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


@pytest.fixture
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """No session is there, so that one is started."""
    monkeypatch.setattr(session.SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(session.SparkSession, "_instantiatedSession", None)


@pytest.mark.parametrize("master", ["local", "local[*]", "local-cluster[2,1,2048]"])
def test_executors_of_this_machine_are_reached_over_loopback(master: str) -> None:
    assert LOOPBACK.items() <= settings(master).items()


def test_executors_of_a_cluster_find_the_driver_by_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEGATE_DRIVER_HOST", raising=False)
    assert not LOOPBACK.keys() & settings("spark://host:7077").keys()
    monkeypatch.setenv("TIDEGATE_DRIVER_HOST", "10.0.0.7")
    assert settings("spark://host:7077")["spark.driver.host"] == "10.0.0.7"


@pytest.mark.parametrize(
    ("master", "preloaded"), [("local[2]", True), ("local-cluster[2,1,2048]", False), ("yarn", False)]
)
def test_only_workers_of_the_driver_itself_come_from_the_daemon_that_has_imported_tidegate(
    master: str, preloaded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    assert (PRELOADED.items() <= settings(master).items()) is preloaded
    monkeypatch.setattr("sys.platform", "darwin")
    assert not PRELOADED.keys() & settings(master).keys()


def test_a_worker_has_what_tasks_need_before_its_first_task(spark: SparkSession) -> None:
    """It is forked from a daemon that has it, and whose threads are those of allocators alone."""

    def found(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os
        import sys

        daemon = f"/proc/{os.getppid()}"
        threads = {(Path(daemon) / "task" / number / "comm").read_text() for number in os.listdir(f"{daemon}/task")}
        command = (Path(daemon) / "cmdline").read_text()
        list(batches)
        there = "tidegate.pipelines.joins.task" in sys.modules and "pyarrow.dataset" in sys.modules
        yield pa.RecordBatch.from_pydict({"there": [there], "command": [command], "threads": [" ".join(threads)]})

    rows = spark.range(0, 2, 1, 2).mapInArrow(found, "there BOOLEAN, command STRING, threads STRING").collect()
    for row in rows:
        assert row["there"]
        assert PRELOADED["spark.python.daemon.module"] in row["command"]
        assert set(row["threads"].split()) <= {"jemalloc_bg_thd", "python", "python3", "python3.11"}


def test_what_a_component_says_is_laid_over_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_DRIVER_MEMORY", "3g")
    assert settings("local")["spark.driver.memory"] == "3g"
    given = settings("local", {"spark.driver.memory": "5g", "spark.driver.host": "here"})
    assert (given["spark.driver.memory"], given["spark.driver.host"]) == ("5g", "here")


@pytest.mark.usefixtures("no_session")
def test_an_engine_that_does_not_start_says_what_to_look_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def ends(config: Mapping[str, str], *_: object) -> None:
        assert config["spark.driver.memory"] == "abc"
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    monkeypatch.setenv("TIDEGATE_DRIVER_MEMORY", "abc")
    monkeypatch.setattr(session, "java", lambda: "/nowhere/bin/java")
    monkeypatch.setattr(session, "resolve", lambda *_, **__: [])
    monkeypatch.setattr(session, "_start_engine", ends)
    with pytest.raises(session.EngineNotStarted, match=r"\$TIDEGATE_DRIVER_MEMORY") as caught:
        session.start_session(master="local[1]")
    assert caught.value.where == "master local[1], driver memory abc, Java /nowhere/bin/java"
    monkeypatch.delenv("TIDEGATE_SPARK_LOG", raising=False)
    with pytest.raises(session.EngineNotStarted, match=r"what Java said: the end of lake/spark\.log"):
        session.start_session(master="local[1]", log=Path("lake/spark.log"))


@pytest.mark.parametrize(
    ("master", "conf", "home", "by_name", "on_class_path"),
    [
        ("local[1]", False, "home", False, True),
        ("spark://cluster:7077", False, "home", True, True),
        ("local[1]", True, "home", True, False),
        ("local[1]", False, "of:two parts", True, False),
    ],
    ids=["of this machine", "executors elsewhere", "with a spark-env.sh", "a path that is none of a class path"],
)
@pytest.mark.usefixtures("no_session")
def test_java_has_deltas_jars_by_its_class_path_and_executors_elsewhere_by_name(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    master: str,
    conf: bool,
    home: str,
    by_name: bool,
    on_class_path: bool,
) -> None:
    """A person's own spark-env.sh may name another class path: it is left as it is."""
    program = tmp_path / "spark" / "bin" / "spark-submit"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$SPARK_DIST_CLASSPATH" "$@" >{tmp_path}/given\n')
    program.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    monkeypatch.setenv("SPARK_DIST_CLASSPATH", "/mine/*")
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    if conf:
        (tmp_path / "conf").mkdir()
        monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "conf"))
    jar = tmp_path / home / "delta.jar"
    jar.parent.mkdir()
    jar.touch()
    monkeypatch.setattr(session.SparkContext, "_gateway", None)
    monkeypatch.setattr(session, "java", lambda: "/nowhere/bin/java")
    monkeypatch.setattr(session, "resolve", lambda *_, **__: [jar])
    with pytest.raises(session.EngineNotStarted):
        session.start_session(master=master)
    class_path, *given = (tmp_path / "given").read_text().splitlines()
    assert class_path == (f"/mine/*:{jar}:{jar}" if on_class_path else "/mine/*")
    assert any(option.startswith("spark.jars=") for option in given) is by_name


def test_the_folder_of_an_engines_log_is_its_owners_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be made before the lake is."""
    monkeypatch.delenv("TIDEGATE_SPARK_LOG", raising=False)
    with session._opened(tmp_path / "lake" / "_scratch" / "spark.log") as file:
        assert file is not None
    assert (tmp_path / "lake" / "_scratch").stat().st_mode & 0o777 == 0o700


def there(monkeypatch: pytest.MonkeyPatch, version: str = "4.1.1", **settings: str) -> SimpleNamespace:
    """A session that a platform has started; in `settings`, `__` stands for a point."""
    conf = {**DEFAULTS, **{name.replace("__", "."): value for name, value in settings.items()}}
    found = SimpleNamespace(version=version, conf=conf, sparkContext=SimpleNamespace(appName="notebook"))
    monkeypatch.setattr(session.SparkSession, "getActiveSession", lambda: found)
    monkeypatch.delenv("DATABRICKS_RUNTIME_VERSION", raising=False)
    return found


@pytest.mark.parametrize("zone", ["UTC", "Etc/UTC", "Z"])
def test_a_session_that_is_there_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch, zone: str) -> None:
    extensions = f"com.example.Another,{DEFAULTS['spark.sql.extensions']}"
    found = there(monkeypatch, spark__sql__session__timeZone=zone, spark__sql__extensions=extensions)
    before = dict(found.conf)
    assert session.start_session(config={"spark.sql.shuffle.partitions": "9"}) is found
    assert found.conf == before


def test_a_session_without_delta_is_refused_with_the_two_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    found = there(monkeypatch, spark__sql__extensions="", spark__sql__catalog__spark_catalog="")
    with pytest.raises(session.SessionNotSuited, match="has no Delta Lake") as raised:
        session.start_session()
    assert raised.value.settings == {name: DEFAULTS[name] for name in OF_DELTA}
    assert all(f"{name}={DEFAULTS[name]}" in raised.value.where for name in OF_DELTA)
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "18.0")
    assert session.start_session() is found


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("spark.sql.session.timeZone", "Europe/Berlin", "UTC"),
        ("spark.sql.ansi.enabled", "false", "true"),
        ("spark.sql.parquet.outputTimestampType", "INT96", "TIMESTAMP_MICROS"),
        ("spark.sql.parser.escapedStringLiterals", "true", "false"),
        ("spark.sql.legacy.timeParserPolicy", "LEGACY", "CORRECTED"),
        ("spark.sql.mapKeyDedupPolicy", "LAST_WIN", "EXCEPTION"),
    ],
)
def test_a_session_that_would_give_other_values_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, wanted: str
) -> None:
    there(monkeypatch, **{name.replace(".", "__"): value})
    with pytest.raises(session.SessionNotSuited) as raised:
        session.start_session()
    assert raised.value.settings == {name: wanted}
    assert raised.value.next_command == f'spark.conf.set("{name}", "{wanted}")'


@pytest.mark.usefixtures("no_session")
def test_settings_that_would_give_other_values_are_refused_before_spark_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "java", lambda: pytest.fail("nothing is started"))
    own = {"spark.sql.session.timeZone": "Europe/Berlin", "spark.sql.shuffle.partitions": "2"}
    with pytest.raises(session.SessionNotSuited, match="spark_config") as raised:
        session.start_session(config=own)
    assert raised.value.settings == {"spark.sql.session.timeZone": "UTC"}
    assert raised.value.next_command == "take spark.sql.session.timeZone out of spark_config"


def test_a_session_of_spark_connect_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    remote = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    monkeypatch.setattr(session.SparkSession, "getActiveSession", lambda: remote)
    with pytest.raises(session.SessionNotSuited, match="one of Spark Connect") as raised:
        session.start_session()
    assert "dedicated access" in raised.value.next_command


def test_a_session_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    there(monkeypatch, version="3.5.5-amzn-0")
    with pytest.raises(SparkNotSupported, match=r"this is 3\.5\.5-amzn-0") as raised:
        session.start_session()
    assert raised.value.where == "the session notebook"
