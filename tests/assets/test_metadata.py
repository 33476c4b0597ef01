"""What a source asset tells of its time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from tests.pipelines.runtime.handmade import store
from tests.pipelines.runtime.plans import release, taken
from tests.pipelines.sources.sources_help import table
from tidegate.assets.metadata import of_advance, of_staged_epoch
from tidegate.assets.text import instant, listed, markdown_table
from tidegate.pipelines.lake import Lake, StagedRow, WatermarkRow
from tidegate.pipelines.runtime.landing.advances import Advance, LandedEpoch
from tidegate.pipelines.runtime.landing.alignment import Blocked, GroupPosition
from tidegate.pipelines.runtime.releasing.doubled import KEY_TWICE
from tidegate.pipelines.watermarks import MAX_TIMESTAMP, MIN_TIMESTAMP

TABLE = table({"at": "TIMESTAMP(3)"}, "scripted", rowtime="at")


def metadata_of(tmp_path: Path, late: int | None, aligned: GroupPosition | None) -> dict[str, Any]:
    row = WatermarkRow("t", 1, 1, 0, 5, 100, False, flip_epoch=1, late=late)
    lake, landed = Lake(tmp_path), (LandedEpoch(1, 1, 5, "unbounded", "rows 1-5", True),)
    store(lake, row)
    found = of_advance(lake, TABLE, Advance("t", 1, landed, row, aligned))
    assert next(iter(found)) == "summary"
    assert len(found) <= 1 + 5 + 2, "a sentence, five facts, a picture, and the rest folded"
    details: dict[str, Any] = found.pop("details").value
    return found | details


def test_late_rows_are_reported_where_they_were_counted(tmp_path: Path) -> None:
    assert metadata_of(tmp_path, 3, None)["late rows"] == 3
    assert "late rows" not in metadata_of(tmp_path, None, None)


def test_what_is_plotted_is_a_number(tmp_path: Path) -> None:
    metadata = metadata_of(tmp_path, None, None)
    assert (metadata["watermark (ms)"], metadata["flipped"]) == (100, 1)
    assert metadata["flipped"] is not True


def test_which_splits_are_blocked_by_whom_and_since_when(tmp_path: Path) -> None:
    metadata = metadata_of(
        tmp_path, 0, GroupPosition("g", 10, 90, 100, ("u", "7"), (Blocked("0", 1000, 60, ("u", "7")),))
    )
    assert (metadata["alignment group"], metadata["blocked splits"]) == ("g", 1)
    assert metadata["group watermark"] == "1970-01-01T00:00:00.090Z"
    assert metadata["blocked"] == [
        {"split": "0", "since": "1970-01-01T00:00:01.000Z", "ahead (ms)": 60, "waits for": "u / 7"}
    ]
    assert metadata["summary"].endswith("next: 1 split once u / 7 has caught up (alignment)")


def test_a_group_that_waits_for_nobody(tmp_path: Path) -> None:
    metadata = metadata_of(tmp_path, 0, GroupPosition("g", 10, None, None, None))
    assert (metadata["group watermark"], metadata["blocked splits"]) == ("none", 0)
    assert "alignment group" not in metadata_of(tmp_path, 0, None)


def test_cells_cannot_break_a_table():
    table = markdown_table(("a", "b"), [("x|y\nz", 12345), (None, True), ({"k": "v"}, [1])])
    assert table.splitlines() == [
        "| a | b |",
        "| --- | --- |",
        "| x\\|y z | 12,345 |",
        "|  | yes |",
        '| {"k": "v"} | \\[1] |',
    ]


@pytest.mark.parametrize(
    "text",
    [
        "x\\|y",
        "x\\\\|y\\",
        "*x* **y** _x_ __y__ a_b a__b ~~x~~",
        "`x` ``y`` `",
        "<b>x</b> <http://example.com> <!-- x -->",
        "![x](http://example.com/x.png) [x](http://example.com) [x][y]",
        "&lt; &#124; & x",
        "[1] \\* \\n",
    ],
)
def test_a_cell_shows_its_text_as_it_is(text):
    parsed = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(markdown_table((text, "b"), [(text, 1)]))
    cells = [token for token in parsed if token.type == "inline"]
    assert ["".join(part.content for part in cell.children or ()) for cell in cells] == [text, "b", text, "1"]
    assert {part.type for cell in cells for part in cell.children or ()} <= {"text", "text_special"}


def test_an_address_is_text_and_shows_no_backslash():
    """A parser that makes links of addresses by itself finds none."""
    assert markdown_table(("at",), [("https://h/_next/~u www.h.org s3://b/_x a: b",)]).splitlines()[2] == (
        "| https\\://h/\\_next/\\~u www\\.h.org s3\\://b/\\_x a: b |"
    )


def test_a_line_end_ends_no_row():
    assert markdown_table(("a\nb",), [("x\r\ny\rz",)]).splitlines() == ["| a b |", "| --- |", "| x y z |"]


def test_the_first_rows_of_a_table_are_texts_which_dagster_shows_without_a_click():
    shown = listed("rows", "row", ("id", "why", "n"), [(i, None if i else "a|b", 1_000) for i in range(12)])
    texts, table = list(shown.items())[:-1], shown["rows"]
    assert texts[:2] == [("row 1", "id: 0; why: a|b; n: 1,000"), ("row 2", "id: 1; n: 1,000")]
    assert [name for name, _ in texts] == [f"row {number}" for number in range(1, 11)]
    assert len(table.value.splitlines()) == 2 + 12
    assert listed("rows", "row", ("id",), []).keys() == {"rows"}


@pytest.mark.parametrize(
    ("ms", "expected"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_700_000_000_123, "2023-11-14T22:13:20.123Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (MIN_TIMESTAMP, "MIN"),
        (MAX_TIMESTAMP, "MAX"),
        (10**17, "100000000000000000 ms"),
    ],
)
def test_instants_are_iso_8601_in_utc(ms, expected):
    assert instant(ms) == expected


@pytest.mark.parametrize(
    ("facts", "shown"), [({}, None), ({KEY_TWICE: 0}, 0), ({KEY_TWICE: 2, "second": {KEY_TWICE: 1}}, 3)]
)
def test_rows_of_a_key_that_came_twice_are_shown_where_a_key_is_declared(
    facts: dict[str, Any], shown: int | None
) -> None:
    plan = release("e", 1, taken("clicks", 0, 1, 4))
    row = StagedRow("insert e", 1, 1, plan.digest, 0, "f", [], {"rows": 4, "to:publish": 4}, facts)
    found = of_staged_epoch(plan, row)
    assert (found | found["details"].value).get("rows of a key that came twice") == shown
