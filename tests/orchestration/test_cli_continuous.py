"""`tidegate run --continuous` as a process: it ticks until it is told to stop, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from orchestration.cli import app
from orchestration.commands.signals import stopped_by_signals
from tests.conftest import SECRET, Database
from tests.secret_traces import traces

EXAMPLE = Path(__file__).parents[2] / "examples" / "clicks" / "pipeline.sql"


def test_it_ticks_until_sigterm_beside_another_runner_and_leaves_no_lease_and_no_secret(
    example_database: Database, tmp_path: Path
) -> None:
    example_database.execute(
        "CREATE TABLE user_info (user_id INT PRIMARY KEY, gender VARCHAR(8) NOT NULL)",
        "INSERT INTO user_info SELECT seq, 'f' FROM seq_1_to_100",
    )
    lake = tmp_path / "lake"
    command = [*map(str, (sys.executable, "-m", "orchestration.cli", "run", EXAMPLE, "--lake", lake))]
    settings = example_database.environment(CLICKS_AT_START=50, GREATEST_USER_ID=120, TIDEGATE_MASTER="local[2]")
    environment = {**os.environ, **settings}
    with (tmp_path / "messages").open("wb") as messages:
        process = subprocess.Popen(
            [*command, "--continuous", "--every", "0.2", "--json"],
            stdout=subprocess.PIPE,
            stderr=messages,
            text=True,
            env=environment,
        )
        assert process.stdout is not None
        ticks, published = [], 0
        while published < 3:
            line = process.stdout.readline()
            assert line, (tmp_path / "messages").read_text()
            ticks.append(json.loads(line))
            published += sum(bool(insert["published"]) for insert in ticks[-1]["inserts"])

        other = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert other.returncode == 1
        assert "user_info is being worked on by another runner" in other.stderr
        assert f"tidegate run --continuous, process {process.pid}" in other.stderr
        assert "nothing was changed by this run" in other.stderr
        assert "Traceback" not in other.stderr
        assert process.poll() is None, "the one that works goes on"

        process.send_signal(signal.SIGTERM)
        rest = process.stdout.read()
        assert process.wait() == 0, (tmp_path / "messages").read_text()
    assert "Stopped" in (tmp_path / "messages").read_text().splitlines()[-1]

    now = json.loads(CliRunner().invoke(app, ["status", str(EXAMPLE), "--lake", str(lake), "--json"]).stdout)
    assert [part["holder"] for part in (*now["sources"], *now["inserts"])] == [None] * 3
    (insert,) = now["inserts"]
    assert insert["rows"]["balanced"]
    assert insert["epoch"] >= 3
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
