"""How numbers and names are written for people."""

from __future__ import annotations

import pytest

from tidegate.pipelines.text import counted


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [(0, "row", "0 rows"), (1, "match", "1 match"), (2000, "match", "2,000 matches"), (2, "epoch", "2 epochs")],
)
def test_things_are_counted(count: int, noun: str, text: str) -> None:
    assert counted(count, noun) == text
