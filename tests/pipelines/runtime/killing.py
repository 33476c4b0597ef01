"""A pipeline in a process of its own, which a test kills with its whole process group, and what it must have left."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.oracle.pins import Event, published_at_pins, rows_of
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.runtime import faults
from tidegate.pipelines.runtime.runner import Runner
from tidegate.pipelines.sources.cdc import snapshot
from tidegate.pipelines.sources.scripted import ScriptedInput
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.testing import spark_session

ROOT = Path(__file__).parents[3]


class Play(ABC):
    """Clicks joined to users: what the clicks' source was given, and the processes that run the script on it.

    The script has the tables `user_info` and `click_event` (scripted), and the INSERT `enriched`, which quarantines
    clicks without a user. `environment` and `setting` are the processes' environment and arguments of `drive`.
    """

    def __init__(self, directory: Path, script: str, seed: int, environment: Mapping[str, str], **setting: int) -> None:
        self.directory = directory
        self.script = directory / "pipeline.sql"
        self.script.write_text(script)
        self.pipeline = compile_script(script)
        self.lake = Lake(directory / "lake")
        self.environment = environment
        self.setting = setting
        self.clicks: list[Event] = []
        self.chance = random.Random(seed)
        self.items = 0

    @abstractmethod
    def users_at(self, generation: int, epoch: int) -> Mapping[int, Mapping[str, Any]]:
        """The users as of an epoch of their table. Asked for epochs that never go back."""

    def input(self, table: str) -> ScriptedInput:
        return ScriptedInput(self.lake.scratch(table), self.pipeline.table(table))

    def click(self, users: int) -> None:
        """Ten clicks, of users below that number."""
        clicks = [{"user_id": self.chance.randrange(users), "item_id": self.items + n} for n in range(10)]
        self.items += 10
        self.input("click_event").rows(clicks)
        self.clicks.append(("+I", clicks))

    def start(self, kill_at: str = "", after: int = 0, stop_at: str = "") -> subprocess.Popen[str]:
        """Run the script. It is killed at `kill_at`, a point@owner, once it has passed there `after` times; stopped at
        `stop_at`."""
        given = {"script": str(self.script), "directory": str(self.directory), "kill_at": kill_at, "after": after}
        return started({**given, "stop_at": stop_at, **self.setting}, self.environment)

    def sleeps(self, stop_at: str) -> subprocess.Popen[str]:
        """A run that is stopped by SIGSTOP at a point@owner. It sleeps for longer than its leases live: by its
        heartbeat, which others judge it by."""
        process = self.start(stop_at=stop_at)
        assert os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1]), f"{stop_at} was not passed: {self.shown}"
        for beat in Path(self.lake.control / "runners").iterdir():
            os.utime(beat, (0, 0))
        return process

    def wakes(self, process: subprocess.Popen[str]) -> None:
        """It goes on, and is refused, as others have taken what it worked on."""
        with process:
            process.send_signal(signal.SIGCONT)
            process.communicate()
        assert process.returncode == 1, self.shown
        # Or the files that it has staged are gone: who took over has planned the epoch's attempt anew.
        assert any(name in self.shown for name in ("LeaseHeld", "ConcurrentRun", "StepFailed")), self.shown

    def dies(self, kill_at: str, after: int = 0) -> None:
        """A run that does not survive `kill_at`."""
        with self.start(kill_at, after) as process:
            process.communicate()
        assert process.returncode == -signal.SIGKILL, f"{kill_at} was not passed: {self.shown}"

    def ends(self) -> None:
        """A run that nobody kills."""
        with self.start() as process:
            process.communicate()
        assert process.returncode == 0, self.shown

    def killed_at_random(self) -> bool:
        """A run that is killed at a random moment; whether it was still going. One that has ended has done its work."""
        with self.start() as process:
            assert process.stdout is not None
            while process.stdout.readline() not in ("warm\n", ""):
                pass
            with suppress(subprocess.TimeoutExpired):
                process.wait(self.chance.uniform(0.0, 12.0))
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        assert process.returncode in (0, -signal.SIGKILL), self.shown
        return process.returncode == -signal.SIGKILL

    def kill_at_random(self, times: int, before: Callable[[], None], report: Callable[[str], None] = print) -> None:
        """Runs until so many were killed at a random moment, `before` each of which something happens."""
        caught = tries = 0
        while caught < times:
            assert tries < 20 * times, f"{caught} of {tries} runs were still going when they were killed"
            tries += 1
            before()
            caught += self.killed_at_random()
            if caught and caught % 20 == 0:
                report(f"{caught} of {times} random kills in {tries} tries")
        report(f"{caught} runs were killed at random, in {tries} tries")

    @property
    def shown(self) -> str:
        return (self.directory / "stderr").read_text()[-3000:]

    def check(self) -> None:
        """Target and quarantine hold just what the stored plans say, each click once."""
        expected, released = published_at_pins(
            self.lake, "enriched", "user_id", ("user_info", self.users_at), ("click_event", self.clicks)
        )
        target = self.lake.root / "targets" / "enriched"
        found = Counter((row["item_id"], row["gender"]) for row in rows_of(str(target)))
        assert found == Counter(
            {(dict(probe)["item_id"], dict(build)["gender"]): count for (probe, build), count in expected.items()}
        )
        assert released == self.items
        quarantined = rows_of(str(target / "_quarantine" / "enriched"))
        items = [item for item, _ in found.elements()] + [row["item_id"] for row in quarantined]
        assert sorted(items) == list(range(self.items))


def started(given: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """A process that does `drive` with these arguments, in a group of its own. What it shows is in `stderr`, in its
    directory."""
    with (Path(given["directory"]) / "stderr").open("w") as shown:
        return subprocess.Popen(
            [sys.executable, "-m", __name__, json.dumps(given)],
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=shown,
            text=True,
            start_new_session=True,
        )


def advance(spark: SparkSession, script: str, lake: Lake) -> None:
    """Run until nothing moves. `${…}` is taken from the environment."""
    with Runner(compile_script(script), lake, spark=lambda: spark) as runner:
        while runner.run().moved:
            pass


def drive(
    script: str,
    directory: str,
    kill_at: str = "",
    after: int = 0,
    stop_at: str = "",
    step_chunks: int = snapshot.STEP_CHUNKS,
) -> None:
    """What the process does. `step_chunks`: chunks in one step of a snapshot."""
    snapshot.STEP_CHUNKS = step_chunks
    point, _, owner = kill_at.partition("@")

    def passed(name: str) -> None:
        nonlocal after
        after -= name == point
        if after == 0:
            os.environ["TIDEGATE_KILL_AT"] = kill_at

    faults.arm(passed, owner)
    passed("")
    point_of_sleep, _, sleeper = stop_at.partition("@")
    faults.arm(lambda name: os.kill(os.getpid(), signal.SIGSTOP) if name == point_of_sleep else None, sleeper)
    print("up", flush=True)
    spark = spark_session()
    print("warm", flush=True)
    advance(spark, Path(script).read_text(), Lake(Path(directory) / "lake"))


if __name__ == "__main__":
    drive(**json.loads(sys.argv[1]))
