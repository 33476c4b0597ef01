"""Every letter that a name may have, lowered here and by the server."""

from __future__ import annotations

import pytest

from tests.conftest import Database
from tidegate.pipelines.sources.mysql_cdc.names import lowered

LETTERS = "".join(chr(code) for code in range(1, 0x10000) if not 0xD800 <= code < 0xE000)


def differing(database: Database) -> list[tuple[str, str, str]]:
    """The letters that the server lowers otherwise, as it lowers names: that letter, here, there."""
    # Its collation for names; a server's default one may be of a later Unicode.
    ((there,),) = database.execute(
        f"SELECT HEX(LOWER(_utf8mb3 X'{LETTERS.encode().hex()}' COLLATE utf8mb3_general_ci))"
    )
    here = map(lowered, LETTERS)
    found = bytes.fromhex(there).decode()
    return [each for each in zip(LETTERS, here, found, strict=True) if each[1] != each[2]]


def test_names_are_lowered_as_the_server_does(database: Database) -> None:
    assert differing(database) == []


@pytest.mark.parametrize("name", ["straße", "ς", "ſ", "ẞ", "Ⱥ", "ab1"])
def test_letters_that_stay(name: str) -> None:
    assert lowered(name) == name
