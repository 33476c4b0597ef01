"""Jars that cannot be had: one sentence, and what to do. Java is played by a script that says what Ivy says."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.pipelines.sources.kafka.server import BROKER, LOGGER
from tidegate.pipelines import jars, spark_versions
from tidegate.pipelines.sources.mysql_cdc import server_install
from tidegate.pipelines.sources.mysql_cdc.server_install import ARCHIVE
from tidegate.pipelines.spark_versions import JARS, spark_jars

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
def test_what_cannot_be_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, status: int, mend: str
) -> None:
    play(tmp_path, monkeypatch, says, status)
    with pytest.raises(jars.JarsUnavailable) as raised:
        jars.resolve([COORDINATE])
    assert raised.value.what == f"{COORDINATE} could not be downloaded"
    assert raised.value.where == says
    assert mend in raised.value.next_command
    assert list((tmp_path / "home" / "jars").iterdir()) == [], "nothing half done is taken for a download"


def test_an_old_java_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(tmp_path, monkeypatch, "", 0)
    program = tmp_path / "jdk" / "bin" / "java"
    program.write_text(program.read_text().replace("17.0.1", "11.0.2"))
    with pytest.raises(jars.JavaMissing, match=r"Java 17 or later"):
        jars.resolve([COORDINATE])


def test_the_version_of_java_is_read_and_not_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(tmp_path, monkeypatch, "", 0)
    program = tmp_path / "jdk" / "bin" / "java"
    program.write_text("#!/bin/sh\nexit 1\n")
    release = tmp_path / "jdk" / "release"
    release.write_text('IMPLEMENTOR="Debian"\nJAVA_VERSION="21.0.2"\n')
    assert jars.java() == str(program)
    release.write_text('JAVA_VERSION="11.0.2"\n')
    with pytest.raises(jars.JavaMissing, match=r'this machine has JAVA_VERSION="11.0.2"'):
        jars.java()


@pytest.mark.parametrize(
    ("spark", "java", "wanted"),
    [
        ("4.2", "17.0.1", None),
        ("4.2", "25", None),
        ("4.1", "21.0.8", None),
        ("4.1", "25.0.2", "Spark 4.1 needs Java 17 to 22"),
        ("4.0", "23", "Spark 4.0 needs Java 17 to 22"),
        ("4.0", "11.0.2", "Spark 4.0 needs Java 17 to 22"),
    ],
)
@pytest.mark.parametrize("way", ["release", "java -version"])
def test_a_java_on_which_this_spark_does_not_run_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: str, java: str, wanted: str | None, way: str
) -> None:
    play(tmp_path, monkeypatch, "", 0)
    monkeypatch.setattr(spark_versions, "spark_version", lambda: spark)
    monkeypatch.setattr(jars, "spark_version", lambda: spark)
    program = tmp_path / "jdk" / "bin" / "java"
    if way == "release":
        (tmp_path / "jdk" / "release").write_text(f'JAVA_VERSION="{java}"\n')
    else:
        program.write_text(
            f"#!/bin/sh\necho 'Picked up JAVA_TOOL_OPTIONS: -Dpassword=x' >&2\n"
            f"echo 'openjdk version \"{java}\" 2025-09-16' >&2\n"
        )
    if wanted is None:
        assert jars.java() == str(program)
        return
    with pytest.raises(jars.JavaMissing) as raised:
        jars.java()
    assert wanted in raised.value.what
    assert f'"{java}"' in raised.value.what
    assert "password" not in str(raised.value)


def jar(folder: Path, coordinate: str, name: str, text: bytes) -> Path:
    """A jar in the cache folder, as if it had been downloaded."""
    path = folder / "jars" / coordinate.replace(":", "_") / name
    path.parent.mkdir(parents=True)
    path.write_bytes(text)
    return path


@pytest.mark.parametrize("pinned", ["of another file", "none"])
def test_a_jar_that_is_not_the_pinned_one_is_never_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pinned: str
) -> None:
    monkeypatch.setenv("TIDEGATE_HOME", str(tmp_path))
    name = "delta-spark_4.2_2.13-4.4.0.jar" if pinned != "none" else "delta-spark_4.2_2.13-9.9.9.jar"
    path = jar(tmp_path, spark_jars().delta, name, b"not it")
    with pytest.raises(jars.WrongChecksum) as raised:
        jars.resolve([spark_jars().delta])
    assert raised.value.where == str(path)
    assert raised.value.what.startswith(f"{name} has the SHA-256 {hashlib.sha256(b'not it').hexdigest()}")
    assert raised.value.what.endswith(jars.pins()[name] if pinned != "none" else "knows no file of that name")
    assert f"rm -r {path.parent}" in raised.value.next_command
    assert jars.resolve([spark_jars().delta], pinned=False) == [path]


def test_a_downloaded_jar_is_checked_before_it_is_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(tmp_path, monkeypatch, "", 0)
    program = tmp_path / "jdk" / "bin" / "java"
    get = 'for last; do :; done\ndir="${last%/*}"; mkdir -p "$dir"; printf "not it" >"$dir/spark-avro_2.13-4.1.1.jar"\n'
    program.write_text(program.read_text().replace("echo ''; exit 0", get))
    with pytest.raises(jars.WrongChecksum, match=r"spark-avro_2\.13-4\.1\.1\.jar has the SHA-256"):
        jars.resolve([spark_jars().avro], transitive=False)
    assert list((tmp_path / "home" / "jars").iterdir()) == []


def test_what_is_downloaded_is_pinned() -> None:
    """Each archive that the product names itself; their dependencies are seen where they are used."""
    of_spark = [coordinate for each in JARS.values() for coordinate in each.all]
    for coordinate in (*of_spark, ARCHIVE, BROKER, LOGGER):
        _, artifact, version = coordinate.split(":")
        assert f"{artifact}-{version}.jar" in jars.pins()


def test_a_server_that_is_not_the_pinned_one_is_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_HOME", str(tmp_path))
    monkeypatch.setattr(server_install, "machines_own", lambda: None)
    base = tmp_path / "mariadb" / "11.4.5"
    for name in ("bin/mariadbd", *(f"share/mariadb_{each}.sql" for each in server_install._BOOTSTRAP_FILES)):
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_text("")
    with pytest.raises(jars.WrongChecksum, match=r"mariadbd-11\.4\.5 has the SHA-256"):
        server_install.find_installation()
