"""Code locations that share a lake tell each incident once."""

from __future__ import annotations

import logging
from pathlib import Path

from tests.assets.clicks import handmade
from tidegate.orchestration.alerts import Incident, Message
from tidegate.orchestration.alerts.journal import journal
from tidegate.orchestration.alerts.watched import Watched, WatchedTable

LOG = logging.getLogger(__name__)


def test_two_code_locations_on_one_lake_send_one_message_of_each_state(tmp_path: Path):
    handmade(tmp_path / "lake").begun("rates", 1, 1)
    first, second = (Watched((), (WatchedTable(name, "rates", str(tmp_path / "lake"), ""),)) for name in ("a", "b"))
    for at, state in ((1.0, "open"), (2.0, "resolved"), (3.0, "open")):
        of_a, of_b = (Message(Incident("lag rates 1", "lag", "rates is behind", name), state) for name in ("a", "b"))
        assert journal([of_a], first, LOG, at, "team a") == [of_a]
        assert journal([of_b], second, LOG, at + 0.1, "team b") == []
        assert journal([of_a], first, LOG, at + 0.2, "team a") == [of_a], "a tick that was lost tells again"
