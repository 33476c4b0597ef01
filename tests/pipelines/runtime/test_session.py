"""What a session is given, by where its executors run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.errors import PySparkRuntimeError

from tidegate.pipelines.runtime import session
from tidegate.pipelines.runtime.engine import settings

LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


@pytest.mark.parametrize("master", ["local", "local[*]", "local-cluster[2,1,2048]"])
def test_executors_of_this_machine_are_reached_over_loopback(master: str) -> None:
    assert LOOPBACK.items() <= settings(master).items()


def test_executors_of_a_cluster_find_the_driver_by_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEGATE_DRIVER_HOST", raising=False)
    assert not LOOPBACK.keys() & settings("spark://host:7077").keys()
    monkeypatch.setenv("TIDEGATE_DRIVER_HOST", "10.0.0.7")
    assert settings("spark://host:7077")["spark.driver.host"] == "10.0.0.7"


def test_what_a_component_says_is_laid_over_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_DRIVER_MEMORY", "3g")
    assert settings("local")["spark.driver.memory"] == "3g"
    given = settings("local", {"spark.driver.memory": "5g", "spark.driver.host": "here"})
    assert (given["spark.driver.memory"], given["spark.driver.host"]) == ("5g", "here")


def test_an_engine_that_does_not_start_says_what_to_look_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def ends(config: Mapping[str, str], log: None, started: object) -> None:
        assert config["spark.driver.memory"] == "abc"
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    monkeypatch.setenv("TIDEGATE_DRIVER_MEMORY", "abc")
    monkeypatch.setattr(session.SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(session.SparkSession, "_instantiatedSession", None)
    monkeypatch.setattr(session, "java", lambda: None)
    monkeypatch.setattr(session, "resolve", lambda *_, **__: [])
    monkeypatch.setattr(session, "_start_engine", ends)
    with pytest.raises(session.EngineNotStarted, match=r"\$TIDEGATE_DRIVER_MEMORY") as caught:
        session.start_session(master="local[1]")
    assert caught.value.where == "master local[1], driver memory abc"


def test_the_folder_of_an_engines_log_is_its_owners_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be made before the lake is."""
    monkeypatch.delenv("TIDEGATE_SPARK_LOG", raising=False)
    with session._opened(tmp_path / "lake" / "_scratch" / "spark.log") as file:
        assert file is not None
    assert (tmp_path / "lake" / "_scratch").stat().st_mode & 0o777 == 0o700
