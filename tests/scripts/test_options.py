from pathlib import Path

import pytest

from scripts.options import filled, options_table
from tidegate.pipelines.connectors.registry import names
from tidegate.pipelines.connectors.spec import OptionSpec

PAGE = Path(__file__).parents[2] / "docs" / "sources.md"


def test_the_page_has_the_options_that_the_connectors_have():
    text = PAGE.read_text()
    assert filled(text) == text, "run: python scripts/options.py docs/sources.md"


@pytest.mark.parametrize("name", names())
def test_the_page_has_a_section_of_every_connector(name):
    assert f"\n## {name}\n" in PAGE.read_text()
    assert f"<!-- options: {name} -->" in PAGE.read_text()


def test_a_table_of_options():
    options = [
        OptionSpec("a.#.b", "integer", required=True, doc="This | that."),
        OptionSpec("c", "choice", default="x", choices=("x", "y")),
        OptionSpec("d", doc="Free."),
    ]
    assert options_table(options).splitlines()[2:] == [
        "| `a.#.b` | integer | required | This \\| that. |",
        "| `c` | `x` or `y` | `x` |  |",
        "| `d` | string |  | Free. |",
    ]


def test_an_unknown_name_is_no_empty_table():
    with pytest.raises(KeyError):
        filled("<!-- options: nothing -->\n<!-- /options -->")
