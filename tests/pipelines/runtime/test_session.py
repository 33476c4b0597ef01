"""What a session is given, by where its executors run."""

from __future__ import annotations

import pytest

from pipelines.runtime.session import settings

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
