"""`tidegate run --continuous` as a process: it ticks until it gets a signal, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.conftest import SECRET, Database
from tests.secret_traces import traces
from tidegate.orchestration.commands.app import app
from tidegate.orchestration.commands.options import stopped_by_signals
from tidegate.pipelines.lake import Lake

EXAMPLE = Path(__file__).parents[2] / "examples" / "clicks" / "pipeline.sql"
_UNREACHABLE = {"SourceUnreachable", "ConnectionLost"}
"""Of a server that went away: opening a connection is refused, an open one breaks. Either may come first."""


class Relay:
    """A port that leads to a server, until it is cut."""

    def __init__(self, host: str, port: int) -> None:
        self._to = host, port
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._cut = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Break what is open, and every connection from now on."""
        self._cut = True
        for end in self._open:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        self._cut = False

    def close(self) -> None:
        self.cut()
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                if self._cut:
                    near.close()
                    continue
                far = socket.create_connection(self._to)
                self._open += [near, far]
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=_copied, args=ends, daemon=True).start()


def _copied(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def test_it_ticks_until_sigterm_beside_another_runner_and_leaves_no_lease_and_no_secret(
    example_database: Database, tmp_path: Path
) -> None:
    example_database.execute(
        "CREATE TABLE user_info (user_id INT PRIMARY KEY, gender VARCHAR(8) NOT NULL)",
        "INSERT INTO user_info SELECT seq, 'f' FROM seq_1_to_100",
    )
    lake = tmp_path / "lake"
    command = [*map(str, (sys.executable, "-m", "tidegate.orchestration.cli", "run", EXAMPLE, "--lake", lake))]
    relay = Relay(example_database.server.host, example_database.server.port)
    settings = example_database.environment(CLICKS_AT_START=50, GREATEST_USER_ID=120, TIDEGATE_MASTER="local[2]")
    settings["MYSQL_PORT"] = str(relay.port)
    environment = {**os.environ, **settings}
    with (tmp_path / "messages").open("wb") as messages:
        process = subprocess.Popen(
            [*command, "--continuous", "--every", "0.2", "--json"],
            stdout=subprocess.PIPE,
            stderr=messages,
            text=True,
            env=environment,
            start_new_session=True,
        )
        assert process.stdout is not None
        ticks: list[dict[str, Any]] = []

        def ticked() -> dict[str, Any]:
            line = process.stdout.readline()  # type: ignore[union-attr]
            assert line, (tmp_path / "messages").read_text()
            ticks.append(json.loads(line))
            return ticks[-1]

        while not any(insert["published"] for insert in ticked()["inserts"]):
            pass

        other = CliRunner().invoke(app, ["run", str(EXAMPLE), "--lake", str(lake)], env=settings)
        assert other.exit_code == 1
        assert "user_info is being worked on by another runner" in other.stderr
        assert f"tidegate run --continuous, process {process.pid}" in other.stderr
        assert "nothing was changed by this run" in other.stderr
        assert "Traceback" not in other.stderr
        assert process.poll() is None, "the one that works goes on"

        relay.cut()
        while not (away := ticked())["stuck"]:
            pass
        (stuck,) = away["stuck"]
        assert stuck["owner"] == "user_info"
        assert stuck["kind"] in _UNREACHABLE
        clicks = [item for item in ticked()["sources"] if item["table"] == "click_event"]
        assert clicks[0]["rows"] > 0, "a table of another source goes on"
        assert ticks[-1]["inserts"] == [], "no row is joined to a table that is behind"
        (row,) = [row for row in Lake(lake).stuck.rows("user_info") if not row.over]
        assert row.kind in _UNREACHABLE
        relay.mend()
        while ticked()["stuck"]:
            pass
        while not any(insert["published"] for insert in ticked()["inserts"]):
            pass

        # As a supervisor or a terminal does: to all of the process's group.
        os.killpg(process.pid, signal.SIGTERM)
        rest = process.stdout.read()
        assert process.wait() == 0, (tmp_path / "messages").read_text()
    relay.close()
    said = (tmp_path / "messages").read_text()
    assert said.splitlines()[-1] == "Stopped between two steps. Nothing is half done."
    assert "user_info is stuck" in said
    assert "user_info goes on again." in said
    assert "Exception" not in said
    last = Lake(lake).stuck.last("user_info")
    assert last is not None
    assert last.over

    now = json.loads(CliRunner().invoke(app, ["status", str(EXAMPLE), "--lake", str(lake), "--json"]).stdout)
    assert [part["holder"] for part in (*now["sources"], *now["inserts"])] == [None] * 3
    (insert,) = now["inserts"]
    assert insert["rows"]["balanced"]
    assert insert["epoch"] >= 2
    assert insert["rows"]["published"] > 0

    (tmp_path / "shown").write_text("\n".join([*map(json.dumps, ticks), rest, other.stdout, other.stderr]))
    assert (lake / "_scratch" / "spark.log").exists()
    assert traces(SECRET, tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_asks_once_and_the_second_is_the_systems_own(number: signal.Signals) -> None:
    before = {name: signal.getsignal(name) for name in (signal.SIGTERM, signal.SIGINT)}
    stop = threading.Event()
    with stopped_by_signals(stop):
        assert not stop.is_set()
        os.kill(os.getpid(), number)
        assert stop.wait(10)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    assert {name: signal.getsignal(name) for name in before} == before
