"""A real MySQL 9.7: snapshot, binlog, cascades that it logs or does not, and what its statements mean."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.conftest import Database
from tests.pipelines.sources.mysql_cdc import mysql_server, test_chunks, test_names, test_preflight
from tests.pipelines.sources.mysql_cdc.binlog import neighbours
from tests.pipelines.sources.mysql_cdc.binlog.statements import alters
from tests.pipelines.sources.mysql_cdc.binlog.statements.test_on_a_server import (
    NUMBERED,
    PARTED,
    UNIQUE,
    Case,
    U,
    fault,
)
from tests.pipelines.sources.mysql_cdc.driver import Driver, declare
from tests.pipelines.sources.mysql_cdc.test_stops import explained
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.mysql_cdc.errors import SchemaChanged
from tidegate.pipelines.sources.mysql_cdc.server import EmbeddedMariaDb

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("server")]

CASES = (
    NUMBERED,
    Case((*NUMBERED.statements, "DROP TABLE t"), SchemaChanged),
    Case(("ALTER TABLE u EXCHANGE PARTITION p WITH TABLE t",), SchemaChanged, (PARTED,)),
    Case(("RENAME TABLE t TO v, u TO t",), SchemaChanged, (U,)),
    Case(("DROP INDEX `PRIMARY` ON t", "INSERT INTO t VALUES (1, 'z')"), SchemaChanged),
    Case(("DROP INDEX n ON t", "INSERT INTO t VALUES (3, 'a')"), SchemaChanged, (UNIQUE,), key="name"),
    Case(("ALTER TABLE t ENGINE = BLACKHOLE",), SchemaChanged),
    Case(("TRUNCATE TABLE /*M! nowhere.*/ t",), SchemaChanged),  # MySQL passes over the comment
    Case(("TRUNCATE /*!80000 TABLE */ t /*!99999 TABLE */",)),
    Case(
        (
            "ANALYZE TABLE t UPDATE HISTOGRAM ON name WITH 4 BUCKETS",
            "CREATE VIEW v AS TABLE t",
            "CREATE TABLE r (id INT, t INT REFERENCES t (id) ON DELETE CASCADE)",
            "CREATE TABLE s SELECT * FROM t",
            "ALTER TABLE t ADD COLUMN x INT DEFAULT 5, ADD INDEX n (name), ALGORITHM=DEFAULT",
            "ALTER TABLE t ALTER INDEX n INVISIBLE",
            "ALTER TABLE t ENGINE=InnoDB ROW_FORMAT=DYNAMIC, DROP INDEX n",
            "UPDATE v SET name = 'y' WHERE id = 2",
            "ALTER TABLE t DROP COLUMN x",
            "DELETE FROM v WHERE id = 1",
            "DROP TABLE r, s",
            "CREATE FUNCTION t() RETURNS INT DETERMINISTIC RETURN 1",
            "DROP FUNCTION t",
        ),
    ),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A server's data, which the next one goes on with."""
    return tmp_path_factory.mktemp("mysql")


@contextmanager
def shop(folder: Path, *options: str) -> Iterator[Database]:
    """An empty database on a server that is started with these options."""
    with mysql_server.running(folder, *options) as server:
        server.execute(
            "DROP DATABASE IF EXISTS shop",
            "CREATE DATABASE shop",
            "CREATE USER IF NOT EXISTS reader@'127.0.0.1'",
            "GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO reader@'127.0.0.1'",
        )
        yield Database(cast(EmbeddedMariaDb, server), "shop", "reader", "")


def child(database: Database) -> Table:
    """A table that two foreign keys change by themselves."""
    database.execute(
        "CREATE TABLE parent (id INT PRIMARY KEY, other INT UNIQUE)",
        "CREATE TABLE child (id INT PRIMARY KEY, p INT, q INT,"
        " FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE ON UPDATE CASCADE,"
        " FOREIGN KEY (q) REFERENCES parent (other) ON DELETE SET NULL)",
        "INSERT INTO parent VALUES (1, 10), (2, 20), (3, 30), (4, 40)",
        "INSERT INTO child VALUES (1, 1, 10), (2, 2, 20), (3, 2, 40), (4, 3, 40), (5, NULL, NULL)",
    )
    return declare(database.options("child"), {"id": "INT", "p": "INT", "q": "INT"}, ["id"])


def test_cascades_and_statements_are_read(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    with shop(folder) as mysql:
        driver = Driver(spark, tmp_path, child(mysql))
        driver.run()
        mysql.execute("UPDATE parent SET id = 9 WHERE id = 2", "DELETE FROM parent WHERE other IN (10, 40)")
        driver.run()
        assert sorted(driver.state().values()) == [(2, 9, 20), (3, 9, None), (4, 3, None), (5, None, None)]
        assert sorted(mysql.execute("SELECT * FROM child")) == sorted(driver.state().values())
        mysql.execute("DROP TABLE child, parent")
        wrong = [f"{case.statements}: {found}" for case in CASES if (found := fault(mysql, case))]
        wrong += alters.faults(mysql, but=("IF NOT EXISTS",))  # MariaDB's
        wrong += alters.faults_of_texts(mysql)
        assert not wrong, "\n".join(wrong)


def test_types_names_and_keys_are_those_of_the_server(folder: Path) -> None:
    with shop(folder) as mysql:
        test_preflight.virtual_columns(mysql)
        for collation in ("utf8mb4_0900_ai_ci", "utf8mb4_0900_bin", "utf8mb4_bin"):
            for key in test_chunks.BELOW_THE_BLANK:
                found, there = test_chunks.in_chunks(mysql, collation, key)
                assert found == there, (collation, key)
        assert neighbours.fault(mysql, neighbours.MYSQL) == []
        assert test_names.differing(mysql) == []


def test_cascades_below_the_binlog_are_refused(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    with shop(folder, "--innodb-native-foreign-keys=ON") as mysql:
        table = child(mysql)
        with pytest.raises(SourceError, match="such changes are not in the binlog"):
            Driver(spark, tmp_path, table).run()


def test_a_replica_that_cascades_below_its_log_is_refused_at_the_parent_s_change(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    """Of a source whose engine cascades, as MySQL 8 does; then the advice is followed on that source."""
    native = mysql_server.running(tmp_path / "source", "--server-id=3", "--innodb-native-foreign-keys=ON")
    with native as source, shop(tmp_path / "replica", "--server-id=2") as replica:
        source.execute("CREATE USER repl@'%' IDENTIFIED BY 'x'", "GRANT REPLICATION SLAVE ON *.* TO repl@'%'")
        replica.execute(
            f"CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT={source.port}, SOURCE_USER='repl',"
            " SOURCE_PASSWORD='x', SOURCE_AUTO_POSITION=1, GET_SOURCE_PUBLIC_KEY=1",
            "START REPLICA",
        )

        def on_source(*statements: str) -> None:
            source.execute(*statements, database="shop")
            ((done,),) = source.execute("SELECT @@GLOBAL.gtid_executed")
            assert replica.execute(f"SELECT WAIT_FOR_EXECUTED_GTID_SET('{done}', 60)") == ((0,),)

        source.execute("CREATE DATABASE IF NOT EXISTS shop")
        on_source(
            "CREATE TABLE grand (id INT PRIMARY KEY)",
            "CREATE TABLE parent (id INT PRIMARY KEY, FOREIGN KEY (id) REFERENCES grand (id) ON UPDATE CASCADE)",
            "CREATE TABLE child (id INT PRIMARY KEY, p INT,"
            " CONSTRAINT of_parent FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE ON UPDATE CASCADE)",
            "CREATE TABLE other (id INT PRIMARY KEY)",
            "INSERT INTO grand VALUES (1), (2)",
            "INSERT INTO parent VALUES (1), (2)",
            "INSERT INTO child VALUES (1, 1), (2, 2)",
            "INSERT INTO other VALUES (1)",
        )
        table = declare(replica.options("child"), {"id": "INT", "p": "INT"}, ["id"], name="user_info")
        driver = Driver(spark, tmp_path / "rows", table)
        driver.run()
        on_source("DELETE FROM other", "UPDATE child SET p = 1 WHERE id = 2", "INSERT INTO grand VALUES (3)")
        driver.run()
        assert sorted(driver.state().values()) == [(1, 1), (2, 1)]
        on_source("UPDATE grand SET id = 9 WHERE id = 1")
        with pytest.raises(PySparkException) as failed:
            driver.run()
        error = explained(driver, failed.value)
        assert "rows of shop.grand were changed by a server that does not log the cascades" in error.what
        advised, _, note = error.next_command.partition("   (")
        assert advised == "ALTER TABLE `shop`.`child` DROP FOREIGN KEY `of_parent`"
        assert note.startswith("on the server that the rows come from")
        assert "--resnapshot user_info" in note
        on_source(advised)
        again = Driver(spark, tmp_path / "again", table)
        again.run()
        on_source("UPDATE grand SET id = 7 WHERE id = 9", "DELETE FROM child WHERE id = 1")
        again.run()
        assert sorted(again.state().values()) == [(2, 9)]
        assert replica.execute("SELECT * FROM child") == ((2, 9),)
