"""`tidegate status --watch`."""

from __future__ import annotations

import io
import json
import os
import pty
import signal
import subprocess
import sys
import threading
from pathlib import Path

from rich.console import Console

from tests.assets.clicks import handmade
from tests.orchestration.services import until
from tests.pipelines.runtime.handmade import HandmadeLake
from tidegate.orchestration.console.screen import Screen
from tidegate.orchestration.console.watching import watch
from tidegate.pipelines.errors import LakeError
from tidegate.pipelines.facts.problems import looked
from tidegate.pipelines.runtime.status import LakeStatus


def looks(rows: HandmadeLake, stop: threading.Event, most: int = 3):
    """Reads the lake; something lands between two looks, and after `most` of them it is enough."""
    seen: list[int] = []

    def look() -> LakeStatus:
        seen.append(len(seen) + 1)
        rows.landed(rows.probe, len(seen), 100, at=0)
        if len(seen) == most:
            stop.set()
        return looked(rows.lake)

    return look


def test_a_terminal_is_drawn_anew_at_every_look(tmp_path: Path):
    out, stop = io.StringIO(), threading.Event()
    screen = Screen(out=Console(file=out, force_terminal=True, width=160, height=40))
    watch(screen, looks(handmade(tmp_path / "lake"), stop), 0.01, stop)
    drawn = out.getvalue()
    for rows in ("100", "200", "300"):
        assert rows in drawn
    assert "every 0.01 s; Ctrl-C ends it" in drawn


def test_a_program_gets_a_line_of_json_at_every_look(tmp_path: Path):
    out, stop = io.StringIO(), threading.Event()
    watch(Screen(as_json=True, out=Console(file=out)), looks(handmade(tmp_path / "lake"), stop), 0.01, stop)
    landed = [json.loads(line)["totals"]["landed"] for line in out.getvalue().splitlines()]
    assert landed == [100, 200, 300]


def test_a_lake_that_is_not_there_yet_is_waited_for(tmp_path: Path):
    out, stop = io.StringIO(), threading.Event()
    later = looks(handmade(tmp_path / "lake"), stop, 1)
    calls: list[int] = []

    def look() -> LakeStatus:
        calls.append(1)
        if len(calls) == 1:
            raise LakeError("there is no lake here", where="lake")
        return later()

    watch(Screen(out=Console(file=out, width=160)), look, 0.01, stop)
    assert out.getvalue().startswith("there is no lake here")
    assert "100" in out.getvalue()


def test_it_ends_well_on_ctrl_c_and_never_loads_spark(tmp_path: Path):
    rows = handmade(tmp_path / "lake")
    rows.landed(rows.probe, 1, 4711, at=0)
    code = (
        "import sys; from tidegate.orchestration.commands.app import app\n"
        "try: app(sys.argv[1:])\n"
        "except SystemExit as ended: status = ended.code\n"
        "assert 'pyspark' not in sys.modules; sys.exit(status)"
    )
    ours, theirs = pty.openpty()
    asked = ["status", "--watch", "--every", "0.1", "--lake", str(rows.lake.root)]
    process = subprocess.Popen([sys.executable, "-c", code, *asked], stdout=theirs, stderr=subprocess.PIPE)
    os.close(theirs)
    drawn = bytearray()

    def read() -> bool:
        drawn.extend(os.read(ours, 65536))
        return b"4,711" in drawn

    try:
        until(read, "the rows are shown")
        process.send_signal(signal.SIGINT)
        reader = threading.Thread(target=_drain, args=(ours,), daemon=True)
        reader.start()
        _, said = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0, said.decode()


def _drain(descriptor: int) -> None:
    """A terminal that nobody reads from blocks who writes to it."""
    try:
        while os.read(descriptor, 65536):
            pass
    except OSError:
        return
