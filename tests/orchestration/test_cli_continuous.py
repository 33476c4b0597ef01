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
from orchestration.commands.run import stopped_by_signals

SCRIPT = """
CREATE TABLE user_info (user_id INT PRIMARY KEY NOT ENFORCED, gender STRING) WITH (
    'connector' = 'datagen', 'number-of-rows' = '100', 'rows-at-start' = '100',
    'fields.user_id.kind' = 'sequence', 'fields.user_id.start' = '1', 'fields.user_id.end' = '100',
    'fields.gender.length' = '1');
CREATE TABLE click_event (user_id INT, proctime AS PROCTIME()) WITH (
    'connector' = 'datagen', 'rows-per-second' = '50', 'fields.user_id.min' = '1', 'fields.user_id.max' = '120');
CREATE TABLE enriched (user_id INT, gender STRING) WITH ('connector' = 'delta');
INSERT INTO enriched
SELECT click_event.user_id, gender FROM click_event
LEFT JOIN user_info FOR SYSTEM_TIME AS OF click_event.proctime ON click_event.user_id = user_info.user_id;
"""


def test_it_ticks_until_sigterm_and_leaves_no_lease(tmp_path: Path) -> None:
    script, lake = tmp_path / "clicks.sql", tmp_path / "lake"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "orchestration.cli", "run", script, "--lake", lake]
    with (tmp_path / "messages").open("wb") as messages:
        process = subprocess.Popen(
            [*map(str, command), "--continuous", "--every", "0.2", "--json"],
            stdout=subprocess.PIPE,
            stderr=messages,
            text=True,
            env={**os.environ, "TIDEGATE_MASTER": "local[2]"},
        )
        assert process.stdout is not None
        ticks, published = [], 0
        while published < 3:
            line = process.stdout.readline()
            assert line, (tmp_path / "messages").read_text()
            ticks.append(json.loads(line))
            published += sum(bool(insert["published"]) for insert in ticks[-1]["inserts"])
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
        assert process.wait() == 0, (tmp_path / "messages").read_text()
    assert "Stopped" in (tmp_path / "messages").read_text().splitlines()[-1]

    now = json.loads(CliRunner().invoke(app, ["status", str(script), "--lake", str(lake), "--json"]).stdout)
    assert [part["holder"] for part in (*now["sources"], *now["inserts"])] == [None] * 3
    (insert,) = now["inserts"]
    assert insert["rows"]["balanced"]
    assert insert["epoch"] >= 3
    assert insert["rows"]["published"] > 0


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
