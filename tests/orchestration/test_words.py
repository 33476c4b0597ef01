"""How texts of errors are written for people."""

from __future__ import annotations

import pytest

from tidegate.orchestration.words import sentence


@pytest.mark.parametrize(
    ("text", "one"),
    [
        ("the file /data/a.json is gone", "the file /data/a.json is gone"),
        ("The file is gone.", "The file is gone"),
        ("The file is gone. It was there before.", "The file is gone; it was there before"),
        ("two\n  lines", "two lines"),
        ("a value, e.g. 7, of rate 0.5", "a value, e.g. 7, of rate 0.5"),
        ("1 of 2 rows (see below). DeltaTable is left", "1 of 2 rows (see below); DeltaTable is left"),
        ("[CAST_INVALID_INPUT] The value 'x' is malformed. Use `try_cast` instead. SQLSTATE: 22018",
         "[CAST_INVALID_INPUT] The value 'x' is malformed; use `try_cast` instead; SQLSTATE: 22018"),
        ("", ""),
    ],
)  # fmt: skip
def test_an_errors_text_is_one_sentence_without_its_stop(text: str, one: str) -> None:
    assert sentence(text) == one
