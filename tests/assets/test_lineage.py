import dagster as dg
import pytest

from tests.assets.clicks import pipeline
from tidegate.assets.lineage import published_lineage, references, staged_lineage
from tidegate.assets.names import Names


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


def test_staged_columns_come_from_the_sources_and_published_ones_from_the_staged():
    found = pipeline()
    insert, names = found.inserts[0], Names("clicks")
    staged = staged_lineage(insert, names).deps_by_column
    assert staged == {
        "user_id": [dg.TableColumnDep(dg.AssetKey(["clicks", "click_event"]), "user_id")],
        "item_id": [dg.TableColumnDep(dg.AssetKey(["clicks", "click_event"]), "item_id")],
        "gender": [dg.TableColumnDep(dg.AssetKey(["clicks", "user_info"]), "gender")],
    }
    published = published_lineage(insert, names).deps_by_column
    assert published["gender"] == [dg.TableColumnDep(dg.AssetKey(["clicks", "enriched_click_staged"]), "gender")]
