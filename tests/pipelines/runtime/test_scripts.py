"""Scripts in files, SQL and Python; the Python door of docs/watermarks.md in whole runs, by these very lines."""

from __future__ import annotations

import json
import re
from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tests.pipelines.runtime import tape
from tidegate.assets import build_pipeline_definitions
from tidegate.orchestration.commands.app import app
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.runtime.runner import Runner
from tidegate.pipelines.runtime.scripts import load_script
from tidegate.pipelines.sql import SqlError, explain
from tidegate.pipelines.sql.canonical import computes

PAGE = Path(__file__).parents[3] / "docs" / "watermarks.md"
TABLE = """
CREATE TABLE {name} (id BIGINT, n BIGINT, at AS TO_TIMESTAMP_LTZ(n, 3), WATERMARK FOR at AS at) WITH (
    'connector' = 'tape', 'rows-per-epoch' = '0=1,1=1'{options});
CREATE TABLE kept_{name} (id BIGINT) WITH ('connector' = 'delta');
INSERT INTO kept_{name} SELECT id FROM {name};
"""
SLOW = ", 'scan.watermark.alignment.group' = 'orders', 'scan.watermark.alignment.max-drift' = '5 min'"
MINUTE = 60_000


def lines(mark: str) -> str:
    """The lines of the page under a mark."""
    found = re.search(rf"<!-- {mark} -->\n```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """clicks.py of the page, beside a clicks.sql whose watermark says something else."""
    tape.install(monkeypatch)
    (tmp_path / "clicks.py").write_text(lines("a test runs these lines"))
    text = TABLE.format(name="clicks", options="") + TABLE.format(name="slow", options=SLOW)
    (tmp_path / "clicks.sql").write_text(text)
    return tmp_path / "clicks.py"


def rows(*minutes: int) -> list[dict[str, int]]:
    return [{"id": number, "n": minute * MINUTE} for number, minute in enumerate(minutes)]


def test_a_strategy_in_python_runs_with_its_idleness_and_its_alignment(
    spark: SparkSession, script: Path, tmp_path: Path
) -> None:
    lake = Lake(tmp_path / "lake")
    tape.write(lake, "clicks", {"0": rows(10, 11, 12, 30, 31), "1": rows(10)})
    tape.write(lake, "slow", {"0": rows(10)})
    now = 0
    with Runner(load_script(script), lake, spark=lambda: spark, clock=lambda: now, environment={}) as runner:
        clicks, slow = runner.advance_all(["clicks", "slow"])
        assert (clicks.rows, slow.rows) == (5, 1), "three minutes are no drift, twenty are"
        [item] = clicks.blocked
        assert (item.split, item.by) == ("0", ("clicks", "1"))
        assert clicks.last is not None
        assert {split["split"]: split["timestamp"] for split in clicks.last.splits} == {
            "0": 30 * MINUTE - 5001, "1": 10 * MINUTE - 5001
        }  # fmt: skip
        now = MINUTE
        tape.write(lake, "slow", {"0": rows(10, 40)})
        clicks, slow = runner.advance_all(["clicks", "slow"])
        assert (clicks.rows, clicks.blocked) == (1, ()), "1 is idle, and holds nobody"
        assert clicks.last is not None
        assert [split["split"] for split in clicks.last.splits if split["idle"]] == ["1"]


def test_a_generator_of_ones_own_runs_as_the_page_has_it(spark: SparkSession, script: Path, tmp_path: Path) -> None:
    table = TABLE.replace("n BIGINT,", "n BIGINT, is_end_of_sequence BOOLEAN,").replace("'0=1,1=1'", "'0=3,1=1'")
    script.with_name("clicks.sql").write_text(table.format(name="clicks", options=""))
    script.write_text(script.read_text() + lines("a test runs these lines, too"))
    lake = Lake(tmp_path / "lake")
    ends = {"0": (False, True, False, None, True, False), "1": (True, False)}
    clicks = {
        split: [row | {"is_end_of_sequence": end} for row, end in zip(rows(*range(10, 16)), flags, strict=False)]
        for split, flags in ends.items()
    }
    tape.write(lake, "clicks", clicks)
    with Runner(load_script(script), lake, spark=lambda: spark, clock=lambda: 0, environment={}) as runner:
        runner.advance("clicks")
    versions = [
        {split["split"]: split["timestamp"] // MINUTE for split in row.splits} for row in lake.watermarks.rows("clicks")
    ]
    assert versions == [{"0": 11, "1": 10}, {"0": 14, "1": 10}]


def test_every_door_takes_the_python_file(script: Path, tmp_path: Path) -> None:
    pipeline = load_script(script)
    assert (pipeline.name, load_script(script, "other").name) == ("clicks", "other")
    definitions = build_pipeline_definitions(pipeline, lake=tmp_path / "lake")
    assert dg.AssetKey(["clicks", "clicks"]) in definitions.resolve_asset_graph().get_all_asset_keys()
    result = CliRunner().invoke(app, ["explain", str(script), "--json"])
    assert result.exit_code == 0
    assert json.loads(result.stdout)


EXAMPLE = Path(__file__).parents[3] / "examples" / "news_clicks" / "pipeline.py"


def test_a_python_file_is_a_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NEWS_TABLES", raising=False)
    pipeline = load_script(EXAMPLE)
    assert pipeline.name == "news_clicks"
    assert [table.name for table in pipeline.sources] == ["news_events"]
    explained = explain(pipeline)
    assert (
        "process click_numbers: news_events -> click_numbers\n  CountNewsClickNumber: news_events by news_id"
        in explained
    )
    assert (
        "waits: for nothing: rows are processed as they land; timers follow the watermarks of news_events" in explained
    )
    again, insert = load_script(EXAMPLE), pipeline.insert("click_numbers")
    assert computes(again, insert) == computes(pipeline, insert)


def test_a_process_with_a_broadcast_input_says_that_it_waits_for_its_flip() -> None:
    explained = explain(load_script(EXAMPLE.parents[1] / "limits" / "pipeline.py"))
    assert "waits: for limits to flip, whose rows until then are processed first; after that for nothing" in explained


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 / 0", "the file cannot be run: ZeroDivisionError: division by zero"),
        ("import nothing_of_the_kind", "cannot be run: ModuleNotFoundError"),
        ("raise SystemExit(3)", "cannot be run: SystemExit: 3"),
        ("tables = 1", "leaves no `pipeline` behind"),
        ("pipeline = 'SELECT 1'", "leaves no `pipeline` behind"),
    ],
)
def test_a_file_that_gives_no_pipeline(tmp_path: Path, text: str, expected: str) -> None:
    script = tmp_path / "broken.py"
    script.write_text(text)
    with pytest.raises(PlanningError, match=expected) as raised:
        load_script(script)
    assert raised.value.where == str(script)


def test_what_the_file_itself_raises_is_reported_as_it_is(tmp_path: Path) -> None:
    script = tmp_path / "tables.py"
    script.write_text("from tidegate.pipelines.sql import compile_script\npipeline = compile_script('CREATE TABEL')")
    with pytest.raises(SqlError):
        load_script(script)
    with pytest.raises(PlanningError, match="cannot be read"):
        load_script(tmp_path / "none.sql")
