"""Spark's JVM while it starts: whatever ends the process then, no JVM is left behind. It is played by a script, except
where a test takes `jvm`."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.cases import at_length
from tidegate.pipelines.jars import java
from tidegate.pipelines.runtime import engine
from tidegate.pipelines.runtime.engine import Engine

ROOT = Path(__file__).parents[3]
ENDLESS = "exec sleep 3600"
"""A JVM that would stay for ever: it does not see that its standard input ends."""

START = """
import signal
import sys
from tidegate.pipelines.runtime import session

session.java = lambda: "java"
session.resolve = lambda *_, **__: []
signal.signal(signal.SIGINT, signal.default_int_handler)  # a run of the tests in the background ignores it
if "interrupted" in sys.argv:  # as Dagster has it in the process of a run
    signal.signal(signal.SIGTERM, signal.default_int_handler)
session.start_session(master="local[1]")
"""

AHEAD = """
import sys
import time
from pathlib import Path
from tidegate.pipelines.runtime import session

session.java = lambda: "java"
session.resolve = lambda *_, **__: []
_, number, what = sys.argv
with session.SessionAhead(master="local[1]") as ahead:
    while not Path(number).exists():
        time.sleep(0.01)
    if what == "wrong":
        raise SystemExit("the source is wrong")
    try:
        ahead()
    except session.EngineNotStarted as error:
        print(error.what, error.where, sep="; ")
"""


def play(folder: Path, monkeypatch: pytest.MonkeyPatch, *lines: str) -> Path:
    """A `spark-submit` that does this, and the file that it leaves its number in."""
    number = folder / "number"
    program = folder / "spark" / "bin" / "spark-submit"
    program.parent.mkdir(parents=True)
    program.write_text("\n".join(["#!/bin/sh", f"echo $$ >{number}.part; mv {number}.part {number}", *lines]) + "\n")
    program.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(folder / "spark"))
    monkeypatch.setenv("TMPDIR", str(folder / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    (folder / "tmp").mkdir()
    return number


def eventually(found: Callable[[], object]) -> None:
    end = time.monotonic() + 300
    while not found():
        assert time.monotonic() < end
        time.sleep(0.05)


def gone(number: int) -> bool:
    return not psutil.pid_exists(number) or psutil.Process(number).status() == psutil.STATUS_ZOMBIE


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[list[psutil.Process]]:
    """Nothing of the test outlives it, not even where it fails: neither the process nor what is put into the list."""
    below: list[psutil.Process] = []
    try:
        yield below
    finally:
        if process.poll() is None:
            below += psutil.Process(process.pid).children(recursive=True)
            process.kill()
        process.wait()
        for each in below:
            with suppress(psutil.NoSuchProcess):
                each.kill()


@pytest.mark.parametrize(
    ("sent", "how"), [(signal.SIGINT, ""), (signal.SIGTERM, "interrupted")], ids=["SIGINT", "SIGTERM in Dagster"]
)
def test_a_start_that_is_interrupted_leaves_no_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: signal.Signals, how: str
) -> None:
    number = play(tmp_path, monkeypatch, ENDLESS)
    started = subprocess.Popen([sys.executable, "-c", START, how], cwd=ROOT, stderr=subprocess.DEVNULL)
    with ended(started):
        eventually(number.exists)
        started.send_signal(sent)
        started.wait(timeout=300)
        assert started.returncode != 0
        assert gone(int(number.read_text()))
    assert list((tmp_path / "tmp").glob("tidegate-engine-*")) == []


@pytest.mark.usefixtures("jvm")
@pytest.mark.parametrize("sent", at_length([signal.SIGTERM, signal.SIGINT]))
def test_no_jvm_outlives_a_process_that_is_ended_while_spark_starts(sent: signal.Signals) -> None:
    """By SIGTERM it ends at once and cleans nothing up; the JVM then sees that nobody is there."""
    command = "from tidegate.pipelines.runtime.session import start_session; start_session(master='local[1]')"
    started = subprocess.Popen([sys.executable, "-c", command], cwd=ROOT, stderr=subprocess.DEVNULL)
    with ended(started) as jvm:

        def starts() -> bool:
            """The script has become the JVM."""
            for each in psutil.Process(started.pid).children():
                with suppress(psutil.Error):  # ended meanwhile
                    program, *arguments = each.cmdline()
                    if program.endswith("java") and "org.apache.spark.deploy.SparkSubmit" in arguments:
                        jvm[:] = [each]
            return bool(jvm)

        eventually(starts)
        started.send_signal(sent)
        started.wait(timeout=300)
        eventually(lambda: gone(jvm[0].pid))


def test_an_engine_that_ends_before_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(tmp_path, monkeypatch, "echo 26/11/21 WARN >&2", "exit 1")
    with (tmp_path / "log").open("ab") as log:
        started = Engine({"spark.master": "local[1]"}, log)
    with pytest.raises(EOFError, match="ended before"):
        started.address()
    started.kill()
    assert (tmp_path / "log").read_text() == "26/11/21 WARN\n"
    assert list((tmp_path / "tmp").iterdir()) == []


def test_an_engine_is_given_its_settings_and_asked_for_its_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(
        tmp_path,
        monkeypatch,
        f'printf "%s\\n" "$@" >{tmp_path}/given',
        "printf '\\000\\000\\047\\017\\000\\000\\000\\002ab' >$_PYSPARK_DRIVER_CONN_INFO_PATH.part",
        "mv $_PYSPARK_DRIVER_CONN_INFO_PATH.part $_PYSPARK_DRIVER_CONN_INFO_PATH",
        "cat >/dev/null",
    )
    monkeypatch.setattr(engine, "POLL_S", 0.001)
    started = Engine({"spark.master": "local[1]", "spark.x": "a b"})
    assert started.address() == (9999, "ab")
    assert (tmp_path / "given").read_text().split("\n")[:4] == [
        "--conf",
        "spark.master=local[1]",
        "--conf",
        "spark.x=a b",
    ]
    assert os.getpgid(started.process.pid) == started.process.pid, "no signal for this process reaches it"
    started.kill()
    assert started.process.returncode == -signal.SIGKILL


def test_what_fails_beside_the_start_ends_the_process_and_its_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = play(tmp_path, monkeypatch, ENDLESS)
    command = [sys.executable, "-c", AHEAD, str(number), "wrong"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (1, "the source is wrong\n")
    assert gone(int(number.read_text()))
    assert list((tmp_path / "tmp").glob("tidegate-engine-*")) == []


def test_a_start_ahead_that_fails_says_what_any_start_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    number = play(tmp_path, monkeypatch, "exit 1")
    command = [sys.executable, "-c", AHEAD, str(number), "start"]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=300)
    expected = (
        "Spark did not start: its JVM ended before it could be reached; master local[1], driver memory 2g, Java java\n"
    )
    assert done.stdout == expected
    assert list((tmp_path / "tmp").glob("tidegate-engine-*")) == []


JAVA = "/opt/no java/bin/java"


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An archive of a Java, which is none."""
    monkeypatch.setenv("TIDEGATE_HOME", str(tmp_path / "a home"))
    path = engine.archive_of(JAVA)
    assert engine.archive_options(JAVA) == ""
    path.parent.mkdir(mode=0o700, parents=True)
    path.write_bytes(b"no archive")
    path.chmod(0o600)
    path.with_suffix(".sha256").write_text(engine.digest_of(path))
    return path


def test_an_archive_that_is_damaged_or_was_not_written_to_its_end_is_not_given_to_java(archive: Path) -> None:
    assert engine.archive_options(JAVA)
    archive.write_bytes(b"no archivE")
    assert engine.archive_options(JAVA) == ""
    archive.write_bytes(b"no archive")
    assert engine.archive_options(JAVA)
    archive.with_suffix(".sha256").unlink()
    assert engine.archive_options(JAVA) == ""


@pytest.mark.usefixtures("jvm")
def test_java_starts_without_an_archive_that_is_none_of_its_own(archive: Path) -> None:
    """And says nothing of it where results are written."""
    given = shlex.split(engine.archive_options(JAVA))
    assert given[0] == f"-XX:SharedArchiveFile={archive}"
    done = subprocess.run([java(), *given, "--version"], capture_output=True, text=True, check=True)
    plain = subprocess.run([java(), "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == plain.stdout.replace(", sharing", "")


def test_an_archive_that_others_may_write_is_left_alone(archive: Path) -> None:
    archive.chmod(0o666)
    assert engine.archive_options(JAVA) == ""
    archive.chmod(0o600)
    archive.parent.chmod(0o777)
    assert engine.archive_options(JAVA) == ""


def test_another_spark_has_another_archive(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    other = engine.archive_of(JAVA)
    (tmp_path / "spark" / "jars" / "a.jar").touch()
    assert len({archive, other, engine.archive_of(JAVA)}) == 3


def test_other_jars_on_the_class_path_have_another_archive(archive: Path, tmp_path: Path) -> None:
    jar = tmp_path / "b.jar"
    jar.touch()
    first = engine.archive_of(JAVA, [jar])
    jar.write_text("another")
    assert len({archive, first, engine.archive_of(JAVA, [jar])}) == 3
    assert engine.archive_options(JAVA)
    assert engine.archive_options(JAVA, [jar]) == ""


def test_what_a_person_gives_java_comes_after_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, archive: Path
) -> None:
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Xshare:off")
    monkeypatch.setattr(engine, "archive_of", lambda launcher, class_path: archive)
    play(tmp_path, monkeypatch, f'echo "$SPARK_SUBMIT_OPTS" > {tmp_path}/given')
    started = Engine({}, launcher=JAVA)
    started.process.wait(60)
    started.kill()
    given = (tmp_path / "given").read_text()
    assert str(archive) in given
    assert given.endswith(" -Xshare:off\n")


@pytest.mark.usefixtures("jvm")
def test_java_compiles_late_what_a_start_calls_a_few_times_and_a_person_may_say_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(tmp_path, monkeypatch, f'echo "$SPARK_SUBMIT_OPTS" > {tmp_path}/given')
    for own, wanted in (("", 50_000), ("-XX:Tier4InvocationThreshold=77", 77)):
        monkeypatch.setenv("SPARK_SUBMIT_OPTS", own)
        started = Engine({})
        started.process.wait(60)
        started.kill()
        options = [*(tmp_path / "given").read_text().split(), "-XX:+PrintFlagsFinal", "-version"]
        flags = subprocess.run([java(), *options], capture_output=True, text=True, check=True).stdout
        assert re.search(rf" Tier4InvocationThreshold += {wanted} ", flags)


OF_SPARK = ["-cp", "a b:c", "--add-modules=jdk.incubator.vector", "--add-opens=java.base/java.io=ALL-UNNAMED", "-D=*"]
"""Options as its launcher gives them to Java."""
WITHOUT_VECTORS = 'MODULES="java.base jdk.incubator.vectors java.xml"\n'


@pytest.mark.parametrize(
    ("release", "dropped"),
    [
        (WITHOUT_VECTORS, True),
        ("", True),
        ('JAVA_VERSION="21.0.8"\nMODULES="java.base jdk.incubator.vector java.xml"\n', False),
    ],
    ids=["lacking", "not known", "there"],
)
def test_a_module_that_java_may_lack_is_not_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str, dropped: bool
) -> None:
    launcher = tmp_path / "a java" / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    launcher.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    launcher.chmod(0o755)
    (tmp_path / "a java" / "release").write_text(release)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "a java"))
    play(tmp_path, monkeypatch, f'exec "$JAVA_HOME/bin/java" {shlex.join(OF_SPARK)} >{tmp_path}/given')
    started = Engine({}, launcher=str(launcher))
    assert started.process.wait(60) == 0
    started.kill()
    left = [option for option in OF_SPARK if not dropped or "add-modules" not in option]
    assert (tmp_path / "given").read_text().splitlines() == left


def test_a_program_that_spark_starts_keeps_the_java_that_spark_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its $JAVA_HOME is Tidegate's own folder, whose launcher would start itself for ever."""
    given = engine.java_variables(str(tmp_path / "bin" / "java"))
    assert given["_TIDEGATE_JAVA"] == str(tmp_path / "bin" / "java")
    assert engine.java_variables(str(Path(given["JAVA_HOME"], "bin", "java"))) == {}
