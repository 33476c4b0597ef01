"""Reads the given/expected tables of tests/fixtures/watermarks; see the head of each for its words."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tidegate.pipelines.watermarks import BEGINNING, PROCESSING_TIME, Watermark

FIXTURES = Path(__file__).parents[2] / "fixtures" / "watermarks"


def cases(name: str) -> list[Any]:
    """All cases of one table, as parameters of a test."""
    table = tomllib.loads((FIXTURES / f"{name}.toml").read_text())
    return [pytest.param(case, id=case["name"]) for case in table["case"]]


def steps(case: dict[str, Any]) -> Iterator[tuple[str, str, list[str], str]]:
    """(who, input, expected words, the step as written) of each step."""
    for step in case["steps"]:
        given, _, expected = step.partition("=>")
        who, _, word = given.partition(":")
        yield who.strip(), word.strip(), expected.split(), step


def watermark(word: str) -> Watermark:
    """The watermark that a word stands for."""
    if word == "-":
        return BEGINNING
    if word == "now":
        return PROCESSING_TIME
    if word.startswith("now("):
        return Watermark(int(word[4:-1]), True)
    return Watermark(int(word))


def word(emitted: Watermark) -> str:
    """The word for a watermark; the other way round."""
    if emitted.use_processing_time:
        return "now" if emitted == PROCESSING_TIME else f"now({emitted.timestamp})"
    return str(emitted.timestamp)


class Recorder:
    """An output that remembers what it received since it was last read."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def emit_watermark(self, watermark: Watermark) -> None:
        self.words.append(word(watermark))

    def mark_idle(self) -> None:
        self.words.append("idle")

    def mark_active(self) -> None:
        self.words.append("active")

    def take(self) -> list[str]:
        words, self.words = self.words, []
        return words
