"""SIGKILL of the whole process group, at commit points and at random moments; SIGSTOP at commit points, where others
take over until it wakes: no row lost, none twice.

`make test` kills at two commit points (test_aborts.py aborts at each), `make test-all` at each and 5 times at random, a
soak 200 times at random. The seed is printed, and $TIDEGATE_SEED repeats it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.cases import SEED
from tests.oracle.pins import Event, scripted_state
from tests.pipelines.runtime.killing import Play, advance
from tests.pipelines.runtime.plays import clicks
from tidegate.pipelines.runtime import faults
from tidegate.pipelines.watermarks import MIN_TIMESTAMP

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("jvm")]

SLEEPS = ("source.appended", "insert.planned", "insert.written", "insert.judged", "insert.quarantined")
"""Where a process that sleeps has begun what another one then ends."""

RANDOM_KILLS = 200 if os.environ.get("TIDEGATE_SOAK") else 5


class ScriptedPlay(Play):
    """With the users that a test has pushed."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, clicks(), SEED, {})
        self.users: list[Event] = []

    def push(self) -> None:
        """Ten changes, ten clicks."""
        users = [{"user_id": self.chance.randrange(30), "gender": self.chance.choice("fmx")} for _ in range(10)]
        op = self.chance.choice(["+I", "+U", "-D"])
        self.input("user_info").rows(users, op)
        self.users.append((op, users))
        self.click(users=40)

    def flip(self) -> None:
        self.input("user_info").watermark(MIN_TIMESTAMP, True)
        self.users.append(("", []))

    def users_at(self, generation: int, epoch: int) -> Mapping[int, Mapping[str, Any]]:
        return scripted_state(self.lake, "user_info", "user_id", self.users, (generation, epoch))


def places(points: Iterable[str], sources: Sequence[str] = ("user_info", "click_event")) -> Iterator[tuple[str, str]]:
    """The points with the owners that pass them."""
    for point in points:
        for owner in sources if point.startswith("source.") else ("enriched",):
            yield point, owner


def test_a_kill_between_two_commits_loses_no_row(tmp_path: Path) -> None:
    print(f"seed {SEED}")
    play = ScriptedPlay(tmp_path)
    play.push()
    play.flip()
    for point in ("source.appended@click_event", "insert.published@enriched"):
        play.push()
        play.dies(point)
    play.ends()
    play.check()


@pytest.mark.thorough
@pytest.mark.timeout(0)
def test_a_process_that_slept_at_a_commit_point_is_refused_when_it_wakes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another machine goes on with its leases (tests/pipelines/lake/test_leases.py shows it fast, of one commit)."""
    print(f"seed {SEED}")
    monkeypatch.setattr("tidegate.pipelines.lake.leases.machine", lambda: "elsewhere/boot/ns")
    play = ScriptedPlay(tmp_path)
    play.push()
    play.flip()
    for point, owner in places(SLEEPS, ["click_event"]):
        play.push()
        process = play.sleeps(f"{point}@{owner}")
        advance(spark, play.script.read_text(), play.lake)
        play.check()
        play.push()
        play.wakes(process)
        advance(spark, play.script.read_text(), play.lake)
        play.check()


@pytest.mark.thorough
@pytest.mark.soak
@pytest.mark.timeout(0)
def test_kills_lose_no_row_and_repeat_none(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    print(f"seed {SEED}")
    play = ScriptedPlay(tmp_path)
    play.push()
    play.flip()
    for point, owner in places(faults.POINTS):
        play.push()
        play.dies(f"{point}@{owner}")

    def report(progress: str) -> None:
        with capfd.disabled():
            print(f"\n{progress} (seed {SEED})", flush=True)

    play.kill_at_random(RANDOM_KILLS, play.push, report)
    play.ends()
    play.check()
