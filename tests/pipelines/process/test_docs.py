"""docs/process-functions.md: what it shows of the example is in the example, and every piece of code in it runs."""

from __future__ import annotations

import ast
import re
import runpy
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tidegate.pipelines import process
from tidegate.pipelines.process import (
    Arrived,
    LocalRun,
    OneInputStreamProcessFunction,
    WatermarkHandlingResult,
    joins,
    windows,
)
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.watermarks import Watermark

ROOT = Path(__file__).parents[3]
DOCS = (ROOT / "docs" / "process-functions.md").read_text(encoding="utf-8")
EXAMPLE = ROOT / "examples" / "news_clicks"
PUBLIC: dict[str, Any] = {
    name: getattr(room, name) for room in (process, windows, joins) for name in dir(room) if name[0] != "_"
} | {"Watermark": Watermark, "timedelta": timedelta}
LINES = [line.split(" | ")[1] for line in DOCS.partition("| FLIP-499 |")[2].partition("\n\n")[0].splitlines()[2:]]
SCRIPT = """
CREATE TABLE clicks (item STRING, `timestamp` BIGINT) WITH ('connector' = 'scripted');
CREATE TABLE orders (order_id BIGINT, item STRING, at BIGINT) WITH ('connector' = 'scripted');
CREATE TABLE payments (order_id BIGINT, paid BIGINT, at BIGINT) WITH ('connector' = 'scripted');
"""


class Row(NamedTuple):
    key: str
    value: int


@pytest.mark.parametrize("line", LINES)
def test_every_line_of_the_example_is_there(line: str) -> None:
    """Spaces do not count, and `…` is whatever stands there."""
    files = ["pipeline.py", "files.sql", "README.md"]
    text = "".join("".join((EXAMPLE / name).read_text(encoding="utf-8").split()) for name in files)
    parts = [re.escape("".join(part.split())) for part in line.strip("`").split("…")]
    assert re.search(".{0,80}".join(parts), text)


def test_no_line_of_the_example_is_left_out() -> None:
    """Whatever is called in the example is called in the table."""
    tree = ast.parse((EXAMPLE / "pipeline.py").read_text(encoding="utf-8"))
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    called = {node.attr for node in calls if isinstance(node, ast.Attribute)}
    assert {"register_timer", "collect", "with_idleness"} < called
    table = " ".join(DOCS.partition("| FLIP-499 |")[2].partition("\n\n")[0].splitlines())
    assert {name for name in called if name not in table} == {"with_name"}  # of the path of its tables


def test_every_block_of_code_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    first, emits, of_windows, of_joins = re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL)
    monkeypatch.delenv("NEWS_TABLES", raising=False)
    names = {**PUBLIC, **runpy.run_path(str(EXAMPLE / "pipeline.py"))}
    names["tables"] = names["tables"].read_text(encoding="utf-8").partition("CREATE TABLE click_numbers")[0]
    exec(first, names)
    (made,) = names["pipeline"].inserts
    assert (made.target, made.process.inputs[0].key, made.beside) == ("click_numbers", ("news_id",), ())
    names["pipeline"] = compile_script(SCRIPT)
    for block in (of_windows, of_joins):
        exec(block, names)
    assert [insert.target for insert in names["pipeline"].inserts] == ["clicks_5min", "paid_orders"]
    exec(emits.splitlines()[0], names)

    class Emits(OneInputStreamProcessFunction):
        def watermark_declarations(self):
            return (names["PROGRESS"],)

        def process_record(self, record: Row, output, ctx) -> None:
            exec(emits, {**names, "ctx": ctx})
            output.collect(record)

        def on_watermark(self, watermark, output, ctx) -> WatermarkHandlingResult:
            output.collect((watermark.identifier, watermark.value))
            return WatermarkHandlingResult.POP

    run = LocalRun(Emits(), lambda row: row.key)
    assert run.epoch([Arrived([Row("a", 1)])]) == ([Row("a", 1)],)
    assert run.emitted == {"progress": 42}
    (inline,) = re.findall(r"`(LocalRun\(function, [^`]+)`", DOCS)
    given = {"function": Emits(), "key": lambda row: row.key, "declarations": run.function.watermark_declarations()}
    found = eval(inline, {**names, **given, "records": [Row("a", 1)]})
    assert sorted(found[0], key=str) == [("BUILTIN_API_EVENT_TIME", 60_000), ("progress", 42), Row("a", 1)]


def test_the_proposals_classes_and_calls_are_named() -> None:
    calls = ["no_watermark", "per_event_watermark", "watermark_declarations", "on_watermark", "on_event_timer"]
    classes = [name for name in process.__all__ if name.endswith("StreamProcessFunction") and "EventTime" in name]
    assert len(classes) == 4
    assert not [name for name in (*calls, *classes) if name not in DOCS]
