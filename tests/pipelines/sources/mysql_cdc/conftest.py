from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Database, own_server


@pytest.fixture
def lone(server: None, tmp_path: Path) -> Iterator[Database]:
    """A server of the test's own: its settings may be changed, and no other test has written into its log."""
    with own_server(tmp_path / "server") as made:
        yield made
