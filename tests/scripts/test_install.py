"""scripts/install.sh: what it says where something is missing, on a machine that is made up of links and stand-ins."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).parents[2]
TOOLS = ("awk", "bash", "cat", "cksum", "cp", "cut", "date", "dirname", "env", "grep")
TOOLS += ("head", "mkdir", "rm", "sed", "tail", "tee", "tr")

PYTHON = """#!/bin/sh
case "$*" in
    *"not (3, 11)"*) exit {supported} ;;
    *"sys.version_info[:2])"*) echo 3.11 ;;
    *ensurepip*) exit {venv} ;;
    --version) echo Python 3.9.2 ;;
    "-m venv "*) mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
    "-m pip "*) echo "$*" >>.venv/asked; echo "{pip}"; exit {status} ;;
    "-m tidegate."*) echo "$*" >>.venv/asked; echo "no network" >&2; exit {status} ;;
esac
"""
JAVA = """#!/bin/sh
echo 'openjdk version "{version}" 2025-01-01' >&2
"""
DF = """#!/bin/sh
echo Filesystem 1048576-blocks Used Available Capacity Mounted
echo /dev/sda 1 1 {free} 1% /
"""


class Machine:
    """A clone, and a PATH with what the machine has."""

    def __init__(self, folder: Path) -> None:
        self.clone, self.bin = folder / "clone", folder / "bin"
        (self.clone / "scripts").mkdir(parents=True)
        self.bin.mkdir()
        own = sorted(path.name for path in REPOSITORY.glob("requirements*.txt"))
        for name in ("scripts/install.sh", "pyproject.toml", *own):
            shutil.copy(REPOSITORY / name, self.clone / name)
        for tool in TOOLS:
            found = shutil.which(tool)
            assert found
            (self.bin / tool).symlink_to(found)
        self.python()
        self.has("java", JAVA.format(version="17.0.9"))
        self.has("df", DF.format(free=9999))

    def has(self, name: str, text: str) -> None:
        path = self.bin / name
        path.write_text(text)
        path.chmod(0o755)

    def python(self, *, supported: bool = True, venv: bool = True, pip: str = "Collecting a", status: int = 0) -> None:
        self.has("python3", PYTHON.format(supported=int(not supported), venv=int(not venv), pip=pip, status=status))

    def install(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.clone / "scripts" / "install.sh"), *arguments]
        environment = {"PATH": str(self.bin), "HOME": os.environ.get("HOME", "/")}
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def refused(done: subprocess.CompletedProcess[str]) -> str:
    """The one sentence of a refusal; the second line says what to do."""
    assert done.returncode == 1, done.stdout + done.stderr
    what, following = done.stderr.splitlines()
    assert following.startswith("  next:  ")
    return what


def test_it_says_what_it_installs_and_how_long_it_takes_and_a_second_run_is_silent(machine: Machine) -> None:
    first = machine.install()
    assert first.returncode == 0, first.stderr
    assert "PySpark" in first.stdout
    assert "minutes" in first.stdout
    assert "Installed in" in first.stdout
    machine.python(status=1)  # a second run must not get as far as pip
    second = machine.install()
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")


def test_pip_takes_nothing_that_has_no_hash(machine: Machine) -> None:
    assert machine.install("dev").returncode == 0
    asked = [line for line in (machine.clone / ".venv" / "asked").read_text().splitlines() if " install " in line]
    assert len(asked) == 3
    assert all("--no-deps" in line and ("--require-hashes" in line or "--no-index" in line) for line in asked)
    assert "--requirement=requirements.txt --requirement=requirements-dev.txt" in asked[1]
    assert "--no-build-isolation" in asked[1]
    assert asked[2].endswith("--no-index --no-deps --no-build-isolation --editable .")


def pinned(name: str) -> dict[str, list[str]]:
    """Package==version -> the hashes of a requirements file."""
    lines = (REPOSITORY / name).read_text().replace("\\\n", "").splitlines()
    return {line.split()[0]: line.split()[1:] for line in lines if line and not line.startswith("#")}


def test_every_package_is_pinned_by_its_hashes() -> None:
    files = [pinned(name) for name in ("requirements.txt", "requirements-dev.txt", "requirements-build.txt")]
    named = [package for file in files for package in file]
    tested = (REPOSITORY / "constraints.txt").read_text().splitlines()
    assert set(named) == {canonical(line) for line in tested if not line.startswith("#")}
    for hashes in (found for file in files for found in file.values()):
        assert hashes
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", one) for one in hashes)


def canonical(line: str) -> str:
    name, _, version = line.partition("==")
    return f"{canonicalize_name(name)}=={version}"


def test_other_requirements_are_installed_again(machine: Machine) -> None:
    assert machine.install().returncode == 0
    with (machine.clone / "requirements.txt").open("a") as requirements:
        requirements.write("another==1.0\n")
    assert "Installing" in machine.install().stdout


def test_what_tests_need_holds_what_the_demo_needs(machine: Machine) -> None:
    assert "test tools" in machine.install("dev").stdout
    assert machine.install().stdout == ""


def test_no_python_that_is_new_enough(machine: Machine) -> None:
    machine.python(supported=False)
    assert "needs Python 3.11" in refused(machine.install())
    assert "Python 3.9.2" in machine.install().stderr


def test_no_venv_module(machine: Machine) -> None:
    machine.python(venv=False)
    done = machine.install()
    assert "no venv module" in refused(done)
    assert "apt-get install python3.11-venv" in done.stderr


ARCHIVE = "-m tidegate.pipelines.runtime.class_archive"


def test_it_writes_the_archive_of_sparks_classes_or_says_how(machine: Machine) -> None:
    asked = machine.clone / ".venv" / "asked"
    assert "two thirds of the time" in machine.install().stdout
    assert asked.read_text().splitlines()[-1] == ARCHIVE
    python = (machine.bin / "python3").read_text().replace('"no network" >&2; exit 0', '"no network" >&2; exit 1')
    machine.has("python3", python)
    (machine.clone / ".venv" / ".installed").unlink()
    (machine.clone / ".venv" / "bin" / "python").unlink()
    done = machine.install()
    assert (done.returncode, "Installed in" in done.stdout) == (0, True), "it is nothing that a run needs"
    assert done.stderr == f"no network\nRuns start without it; to write it later: .venv/bin/python {ARCHIVE}\n"


def test_no_java(machine: Machine) -> None:
    (machine.bin / "java").unlink()
    done = machine.install()
    assert done.returncode == 0, "what needs no JVM works without one"
    assert "this machine has none" in done.stderr
    assert "apt-get install openjdk" in done.stderr
    assert ARCHIVE not in (machine.clone / ".venv" / "asked").read_text()
    machine.has("java", JAVA.format(version="11.0.2"))
    (machine.clone / ".venv" / ".installed").unlink()
    assert "this machine has Java 11" in machine.install().stderr


def test_no_disk_space(machine: Machine) -> None:
    machine.has("df", DF.format(free=12))
    assert "there are 12 MB free" in refused(machine.install())


@pytest.mark.parametrize(
    ("said", "meaning"),
    [
        ("NewConnectionError: Failed to establish a new connection", "index cannot be reached"),
        ("OSError: [Errno 28] No space left on device", "the disk is full"),
        ("ERROR: No matching distribution found for pyspark", "pip says: ERROR: No matching distribution"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.", "nothing of it was run"),
    ],
)
def test_pip_fails(machine: Machine, said: str, meaning: str) -> None:
    machine.python(pip=said, status=1)
    done = machine.install()
    assert meaning in refused(done)
    machine.python()
    assert "Installed in" in machine.install().stdout  # nothing of the failure stays in the way


def test_make_lists_its_targets() -> None:
    listed = subprocess.run(["make", "-s"], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    for target in ("help", "install", "demo", "ui", "test", "check", "bench", "soak"):
        assert f"make {target} " in listed
