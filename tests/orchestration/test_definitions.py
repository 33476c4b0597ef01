"""Both doors into the code location, opened as a person opens them."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

import dagster as dg
import pytest
import yaml

from tests.assets.clicks import Hand, files, handmade, process_of_a_run, script
from tests.orchestration.services import ROOT, command, dagster_home, environment
from tidegate.assets.presentation import Partitions
from tidegate.orchestration.definitions import chosen, defs, lake_of, of_folder, of_scripts, scripts, spans
from tidegate.orchestration.web_server import prepare
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.sql import SqlError, compile_script


@pytest.fixture
def clicks(tmp_path: Path) -> Path:
    path = tmp_path / "clicks" / "pipeline.sql"
    path.parent.mkdir()
    path.write_text(script())
    return path


def test_dg_check_defs_loads_the_components_of_this_project(tmp_path: Path):
    env = environment(dagster_home(tmp_path / "home"), TIDEGATE_LAKE=str(tmp_path / "lake"))
    env.pop("TIDEGATE_SCRIPT", None)
    done = command("dg", "check", "defs", env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All component YAML validated successfully" in done.stdout
    assert "All definitions loaded successfully" in done.stdout


def test_the_ui_asks_nobody_for_an_address(tmp_path: Path):
    prepare(tmp_path)
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert not instance.nux_enabled
        assert not instance.telemetry_enabled


def test_the_module_of_workspace_yaml_loads_the_scripts_that_the_environment_names(
    tmp_path: Path, clicks: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TIDEGATE_SCRIPT", str(clicks))
    monkeypatch.setenv("TIDEGATE_LAKE", str(tmp_path / "lake"))
    (location,) = yaml.safe_load((ROOT / "workspace.yaml").read_text())["load_from"]
    found = import_module(location["python_module"]["module_name"]).defs()
    assert "clicks" in found.get_repository_def().job_names


SILENT = "concurrency: {pools: {default_limit: 1}}", "concurrency: {runs: {max_concurrent_runs: 1}}"


@pytest.mark.parametrize("settings", [*SILENT, "", "concurrency:\n", "concurrency: 1", "{", None])
def test_the_location_says_once_how_steps_that_meet_can_be_queued_and_its_runs_do_not(
    tmp_path: Path,
    clicks: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    settings: str | None,
):
    (tmp_path / "other.sql").write_text(script())
    if settings is not None:
        (tmp_path / "dagster.yaml").write_text(settings)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    monkeypatch.setenv("TIDEGATE_SCRIPT", f"{clicks}:{tmp_path / 'other.sql'}")
    monkeypatch.setenv("TIDEGATE_LAKE", str(tmp_path / "lake"))
    with process_of_a_run():
        defs().get_repository_def()
    assert "default_limit" not in caplog.text
    defs().get_repository_def()
    said = [record.getMessage() for record in caplog.records if "default_limit: 1" in record.getMessage()]
    assert len(said) == (0 if settings in SILENT else 1)
    assert all(text.startswith("Steps of clicks, other that work on one table or INSERT wait for") for text in said)


@pytest.mark.thorough
def test_workspace_yaml_is_valid(tmp_path: Path, clicks: Path):
    """As Dagster's own command sees it, which takes as long as `dg check defs` above."""
    env = environment(
        dagster_home(tmp_path / "home"), TIDEGATE_SCRIPT=str(clicks), TIDEGATE_LAKE=str(tmp_path / "lake")
    )
    done = command("dagster", "definitions", "validate", "-w", "workspace.yaml", env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Validation successful for code location tidegate" in done.stdout + done.stderr


@pytest.mark.thorough
@pytest.mark.usefixtures("jvm")
def test_dg_launch_takes_config_for_a_new_snapshot_and_a_bound_on_epochs(tmp_path: Path, clicks: Path):
    lake, found = tmp_path / "lake", replace(compile_script(script()), name="clicks")
    hand, known = Hand(found, lake), handmade(lake)
    hand.users(1)
    hand.all_users_are_there()
    hand.users(2)  # in an epoch of its own: the first one ends with the flip
    known.landed("user_info", 1, at=0, flip=1)
    env = environment(dagster_home(tmp_path / "home"), TIDEGATE_SCRIPT=str(clicks), TIDEGATE_LAKE=str(lake))
    config = {"ops": {"clicks__user_info": {"config": {"resnapshot": True, "max_epochs": 1}}}}
    launch = ("dg", "launch", "--assets", 'key:"clicks/user_info"', "--config-json", json.dumps(config))
    done = command(*launch, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    landed = Lake(lake).watermarks.rows("user_info")
    assert [(row.generation, row.epoch) for row in landed] == [(1, 1), (2, 1)]
    assert landed[-1].flip_epoch == 1


@pytest.mark.thorough
@pytest.mark.usefixtures("jvm")
def test_dg_launch_takes_config_for_the_jobs_that_only_look(tmp_path: Path, clicks: Path):
    lake, found = tmp_path / "lake", replace(compile_script(script()), name="clicks")
    known = handmade(lake)
    Hand(found, lake).clicks(1)
    known.landed("user_info", 1, at=0, flip=1)
    before = files(lake)
    env = environment(dagster_home(tmp_path / "home"), TIDEGATE_SCRIPT=str(clicks), TIDEGATE_LAKE=str(lake))
    for job, step, config in (
        ("tidegate_dry_run", "plan_only", {"resnapshot": ["user_info"]}),
        ("tidegate_quarantine_list", "list_quarantined", {"pipeline": "clicks", "state": "all", "limit": 0}),
    ):
        given = json.dumps({"ops": {step: {"config": config}}})
        done = command("dg", "launch", "--job", job, "--config-json", given, env=env)
        assert done.returncode == 0, done.stdout + done.stderr
    # What a run prints is copied to the terminal by a process of its own, which may be cut short.
    with dg.DagsterInstance.from_config(str(tmp_path / "home")) as instance:
        ended = {run.job_name: run.status for run in instance.get_runs()}
    assert ended == dict.fromkeys(("tidegate_dry_run", "tidegate_quarantine_list"), dg.DagsterRunStatus.SUCCESS)
    assert files(lake) == before


@pytest.fixture
def wrong(clicks: Path) -> Path:
    clicks.write_text(clicks.read_text().replace("item_id, upper", "itm_id, upper"))
    return clicks


def test_a_script_that_does_not_compile_is_an_error_with_its_place(
    tmp_path: Path, wrong: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TIDEGATE_SCRIPT", str(wrong))
    monkeypatch.setenv("TIDEGATE_LAKE", str(tmp_path / "lake"))
    with pytest.raises(SqlError) as caught:
        defs()
    assert "clicks/pipeline.sql:19:" in str(caught.value)
    assert "item_id" in str(caught.value)


@pytest.mark.thorough
def test_dg_shows_the_place_of_what_does_not_compile(tmp_path: Path, wrong: Path):
    """As the code location says it (above): `dg` takes five seconds to hand it on."""
    env = environment(dagster_home(tmp_path / "home"), TIDEGATE_SCRIPT=str(wrong))
    done = command("dg", "check", "defs", env=env)
    assert done.returncode == 1
    assert "clicks/pipeline.sql:19:" in done.stdout + done.stderr
    assert "item_id" in done.stdout + done.stderr


def test_the_lake_of_scripts_is_beside_them_and_several_folders_need_its_name():
    here, there = Path("/p/a/one.sql"), Path("/p/b/two.sql")
    assert lake_of([here, here.with_name("other.sql")], {}) == Path("/p/a/.tidegate/lake")
    assert lake_of([here, there], {"TIDEGATE_LAKE": "/lake"}) == Path("/lake")
    with pytest.raises(PlanningError, match="several folders"):
        lake_of([here, there], {})


def test_several_scripts_share_a_location(tmp_path: Path, clicks: Path):
    other = tmp_path / "views.sql"
    other.write_text(script("block"))
    repository = of_scripts([clicks, other], tmp_path / "lake").get_repository_def()
    assert {"clicks", "views"} <= set(repository.job_names)
    assert {sensor.name for sensor in repository.sensor_defs} >= {"tidegate_alerts"}
    assert all(
        sensor.default_status == dg.DefaultSensorStatus.RUNNING
        for sensor in repository.sensor_defs
        if sensor.name.startswith("tidegate_")
    )


def test_the_environment_names_scripts():
    assert scripts({"TIDEGATE_SCRIPT": "/a/b.sql:/c.sql"}) == [Path("/a/b.sql"), Path("/c.sql")]
    assert scripts({}) == []


def test_the_environment_names_spans_of_time():
    assert spans({}) is None
    found = spans({"TIDEGATE_PARTITIONS_FROM": "2024-01-31", "TIDEGATE_PARTITIONS_EVERY": "hour"})
    assert found == Partitions(datetime(2024, 1, 31, tzinfo=UTC), "hour")
    for name, value in (("FROM", "soon"), ("EVERY", "minute")):
        with pytest.raises(PlanningError, match=rf"\$TIDEGATE_PARTITIONS_{name} is '{value}'"):
            spans({"TIDEGATE_PARTITIONS_FROM": "2024-01-31", f"TIDEGATE_PARTITIONS_{name}": value})


def test_automation_of_scripts_is_asked_for():
    assert not chosen({}).automation
    assert chosen({"TIDEGATE_AUTOMATION": "1"}).automation
    with pytest.raises(PlanningError, match=r"\$TIDEGATE_AUTOMATION is 'on', which is not 0 or 1"):
        chosen({"TIDEGATE_AUTOMATION": "on"})


def test_an_installed_package_without_a_script_says_what_to_do(tmp_path: Path):
    with pytest.raises(PlanningError, match="no pipeline to show") as caught:
        of_folder(tmp_path)
    assert "tidegate ui SCRIPT" in caught.value.next_command
