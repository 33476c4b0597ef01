"""Places in a text, and what of it may be shown."""

from __future__ import annotations

import pytest

from tidegate.pipelines.sources.formats.shape import map_literal
from tidegate.pipelines.syntax.dialect import tokenize
from tidegate.pipelines.syntax.errors import Location
from tidegate.pipelines.syntax.source import Source, Span
from tidegate.pipelines.syntax.types import spark_string


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_lines_end_as_every_system_ends_them(newline: str) -> None:
    text = f"ab{newline}cd{newline}{newline}e"
    source = Source(text)
    assert source.location(0) == Location(1, 1)
    assert source.location(text.index("d")) == Location(2, 2)
    assert source.location(text.index("e")) == Location(4, 1)
    assert source.error(Span(text.index("c"), text.index("e")), "x").excerpt == "  2 | cd\n    | ^^"


def test_control_characters_are_not_sent_to_a_terminal() -> None:
    assert "\x1b" not in source_error("a \x1b[31m b").excerpt


def source_error(text: str):
    return Source(text).error(Span(0, 1), "x")


def test_text_is_written_on_one_line_without_comments() -> None:
    source = Source("a  +\n b -- c\n *(2) /* d */ . e")
    assert source.written(tokenize(source)) == "a + b *(2) . e"


def test_long_text_is_cut_for_a_message() -> None:
    assert Source("x" * 100).shown(Span(0, 100)) == "x" * 57 + "…"


def test_a_string_literal_is_its_text_alone() -> None:
    # Spark replaces `${…}` by its own settings, whichever literal it is in; `\u0024` is the same dollar.
    assert spark_string("it's a \\d for ${spark.app.name}") == r"'it\'s a \\d for \u0024{spark.app.name}'"
    assert "${" not in map_literal({"nullValue": "${spark.app.name}"})
