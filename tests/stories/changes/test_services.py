"""Options that move a source which a server has: another table, topic, database or server is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.conftest import Database
from tests.pipelines.sources.kafka.conftest import broker, topics  # noqa: F401
from tests.pipelines.sources.kafka.topics import Topics
from tests.stories.changes.bases import rows_of, state_of, tidegate

pytestmark = pytest.mark.thorough


class Served:
    """A script whose source a server has, with a history."""

    def __init__(self, folder: Path, text: str) -> None:
        self.folder, self.text = folder, text
        self.lake = folder / "lake"
        result = self.run(text)
        assert result.exit_code == 0, result.output

    def run(self, text: str):
        script = self.folder / "pipeline.sql"
        script.write_text(text)
        return tidegate(self.folder, "run", script, "--lake", self.lake)

    def refuses(self, old: str, new: str, *words: str) -> None:
        assert old in self.text
        before = state_of(self.lake)
        result = self.run(self.text.replace(old, new))
        assert result.exit_code == 1, result.output
        assert state_of(self.lake) == before, (old, new)
        for word in words:
            assert word in result.stderr, result.stderr
        assert "secret" not in result.stderr

    def goes_on(self, text: str | None = None) -> None:
        result = self.run(text or self.text)
        assert result.exit_code == 0, result.output


def clicks(folder: Path, number: int, *ids: int) -> None:
    file = folder / "clicks" / str(number)
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(f"{json.dumps({'id': id})}\n" for id in ids))
    os.utime(file, (1e9 + number, 1e9 + number))


def test_mysql(database: Database, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = f"{database.name}_other"
    database.execute(f"CREATE DATABASE {other}")
    database.execute(
        "CREATE TABLE users (id INT PRIMARY KEY, name VARCHAR(9))",
        "INSERT INTO users VALUES (1, 'ann')",
        "CREATE TABLE others LIKE users",
        "INSERT INTO others VALUES (1, 'bob'), (2, 'bob')",
        f"CREATE TABLE {other}.users LIKE users",
    )
    clicks(tmp_path, 1, 1)
    monkeypatch.setenv("USERS_IN", database.name)
    reads = database.clause("users").replace(f"'{database.name}'", "'${USERS_IN}'")
    served = Served(
        tmp_path,
        f"""
        CREATE TABLE users (id INT PRIMARY KEY NOT ENFORCED, name STRING) WITH ({reads});
        CREATE TABLE clicks (id INT, now AS PROCTIME()) WITH (
            'connector' = 'filesystem', 'path' = 'clicks', 'format' = 'json');
        CREATE TABLE named (id INT, name STRING) WITH ('connector' = 'delta');
        INSERT INTO named SELECT c.id, u.name FROM clicks AS c
            LEFT JOIN users FOR SYSTEM_TIME AS OF c.now AS u ON c.id = u.id;
        """,
    )
    database.execute("INSERT INTO users VALUES (2, 'cid')")
    clicks(tmp_path, 2, 2)
    served.refuses("'table-name' = 'users'", "'table-name' = 'others'", "users", "others", "table-name")
    served.refuses("'hostname' = '127.0.0.1'", "'hostname' = 'localhost'", "hostname", "127.0.0.1", "localhost")
    served.refuses("'connector' = 'mysql-cdc'", "'connector' = 'mysql-cdc', 'server-time-zone' = 'Asia/Tokyo'", "Tokyo")
    monkeypatch.setenv("USERS_IN", other)
    served.refuses("${USERS_IN}", "${USERS_IN}", "database-name", database.name, other)
    monkeypatch.setenv("USERS_IN", database.name)
    served.goes_on()
    assert rows_of(tmp_path / "lake/targets/named") == [(1, "ann"), (2, "cid")]
    database.execute(f"DROP DATABASE {other}")


def test_mysql_tables_go_by_the_lakes_definition(database: Database, spark: SparkSession, tmp_path: Path) -> None:
    """A table without rows takes a column that its log brings; `reconcile` takes a table as the lake keeps it."""
    database.execute("CREATE TABLE users (id INT PRIMARY KEY, name VARCHAR(9), age INT)")
    clicks(tmp_path, 1, 1)
    reads = database.clause("users")
    served = Served(
        tmp_path,
        f"""
        CREATE TABLE users (id INT PRIMARY KEY NOT ENFORCED, name STRING) WITH ({reads});
        CREATE TABLE clicks (id INT, now AS PROCTIME()) WITH (
            'connector' = 'filesystem', 'path' = 'clicks', 'format' = 'json');
        CREATE TABLE named (id INT, name STRING) WITH ('connector' = 'delta', 'gate.on-unmatched' = 'publish');
        INSERT INTO named SELECT c.id, u.name FROM clicks AS c
            LEFT JOIN users FOR SYSTEM_TIME AS OF c.now AS u ON c.id = u.id;
        """,
    )
    database.execute("INSERT INTO users VALUES (2, 'cid', 40)")
    clicks(tmp_path, 2, 2)
    wider = served.text.replace("name STRING) WITH ('conn", "name STRING, age INT) WITH ('conn", 1)
    result = served.run(wider)
    assert result.exit_code == 0, result.output
    assert "columns age" in result.output
    assert rows_of(tmp_path / "lake/targets/named") == [(1, None), (2, "cid")]
    assert rows_of(tmp_path / "lake/tables/users") == [(2, "cid", 40)]
    script = tmp_path / "pipeline.sql"
    for text, said in (
        (wider, ""),
        (wider.replace("age INT", "age BIGINT").replace("LEFT JOIN", "JOIN"), "table users"),
    ):
        script.write_text(text)
        result = tidegate(tmp_path, "reconcile", script, "--lake", served.lake)
        assert result.exit_code == 0, result.output
        assert ("is read as the lake defines it" in result.output) == bool(said), result.output
        assert said in result.output


def test_kafka(topics: Topics, tmp_path: Path) -> None:  # noqa: F811
    topic, other = topics.create(), topics.create()
    topics.send(topic, {"id": 1})
    topics.send(other, {"id": 91}, {"id": 92})
    served = Served(
        tmp_path,
        f"""
        CREATE TABLE clicks (id INT) WITH (
            'connector' = 'kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{topics.bootstrap}',
            'scan.startup.mode' = 'earliest-offset', 'format' = 'json');
        CREATE TABLE seen (id INT) WITH ('connector' = 'delta');
        INSERT INTO seen SELECT id FROM clicks;
        """,
    )
    topics.send(topic, {"id": 2})
    served.refuses(f"'topic' = '{topic}'", f"'topic' = '{other}'", "topic", topic, other)
    served.refuses("'format' = 'json'", "'format' = 'json', 'json.timestamp-format.standard' = 'ISO-8601'", "ISO-8601")
    served.goes_on()
    assert rows_of(tmp_path / "lake/targets/seen") == [(1,), (2,)]

    topics.delete(topic)
    topics.create(topic)
    topics.send(topic, *({"id": number} for number in (11, 12, 13)))
    served.refuses(topic, topic, topic)
