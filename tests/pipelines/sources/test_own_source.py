"""The source of one's own in docs/connectors.md: these very lines, in a whole pipeline."""

from __future__ import annotations

import json
import re
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import pytest

from tests.pipelines.sources.sources_help import NoSplits, table
from tidegate.pipelines.connectors import registry
from tidegate.pipelines.connectors.protocol import Connector, Source, SourceContext, SourcePosition
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.testing import Harness

PAGE = Path(__file__).parents[3] / "docs" / "connectors.md"
SCRIPT = """
CREATE TABLE users (id INT PRIMARY KEY NOT ENFORCED, name STRING)
WITH ('connector' = 'json-folder', 'path' = '{users}');
CREATE TABLE clicks (id INT, p AS PROCTIME()) WITH ('connector' = 'scripted');
CREATE TABLE shown (id INT, name STRING) WITH ('connector' = 'scripted', 'gate.on-unmatched' = 'publish');
INSERT INTO shown SELECT c.id, u.name FROM clicks AS c LEFT JOIN users FOR SYSTEM_TIME AS OF c.p AS u ON c.id = u.id
"""


def lines(of: str = "a source of one's own") -> str:
    found = re.search(f"<!-- {of}: a test runs these lines -->\n```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def made_module() -> ModuleType:
    made = ModuleType("json_folder")
    exec(compile(lines(), "docs/connectors.md", "exec"), vars(made))
    return made


def shown_tests() -> type:
    """The class of tests that the page makes."""
    names: dict[str, type] = {}
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(sys.modules, "json_folder", made_module())
        exec(compile(lines("tests of a source of one's own"), "docs/connectors.md", "exec"), names)
    return names["TestJsonFolder"]


TestJsonFolder = pytest.mark.usefixtures("spark")(shown_tests())


def test_the_page_names_every_rule() -> None:
    shown = re.findall(r"^\| `(test_\w+)` \|", PAGE.read_text(), re.MULTILINE)
    assert shown == [name for name in vars(TestJsonFolder) if name.startswith("test_")]


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    made = made_module()
    monkeypatch.setitem(sys.modules, "json_folder", made)
    points = {**registry._points(), "json-folder": EntryPoint("json-folder", "json_folder:CONNECTOR", registry.GROUP)}
    monkeypatch.setattr(registry, "_points", lambda: points)
    return made


def test_it_is_fifty_lines() -> None:
    code = [line for line in lines().splitlines() if line.strip() and not line.startswith(("import", "from"))]
    assert len(code) <= 50


def test_it_has_phases_and_says_when_the_first_is_over(module: ModuleType, spark, tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.mkdir()
    write(users / "1.json", [{"id": 1, "name": "f"}, {"id": 2, "name": "m"}])
    write(users / "2.json", [{"id": 3, "name": "x"}])
    harness = Harness(SCRIPT.format(users=users), spark, tmp_path / "lake")
    harness.push("clicks", [{"id": 1}, {"id": 3}])
    assert sorted((row["id"], row["name"]) for row in harness.advance()) == [(1, "f"), (3, "x")]
    row = harness.lake.watermarks.last("users")
    assert row is not None
    assert (row.flip_epoch, row.use_processing_time, row.rows, row.position) == (1, True, 3, "2 files")

    write(users / "3.json", [{"id": 1, "name": "changed"}])
    harness.push("clicks", [{"id": 1}])
    harness.restart()
    assert [row["name"] for row in harness.advance()] == ["changed"]
    assert harness.advance() == []


def test_it_is_what_the_protocol_asks_for(module: ModuleType, tmp_path: Path) -> None:
    made: Connector = module.CONNECTOR
    context = SourceContext(
        table({"id": "INT"}, "json-folder"), {"path": str(tmp_path / "gone")}, 1, NoSplits(), "", int
    )
    assert isinstance(made.source(context), Source)
    with pytest.raises(SourceError, match="there is no folder"):
        made.source(context).preflight(SourcePosition())


def write(path: Path, rows: list[dict[str, object]]) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
