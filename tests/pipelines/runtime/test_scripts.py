"""Pipelines from files: SQL scripts, and Python files that leave a `pipeline` behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.errors import PlanningError
from pipelines.runtime.scripts import load_script
from pipelines.sql import SqlError, explain

EXAMPLE = Path(__file__).parents[3] / "examples" / "news_clicks" / "pipeline.py"


def test_a_python_file_is_a_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NEWS_TABLES", raising=False)
    pipeline = load_script(EXAMPLE)
    assert pipeline.name == "news_clicks"
    assert [table.name for table in pipeline.sources] == ["news_events"]
    told = explain(pipeline)
    assert "process click_numbers: news_events -> click_numbers\n  CountNewsClickNumber: news_events by news_id" in told
    assert "waits: for nothing: rows are processed as they land; timers follow the watermarks of news_events" in told
    assert load_script(EXAMPLE).digest(pipeline.insert("click_numbers")) == pipeline.digest(
        pipeline.insert("click_numbers")
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("1 / 0", "the file can not be run: ZeroDivisionError: division by zero"),
        ("import nothing_of_the_kind", "can not be run: ModuleNotFoundError"),
        ("raise SystemExit(3)", "can not be run: SystemExit: 3"),
        ("tables = 1", "leaves no `pipeline` behind"),
        ("pipeline = 'SELECT 1'", "leaves no `pipeline` behind"),
    ],
)
def test_a_file_that_gives_no_pipeline(tmp_path: Path, text: str, told: str) -> None:
    script = tmp_path / "broken.py"
    script.write_text(text)
    with pytest.raises(PlanningError, match=told):
        load_script(script)


def test_what_the_file_itself_raises_is_told_as_it_is(tmp_path: Path) -> None:
    script = tmp_path / "tables.py"
    script.write_text("from pipelines.sql import compile_script\npipeline = compile_script('CREATE TABEL')")
    with pytest.raises(SqlError):
        load_script(script)
    with pytest.raises(PlanningError, match="can not be read"):
        load_script(tmp_path / "none.sql")
