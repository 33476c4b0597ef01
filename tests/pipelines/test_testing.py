"""docs/testing.md: the tests that it shows, as they stand there."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.testing import Harness

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
SHOWN: dict[str, Any] = {}
PARTS = enumerate(re.split(r"^```(?:python)?$", PAGE, flags=re.MULTILINE))
LINES = "".join(part if number % 2 else "\n" * part.count("\n") for number, part in PARTS)
"""All code of the page, each line where it stands there."""
exec(compile(LINES, "docs/testing.md", "exec"), SHOWN)
TESTS: list[Callable[..., None]] = [found for name, found in SHOWN.items() if name.startswith("test_")]


@pytest.mark.parametrize("test", TESTS, ids=lambda test: test.__name__)
def test_a_shown_test_passes(
    test: Callable[..., None], spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    test(spark, tmp_path)


def test_all_that_a_harness_can_do_is_named() -> None:
    public = {name for name in vars(Harness) if not name.startswith("_")}
    assert public <= set(re.findall(r"\.([a-z_]+)", PAGE.partition("## What a harness can do")[2]))
    assert len(TESTS) == 3
