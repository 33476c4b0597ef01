"""A disk that fills up: the error names table and epoch, nothing is half committed, and the next run goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.pipelines.runtime.test_resources import SCRIPT

RUN = """
import sys
from pipelines.errors import TidegateError
from pipelines.lake import Lake
from pipelines.runtime.runner import Runner
from pipelines.sql import compile_script
from pipelines.testing import spark_session
lake = Lake(sys.argv[2])
with Runner(compile_script(open(sys.argv[1]).read()), lake, spark=spark_session) as runner:
    try:
        report = runner.run()
    except TidegateError as error:
        print("refused:", error)
        print("landed:", [row.owner for row in lake.watermarks.rows("user_info")])
    else:
        print("published:", sum(done.rows for item in report.releases for done in item.published))
"""


def test_a_full_disk_is_told_and_the_next_run_goes_on(tmp_path: Path) -> None:
    script, run, lake = tmp_path / "pipeline.sql", tmp_path / "run.py", tmp_path / "lake"
    script.write_text(SCRIPT.format(build=400_000, probe=1_000))
    run.write_text(RUN)
    lake.mkdir()
    python = f"'{sys.executable}' '{run}' '{script}' '{lake}'"
    steps = f"mount -t tmpfs -o size=3m none '{lake}' && {python} && mount -o remount,size=500m '{lake}' && {python}"
    own = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    done = subprocess.run(["unshare", *own, "--mount", "sh", "-c", steps], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    first, _, second = done.stdout.partition("landed: []")
    assert first.startswith("refused: user_info: ")
    assert "No space left on device" in first
    assert "generation 1, epoch 1" in first
    assert "none of its rows are committed" in first
    assert second.strip() == "published: 1000"
