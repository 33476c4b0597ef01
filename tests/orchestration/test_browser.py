"""The browser of these tests, where there is none."""

from __future__ import annotations

import shutil

import pytest

from tests.orchestration.browser import browsing, chromium


def test_a_machine_without_chromium_is_shown_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(pytest.fail.Exception, match="apt-get install chromium"):
        chromium()
    with pytest.raises(pytest.fail.Exception, match="apt-get install chromium"), browsing():
        pass
