"""docs/sql.md names every function, type, common option and reserved word."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.pipelines.sql.connectors import CONNECTORS
from tidegate.pipelines.connectors.options import SINK_OPTIONS, SOURCE_OPTIONS
from tidegate.pipelines.connectors.registry import InstalledConnectors
from tidegate.pipelines.functions import SQL_TYPES
from tidegate.pipelines.runtime.scripts import load_script
from tidegate.pipelines.sql import SqlError, compile_script, to_properties
from tidegate.pipelines.sql.functions import FUNCTIONS
from tidegate.pipelines.syntax.dialect import RESERVED
from tidegate.pipelines.syntax.grammar.base import KNOWN

DOCS = (Path(__file__).parents[3] / "docs" / "sql.md").read_text()


def test_every_function_is_documented_as_it_is_called() -> None:
    missing = [name for name, function in FUNCTIONS.items() if " TO" not in name and f"`{name}" not in DOCS]
    assert not missing
    unlike = [function.signature for function in FUNCTIONS.values() if f"`{function.signature}`" not in DOCS]
    assert not [signature for signature in unlike if " TO unit)" not in signature]


@pytest.mark.parametrize("option", [*SINK_OPTIONS, *SOURCE_OPTIONS], ids=lambda option: option.name)
def test_every_common_option_is_documented(option) -> None:
    row = next(line for line in DOCS.splitlines() if line.startswith(f"| `{option.name}` |"))
    assert option.default is None or f"`{option.default}`" in row or option.name == "insert.id"


def test_every_reserved_word_and_every_type_is_documented() -> None:
    assert not [word for word in RESERVED if word not in DOCS]
    assert not [name for name in KNOWN if name not in DOCS]


def test_the_example_compiles_and_the_error_is_as_shown() -> None:
    script = DOCS.split("```sql\n")[1].split("```")[0].replace("'connector' = 'delta'", "'connector' = 'scripted'")
    assert compile_script(script, connectors=CONNECTORS).inserts[0].id == "enriched"
    shown = DOCS.split("## Errors\n\n```\n")[1].split("```")[0]
    broken = script.replace("c.user_id, c.item_id", "c.usr_id, c.item_id")
    with pytest.raises(SqlError) as caught:
        compile_script(broken, path="clicks.sql", connectors=CONNECTORS)
    assert f"{caught.value}\n" == shown


def test_the_windows_of_the_example_compile() -> None:
    script = DOCS.split("### Windows\n")[1].split("```sql\n")[1].split("```")[0]
    tables = """
    CREATE TABLE clicks (item STRING, price DECIMAL(10, 2), rowtime TIMESTAMP(3), WATERMARK FOR rowtime AS rowtime)
        WITH ('connector' = 'scripted');
    CREATE TABLE clicks_5min (item STRING, window_start TIMESTAMP(3), window_end TIMESTAMP(3), clicks BIGINT,
        total DECIMAL(38, 2)) WITH ('connector' = 'scripted');
    """
    (insert,) = compile_script(tables + script, connectors=CONNECTORS).processes
    assert (insert.id, str(insert.windowed and insert.windowed.table)) == ("clicks_5min", "TUMBLE of 0:05:00")


def test_the_views_of_the_example_compile() -> None:
    tables = DOCS.split("```sql\n")[1].split("INSERT")[0].replace("gender STRING)", "gender STRING, age INT)", 1)
    script = tables.replace("'connector' = 'delta'", "'connector' = 'scripted'")
    (insert,) = compile_script(
        script + DOCS.split("### Views\n\n```sql\n")[1].split("```")[0], connectors=CONNECTORS
    ).inserts
    assert (insert.joins[0].predicate, len(insert.views)) == ("(`u`.`age` > 17)", 1)


def test_the_constraints_of_the_page_on_quality_compile() -> None:
    page = (Path(__file__).parents[3] / "docs" / "quality.md").read_text()
    script = page.split("```sql\n")[1].split("```")[0].replace("'connector' = 'delta'", "'connector' = 'scripted'")
    found = compile_script(script, connectors=CONNECTORS).table("enriched").constraints
    assert [constraint.action for constraint in found] == ["fail", "quarantine", "warn"]


WATERMARKS = DOCS.split("### WATERMARK FOR\n")[1].split("\n### ")[0]
OWN_FUNCTIONS = DOCS.split("## CREATE FUNCTION\n")[1].split("\n## ")[0]


def test_the_watermark_of_the_example_has_the_properties_shown() -> None:
    script = WATERMARKS.split("```sql\n")[1].split("```")[0]
    spec = compile_script(script, connectors=CONNECTORS).table("orders").watermark
    assert spec is not None
    shown = WATERMARKS.split("properties of it")[1].split("```\n")[1]
    assert to_properties(spec) == dict(re.split(r"\s{2,}", line) for line in shown.splitlines())


def test_every_connector_is_in_the_table_of_the_sources_own_times() -> None:
    for name, spec in InstalledConnectors().items():
        rows = [line.strip("| ").split(" | ") for line in WATERMARKS.splitlines() if line.startswith(f"| `{name}` |")]
        assert len(rows) == spec.source, name
        for _, rowtime, watermark in rows:
            assert (rowtime != "none", watermark) == (spec.system_time, "yes" if spec.system_watermark else "none")


def rejected() -> list[tuple[str, str]]:
    rows = [line.strip("| ").split(" | ") for line in WATERMARKS.split("| written | write |")[1].splitlines()[2:]]
    return [
        (form, hint) for row in rows if len(row) == 2 for form in re.findall(r"`([^`]+)`", row[0]) for hint in row[1:]
    ]


@pytest.mark.parametrize(("form", "hint"), rejected())
def test_what_flip_66_rejected_is_refused_with_what_to_write(form: str, hint: str) -> None:
    written = form.replace(" …", "") if form.startswith("AS") or form.startswith("WITH") else None
    definition = f"WATERMARK FOR ts {written}" if written else "WATERMARK name FOR ts AS ts"
    with pytest.raises(SqlError) as caught:
        compile_script(
            f"CREATE TABLE t (ts TIMESTAMP(3), {definition}) WITH ('connector' = 'datagen')", connectors=CONNECTORS
        )
    assert caught.value.hint is not None
    if "INTERVAL" in hint:
        assert hint.split("`")[1] in caught.value.hint


def test_the_function_of_the_example_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, script = OWN_FUNCTIONS.split("```python\n")[1].split("```")[0], OWN_FUNCTIONS.split("```\n")
    (tmp_path / "my_watermarks.py").write_text(module)
    monkeypatch.syspath_prepend(str(tmp_path))
    statement = next(part for part in script if part.startswith("CREATE FUNCTION watermarkOnFlag"))
    watermark = compile_script(statement, connectors=CONNECTORS).table("events").watermark
    assert watermark.type == "BIGINT"


def test_every_annotation_is_documented() -> None:
    for annotation, kind in SQL_TYPES.items():
        assert f"| `{annotation.__name__}` | {kind} |" in OWN_FUNCTIONS


FROM_FLINK = (Path(__file__).parents[3] / "docs" / "coming-from-flink.md").read_text()
BLOCK = re.compile(r"^```(\w+)( flink)?\n(.*?)^```", re.MULTILINE | re.DOTALL)
FORMS = [BLOCK.findall(section) for section in re.split(r"^## \d", FROM_FLINK, flags=re.MULTILINE)[1:]]
TABLES = "".join(text for form in FORMS[:2] for _, _, text in form)
"""Those of the first two forms, which all others read."""


@pytest.mark.parametrize("number", range(len(FORMS)))
def test_every_statement_that_comes_from_flink_compiles_or_is_refused_as_the_page_says(
    number: int, tmp_path: Path
) -> None:
    (_, flink, before), *after = FORMS[number]
    assert flink
    tables = TABLES if number > 1 else ""
    if not after:
        assert compile_script(tables + before).tables
        return
    with pytest.raises(SqlError):
        compile_script(tables + before)
    ((language, _, text),) = after
    if language == "sql":
        assert compile_script(tables + text).inserts
        return
    (tmp_path / "tables.sql").write_text(tables)
    (tmp_path / "pipeline.py").write_text(text)
    assert load_script(tmp_path / "pipeline.py").processes


def test_there_are_more_than_ten_statements_that_come_from_flink() -> None:
    assert len(FORMS) == 12
