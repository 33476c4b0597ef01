"""docs/sql.md names every function, type, common option and reserved word."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.sql import SqlError, compile_script
from pipelines.sql.dialect import RESERVED
from pipelines.sql.functions import FUNCTIONS
from pipelines.sql.grammar.types import KNOWN
from pipelines.sql.options import SINK_OPTIONS, SOURCE_OPTIONS
from tests.pipelines.sql.connectors import CONNECTORS

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
