"""Jars that can not be had: one sentence, and what to do. Java is played by a script that says what Ivy says."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines import jars

COORDINATE = "io.delta:delta-spark_2.13:9.9.9"


def play(folder: Path, monkeypatch: pytest.MonkeyPatch, says: str, status: int) -> None:
    """A `java` of version 17 that prints `says` when it is to download something."""
    program = folder / "jdk" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = -version ]; then echo \'openjdk version "17.0.1"\' >&2; exit 0; fi\n'
        f"echo '{says}'; exit {status}\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(folder / "jdk"))
    monkeypatch.setenv("TIDEGATE_HOME", str(folder / "home"))


@pytest.mark.parametrize(
    ("says", "status", "mend"),
    [
        ("Server access error: java.net.UnknownHostException: UnknownHost repo", 1, "check the network"),
        ("module not found: io.delta#delta-spark_2.13;9.9.9", 0, "check the network"),
        ("java.io.IOException: No space left on device", 1, "make room on the disk"),
    ],
    ids=["no network", "not there", "full disk"],
)
def test_what_can_not_be_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, status: int, mend: str
) -> None:
    play(tmp_path, monkeypatch, says, status)
    with pytest.raises(jars.JarsUnavailable) as raised:
        jars.resolve([COORDINATE])
    assert raised.value.what == f"{COORDINATE} could not be downloaded"
    assert raised.value.where == says
    assert mend in raised.value.next_command
    assert list((tmp_path / "home" / "jars").iterdir()) == [], "nothing half done is taken for a download"


def test_an_old_java_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(tmp_path, monkeypatch, "", 0)
    program = tmp_path / "jdk" / "bin" / "java"
    program.write_text(program.read_text().replace("17.0.1", "11.0.2"))
    with pytest.raises(jars.JavaMissing, match=r"Java 17 or later"):
        jars.resolve([COORDINATE])
