"""What is said of downloads: what is really missing, and how much of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.orchestration.demo.site import Site
from tidegate.orchestration.demo.stage import announce
from tidegate.pipelines.sources.mysql_cdc import server_install
from tidegate.pipelines.sources.mysql_cdc.server_install import ARCHIVE, find_installation, needs_download
from tidegate.pipelines.spark_versions import spark_jars

DELTA, *KAFKA, AVRO = spark_jars().all


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, on a machine without a server."""
    monkeypatch.setenv("TIDEGATE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("TIDEGATE_MARIADBD", raising=False)
    monkeypatch.setattr(server_install, "_SYSTEM_FOLDERS", (str(tmp_path / "sbin"),))
    return tmp_path / "cache"


def have(cache: Path, *coordinates: str) -> None:
    for coordinate in coordinates:
        (cache / "jars" / coordinate.replace(":", "_")).mkdir(parents=True)


def installed(prefix: Path, folder: str) -> Path:
    """A server program in prefix/folder, with its bootstrap files where Debian has them."""
    program = prefix / folder / "mariadbd"
    program.parent.mkdir()
    program.touch(0o755)
    share = prefix / "share" / "mysql"
    share.mkdir(parents=True)
    for name in ("system_tables", "performance_tables", "system_tables_data"):
        (share / f"mariadb_{name}.sql").touch()
    return program


def said(tmp_path: Path) -> str:
    lines: list[str] = []
    announce(Site(tmp_path / "demo"), lines.append)
    return "\n".join(lines)


def test_an_empty_cache_is_reported_with_all_of_it(cache: Path, tmp_path: Path) -> None:
    assert "Delta Lake, Spark's Kafka source, Spark's Avro, a MariaDB server" in said(tmp_path)
    assert "about 254 MB, 1 to 3 minutes, once" in said(tmp_path)


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        ((DELTA, *KAFKA, AVRO), "downloads a MariaDB server into {cache}: about 149 MB"),
        ((DELTA, *KAFKA, ARCHIVE), "downloads Spark's Avro into {cache}: about 1 MB, less than a minute"),
        ((DELTA, KAFKA[0], AVRO, ARCHIVE), "downloads Spark's Kafka source into {cache}: about 10 MB"),
        ((*KAFKA, AVRO, ARCHIVE), "downloads Delta Lake into {cache}: about 95 MB"),
    ],
    ids=["server", "avro", "kafka", "delta"],
)
def test_only_what_is_missing_is_counted(cache: Path, tmp_path: Path, there: tuple[str, ...], expected: str) -> None:
    have(cache, *there)
    assert expected.format(cache=cache) in said(tmp_path)


def test_nothing_is_said_of_downloads_when_all_is_there(cache: Path, tmp_path: Path) -> None:
    have(cache, DELTA, *KAFKA, AVRO, ARCHIVE)
    assert "download" not in said(tmp_path)


@pytest.mark.parametrize("folder", ["bin", "sbin"])
def test_a_server_of_the_machine_is_found_wherever_it_is_taken_from(cache: Path, tmp_path: Path, folder: str) -> None:
    have(cache, DELTA, *KAFKA, AVRO)
    program = installed(tmp_path, folder)
    assert "download" not in said(tmp_path)
    assert find_installation().mariadbd == program


def test_a_server_without_its_bootstrap_files_is_none(cache: Path, tmp_path: Path) -> None:
    program = installed(tmp_path, "sbin")
    assert not needs_download()
    (tmp_path / "share" / "mysql" / "mariadb_system_tables.sql").unlink()
    assert program.exists()
    assert needs_download()


def test_a_server_that_was_unpacked_needs_no_archive(cache: Path) -> None:
    assert needs_download()
    (cache / "mariadb" / ARCHIVE.rpartition(":")[2]).mkdir(parents=True)
    assert not needs_download()
