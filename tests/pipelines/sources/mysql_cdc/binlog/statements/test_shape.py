"""Which types hold every value of another as the same value."""

from __future__ import annotations

import pytest

from tidegate.pipelines.sources.mysql_cdc.binlog.statements.query import TokenReader, tokens
from tidegate.pipelines.sources.mysql_cdc.binlog.statements.shape import Shape, charset_holds, read_shape


def shape(text: str) -> Shape:
    return read_shape(TokenReader([*tokens(text)]))


@pytest.mark.parametrize(
    ("wider", "other", "holds"),
    [
        ("INTEGER(5)", "int(11)", True),
        ("BIGINT", "int", True),
        ("int", "bigint", False),
        ("bigint", "int unsigned", True),
        ("int", "int unsigned", False),
        ("bigint unsigned", "int", False),
        ("int zerofill", "int unsigned", True),
        ("decimal(12,2)", "decimal(10,2)", True),
        ("decimal(12,3)", "decimal(10,2)", False),  # as a text it is another one
        ("decimal(40,2)", "decimal(10,2)", False),  # read as a text
        ("decimal(9,2)", "decimal(10,2)", False),
        ("double", "float", False),
        ("varchar(40)", "varchar(20)", True),
        ("varchar(20)", "varchar(40)", False),
        ("text", "varchar(16383)", True),
        ("text", "varchar(16384)", False),
        ("tinytext", "varchar(64)", False),
        ("varchar(65535)", "tinytext", False),
        ("mediumtext", "text", True),
        ("text(9)", "varchar(2)", False),  # a shorter type than TEXT
        ("char(9)", "char(8)", True),
        ("varchar(9)", "char(9)", False),
        ("char(9)", "varchar(9)", False),
        ("blob", "varbinary(255)", True),
        ("text", "varbinary(255)", False),
        ("blob", "text", False),
        ("binary(9)", "binary(8)", False),  # padded
        ("enum('a',',','it''s')", "enum('a',',')", True),
        ("enum('b','a')", "enum('a')", False),
        ("set('a','b')", "set('a')", True),
        ("set('a')", "enum('a')", False),
        ("datetime(6)", "datetime", False),
        ("time", "time", True),
    ],
)
def test_holds(wider: str, other: str, holds: bool) -> None:
    assert shape(wider).holds(shape(other)) is holds


def test_a_character_set_that_holds_another_has_its_bytes() -> None:
    pairs = [("utf8mb4", "utf8mb3"), ("utf8mb4", "ascii"), ("latin1", "latin1"), (None, None)]
    assert all(charset_holds(*pair) for pair in pairs)
    assert not any(charset_holds(*pair) for pair in [("utf8mb3", "utf8mb4"), ("utf8mb4", "latin1"), (None, "latin1")])
