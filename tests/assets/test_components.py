import sys
from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest

from tests.assets.clicks import process_of_a_run, script
from tidegate.assets.components import TidegateComponent
from tidegate.pipelines.errors import PlanningError

YAML = """
type: {kind}
attributes:
  script: clicks.sql
  lake: state/lake
  master: local[2]
  spark_config: {{spark.sql.shuffle.partitions: 2, spark.speculation: false}}
  owners: [team:data]
  tags: {{tier: gold}}
  cron: "*/10 * * * *"
  fresh_within_hours: 2
{more}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of a user's own, with one component folder."""
    folder = tmp_path / "my_project" / "defs" / "shop"
    folder.mkdir(parents=True)
    for package in (folder.parent.parent, folder.parent):
        (package / "__init__.py").touch()
    (tmp_path / "pyproject.toml").write_text(
        '[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "my_project"\n'
    )
    (folder / "clicks.sql").write_text(script())
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def load(project: Path, more: str = "", kind: str = "tidegate.TidegateComponent") -> dg.Definitions:
    (project / "my_project" / "defs" / "shop" / "defs.yaml").write_text(YAML.format(more=more, kind=kind))
    return loaded(project)


def loaded(project: Path) -> dg.Definitions:
    for name in [name for name in list(sys.modules) if name.partition(".")[0] == "my_project"]:
        del sys.modules[name]
    return dg.load_from_defs_folder(path_within_project=project / "my_project")


ALERTS = "---\ntype: tidegate.TidegateAlerts\n"
ANOTHER = "---\ntype: tidegate.TidegateComponent\nattributes: {script: clicks.sql, name: other, lake: state/lake}\n"


@pytest.mark.parametrize(
    ("more", "pipelines"),
    [("", "clicks"), (ANOTHER, "clicks, other"), (ALERTS, None), (ANOTHER + ALERTS, None)],
    ids=["no alerts", "two pipelines", "alerts", "two pipelines and alerts"],
)
def test_a_code_location_that_alerts_nobody_says_so_once(
    project: Path, caplog: pytest.LogCaptureFixture, more: str, pipelines: str | None
):
    load(project, more)
    warnings = [record.getMessage() for record in caplog.records if "TidegateAlerts" in record.getMessage()]
    assert len(warnings) == (0 if pipelines is None else 1)
    assert all(f"lag of {pipelines}. Next: " in text for text in warnings)


MADE_BY_PYTHON = """
import dagster as dg
import tidegate


@dg.component_instance
def other(context: dg.ComponentLoadContext):
    return tidegate.TidegateComponent(script="clicks.sql", name="other")


@dg.component_instance
def third(context: dg.ComponentLoadContext):
    return tidegate.TidegateComponent(script="clicks.sql", name="third")
"""


def test_a_code_location_that_python_alone_makes_says_it_too(project: Path, caplog: pytest.LogCaptureFixture):
    (project / "my_project" / "defs" / "shop" / "component.py").write_text(MADE_BY_PYTHON)
    assert loaded(project).get_repository_def().has_job("third")
    assert caplog.text.count("has no component tidegate.TidegateAlerts") == 1


def test_its_runs_do_not_say_it_again(project: Path, caplog: pytest.LogCaptureFixture):
    with process_of_a_run():
        load(project)
    assert "TidegateAlerts" not in caplog.text
    assert "default_limit" not in caplog.text
    load(project)
    assert caplog.text.count("default_limit: 1") == 1


def test_yaml_alone_makes_a_pipeline(project: Path):
    definitions = load(project)
    repository = definitions.get_repository_def()
    assert repository.get_schedule_def("clicks_schedule").cron_schedule == "*/10 * * * *"
    published = repository.asset_graph.get(dg.AssetKey(["clicks", "enriched_click"]))
    assert list(published.owners) == ["team:data"]
    assert published.tags["tier"] == "gold"
    policy = published.freshness_policy
    assert policy is not None
    assert policy.fail_window.to_timedelta() == timedelta(hours=2)
    resource = (definitions.resources or {})["tidegate_clicks"]
    assert resource.lake == str(project / "state" / "lake")
    assert resource.master == "local[2]"
    assert resource.spark_config == {"spark.sql.shuffle.partitions": "2", "spark.speculation": "false"}


def test_freshness_is_left_out_by_null_as_the_docs_say(project: Path):
    less = [f"  {name}fresh_within_hours: null" for name in ("build_", "probe_")]
    for more, with_policy in (("", 3), ("\n".join(less), 1), ("\n".join([*less, "  fresh_within_hours: null"]), 0)):
        graph = load(project, more).resolve_asset_graph()
        assert len([node for node in graph.asset_nodes if node.freshness_policy is not None]) == with_policy
    for wrong in ("0", "-1", ".inf"):
        with pytest.raises(Exception, match="loading component") as refused:
            load(project, f"  probe_fresh_within_hours: {wrong}")
        assert "attributes.probe_fresh_within_hours" in str(refused.value.__cause__)


def test_several_pipelines_have_one_sensor_that_shows_what_is_published_elsewhere(project: Path):
    shop = project / "my_project" / "defs" / "shop"
    other = shop.parent / "export"
    other.mkdir()
    (other / "clicks.sql").write_text(script())
    (other / "defs.yaml").write_text(YAML.format(more="  name: exported", kind="tidegate.TidegateComponent"))
    sensors = [sensor.name for sensor in load(project).get_repository_def().sensor_defs]
    assert sensors.count("tidegate_continuous") == 1


def test_yaml_can_change_what_the_component_made(project: Path):
    definitions = load(
        project,
        more='post_processing:\n  assets:\n    - target: "*"\n      attributes:\n        group_name: shop\n',
    )
    graph = definitions.resolve_asset_graph()
    assert {node.group_name for node in graph.asset_nodes} == {"shop"}


def test_the_lake_is_what_the_environment_says_unless_yaml_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "clicks.sql").write_text(script())
    monkeypatch.setenv("TIDEGATE_LAKE", str(tmp_path / "other"))
    component = TidegateComponent(script=str(tmp_path / "clicks.sql"))
    resources = dg.build_defs_for_component(component).resources or {}
    assert resources["tidegate_clicks"].lake == str(tmp_path / "other")
    monkeypatch.delenv("TIDEGATE_LAKE")
    component = TidegateComponent(script=str(tmp_path / "clicks.sql"))
    resources = dg.build_defs_for_component(component).resources or {}
    assert resources["tidegate_clicks"].lake == str((tmp_path / ".tidegate" / "lake").resolve())


def test_a_script_that_is_not_there_is_named():
    with pytest.raises(PlanningError, match="cannot be read"):
        dg.build_defs_for_component(TidegateComponent(script="/nowhere/clicks.sql"))


def test_a_component_that_python_makes_has_operations_of_its_own_beside_those_of_yaml(project: Path):
    folder = project / "my_project" / "defs" / "other"
    folder.mkdir()
    (folder / "clicks.sql").write_text(script())
    (folder / "component.py").write_text(
        "import dagster as dg\nimport tidegate\n\n\n@dg.component_instance\n"
        "def other(context: dg.ComponentLoadContext):\n"
        "    return tidegate.TidegateComponent(script='clicks.sql', name='other')\n"
    )
    jobs = load(project).get_repository_def().job_names
    assert {"clicks", "other", "tidegate_dry_run", "other_dry_run"} <= set(jobs)
    for name in ("other_dry_run", "other"):
        with pytest.raises(Exception, match="building definitions") as refused:
            load(project, f"  name: {name}")
        said = str(refused.value.__cause__)
        assert f"two jobs of this code location are called {name}: one of " in said
        assert str(folder) in said
        assert str(folder.parent / "shop") in said
    load(project, "  name: other_dry")


def test_two_components_that_python_makes_in_one_file_do_not_take_each_others_operations(project: Path):
    text = MADE_BY_PYTHON.replace('name="third"', 'name="other_dry_run"')
    (project / "my_project" / "defs" / "shop" / "component.py").write_text(text)
    with pytest.raises(Exception, match="building definitions") as refused:
        loaded(project)
    said = str(refused.value.__cause__)
    assert "called other_dry_run: one of the pipeline other (" in said
    assert "and one of the pipeline other_dry_run (" in said
