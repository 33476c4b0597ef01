import pytest

from tests.assets.clicks import pipeline, script
from tidegate.assets.names import Names, identifier
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
