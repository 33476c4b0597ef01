"""The embedded server: it starts, keeps its data through a crash, and says clearly why it cannot start."""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pymysql
import pytest

from tidegate.pipelines.sources.mysql_cdc import server, server_install
from tidegate.pipelines.sources.mysql_cdc.server import EmbeddedMariaDb
from tidegate.pipelines.sources.mysql_cdc.server_install import ServerUnavailable, explain, find_installation


@pytest.mark.usefixtures("server")
def test_data_outlives_a_crash_and_the_port_stays(tmp_path: Path) -> None:
    with EmbeddedMariaDb(tmp_path) as mysql:
        mysql.execute(
            "CREATE DATABASE shop", "CREATE TABLE shop.t (a INT PRIMARY KEY)", "INSERT INTO shop.t VALUES (7)"
        )
        port = mysql.port
        mysql.kill()
        assert not mysql.running
        mysql.start()
        assert mysql.port == port
        assert mysql.execute("SELECT a FROM shop.t") == ((7,),)
    assert not mysql.running


def test_the_binlog_holds_full_rows_and_names(mariadb: EmbeddedMariaDb) -> None:
    names = ("log_bin", "binlog_format", "binlog_row_image", "binlog_row_metadata")
    values = mariadb.execute("SELECT " + ", ".join(f"@@{name}" for name in names))
    assert values == ((1, "ROW", "FULL", "FULL"),)


def test_root_comes_in_by_the_socket_only(mariadb: EmbeddedMariaDb) -> None:
    with pytest.raises(pymysql.err.OperationalError, match="Access denied"):
        mariadb.connect(host=mariadb.host, port=mariadb.port, user="root")


def test_it_listens_on_loopback_only(mariadb: EmbeddedMariaDb) -> None:
    assert mariadb.execute("SELECT @@bind_address") == (("127.0.0.1",),)


def test_temporary_tables_lie_where_no_other_server_removes_them(mariadb: EmbeddedMariaDb) -> None:
    assert mariadb.execute("SELECT @@tmpdir") == ((str(mariadb.directory / "tmp"),),)


def test_a_user_comes_in_over_tcp(mariadb: EmbeddedMariaDb) -> None:
    connection = mariadb.connect(user="reader", password="reader-secret")
    with connection, connection.cursor() as cursor:
        cursor.execute("SHOW MASTER STATUS")
        row = cursor.fetchone()
    assert row is not None
    assert row[0].startswith("binlog.")


@pytest.mark.usefixtures("server")
def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(ServerUnavailable, match="port is taken"):
            EmbeddedMariaDb(tmp_path, port=other.getsockname()[1]).start()


@pytest.mark.usefixtures("server")
def test_two_servers_on_one_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_LOCK_SECONDS", 0.2)
    with EmbeddedMariaDb(tmp_path) as first:
        with pytest.raises(ServerUnavailable, match="another MariaDB server"):
            EmbeddedMariaDb(tmp_path).start()
        assert first.execute("SELECT 1") == ((1,),)


def test_no_space_is_an_error_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = shutil.disk_usage(tmp_path)._replace(free=10 * 2**20)
    monkeypatch.setattr(server_install.shutil, "disk_usage", lambda _: full)
    with pytest.raises(ServerUnavailable, match="10 MB free"):
        EmbeddedMariaDb(tmp_path / "new").start()
    assert not (tmp_path / "new" / "data").exists()


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ("mariadbd: error while loading shared libraries: libaio.so.1: cannot open shared object file", "libaio1"),
        ("error while loading shared libraries: libncurses.so.6: cannot open", "libncurses6"),
        ("[ERROR] Can't start server: Bind on TCP/IP port. Got error: 98: Address already in use", "another port"),
        ("[ERROR] InnoDB: Error number 28 means 'No space left on device'", "free some space"),
        ("[ERROR] InnoDB: Unable to lock ./ibdata1 error: 11", "stop that server"),
        ("[ERROR] unknown variable 'nonsense=1'", "unknown variable 'nonsense=1'"),
    ],
)
def test_the_log_is_explained(log: str, expected: str) -> None:
    assert expected in str(explain(log, where="mariadb.log"))


@pytest.mark.usefixtures("server")
def test_a_bad_option_is_quoted_from_the_log(tmp_path: Path) -> None:
    with pytest.raises(ServerUnavailable, match=r"no.such.option"):
        EmbeddedMariaDb(tmp_path, options={"no_such_option": 1}).start()


def test_a_server_without_its_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "mariadbd"
    program.parent.mkdir()
    program.touch(0o755)
    monkeypatch.setenv("TIDEGATE_MARIADBD", str(program))
    with pytest.raises(ServerUnavailable, match="TIDEGATE_MARIADBD"):
        find_installation()


@pytest.mark.usefixtures("server")
def test_the_server_dies_with_its_owner(tmp_path: Path) -> None:
    script = (
        "import sys, time\n"
        "from tidegate.pipelines.sources.mysql_cdc.server import EmbeddedMariaDb\n"
        f"server = EmbeddedMariaDb({str(tmp_path)!r}).start()\n"
        "print(server.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    process = int(owner.stdout.readline())
    os.kill(owner.pid, signal.SIGKILL)
    owner.communicate()
    handle = os.pidfd_open(process)
    try:
        assert select.select([handle], [], [], 60)[0], "the server outlived its owner"
    finally:
        os.close(handle)
