"""What a check costs: one release of 1M probes joined, staged and judged with 0, 5 and 20 constraints, publishing
apart, beside the same release joined and staged alone."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from benchmarks.measure import Figure, seconds
from benchmarks.release import SCRIPT
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.runtime.epochs.position import Waiting
from tidegate.pipelines.runtime.releasing.insert_runner import InsertRunner
from tidegate.pipelines.runtime.runner import Runner
from tidegate.pipelines.runtime.session import start_session
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.quality_checks.gate import judge

BUILD, PROBE = 200_000, 1_000_000
NUMBERS = {0: "", 5: "under 1.15", 20: "under 1.30"}
CONDITIONS = (
    "user_id > -{n} ON VIOLATION FAIL",
    "gender <> 'g{n}' ON VIOLATION QUARANTINE",
    "item_id IS NOT NULL OR user_id < {n} ON VIOLATION QUARANTINE",
    "CHAR_LENGTH(gender) < 9 + {n} ON VIOLATION WARN",
    "item_id % 100 <> {n} ON VIOLATION WARN",
)
"""Comparisons of numbers and text; one in a hundred rows violates each of the last."""


def constraints(number: int) -> str:
    """So many of them, as CREATE TABLE has them."""
    chosen = [CONDITIONS[n % len(CONDITIONS)].format(n=n) for n in range(number)]
    parts = [text.partition(" ON VIOLATION ") for text in chosen]
    return "".join(f", CONSTRAINT c{n} EXPECT ({what}) {on}{action}" for n, (what, on, action) in enumerate(parts))


def pipelines() -> dict[int, Pipeline]:
    """The same release with each of the numbers of constraints."""
    plain = SCRIPT.format(build=BUILD, probe=PROBE, limit="number-of-rows")
    end = "score INT) WITH ('connector' = 'delta')"
    assert end in plain
    return {
        number: compile_script(plain.replace(end, end.replace(")", f"{constraints(number)})", 1))) for number in NUMBERS
    }


BARE = -1
"""The turn of the bare join: staged, not judged, without a constraint."""


def measure(rounds: int = 7) -> list[Figure]:
    """The best of `rounds` rounds. Each number has its turn in each of them, every time at another place of the round:
    a machine that becomes slower or faster meanwhile favours nobody."""
    spark = start_session()
    turns = [BARE, *NUMBERS]
    took: dict[int, list[float]] = {number: [] for number in turns}
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake(Path(folder) / "lake")
        runners = {number: Runner(pipeline, lake, spark=lambda: spark) for number, pipeline in pipelines().items()}
        with runners[0] as first:
            first.advance("user_info")
            first.advance("click_event")
            plan = first.releasing("enriched").plan()
            assert not isinstance(plan, Waiting)

            def turn(number: int) -> float:
                releasing = runners[max(number, 0)].releasing("enriched")

                def checked() -> None:
                    row = releasing.write(plan)
                    if number != BARE:
                        judge(releasing.staged_epoch(plan, row), lambda: spark)

                own = seconds(checked)
                _forget(releasing)
                return own

            for number in turns:
                turn(number)
            for place in range(rounds):
                for number in turns[place % len(turns) :] + turns[: place % len(turns)]:
                    took[number].append(turn(number))
    bare = min(took[BARE])
    return [
        Figure(
            f"1M rows joined, staged and judged with {number} constraints",
            min(took[number]),
            peer=bare,
            peer_name="joined and staged without any, not judged",
            aim=aim,
        )
        for number, aim in NUMBERS.items()
    ]


def _forget(releasing: InsertRunner) -> None:
    """Remove what was staged, which no row names."""
    for place in map(Path, releasing.lake.staged_paths(releasing.target, releasing.insert).values()):
        for folder in place.iterdir():
            shutil.rmtree(folder)
