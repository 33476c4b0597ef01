from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tidegate.assets.resources import TidegateResource
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.sql import compile_script

SCRIPT = """
CREATE TABLE clicks (id INT) WITH ('connector' = 'scripted');
CREATE TABLE kept (id INT) WITH ('connector' = 'scripted');
INSERT INTO kept SELECT id FROM clicks
"""


def test_the_lake_is_absolute_wherever_steps_run():
    assert TidegateResource.at("some/lake").lake == str(Path("some/lake").absolute())


def test_what_spark_prints_goes_beside_the_lake_and_not_to_the_run_s_stderr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    given: dict[str, Any] = {}
    monkeypatch.setattr("tidegate.pipelines.runtime.session.start_session", lambda **named: given.update(named))
    TidegateResource.at(tmp_path / "lake", master="local[1]").session()
    assert (given["master"], given["log"]) == ("local[1]", tmp_path / "lake" / "_scratch" / "spark.log")


def test_a_secret_setting_is_refused_for_dagster_shows_settings():
    with pytest.raises(PlanningError, match="secret") as caught:
        TidegateResource.at("lake", spark_config={"spark.hadoop.fs.s3a.secret.key": "hunter2"})
    assert "hunter2" not in str(caught.value)
    assert "spark-defaults.conf" in caught.value.next_command


@pytest.mark.parametrize(
    ("given", "variable", "interval"),
    [
        ("", "", None),
        ("0", "", timedelta(0)),
        ("", "0", timedelta(0)),
        ("5 s", "0", timedelta(seconds=5)),
    ],
)
def test_the_interval_is_the_resource_s_else_the_environment_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, variable: str, interval: timedelta | None
):
    monkeypatch.setenv("TIDEGATE_AUTO_WATERMARK_INTERVAL", variable)
    resource = TidegateResource(lake=str(tmp_path), auto_watermark_interval=given)
    with resource.runner(compile_script(SCRIPT)) as runner:
        assert runner.auto_watermark_interval == interval
