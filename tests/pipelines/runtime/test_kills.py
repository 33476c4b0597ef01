"""SIGKILL of the whole process group, at every commit point and at random moments: no row lost, none twice.

5 random kills of a run that is still going, 200 in a soak; the seed is printed, and $TIDEGATE_SEED repeats it.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pipelines.lake import Lake
from pipelines.runtime import faults
from pipelines.sources.scripted import ScriptedInput
from pipelines.sql import compile_script
from pipelines.watermarks import MIN_TIMESTAMP
from tests.oracle.pins import Event, published_at_pins, rows_of
from tests.pipelines.runtime.test_random_histories import SCRIPT

SEED = int(os.environ.get("TIDEGATE_SEED") or random.SystemRandom().randrange(10**9))
RANDOM_KILLS = 200 if os.environ.get("TIDEGATE_SOAK") else 5
DRIVE = """
import sys
from pipelines.testing import Harness, spark_session
print("up", flush=True)
harness = Harness(open(sys.argv[1]).read(), spark_session(), sys.argv[2])
print("warm", flush=True)
harness.advance()
harness.runner.close()
"""


class Play:
    """What a test has told the two sources, and the process that runs the pipeline on it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.script = directory / "pipeline.sql"
        self.script.write_text(SCRIPT.format(kind="LEFT", policy="quarantine"))
        pipeline = compile_script(self.script.read_text())
        self.lake = Lake(directory / "lake")
        self.inputs = {
            name: ScriptedInput(self.lake.scratch(name), pipeline.table(name)) for name in ("user_info", "click_event")
        }
        self.told: dict[str, list[Event]] = {"user_info": [], "click_event": []}
        self.chance = random.Random(SEED)
        self.items = 0

    def push(self) -> None:
        """Ten changes, ten clicks."""
        users = [{"user_id": self.chance.randrange(30), "gender": self.chance.choice("fmx")} for _ in range(10)]
        self._tell("user_info", self.chance.choice(["+I", "+U", "-D"]), users)
        clicks = [{"user_id": self.chance.randrange(40), "item_id": self.items + n} for n in range(10)]
        self.items += 10
        self._tell("click_event", "+I", clicks)

    def flip(self) -> None:
        self.inputs["user_info"].watermark(MIN_TIMESTAMP, True)
        self.told["user_info"].append(("", []))

    def _tell(self, table: str, op: str, rows: list[dict[str, Any]]) -> None:
        self.inputs[table].rows(rows, op)
        self.told[table].append((op, rows))

    def start(self, **environment: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", DRIVE, str(self.script), str(self.directory)]
        return subprocess.Popen(
            command,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def kill(self, process: subprocess.Popen[str]) -> bool:
        """Kill the run at a random moment; whether it was still going. One that has ended by then has done its work."""
        assert process.stdout is not None
        while process.stdout.readline() not in ("warm\n", ""):
            pass
        with suppress(subprocess.TimeoutExpired):
            process.wait(self.chance.uniform(0.0, 12.0))
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        assert process.returncode in (0, -signal.SIGKILL)
        return process.returncode == -signal.SIGKILL

    def check(self) -> None:
        """Target and quarantine hold just what the stored plans say, each once."""
        expected, released = published_at_pins(
            self.lake,
            "enriched",
            "user_id",
            ("user_info", self.told["user_info"]),
            ("click_event", self.told["click_event"]),
        )
        target = self.lake.root / "targets" / "enriched"
        found = Counter((row["item_id"], row["gender"]) for row in rows_of(str(target)))
        assert found == Counter(
            {(dict(probe)["item_id"], dict(build)["gender"]): count for (probe, build), count in expected.items()}
        )
        assert released == self.items
        kept_out = rows_of(str(target / "_quarantine" / "enriched"))
        assert len({row["item_id"] for row in kept_out}) == len(kept_out)
        assert sum(found.values()) + len(kept_out) == self.items


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_kills_lose_no_row_and_repeat_none(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    print(f"seed {SEED}")
    play = Play(tmp_path)
    play.push()
    play.flip()
    for point in faults.POINTS:
        for owner in ("user_info", "click_event") if point.startswith("source.") else ("enriched",):
            play.push()
            with play.start(TIDEGATE_KILL_AT=f"{point}@{owner}") as process:
                process.communicate()
                assert process.returncode == -signal.SIGKILL, f"{point} of {owner} was not passed"
    caught = tries = 0
    while caught < RANDOM_KILLS:
        assert tries < 20 * RANDOM_KILLS, f"{caught} of {tries} runs were still going when they were killed"
        tries += 1
        play.push()
        with play.start() as process:
            caught += play.kill(process)
        if caught and caught % 20 == 0:
            with capfd.disabled():
                print(f"\n{caught} of {RANDOM_KILLS} random kills in {tries} tries (seed {SEED})", flush=True)
    print(f"{caught} runs were killed at random, in {tries} tries")
    with play.start() as process:
        process.communicate()
        assert process.returncode == 0
    play.check()
