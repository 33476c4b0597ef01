"""The embedded broker: it starts, keeps its data, and goes with its owner."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.pipelines.sources.kafka.server import BrokerUnavailable, EmbeddedKafka


def answers(address: str) -> bool:
    host, _, port = address.partition(":")
    try:
        socket.create_connection((host, int(port)), 1).close()
    except OSError:
        return False
    return True


@pytest.mark.usefixtures("server")
@pytest.mark.thorough
def test_it_comes_back_on_its_ports_with_its_data(tmp_path: Path) -> None:
    broker = EmbeddedKafka(tmp_path / "kafka")
    with pytest.raises(BrokerUnavailable, match="no listener PLAIN"):
        print(broker.bootstrap)
    with broker:
        address = broker.bootstrap
        identity = (tmp_path / "kafka" / "data" / "meta.properties").read_text()
        assert broker.running
        assert answers(address)
        broker.kill()
        assert not broker.running
        assert broker.start().bootstrap == address
        assert (tmp_path / "kafka" / "data" / "meta.properties").read_text() == identity
    assert not answers(address)


@pytest.mark.usefixtures("server")
def test_what_stops_it_from_starting_is_said(tmp_path: Path) -> None:
    broker = EmbeddedKafka(tmp_path / "kafka", options={"num.io.threads": "many"})
    with pytest.raises(BrokerUnavailable, match=r"many|num\.io\.threads"):
        broker.start()
    assert not broker.running


@pytest.mark.thorough
@pytest.mark.usefixtures("server")
def test_it_does_not_outlive_its_owner(tmp_path: Path) -> None:
    owner = (
        "import sys, time\n"
        "from tests.pipelines.sources.kafka.server import EmbeddedKafka\n"
        "broker = EmbeddedKafka(sys.argv[1]).start()\n"
        "print(broker.bootstrap, flush=True)\n"
        "time.sleep(600)\n"
    )
    command = [sys.executable, "-c", owner, str(tmp_path / "kafka")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert answers(address)
        os.kill(process.pid, signal.SIGKILL)
    end = time.monotonic() + 30
    while answers(address) and time.monotonic() < end:
        time.sleep(0.1)
    assert not answers(address)
