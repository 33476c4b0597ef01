from datetime import timedelta
from pathlib import Path

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
