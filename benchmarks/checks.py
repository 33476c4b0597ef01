"""What a check costs: one release of 1M probes staged with 0, 5 and 20 constraints, publishing apart."""

from __future__ import annotations

import shutil
import statistics
import tempfile
from pathlib import Path

from benchmarks.measure import Figure, seconds
from benchmarks.release import SCRIPT
from pipelines.lake import Lake
from pipelines.runtime.releasing import Releasing, Waiting
from pipelines.runtime.runner import Runner
from pipelines.runtime.session import start_session
from pipelines.sql import compile_script

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


def measure(rounds: int = 3) -> list[Figure]:
    """The median of `rounds` rounds, in each of which every number has its turn; ratios are taken inside a round."""
    spark = start_session()
    took: dict[int, list[float]] = {number: [] for number in NUMBERS}
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake(Path(folder) / "lake")
        plain, end = SCRIPT.format(build=BUILD, probe=PROBE), "score INT) WITH ('connector' = 'delta')"
        assert end in plain
        pipelines = {
            number: compile_script(plain.replace(end, end.replace(")", f"{constraints(number)})", 1)))
            for number in NUMBERS
        }
        runners = {number: Runner(pipeline, lake, spark=lambda: spark) for number, pipeline in pipelines.items()}
        with runners[0] as first:
            first.advance("user_info")
            first.advance("click_event")
            plan = first.releasing("enriched").plan()
            assert not isinstance(plan, Waiting)

            def staged(number: int) -> float:
                releasing = runners[number].releasing("enriched")
                own = seconds(lambda: releasing.stager.stage(plan))
                _forget(releasing)
                return own

            for number in NUMBERS:
                staged(number)
            for _ in range(rounds):
                for number in NUMBERS:
                    took[number].append(staged(number))
    ratios = {
        number: statistics.median(own / bare for own, bare in zip(took[number], took[0], strict=True))
        for number in NUMBERS
    }
    bare = statistics.median(took[0])
    return [
        Figure(
            f"staging 1M rows with {number} constraints",
            bare * ratios[number],
            peer=bare,
            peer_name="the same without any",
            aim=aim,
        )
        for number, aim in NUMBERS.items()
        if number
    ]


def _forget(releasing: Releasing) -> None:
    """Remove what was staged, which no row names."""
    for folder in releasing.staged_path.iterdir():
        shutil.rmtree(folder)
