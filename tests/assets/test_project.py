"""docs/dagster-project.md, as written: every section's files make a project of their own."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.assets.clicks import Hand, pipeline, script
from tests.assets.test_held import hold
from tidegate.assets import build_pipeline_definitions
from tidegate.assets.names import GATE
from tidegate.assets.watched import watched
from tidegate.orchestration.definitions import of_scripts
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.runtime.dry_run import dry_run
from tidegate.pipelines.runtime.runner import Runner
from tidegate.pipelines.runtime.scripts import load_script

PAGE = Path("docs/dagster-project.md")
BLOCK = re.compile(r"^```(?:yaml|python|sql)\n# (?P<path>my_project/\S+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
YAML = "type: tidegate.TidegateComponent\nattributes:\n  script: clicks.sql\n  lake: state/lake\n"
JOB_ASSETS = ("user_info", "click_event", "enriched_click_staged", "enriched_click")


def section(title: str) -> dict[str, str]:
    """The files of one section of the page."""
    _, found, rest = PAGE.read_text().partition(f"\n## {title}\n")
    assert found, f"{PAGE} has no section {title}"
    return {block["path"]: block["text"] for block in BLOCK.finditer(rest.partition("\n## ")[0])}


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., dg.Definitions]]:
    """Makes the project of a section and loads it."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def loaded(title: str, component: str = "", **changed: str) -> dg.Definitions:
        forget()
        folder = tmp_path / "my_project" / "defs" / "shop"
        folder.mkdir(parents=True, exist_ok=True)
        for package in (folder, folder.parent, folder.parent.parent):
            (package / "__init__.py").touch()
        (tmp_path / "pyproject.toml").write_text(
            '[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "my_project"\n'
        )
        (folder / "clicks.sql").write_text(script("block"))
        files = section(title)
        assert files
        if component:
            (folder / "defs.yaml").write_text(component)
        for path, text in files.items():
            for old, new in changed.items():
                text = text.replace(old, new)
            (tmp_path / path).write_text(text)
        return dg.load_from_defs_folder(path_within_project=tmp_path / "my_project")

    def forget() -> None:
        for name in [name for name in list(sys.modules) if name.partition(".")[0] == "my_project"]:
            del sys.modules[name]

    yield loaded
    forget()


def materialized(done: dg.ExecuteInProcessResult) -> list[Any]:
    return [event.step_materialization_data for event in done.get_asset_materialization_events()]


def keys(definitions: dg.Definitions) -> set[str]:
    return {key.to_user_string() for key in definitions.resolve_asset_graph().get_all_asset_keys()}


def test_the_component_makes_the_pipeline(load):
    found = load("The component")
    assert keys(found) == {f"clicks/{name}" for name in (*JOB_ASSETS, "maintenance")}


def test_op_reaches_every_step(load):
    found = load("Steps: pool, retries, tags")
    job = found.resolve_job_def("clicks")
    for node in job.nodes:
        assert node.definition.pool == "spark"
        assert node.definition.tags["team"] == "shop"
        policy = node.retry_policy or node.definition.retry_policy
        assert policy == dg.RetryPolicy(max_retries=3, delay=10, backoff=dg.Backoff.EXPONENTIAL)
    assert {node.name for node in job.nodes} >= {"clicks__user_info", "clicks__enriched_click_staged__checks"}


def test_op_name_is_what_steps_begin_with(load):
    found = load("Steps: pool, retries, tags", **{"pool: spark": "name: shop"})
    assert {node.name for node in found.resolve_job_def("clicks").nodes} >= {"shop__user_info", "shop__enriched_click"}


def test_one_executor_for_runs_of_the_asset_graph_too(load):
    repository = load("The executor").get_repository_def()
    for job in (repository.get_job("clicks"), repository.get_implicit_global_asset_job_def()):
        assert job.executor_def is dg.in_process_executor


def graph_of_argv() -> dg.JobDefinition:
    """The pipeline with a process a step; for these processes, which have this one's arguments."""
    made = build_pipeline_definitions(pipeline(), lake=Path(sys.argv[-1]))
    chosen = dg.AssetSelection.assets(*(dg.AssetKey(["clicks", name]) for name in JOB_ASSETS))
    apart = dg.define_asset_job("apart", chosen, executor_def=dg.multiprocess_executor)
    return dg.Definitions.merge(made, dg.Definitions(jobs=[apart])).resolve_job_def("apart")


@pytest.mark.thorough
@pytest.mark.usefixtures("jvm")
def test_a_process_a_step_publishes_the_same_and_spark_prints_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    lake = tmp_path / "lake"
    hand = Hand(pipeline(), lake)
    hand.users(1)
    hand.all_users_are_there()
    hand.clicks(1, 2)
    monkeypatch.setattr(sys, "argv", ["pytest", str(lake)])
    with (
        dg.instance_for_test(temp_dir=str(tmp_path)) as instance,
        dg.execute_job(dg.reconstructable(graph_of_argv), instance) as done,
    ):
        assert done.success
    assert [row["user_id"] for row in hand.published()] == [1]
    printed = capfd.readouterr().err
    assert not [line for line in printed.splitlines() if "WARN" in line or "log4j" in line or "incubator" in line]
    assert (lake / "_scratch" / "spark.log").exists()


def test_translation_reaches_every_asset_and_all_that_names_it(load):
    found = load("Specs in YAML: `translation`")
    graph = found.resolve_asset_graph()
    own = {name: graph.get(dg.AssetKey(["mart", "clicks", name])) for name in (*JOB_ASSETS, "maintenance")}
    assert {name: node.group_name for name, node in own.items() if node.group_name == "raw"} == dict.fromkeys(
        ("user_info", "click_event"), "raw"
    )
    for name, node in own.items():
        assert list(node.owners) == ["team:shop"]
        assert node.tags["table"] == name.removesuffix("_staged")
        assert (node.description or "").endswith("Ask the shop's team.")
    assert own["click_event"].parent_keys == {dg.AssetKey(["exports", "clicks"])}
    staged = own["enriched_click_staged"]
    assert staged.parent_keys == {own["user_info"].key, own["click_event"].key}
    lineage = staged.metadata["dagster/column_lineage"].deps_by_column
    assert lineage["gender"] == [dg.TableColumnDep(own["user_info"].key, "gender")]
    assert graph.get(dg.AssetCheckKey(staged.key, "rows")).blocking
    job = found.resolve_job_def("clicks")
    assert job.asset_layer.executable_asset_keys == {own[name].key for name in JOB_ASSETS}
    assert {node.name for node in job.nodes} >= {"clicks__user_info", "clicks__enriched_click"}


def test_alerts_find_translated_assets(load):
    seen = watched(load("Specs in YAML: `translation`").get_repository_def())
    assert [(item.pipeline, item.insert) for item in seen.inserts] == [("clicks", "enriched_click")]
    tables = {item.table: item.key.to_user_string() for item in seen.tables}
    assert tables == {name: f"mart/clicks/{name}" for name in ("user_info", "click_event")}
    assert {item.pipeline for item in seen.tables} == {"clicks"}
    assert {item.step for item in seen.tables} == {"clicks__user_info", "clicks__click_event"}


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        ("key_prefix: mart", 'key: "mart/{{ name }}"', "would have the same key, mart/enriched_click"),
        (
            "key_prefix: mart",
            "partitions_def: {type: daily, start_date: '2026-01-01'}",
            "the partitions of an output are those of `partitions_from`",
        ),
    ],
)
def test_a_translation_that_no_asset_can_have_is_refused(load, old: str, new: str, wrong: str):
    with pytest.raises(Exception, match="building definitions") as caught:
        load("Specs in YAML: `translation`", **{old: new})
    assert wrong in str(caught.value.__cause__)


def test_a_subclass_is_a_component(load):
    assert keys(load("A component of your own")) == {f"clicks/{name}" for name in (*JOB_ASSETS, "maintenance")}


def test_get_asset_spec_changes_specs(load):
    graph = load("Specs in Python: `get_asset_spec`").resolve_asset_graph()
    assert graph.get(dg.AssetKey(["clicks", "user_info"])).tags["connector"] == "scripted"
    assert "connector" not in graph.get(dg.AssetKey(["clicks", "enriched_click"])).tags


def test_execute_is_around_every_step(load, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    found, lake = load("Around a step: `execute`"), tmp_path / "state" / "lake"
    hold(pipeline("block"), lake)  # so that no step needs Spark
    with dg.DagsterInstance.ephemeral() as instance:
        job = found.resolve_job_def("clicks")
        done = job.execute_in_process(instance=instance, raise_on_error=False)
        logs = [record.user_message for record in instance.all_logs(done.run_id) if record.step_key]
    gate = next(check for check in done.get_asset_check_evaluations() if check.check_name == "rows")
    assert not gate.passed
    for kind in ("source", "staged", "gate"):
        assert f"{kind} begins, on {lake}" in logs
    assert "staged is done" in logs
    assert "gate is done" not in logs, "it has failed, since the gate holds the epoch"


def test_a_step_that_execute_leaves_out_publishes_nothing(load, tmp_path: Path):
    text = {"yield from super().execute(context, tidegate, step)": "if step.kind != 'gate':\n"
            "            yield from super().execute(context, tidegate, step)\n"
            "        else:\n"
            "            for key in context.selected_asset_check_keys:\n"
            "                yield dg.AssetCheckResult(passed=True, asset_key=key.asset_key, check_name=key.name)",
            "import tidegate\n\n": "import dagster as dg\nimport tidegate\n\n"}  # fmt: skip
    found = load("Around a step: `execute`", **text)
    hold(pipeline("block"), tmp_path / "state" / "lake", verdict=False)
    done = found.resolve_job_def("clicks").execute_in_process(raise_on_error=False)
    assert all(check.passed for check in done.get_asset_check_evaluations()), "as the override says"
    (failed,) = done.get_step_failure_events()
    assert failed.step_key == "clicks__enriched_click"
    assert "has no verdict" in (failed.step_failure_data.user_failure_data or dg.Failure()).description


def test_template_variables_of_a_subclass(load):
    graph = load("Words of your own in YAML: template variables").resolve_asset_graph()
    conditions = {graph.get(key).automation_condition for key in graph.materializable_asset_keys}
    assert conditions == {dg.AutomationCondition.on_cron("0 0 * * 0")}


def test_a_part_of_a_script(load):
    found = load("A part of a script: `select` and `exclude`")
    graph = found.resolve_asset_graph()
    made = {key.path[-1] for key in graph.materializable_asset_keys}
    assert made == {"user_info", "enriched_click_staged", "enriched_click"}
    assert graph.get(dg.AssetKey(["clicks", "enriched_click_staged"])).parent_keys == {
        dg.AssetKey(["clicks", name]) for name in ("user_info", "click_event")
    }
    assert dg.AssetCheckKey(dg.AssetKey(["clicks", "enriched_click_staged"]), "rows") in graph.asset_check_keys
    assert found.resolve_job_def("clicks")


@pytest.mark.parametrize(
    ("select", "exclude", "wrong"),
    [
        ("enriched_clik", "click_event", "no source table and no INSERT enriched_clik"),
        ("enriched_click", "'*'", "leave nothing of clicks"),
        ("enriched_click", "clicks", "no source table and no INSERT clicks"),
    ],
)
def test_a_selection_of_what_there_is_not_is_refused(load, select: str, exclude: str, wrong: str):
    text = {"[enriched_click]": f"[{select}]", "[click_event]": f"[{exclude}]"}
    with pytest.raises(Exception, match="building definitions") as caught:
        load("A part of a script: `select` and `exclude`", **text)
    assert wrong in str(caught.value.__cause__)


@pytest.mark.parametrize("checks", [{*GATE}, {"proof"}, set()], ids=["all", "one", "none"])
def test_no_selection_gets_a_row_past_a_gate_that_holds(load, tmp_path: Path, checks: set[str]):
    found, lake = load("The component"), tmp_path / "state" / "lake"
    hold(pipeline("block"), lake)
    staged, published = (dg.AssetKey(["clicks", name]) for name in ("enriched_click_staged", "enriched_click"))
    job = found.resolve_implicit_global_asset_job_def().get_subset(
        asset_selection={staged, published}, asset_check_selection={dg.AssetCheckKey(staged, name) for name in checks}
    )
    done = job.execute_in_process(raise_on_error=False)
    assert not done.success
    assert {event.check_name for event in done.get_asset_check_evaluations()} == checks
    assert not (lake / "targets").exists()


def test_a_run_that_leaves_the_gate_out_is_refused_with_its_name(load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    # Nobody waits here for what the gate loads in the background: it would go on into the next test.
    monkeypatch.setattr("tidegate.pipelines.runtime.runner.prepare", lambda gate: None)
    found = load("The component")
    hold(pipeline("block"), tmp_path / "state" / "lake", verdict=False)
    staged, published = (dg.AssetKey(["clicks", name]) for name in ("enriched_click_staged", "enriched_click"))
    job = found.resolve_implicit_global_asset_job_def()
    some = job.get_subset(asset_selection={staged, published}, asset_check_selection=set())
    done = some.execute_in_process(raise_on_error=False)
    (failed,) = [event for event in done.get_step_failure_events() if event.step_key == "clicks__enriched_click"]
    said = failed.step_failure_data.user_failure_data
    assert said is not None
    assert "leaves out its checks" in (said.description or "")
    assert "clicks/enriched_click_staged:proof, " in str(said.metadata["next"].value)


def test_what_is_published_can_be_counted_alone(load, tmp_path: Path):
    found = load("The component")
    hold(pipeline("block"), tmp_path / "state" / "lake")
    published = dg.AssetKey(["clicks", "enriched_click"])
    job = found.resolve_implicit_global_asset_job_def()
    check = dg.AssetCheckKey(published, "adds_up")
    done = job.get_subset(asset_selection=set(), asset_check_selection={check}).execute_in_process()
    assert [item.check_name for item in done.get_asset_check_evaluations()] == ["adds_up"]
    assert not done.get_asset_materialization_events()


def test_one_script_on_two_lakes_is_two_pipelines(load):
    found = load("One script on two lakes")
    lakes = {key: resource.lake.rpartition("/")[2] for key, resource in (found.resources or {}).items()}
    assert lakes == {"tidegate_clicks": "lake", "tidegate_clicks_test": "test"}
    assert {key.partition("/")[0] for key in keys(found)} == {"clicks", "clicks_test"}
    jobs = found.get_repository_def().job_names
    assert [name for name in jobs if name.endswith("maintenance")] == ["tidegate_maintenance"], "one for both"


def test_two_pipelines_with_one_name_are_refused(load):
    with pytest.raises(Exception, match="building definitions") as caught:
        load("One script on two lakes", **{"  name: clicks_test\n": ""})
    assert "two pipelines of this code location are called clicks: " in str(caught.value.__cause__)


def test_two_scripts_with_one_name_are_refused(tmp_path: Path):
    paths = [tmp_path / name / "clicks.sql" for name in ("a", "b")]
    for path in paths:
        path.parent.mkdir()
        path.write_text(script())
    with pytest.raises(PlanningError, match="called clicks"):
        of_scripts(paths, tmp_path / "lake")


def test_assets_of_ones_own_read_a_target(load, tmp_path: Path):
    found = load("An asset of your own reads a target", component=YAML)
    rows = [{"user_id": user, "item_id": item, "gender": "F"} for user, item in ((1, 10), (2, 10), (2, 20))]
    write_deltalake(tmp_path / "state" / "lake" / "targets" / "enriched_click", pa.Table.from_pylist(rows))
    done = found.resolve_implicit_global_asset_job_def().execute_in_process(
        asset_selection=[dg.AssetKey("items"), dg.AssetKey("users")]
    )
    metadata = {
        item.materialization.asset_key.to_user_string(): item.materialization.metadata for item in materialized(done)
    }
    assert metadata["items"]["items"].value == [[10, 2], [20, 1]]
    assert metadata["users"]["users"].value == 2
    parents = {key.to_user_string() for key in found.resolve_asset_graph().get(dg.AssetKey("items")).parent_keys}
    assert parents == {"clicks/enriched_click"}


def test_an_asset_of_ones_own_feeds_a_source(load, tmp_path: Path):
    found = load("An asset of your own feeds a source")
    graph = found.resolve_asset_graph()
    assert graph.get(dg.AssetKey(["clicks", "click_event"])).parent_keys == {dg.AssetKey("exported_clicks")}
    job = found.resolve_implicit_global_asset_job_def()
    assert job.execute_in_process(asset_selection=[dg.AssetKey("exported_clicks")]).success
    (tmp_path / "my_project" / "defs" / "shop" / "users").mkdir()
    pipeline = load_script(tmp_path / "my_project" / "defs" / "shop" / "clicks.sql")
    with Runner(pipeline, Lake(tmp_path / "state" / "lake"), spark=lambda: pytest.fail("no Spark is needed")) as runner:
        steps = {item.table: item.step for item in dry_run(runner).sources}
    assert steps["click_event"] is not None
    assert steps["click_event"].summary.startswith("file 1: ")
