"""A disk that fills up: the error names table and epoch, nothing is half committed, and the next run goes on."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Database
from tests.pipelines.runtime.test_resources import SCRIPT
from tidegate.pipelines.runtime import faults

RUN = """
import json, os, subprocess, sys
from pathlib import Path
from tidegate.pipelines.errors import TidegateError
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.runtime import faults
from tidegate.pipelines.runtime.runner import Runner
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.testing import spark_session

lake, points = Lake(sys.argv[2]), sys.argv[3:]
filler = Path(sys.argv[2]) / "filler"

def tell(**facts):
    print(json.dumps(facts), flush=True)

def fill(point, wanted):
    if point == wanted:
        with filler.open("wb", buffering=0) as file:
            try:
                while file.write(bytes(1 << 16)):
                    pass
            except OSError:
                pass

def attempt(point=None):
    disarm = faults.arm(lambda passed: fill(passed, point))
    fill("start", point)
    try:
        report = runner.run()
    except TidegateError as error:
        position = runner.releasing("enriched").position()
        tell(
            point=point, what=error.what, where=error.where, state=error.state, next=error.next_command,
            kind=type(error).__name__,
            landed=[row.owner for name in ("user_info", "click_event") for row in lake.watermarks.rows(name)],
            stands=position.state,
        )
    else:
        tell(point=point, published=sum(done.rows for item in report.releases for done in item.published))
    finally:
        disarm()
        filler.unlink(missing_ok=True)

with Runner(compile_script(open(sys.argv[1]).read()), lake, spark=spark_session) as runner:
    attempt()
    if points:
        subprocess.run(["mount", "-o", "remount,size=60m", str(lake.root)], check=True)
    for point in points:
        attempt(point)
"""
EVERY_COMMAND = """
import json, os, random, sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from tests.pipelines.runtime.plays import places_of
from tests.pipelines.runtime.test_power_cuts import Story
from tidegate.pipelines.errors import GateHeld, TidegateError
from tidegate.pipelines.testing import spark_session

root, policy, chance = Path(sys.argv[1]), sys.argv[2], random.Random(int(sys.argv[3]))
filler, sync, syncs = root / "filler", os.fsync, iter(())

def fill():
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with suppress(OSError):
                while file.write(bytes(size)):
                    pass

def fsync(opened):
    # full from the sync on at which these run out, until the command has ended
    if os.readlink(f"/proc/self/fd/{opened}").startswith(f"{root}/") and next(syncs, None) is None:
        filler.exists() or fill()
    sync(opened)

os.fsync = fsync
spark = spark_session()
story = Story(spark, root, policy)
story.rate("EUR", 1, 0)
story.rate("USD", 2, 0)
story.push(chance)
for command, step in story.commands(chance):
    for allowed in range(200):
        syncs, errors = iter(range(allowed)), []
        try:
            with suppress(GateHeld):
                step()
        except TidegateError as error:
            errors.append(error)
        full = filler.exists()
        filler.unlink(missing_ok=True)
        if not errors:
            break
        assert full and errors[0].next_command, errors
        assert "o space" in errors[0].what, errors
    print(json.dumps({"command": command, "full": allowed}), flush=True)
syncs = iter(range(1 << 30))
with suppress(GateHeld):
    story.harness.advance()
while story.harness.runner.held(story.insert):
    story.harness.runner.resolve_held(story.insert, on_unmatched="quarantine")
    with suppress(GateHeld):
        story.harness.advance()
assert story.items(story.harness) == Counter(range(1, story.pushed + 1))
places_of(story.harness)
"""
FROM_MYSQL = """
CREATE TABLE user_info (user_id INT PRIMARY KEY NOT ENFORCED, note STRING) WITH ({options});
CREATE TABLE click_event (user_id INT, proctime AS PROCTIME()) WITH (
    'connector' = 'datagen', 'number-of-rows' = '100', 'rows-at-start' = '100',
    'fields.user_id.min' = '1', 'fields.user_id.max' = '80000');
CREATE TABLE enriched (user_id INT, note STRING) WITH ('connector' = 'delta');
INSERT INTO enriched SELECT c.user_id, note FROM click_event AS c
LEFT JOIN user_info FOR SYSTEM_TIME AS OF c.proctime ON c.user_id = user_info.user_id
"""
STANDS = {
    # Where the disk fills up: how far the epoch has come by then. Without a step before it, nothing is planned.
    "source.planned": None,
    "source.written": None,
    "source.appended": None,
    "source.landed": None,
    "source.watermarked": None,  # next is the lease of the INSERT
    "insert.planned": "planned",
    "insert.written": "planned",
    "start": "planned",  # before the run: it fails where it stages
    "insert.staged": "staged",
}

_MAY_FIT = {"insert.judged", "insert.quarantined", "insert.published"}
"""Publishing moves no row: its commits are small enough for what is left on a full disk."""

_OF_INSERT = [point for point in STANDS if not point.startswith("source")] + ["source.watermarked"]

_MAKES = ("source.planned", "source.watermarked", "insert.planned")
"""What comes next is made for all epochs, and not for one: the table, the lease of the INSERT, the target."""


def reported_on_a_small_disk(lake: Path, *steps: str, megabytes: int = 3) -> list[dict[str, Any]]:
    """What commands print whose lake lies on a disk of this size, until one of them makes it larger."""
    own = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    script = " && ".join([f"mount -t tmpfs -o size={megabytes}m none '{lake}'", *steps])
    done = subprocess.run(["unshare", *own, "--mount", "sh", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return list(map(json.loads, done.stdout.splitlines()))


@pytest.mark.thorough
@pytest.mark.usefixtures("jvm")
def test_a_full_disk_is_reported_wherever_it_happens_and_the_next_run_goes_on(tmp_path: Path) -> None:
    script, run, lake = tmp_path / "pipeline.sql", tmp_path / "run.py", tmp_path / "lake"
    script.write_text(SCRIPT.format(build=400_000, probe=1_000, length=20))
    run.write_text(RUN)
    lake.mkdir()
    assert set(faults.POINTS) - set(STANDS) == _MAY_FIT
    python = f"'{sys.executable}' '{run}' '{script}' '{lake}'"
    first, *refused, last = reported_on_a_small_disk(lake, f"{python} {' '.join(STANDS)}", python)

    assert first["what"].startswith("user_info: ")
    assert "user_info" not in first["landed"]  # a small source beside it may still fit
    for report in (first, *refused):
        assert "No space left on device" in report["what"], report
        assert "generation 1, epoch 1" in report["where"] or report["point"] in _MAKES, report
    assert "none of its rows are committed" in first["state"]
    stands = {report["point"]: report["stands"] for report in refused}
    # A verdict may fit into what is left of the disk where what comes before it does not.
    assert stands.pop("insert.staged") in ("staged", "passed")
    assert stands == {point: far for point, far in STANDS.items() if point != "insert.staged"}
    for report in refused:
        owner = "enriched" if report["point"] in _OF_INSERT else "click_event"
        assert owner in report["what"], report
    assert last == {"point": None, "published": 1000}


@pytest.mark.thorough
@pytest.mark.usefixtures("jvm")
@pytest.mark.parametrize(("policy", "seed"), [("quarantine", 1), ("block", 2)])
def test_every_command_goes_on_after_a_disk_that_was_full_at_any_of_its_syncs(
    tmp_path: Path, policy: str, seed: int
) -> None:
    script, lake = tmp_path / "every.py", tmp_path / "lake"
    script.write_text(EVERY_COMMAND)
    lake.mkdir()
    python = f"PYTHONPATH='{Path(__file__).parents[3]}' '{sys.executable}' '{script}' '{lake}' {policy} {seed}"
    found = {step["command"]: step["full"] for step in reported_on_a_small_disk(lake, python, megabytes=200)}
    assert found["run"] > 5
    assert found["rates"] > 2


@pytest.mark.thorough
def test_a_snapshot_that_fills_the_disk_names_its_chunk_and_the_next_run_goes_on(
    database: Database, tmp_path: Path
) -> None:
    database.execute(
        "CREATE TABLE user_info (user_id INT PRIMARY KEY, note CHAR(96) CHARACTER SET ascii)",
        "INSERT INTO user_info SELECT seq, CONCAT(MD5(seq), MD5(-seq), MD5(seq / 2)) FROM seq_1_to_80000",
        "ANALYZE TABLE user_info",
    )
    script, run, lake = tmp_path / "pipeline.sql", tmp_path / "run.py", tmp_path / "lake"
    script.write_text(FROM_MYSQL.format(options=database.clause("user_info", 20_000)))
    run.write_text(RUN)
    lake.mkdir()
    python = f"'{sys.executable}' '{run}' '{script}' '{lake}'"
    full, last = reported_on_a_small_disk(lake, python, f"mount -o remount,size=60m '{lake}'", python)

    assert full["what"].startswith("user_info: ")
    assert "No space left on device" in full["what"]
    assert re.match(rf"chunk-000000\d of {database.name}\.user_info; ", full["where"])
    assert "generation 1, epoch 1: chunks 1-4 of 4" in full["where"]
    assert "none of its rows are committed" in full["state"]
    assert "user_info" not in full["landed"]  # a small source beside it may still fit
    assert full["next"].startswith("make room on the lake's disk")
    assert last == {"point": None, "published": 100}
