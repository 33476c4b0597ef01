from pathlib import Path

import pytest

from assets.resources import TidegateResource
from pipelines.errors import PlanningError


def test_the_lake_is_absolute_wherever_steps_run():
    assert TidegateResource.at("some/lake").lake == str(Path("some/lake").absolute())


def test_a_secret_setting_is_refused_for_dagster_shows_settings():
    with pytest.raises(PlanningError, match="secret") as caught:
        TidegateResource.at("lake", spark_config={"spark.hadoop.fs.s3a.secret.key": "hunter2"})
    assert "hunter2" not in str(caught.value)
    assert "spark-defaults.conf" in caught.value.next_command
