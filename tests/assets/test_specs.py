from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from tests.assets.clicks import pipeline
from tidegate.assets import Presentation, build_pipeline_definitions
from tidegate.assets.factories import on_lake
from tidegate.assets.names import GATE
from tidegate.assets.specs import connector_kind, references, source_spec
from tidegate.pipelines.sql import compile_script

LOOK = Presentation(owners=("team:data",), tags={"tier": "gold"}, script=Path("examples/clicks/pipeline.sql"))


@pytest.fixture
def graph(tmp_path: Path) -> Any:
    return build_pipeline_definitions(pipeline(), lake=tmp_path / "lake", look=LOOK).resolve_asset_graph()


def key(name: str) -> dg.AssetKey:
    return dg.AssetKey(["clicks", name])


def test_every_asset_has_a_group_owners_tags_kinds_and_a_text(graph: Any):
    for found in (graph.get(name) for name in graph.get_all_asset_keys()):
        assert found.group_name == "clicks"
        assert list(found.owners) == ["team:data"]
        assert found.tags["tier"] == "gold"
        assert found.kinds
        assert found.description
    assert graph.get(key("user_info")).kinds == {"spark", "deltalake", "scripted"}
    assert "Everyone who signed up" in (graph.get(key("user_info")).description or "")


def test_the_three_nodes_of_an_insert_follow_each_other(graph: Any):
    assert graph.get(key("enriched_click_staged")).parent_keys == {key("user_info"), key("click_event")}
    assert graph.get(key("enriched_click")).parent_keys == {key("enriched_click_staged")}
    assert all(graph.get(dg.AssetCheckKey(key("enriched_click_staged"), name)).blocking for name in GATE)


def test_a_statement_that_reads_anothers_target_follows_it(tmp_path: Path):
    script = compile_script(
        "CREATE TABLE clicks (id INT, ids ARRAY<INT>) WITH ('connector' = 'scripted');"
        "CREATE TABLE clean (id INT) WITH ('connector' = 'scripted', 'insert.id' = 'cleaning');"
        "CREATE TABLE seen (id INT) WITH ('connector' = 'scripted');"
        "INSERT INTO seen SELECT id FROM clean; INSERT INTO clean SELECT e.id FROM clicks, UNNEST(ids) AS e (id)",
        name="clicks",
    )
    graph = build_pipeline_definitions(script, lake=tmp_path / "lake").resolve_asset_graph()
    assert graph.get(key("seen_staged")).parent_keys == {key("cleaning")}
    assert graph.get(key("cleaning")).parent_keys == {key("cleaning_staged")}
    assert graph.get(key("seen_staged")).metadata["dagster/column_lineage"].deps_by_column["id"] == [
        dg.TableColumnDep(key("cleaning"), "id")
    ]
    assert graph.get(key("cleaning_staged")).metadata["dagster/column_lineage"].deps_by_column["id"] == [
        dg.TableColumnDep(key("clicks"), "ids")
    ]


def test_the_schema_is_the_scripts(graph: Any):
    schema = graph.get(key("user_info")).metadata["dagster/column_schema"]
    assert [(column.name, column.type, column.description) for column in schema.columns] == [
        ("user_id", "INT", None),
        ("gender", "STRING", "f, m or d"),
    ]
    assert not schema.columns[0].constraints.nullable
    clicks = graph.get(key("click_event")).metadata["dagster/column_schema"]
    assert [column.name for column in clicks.columns] == ["user_id", "item_id"], "PROCTIME() is stored nowhere"


def test_the_table_can_be_found_and_the_script_is_linked(graph: Any, tmp_path: Path):
    metadata = graph.get(key("enriched_click")).metadata
    assert metadata["dagster/table_name"] == f"delta.`{tmp_path}/lake/targets/enriched_click`"
    (link,) = metadata["dagster/code_references"].code_references
    assert link.line_number == 12
    assert link.file_path.endswith("examples/clicks/pipeline.sql")


def test_the_output_shows_which_columns_its_own_are_made_of(graph: Any):
    staged = graph.get(key("enriched_click_staged")).metadata["dagster/column_lineage"]
    published = graph.get(key("enriched_click")).metadata["dagster/column_lineage"]
    made_of = {"user_id": "click_event", "item_id": "click_event", "gender": "user_info"}
    assert staged.deps_by_column == {name: [dg.TableColumnDep(key(of), name)] for name, of in made_of.items()}
    of_staged = {name: [dg.TableColumnDep(key("enriched_click_staged"), name)] for name in made_of}
    assert published.deps_by_column == of_staged


def test_nothing_is_made_by_loading_definitions(graph: Any, tmp_path: Path):
    assert not (tmp_path / "lake").exists()


def test_no_secret_gets_into_what_dagster_shows(tmp_path: Path):
    text = """
    CREATE TABLE user_info (user_id INT PRIMARY KEY NOT ENFORCED, gender STRING) WITH (
        'connector' = 'mysql-cdc', 'hostname' = 'localhost', 'username' = 'reader', 'password' = 'hunter2',
        'database-name' = 'shop', 'table-name' = 'user_info'
    );
    CREATE TABLE click_event (user_id INT, proctime AS PROCTIME()) WITH ('connector' = 'scripted');
    CREATE TABLE enriched_click (user_id INT, gender STRING) WITH ('connector' = 'scripted');
    INSERT INTO enriched_click SELECT click_event.user_id, gender FROM click_event
    JOIN user_info FOR SYSTEM_TIME AS OF click_event.proctime ON click_event.user_id = user_info.user_id;
    """
    definitions = build_pipeline_definitions(compile_script(text), lake=tmp_path)
    graph = definitions.resolve_asset_graph()
    shown = [str((node.metadata, node.description, node.tags)) for node in graph.asset_nodes]
    assert "localhost" in "".join(shown)
    assert "hunter2" not in "".join(shown)


def test_kinds_are_dagsters_names_of_systems():
    assert connector_kind("mysql-cdc") == "mysql"
    assert connector_kind("datagen") == "datagen"


@pytest.mark.parametrize(
    ("look", "hours"),
    [
        (Presentation(), (24, 24, 24)),
        (
            Presentation(
                fresh_within=timedelta(hours=1),
                build_fresh_within=timedelta(hours=2),
                probe_fresh_within=timedelta(hours=3),
            ),
            (1, 2, 3),
        ),
    ],
)
def test_build_probe_and_output_have_a_freshness_policy_each(
    tmp_path: Path, look: Presentation, hours: tuple[int, ...]
):
    graph = build_pipeline_definitions(pipeline(), lake=tmp_path, look=look).resolve_asset_graph()
    names = ("enriched_click", "user_info", "click_event")
    policies = [graph.get(dg.AssetKey(["clicks", name])).freshness_policy for name in names]
    assert [policy.fail_window.to_timedelta() for policy in policies] == [timedelta(hours=n) for n in hours]
    assert graph.get(dg.AssetKey(["clicks", "enriched_click_staged"])).freshness_policy is None


def test_no_asset_starts_by_itself_unless_automation_is_asked_for(tmp_path: Path):
    found = pipeline()
    definitions = build_pipeline_definitions(found, lake=tmp_path)
    assert all(node.automation_condition is None for node in definitions.resolve_asset_graph().asset_nodes)
    sensors = definitions.get_repository_def().sensor_defs
    assert "default_automation_condition_sensor" not in {sensor.name for sensor in sensors}
    asked = Presentation(automation=True)
    spec = source_spec(on_lake(found, lake=tmp_path, look=asked), found.table("user_info"))
    assert spec.automation_condition is not None


def test_what_is_out_of_date_is_seen_by_the_definition(tmp_path: Path):
    text = Path("examples/clicks/pipeline.sql").read_text()

    def versions(script: str) -> dict[str, str | None]:
        made = build_pipeline_definitions(compile_script(script, name="clicks"), lake=tmp_path).resolve_asset_graph()
        names = ("user_info", "click_event", "enriched_click_staged", "enriched_click")
        return {name: made.get(key(name)).code_version for name in names}

    before = versions(text)
    assert all(before.values())
    assert versions(f"-- a comment\n{text}") == before
    changed = versions(text.replace("item_id, gender FROM", "item_id + 1 AS item_id, gender FROM"))
    assert changed["user_info"] == before["user_info"]
    assert changed["enriched_click"] == changed["enriched_click_staged"] != before["enriched_click"]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("`c`.`user_id`", [("c", "user_id")]),
        ("CAST(`c`.`user_id` AS BIGINT)", [("c", "user_id")]),
        ("concat(`c`.`a`, '`u`.`b`', `u`.`b`, `c`.`a`)", [("c", "a"), ("u", "b")]),
        ("`c`.`address`.`city`.`zip`", [("c", "address")]),
        ("CASE WHEN `u`.`x` > 1 THEN `c`.`y` ELSE 0 END", [("u", "x"), ("c", "y")]),
        ("`_instant`", []),
        ("42", []),
        ("`c`.`odd ``name`", [("c", "odd `name")]),
    ],
)
def test_references_are_the_columns_that_an_expression_names(expression, expected):
    assert references(expression) == expected
