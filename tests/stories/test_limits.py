"""examples/limits: a process function with a broadcast input, against plain Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.stories.story import put, read, started


def expected(landed: list[tuple[str, dict[str, Any]]]) -> list[tuple]:
    """The alarms of rows (of which folder, row) in the order in which they landed."""
    limits: dict[str, tuple[int, int]] = {}
    count: dict[str, int] = {}
    found = []
    for folder, row in landed:
        if folder == "limits":
            limits[row["kind"]] = (row["least"], row["greatest"])
            continue
        low, high = limits.get(row["kind"], (row["reading"], row["reading"]))
        if low <= row["reading"] <= high:
            continue
        count[row["sensor"]] = count.get(row["sensor"], 0) + 1
        what = "too low" if row["reading"] < low else "too high"
        found.append((row["sensor"], row["reading"], what, count[row["sensor"]]))
    return sorted(found)


def test_readings_meet_the_limits_that_stand(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness, landed = started("limits", spark, tmp_path, monkeypatch), []
    alarms: list[dict[str, Any]] = []

    def land(folder: str) -> None:
        harness.runner.advance(folder)
        rows = read(folder)
        before = sum(1 for other, _ in landed if other == folder)
        landed.extend((folder, row) for row in rows[before:])

    alarms += harness.advance()  # readings land before limits, and wait for them
    landed += [(folder, row) for folder in ("limits", "readings") for row in read(folder)]
    assert len(alarms) == 3
    put("limits/2.json", [{"kind": "air", "least": -40, "greatest": 30}, {"kind": "light", "least": 0, "greatest": 9}])
    land("limits")
    put("readings/2.json", [{"sensor": "roof", "kind": "air", "reading": reading} for reading in (-30, 35, -41)])
    land("readings")
    alarms += harness.advance()
    shown = sorted((row["sensor"], row["reading"], row["what"], row["alarms_so_far"]) for row in alarms)
    assert shown == expected(landed)
    assert len(shown) == 5
