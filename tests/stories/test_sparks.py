"""The older versions of Spark run what the newest one runs: each story in a process of its own, on a pyspark of that
version, which pip has put into a folder of the cache. Every other test runs on the newest."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stories.story import ROOT, printed
from tests.stories.test_examples import PRINTED
from tidegate.pipelines.jars import home

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.long,
    pytest.mark.timeout(0),
    pytest.mark.usefixtures("jvm", "server"),
]

PYSPARKS = {"4.0": "pyspark==4.0.1", "4.1": "pyspark==4.1.1"}
STORIES = {
    "examples": ("tests/stories/test_examples.py", "-m", "not thorough"),
    "files": ("tests/stories/test_files.py", "tests/stories/test_news_clicks.py", "-m", "not thorough"),
    "harness": (
        "tests/pipelines/testing/test_harness.py",
        "tests/pipelines/runtime/test_aborts.py",
        "-m",
        "not thorough",
    ),
    "functions": (
        "tests/pipelines/runtime/landing/test_user_functions.py",
        "tests/pipelines/test_spark_versions.py",
        "tests/pipelines/runtime/test_avro_jar.py",
    ),
    "processes": ("tests/pipelines/runtime/processes/test_kill.py", "-m", "not thorough"),
    "kills": ("tests/pipelines/runtime/test_kills.py", "-k", "lose_no_row_and_repeat_none"),
    "demo": ("tests/orchestration/test_demo.py", "-k", "verdict or verify_which or silent_nulls"),
}
"""What runs on each: the examples, the Harness and a crash at each commit point, a process function killed at every
commit, SIGKILL at every commit point, and the demo."""


@pytest.fixture(scope="module", params=PYSPARKS)
def environment(request: pytest.FixtureRequest) -> dict[str, str]:
    """The environment of a process that has this pyspark, and all else from where this test runs."""
    wanted = PYSPARKS[request.param]
    folder = home() / "test-pysparks" / f"{wanted.partition('==')[2]}-{sys.implementation.cache_tag}"
    if not folder.exists():
        _install(wanted, folder)
    path = [str(folder), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}


def _install(wanted: str, folder: Path) -> None:
    """Built by the setuptools that is here, and put there whole."""
    half = folder.with_name(f"{folder.name}.{os.getpid()}")
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-build-isolation", "--target", half, wanted]
    done = subprocess.run([*pip, "py4j==0.10.9.9"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        shutil.rmtree(half, ignore_errors=True)
        last = "\n".join(done.stderr.splitlines()[-5:])
        pytest.fail(
            f"{wanted} could not be installed; the package index must be reachable once (PIP_INDEX_URL):\n{last}"
        )
    half.rename(folder)


@pytest.mark.parametrize("story", STORIES)
def test_an_older_spark_runs_it(environment: dict[str, str], story: str, tmp_path: Path) -> None:
    alone = ["-n0", "-q", "-p", "no:cacheprovider", "--timeout=0", f"--basetemp={tmp_path / 'its'}"]
    done = run(environment, "-m", "pytest", *alone, *STORIES[story])
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5_000:]


def test_it_is_that_very_spark(environment: dict[str, str]) -> None:
    versions = "import pyspark, tidegate.pipelines.spark_versions as of; print(pyspark.__version__, of.spark_version())"
    version, known = run(environment, "-c", versions).stdout.split()
    assert f"pyspark=={version}" == PYSPARKS[known]


OF_A_PLATFORM = """
import sys
from pyspark.sql import SparkSession
from typer.testing import CliRunner
from tidegate.orchestration.commands.app import app
from tidegate.pipelines.jars import resolve
from tidegate.pipelines.runtime.session import SessionNotSuited, start_session
from tidegate.pipelines.spark_versions import spark_jars

jars = ",".join(map(str, resolve([spark_jars().delta])))
spark = (
    SparkSession.builder.master("local[2]").appName("notebook").config("spark.jars", jars)
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    .config("spark.sql.session.timeZone", "Europe/Berlin").getOrCreate()
)
try:
    start_session()
except SessionNotSuited as error:
    print("refused", *error.settings)
    exec(error.next_command)
done = CliRunner().invoke(app, ["run", "examples/files/pipeline.sql", "--lake", sys.argv[1]])
print(done.output)
assert start_session() is spark and spark.sparkContext.appName == "notebook"
sys.exit(done.exit_code)
"""


def test_a_session_of_a_platform_is_used_with_its_own_delta(tmp_path: Path) -> None:
    """It has what Spark gives it, beside Delta's two settings; an error says what else it needs, as Python."""
    done = run({**os.environ}, "-c", OF_A_PLATFORM, str(tmp_path / "lake"))
    assert done.returncode == 0, done.stdout + done.stderr
    lacking = "spark.sql.session.timeZone spark.sql.parquet.outputTimestampType"
    assert f"refused {lacking}" in done.stdout
    assert printed(done.stdout) == PRINTED["files"]


def run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
