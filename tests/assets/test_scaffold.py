"""`dg scaffold defs tidegate.TidegateComponent NAME`: what it writes loads, and the test that it writes passes."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster.components.component_scaffolding import scaffold_object
from pyspark.sql import SparkSession

from tests.assets.clicks import script
from tidegate.pipelines.errors import PlanningError


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    defs = tmp_path / "my_project" / "defs"
    defs.mkdir(parents=True)
    for package in (defs.parent, defs):
        (package / "__init__.py").touch()
    (tmp_path / "pyproject.toml").write_text(
        '[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "my_project"\n'
    )
    for name in [name for name in list(sys.modules) if name.partition(".")[0] == "my_project"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def scaffold(project: Path, name: str = "shop", form: str = "yaml", **params: Any) -> dict[str, Any]:
    """As the command does it; returns the attributes that were written."""
    folder = project / "my_project" / "defs" / name
    scaffold_object(folder, "tidegate.TidegateComponent", json.dumps(params), form, project)
    return yaml.safe_load((folder / "defs.yaml").read_text())["attributes"] if form == "yaml" else {}


def test_without_parameters_a_script_its_yaml_and_a_test_are_written(project: Path):
    assert scaffold(project) == {"script": "pipeline.sql"}
    functions = runpy.run_path(str(project / "tests" / "test_shop.py"))
    functions["test_its_assets_load"]()


def test_parameters_are_attributes(project: Path):
    given = scaffold(
        project, lake="state/lake", cron="0 * * * *", partitions_from="2026-01-01", owner=["team:shop"], pool="spark"
    )
    assert given == {
        "script": "pipeline.sql",
        "owners": ["team:shop"],
        "lake": "state/lake",
        "cron": "0 * * * *",
        "partitions_from": "2026-01-01",
        "op": {"pool": "spark"},
    }
    found = dg.load_from_defs_folder(path_within_project=project / "my_project")
    assert found.get_repository_def().get_schedule_def("shop_schedule").cron_schedule == "0 * * * *"


def test_a_script_that_is_there_is_taken_and_left_as_it_is(project: Path):
    (project / "sql").mkdir()
    (project / "sql" / "clicks.sql").write_text(script())
    assert scaffold(project, script="sql/clicks.sql") == {"script": "../../../sql/clicks.sql"}
    assert (project / "sql" / "clicks.sql").read_text() == script()
    runpy.run_path(str(project / "tests" / "test_clicks.py"))["test_its_assets_load"]()


def test_a_second_time_nothing_of_a_persons_own_is_lost(project: Path):
    scaffold(project)
    own = (project / "my_project" / "defs" / "shop" / "pipeline.sql", project / "tests" / "test_shop.py")
    for path in own:
        path.write_text("-- mine\n")
    scaffold(project)
    assert [path.read_text() for path in own] == ["-- mine\n"] * 2


def test_a_script_that_is_not_there_is_refused_and_nothing_written(project: Path):
    with pytest.raises(PlanningError, match="there is no script"):
        scaffold(project, script="sql/clicks.sql")
    assert not (project / "tests").exists()


def test_the_test_that_is_written_passes(project: Path, spark: SparkSession):
    scaffold(project)
    functions = runpy.run_path(str(project / "tests" / "test_shop.py"))
    functions["test_a_click_meets_its_user"](spark, project / "harness")
