"""SIGKILL while a table comes from a real server: amid its snapshot, at the flip and in the binlog.

In a soak also at random moments, of table after table; the seed is printed, and $TIDEGATE_SEED repeats it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.cases import SEED
from tests.conftest import Database
from tests.oracle.pins import rows_of
from tests.pipelines.runtime.killing import Play, advance
from tests.pipelines.sources.mysql_cdc.replay import Replay, number

RANDOM_TABLES = 10 if os.environ.get("TIDEGATE_SOAK") else 0
"""Each with ten kills."""
KEYS = 60
CHUNKS = 8
STEP_CHUNKS = 3
SCRIPT = """
CREATE TABLE user_info (user_id INT PRIMARY KEY NOT ENFORCED, gender STRING) WITH (
    'connector' = 'mysql-cdc', 'hostname' = '${{MYSQL_HOST}}', 'port' = '${{MYSQL_PORT}}',
    'username' = '${{MYSQL_USER}}', 'password' = '${{MYSQL_PASSWORD}}',
    'database-name' = '{database}', 'table-name' = '{table}', 'scan.incremental.snapshot.chunk.size' = '5');
CREATE TABLE click_event (user_id INT, item_id INT, proctime AS PROCTIME()) WITH ('connector' = 'scripted');
CREATE TABLE enriched (user_id INT, item_id INT, gender STRING) WITH ('connector' = 'delta');
INSERT INTO enriched SELECT c.user_id, c.item_id, u.gender FROM click_event AS c
LEFT JOIN user_info FOR SYSTEM_TIME AS OF c.proctime AS u ON c.user_id = u.user_id
"""


class MysqlPlay(Play):
    """Users in a table of a server: forty, in eight chunks of five, before anything of it is read."""

    def __init__(self, directory: Path, database: Database, table: str, seed: int) -> None:
        script = SCRIPT.format(database=database.name, table=table)
        super().__init__(directory, script, seed, database.environment(), step_chunks=STEP_CHUNKS)
        self.database = database
        self.table = table
        database.execute(f"CREATE TABLE {table} (user_id INT PRIMARY KEY, gender VARCHAR(8))")
        self.replay = Replay(database, table, "user_id")
        database.execute(f"INSERT INTO {table} SELECT seq, 'f' FROM seq_0_to_39", f"ANALYZE TABLE {table}")
        self.users = self.lake.table_path("user_info")
        self.click(KEYS)

    def change(self) -> None:
        """Inserts, updates, deletes, and keys that move to other chunks, in two transactions; and clicks."""
        kinds = [
            "INSERT IGNORE INTO {table} VALUES ({key}, '{value}')",
            "UPDATE {table} SET gender = '{value}' WHERE user_id BETWEEN {key} AND {key} + 7",
            "DELETE FROM {table} WHERE user_id = {key}",
            "UPDATE IGNORE {table} SET user_id = {other}, gender = '{value}' WHERE user_id = {key}",
        ] * 6
        self.chance.shuffle(kinds)
        with self.database.connect(autocommit=False) as connection, connection.cursor() as cursor:
            for at, kind in enumerate(kinds):
                key, other = self.chance.randrange(KEYS), self.chance.randrange(KEYS)
                cursor.execute(kind.format(table=self.table, key=key, other=other, value=self.chance.choice("fmx")))
                if at % 12 == 11:
                    connection.commit()
        self.click(KEYS)

    def users_at(self, generation: int, epoch: int) -> Mapping[int, Mapping[str, Any]]:
        """By mysql-replication. An epoch of before the flip, which no INSERT may be pinned to, has no such state."""
        (plan,) = (row.plan for row in self.lake.epochs.rows("user_info") if row.epoch == epoch)
        assert generation == 1
        assert plan["ranges"]["kind"] == "binlog"
        end = plan["ranges"]["span"]["end"]
        return self.replay.to((number(end["file"]), end["position"]))

    def found(self) -> dict[int, str]:
        """The users as a reader of the lake finds them: of each key its newest version."""
        rows = rows_of(str(self.users))
        places = [(row["user_id"], *row["_seq"].values()) for row in rows]
        assert len(set(places)) == len(places), "no change is there twice"
        newest = {row["user_id"]: row for row in sorted(rows, key=lambda row: tuple(row["_seq"].values()))}
        return {key: row["gender"] for key, row in newest.items() if row["_op"] != "d"}

    def check(self) -> None:
        super().check()
        assert self.found() == dict(self.database.execute(f"SELECT user_id, gender FROM {self.table}"))

    def last_plan(self) -> tuple[str, bool]:
        plan = self.lake.epochs.rows("user_info")[-1].plan
        return plan["summary"], plan.get("flips", False)

    def flipped(self) -> bool:
        return any(row.flip_epoch is not None for row in self.lake.watermarks.rows("user_info"))


@pytest.mark.thorough
@pytest.mark.soak
@pytest.mark.timeout(0)
def test_kills_lose_no_change_and_no_click(
    spark: SparkSession, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    print(f"seed {SEED}")
    for name, value in database.environment().items():
        monkeypatch.setenv(name, value)
    play = MysqlPlay(tmp_path, database, "users", SEED)

    # Chunks 1-3 have landed; of the next three there are rows, and no cut.
    play.dies("source.appended@user_info", after=1)
    assert play.last_plan() == (f"chunks 4-6 of {CHUNKS}", False)
    assert [split.cut is not None for split in play.lake.splits.rows("user_info")].count(True) == STEP_CHUNKS

    # The source has been notified of the flip, and is not in its log.
    play.change()
    play.dies("source.landed@user_info", after=2)
    assert play.last_plan()[1]
    assert not play.flipped()

    # Changes of the binlog are committed; what they say of the watermark is not.
    play.change()
    play.dies("source.appended@user_info")
    assert play.flipped()
    landed = play.lake.watermarks.rows("user_info")[-1].epoch
    assert {row["_op"] for row in rows_of(str(play.users)) if row["_epoch"] == landed + 1} == {"c", "u", "d"}

    for _ in range(2):
        play.change()
        advance(spark, play.script.read_text(), play.lake)
    assert len({plan.plan["pins"][0]["epoch"] for plan in play.lake.epochs.rows("insert enriched")}) == 2
    play.check()

    for table in range(RANDOM_TABLES):
        directory = tmp_path / str(table)
        directory.mkdir()
        play = MysqlPlay(directory, database, f"users_{table}", SEED + table + 1)
        play.kill_at_random(10, play.change)
        play.ends()
        play.check()
