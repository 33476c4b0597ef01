"""The pictures of the pages: each is shown by one, and those of Dagster are taken by the test that opens its UI."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.orchestration.browser import browsing, chromium

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SHOWN = re.compile(r"!\[[^\]]+\]\(images/([^)]+)\)")
TAKEN = re.compile(r'picture\((?:page|dialog), f?"([^"]+)"\)')


def test_every_picture_is_shown_and_every_one_that_is_shown_is_there() -> None:
    shown = {name for page in DOCS.glob("*.md") for name in SHOWN.findall(page.read_text())}
    assert shown == {path.name for path in (DOCS / "images").iterdir()}


def test_those_of_dagster_are_taken_by_the_test_that_opens_it() -> None:
    test = (ROOT / "tests" / "orchestration" / "test_demo.py").read_text()
    taken = [re.escape(name).replace(r"\{kind\}", "(schedule|sensor)") for name in TAKEN.findall(test)]
    there = {path.stem for path in (DOCS / "images").glob("dagster-*.png")}
    assert there
    assert {name for name in there if not any(re.fullmatch(one, name) for one in taken)} == set()


def test_a_machine_without_chromium_is_shown_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(pytest.fail.Exception, match="apt-get install chromium"):
        chromium()
    with pytest.raises(pytest.fail.Exception, match="apt-get install chromium"), browsing():
        pass
