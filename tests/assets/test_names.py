from pathlib import Path

import pytest

from tests.assets.clicks import pipeline, script
from tidegate.assets.factories import on_lake
from tidegate.assets.names import Names, identifier, refuse_equal_jobs
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.sql import compile_script


def test_keys_are_the_pipeline_and_the_part():
    found = pipeline()
    paths = [list(key.path) for key in Names("clicks").keys(found)]
    assert paths == [
        ["clicks", "user_info"],
        ["clicks", "click_event"],
        ["clicks", "enriched_click_staged"],
        ["clicks", "enriched_click"],
    ]


def test_names_hold_only_what_dagster_allows():
    assert identifier("my-clicks.2 é") == "my_clicks_2__"
    assert Names("my-clicks").job == "my_clicks"


def test_two_parts_that_would_be_one_asset_are_refused():
    text = script().replace(
        "'connector' = 'scripted', 'gate", "'insert.id' = 'user_info', 'connector' = 'scripted', 'gate"
    )
    with pytest.raises(PlanningError, match="the same asset, clicks__user_info"):
        Names("clicks").keys(compile_script(text))


@pytest.mark.parametrize("name", ["my clicks", "clicks/day", "größe", "__ASSET_JOB", ""])
def test_a_name_that_dagster_takes_nowhere_is_refused_with_what_can_be_one(tmp_path: Path, name: str):
    with pytest.raises(PlanningError, match="cannot be a part of names in Dagster, which have letters from A to Z"):
        on_lake(pipeline(name=name), lake=tmp_path)
    text = script().replace("user_info", "größe")
    with pytest.raises(PlanningError, match="'größe' cannot be a part"):
        on_lake(compile_script(text, name="clicks"), lake=tmp_path)
    for other in ("my-clicks.2", "__clicks"):
        on_lake(pipeline(name=other), lake=tmp_path)


def test_a_component_that_is_built_again_leaves_its_old_name_to_others():
    declared: dict[int, tuple[str, list[str]]] = {}
    refuse_equal_jobs(declared, 1, ["a"], "the first")
    refuse_equal_jobs(declared, 1, ["b"], "the first")
    refuse_equal_jobs(declared, 2, ["a"], "the second")
    with pytest.raises(PlanningError, match="called b: one of the first, and one of the third"):
        refuse_equal_jobs(declared, 3, ["c", "b"], "the third")
