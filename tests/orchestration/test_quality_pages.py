"""The server of Data Docs: the pages of one folder, on this machine alone."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

import pytest

from orchestration.quality_pages import serving
from pipelines.errors import TidegateError
from tests.orchestration.services import free_port


def got(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""


def test_pages_are_served_as_they_come_and_nothing_else(tmp_path: Path) -> None:
    pages, secret = tmp_path / "lake" / "_quality", tmp_path / "lake" / "secret"
    with serving(pages, 0) as address:
        assert address.startswith("http://127.0.0.1:")
        assert got(f"{address}/e/suite-index.html") == (404, "")
        (pages / "e").mkdir(parents=True)
        (pages / "e" / "suite-index.html").write_text("all is well")
        secret.write_text("no page")
        assert got(f"{address}/e/suite-index.html") == (200, "all is well")
        for other in ("/", "/e/", "/../secret", "/%2e%2e/secret", "/e/../../secret"):
            assert got(address + other) == (404, ""), other
    with pytest.raises(urllib.error.URLError):
        got(f"{address}/e/suite-index.html")


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    port = free_port()
    said = f"port {port} can not be used for Data Docs"
    with serving(tmp_path, port), pytest.raises(TidegateError, match=said), serving(tmp_path, port):
        pass
