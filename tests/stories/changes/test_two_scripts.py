"""Two scripts on one lake: they share a table that they declare alike, and no other."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.stories.changes.bases import SCRIPTS, Story, tidegate
from tidegate.pipelines.lake import Lake

pytestmark = pytest.mark.xdist_group("changes of rates")

SECOND = """
CREATE TABLE dear (id INT, doubled INT) WITH ('connector' = 'delta');
INSERT INTO dear SELECT id, doubled FROM orders WHERE doubled > 20;
"""
ORDERS = (
    "CREATE TABLE orders" + (SCRIPTS / "rates.sql").read_text().partition("CREATE TABLE orders")[2].partition(";")[0]
)
DEAR = [(5, 40), (8, 600)]


@pytest.fixture
def story(stories: Callable[[str], Story], tmp_path: Path) -> Iterator[Story]:
    found = stories("rates")
    with found.on_a_copy(tmp_path / "lake"):
        found.write({})
        yield found


def second(story: Story, *changes: tuple[str, str]) -> str:
    """A script beside the first: the same orders, as changed, and an INSERT of its own."""
    orders = ORDERS
    for old, new in changes:
        assert old in orders
        orders = orders.replace(old, new)
    (story.folder / "second.sql").write_text(f"{orders};\n{SECOND}")
    return "second.sql"


def splits(story: Story) -> set[tuple[str, str, str]]:
    """What the lake has of splits: table, split, detail."""
    rows = Lake(story.lake).splits
    return {(row.owner, row.split, str(row.detail)) for owner in rows.owners() for row in rows.rows(owner)}


@pytest.mark.thorough
def test_a_table_that_both_declare_alike(story: Story) -> None:
    """What is neither source nor rows may differ: the two do not knock each other out."""
    other = second(story, ("'path' = 'orders'", "'path' = 'orders', 'scan.max-rows-per-epoch' = '1000'"))
    result = story.run(script=other)
    assert result.exit_code == 0, result.output
    assert story.targets()["dear"] == DEAR
    assert story.run().exit_code == 0  # the lake is a copy: where the first script lies, seen from there, is noted once
    kept = story.files()
    for script in ("", other, ""):
        result = story.run(script=script)
        assert result.exit_code == 0, result.output
        assert "changes" not in result.output
    assert story.targets() == {**story.wanted(), "dear": DEAR}
    definitions = {name for name in story.files() if "/definitions-" in name}
    assert definitions == {name for name in kept if "/definitions-" in name}
    assert story.run(command="verify").exit_code == 0
    assert story.run(command="verify", script=other).exit_code == 0


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("doubled AS amount * 2", "doubled AS amount * 1000", ["* 2", "* 1000"]),
        ("'path' = 'orders'", "'path' = 'other_orders'", ["lake:   orders", "script: other_orders"]),
        ("WATERMARK FOR ordered AS ordered", "WATERMARK FOR settled AS settled", ["watermark", "ordered", "settled"]),
        ("    buyer STRING,\n", "    buyer STRING,\n    note STRING,\n", ["columns note"]),
        ("WATERMARK FOR", "PRIMARY KEY (id) NOT ENFORCED,\n    WATERMARK FOR", ["primary key", "nothing", "(id)"]),
    ],
)
def test_a_table_that_they_declare_differently(old: str, new: str, words: list[str], story: Story) -> None:
    other, before = second(story, (old, new)), story.files()
    result = story.run(script=other)
    assert result.exit_code == 1, result.output
    assert "orders" in result.stderr
    assert story.files() == before
    for word in words:
        assert word.lower() in result.stderr.lower()


@pytest.mark.thorough
def test_fewer_columns_lose_nothing(story: Story) -> None:
    """What a script does not declare of a table is landed for the others."""
    other = second(story, ("    buyer STRING,\n", ""))
    result = story.run(script=other)
    assert result.exit_code == 0, result.output
    assert "table orders is landed with buyer" in result.output
    assert story.targets()["dear"] == DEAR
    assert story.run(command="verify", script=other).exit_code == 0
    assert story.run().exit_code == 0
    orders = DeltaTable(story.lake / "tables" / "orders").to_pyarrow_table(columns=["buyer"])
    assert None not in orders["buyer"].to_pylist()
    assert story.targets()["converted"] == story.wanted()["converted"]


def test_the_same_relative_path_beside_another_script(story: Story, tmp_path: Path) -> None:
    """A relative path begins beside the script, so that the same words name another folder. Of the other table the
    files are those that were read, copied: it goes on, and how these lie there now is all that is stored."""
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(story.folder / "other_orders", elsewhere / "orders")
    shutil.copytree(story.folder / "rates", elsewhere / "rates")
    shutil.copy(story.folder / "rates.sql", elsewhere)
    before, known = story.files(), splits(story)
    result = tidegate(elsewhere, "run", elsewhere / "rates.sql", "--lake", story.lake)
    assert result.exit_code == 1, result.output
    assert "orders" in result.stderr
    stored = {name for name, _ in story.files().items() - before.items()}
    assert {Path(name).name.partition("-")[0] for name in stored} <= {"splits"}
    files = {row[:2] for row in known if row[0] == "rates"}
    assert {row[:2] for row in splits(story) - known} == files
