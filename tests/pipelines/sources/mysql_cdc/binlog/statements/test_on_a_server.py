"""Statements that a real MariaDB ran: the reader stops, or what it read and the rows of before are the table's rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tests.conftest import Database
from tests.pipelines.sources.mysql_cdc.binlog.recording import position, read, wanted
from tidegate.pipelines.sources.mysql_cdc.errors import BinlogError, SchemaChanged, StatementEvent


@dataclass(frozen=True)
class Case:
    """`before` and `statements` run on the table t (id, name). `stops`: how the reader ends; None where it goes on."""

    statements: tuple[str, ...]
    stops: type[BinlogError] | None = None
    before: tuple[str, ...] = ()
    key: str = "id"


COLUMNS = "(id INT PRIMARY KEY, name VARCHAR(9))"
U = f"CREATE TABLE u {COLUMNS}"
PARTED = f"{U} PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (9))"
ADDS = (
    "CREATE OR REPLACE FUNCTION adds() RETURNS INT DETERMINISTIC MODIFIES SQL DATA "
    "BEGIN INSERT INTO t VALUES (500, 'f'); RETURN 1; END"
)
UNIQUE = "ALTER TABLE t MODIFY name VARCHAR(9) NOT NULL, ADD UNIQUE n (name)"

NUMBERED = Case(
    (
        "SET binlog_format = MIXED",
        "SET pseudo_thread_id = 4000001",
        "CREATE TEMPORARY TABLE t (id INT)",
        "SET pseudo_thread_id = 4000002",
        "TRUNCATE TABLE t",
        "SET pseudo_thread_id = 4000001",
        "TRUNCATE TABLE t",
        "DROP TABLE t",
        "SET binlog_format = ROW",
        "INSERT INTO t VALUES (3, 'c')",
    )
)
"""A session that logs under numbers which it chooses, as a log that is played back does: under each it has other
TEMPORARY tables."""

CASES = (
    Case(("ALTER TABLE u EXCHANGE PARTITION p WITH TABLE t",), SchemaChanged, (PARTED,)),
    Case(
        (
            "ALTER TABLE u CONVERT TABLE t TO PARTITION q VALUES LESS THAN (19)",
            "INSERT INTO u VALUES (13, 'x')",
            "ALTER TABLE u CONVERT PARTITION q TO TABLE t",
        ),
        SchemaChanged,
        (PARTED, "DELETE FROM t", "INSERT INTO t VALUES (11, 'a')"),
    ),
    Case(("TRUNCATE TABLE .t", "INSERT INTO t VALUES (3, 'c')")),
    Case(("RENAME TABLE .t TO v", "RENAME TABLE u TO .t"), SchemaChanged, (U,)),
    Case((f"CREATE OR REPLACE TABLE .t {COLUMNS}",), SchemaChanged),
    Case(("CREATE OR REPLACE SEQUENCE t",), SchemaChanged),
    Case(("SET sql_mode = 'MSSQL'", "TRUNCATE [t]")),
    Case(("SET sql_mode = 'MSSQL'", "ALTER TABLE [t] DROP PRIMARY KEY"), SchemaChanged),
    Case(("SET binlog_format = STATEMENT", "ANALYZE UPDATE t SET name = 'z'"), StatementEvent),
    Case(("SET binlog_format = STATEMENT", "ANALYZE FORMAT=JSON DELETE FROM t WHERE id = 1"), StatementEvent),
    Case(("ANALYZE UPDATE t SET name = 'z'",)),
    Case(("SET binlog_format = STATEMENT", "CREATE TABLE made SELECT adds() AS a"), StatementEvent, (ADDS,)),
    Case(("CREATE TABLE made SELECT adds() AS a",), before=(ADDS,)),
    Case(
        (
            "ALTER TABLE t DROP INDEX n",
            "INSERT INTO t VALUES (3, 'a')",
            "DELETE FROM t WHERE id = 1",
            "CREATE UNIQUE INDEX n ON t (name)",
        ),
        SchemaChanged,
        (UNIQUE,),
        key="name",
    ),
    Case(
        ("DROP INDEX n ON t", "INSERT INTO t VALUES (3, 'a')"),
        SchemaChanged,
        (UNIQUE,),
        key="name",
    ),
    Case(("DROP INDEX `PRIMARY` ON t", "INSERT INTO t VALUES (1, 'z')"), SchemaChanged),
    Case(("ALTER TABLE t ENGINE = MyISAM COMMENT 'x'",)),
    Case(
        ("CREATE TABLE m (id INT, name VARCHAR(9)) ENGINE=MERGE UNION=(t) INSERT_METHOD=LAST", "DELETE FROM m"),
        SchemaChanged,
        ("CREATE OR REPLACE TABLE t (id INT, name VARCHAR(9)) ENGINE=MyISAM",),
    ),
    Case(("ALTER TABLE t WITH SYSTEM VERSIONING",), SchemaChanged),
    Case(("TRUNCATE TABLE /*!80000 nowhere.*/ t", "INSERT INTO t VALUES (1, 'x')")),  # MariaDB passes over it
    Case(("TRUNCATE /*!50699 TABLE */ t /*M!100500 WAIT 3 */",)),
    Case(("REPAIR TABLE t",), SchemaChanged),
    Case(("SET STATEMENT lock_wait_timeout = 9 FOR TRUNCATE t",)),
    Case(("SET STATEMENT sql_mode = 'ANSI_QUOTES' FOR TRUNCATE t",)),
    Case(
        (
            "ANALYZE TABLE t",
            "CREATE VIEW v AS SELECT * FROM t",
            "CREATE TABLE l LIKE t",
            "CREATE TABLE r (id INT, FOREIGN KEY (id) REFERENCES t (id) ON DELETE CASCADE)",
            "DROP TABLE r, l",
            "CREATE TABLE s SELECT * FROM t UNION SELECT * FROM t",
            "CREATE OR REPLACE TABLE s (t INT) COMMENT = 't' PARTITION BY HASH (t)",
            "ALTER TABLE s ADD COLUMN x INT, ADD INDEX t (t), COMMENT 't'",
            "ALTER TABLE t ORDER BY name, id",
            "ALTER TABLE t ADD INDEX n (name), ENGINE=InnoDB ROW_FORMAT=DYNAMIC PARTITION BY HASH (id) PARTITIONS 2",
            "ALTER TABLE t REBUILD PARTITION p0, p1",
            "ALTER TABLE t REMOVE PARTITIONING",
            "DROP INDEX n ON t",
            "OPTIMIZE TABLE t",
            "UPDATE v SET name = 'y' WHERE id = 2",
            "DROP VIEW v",
            "CREATE SEQUENCE q",
        ),
    ),
    Case(
        (
            "SET binlog_format = MIXED",
            "CREATE TEMPORARY TABLE t (id INT PRIMARY KEY, name VARCHAR(9))",
            "TRUNCATE TABLE t",
            "SET STATEMENT lock_wait_timeout = 9 FOR TRUNCATE t",
            "ALTER TABLE t DROP COLUMN name",
            "CREATE INDEX i ON t (id)",
            "DROP INDEX i ON t",
            "ALTER TABLE t MODIFY id BIGINT, DROP PRIMARY KEY",
            "DROP TABLE t",
            "CREATE TEMPORARY TABLE t (id INT)",
            "ALTER TABLE t RENAME TO v",
            "DROP TABLE v",
            "SET binlog_format = ROW",
            "DELETE FROM t WHERE id = 2",
        ),
    ),
    Case(("SET binlog_format = MIXED", "CREATE TEMPORARY TABLE t (id INT)", "RENAME TABLE t TO v"), SchemaChanged),
    NUMBERED,
    Case((*NUMBERED.statements, "SET pseudo_thread_id = 4000001", "DROP TABLE t"), SchemaChanged),
    Case(
        (
            "SET binlog_format = MIXED",
            "CREATE TEMPORARY TABLE t (id INT)",
            "DROP TEMPORARY TABLE t",
            "TRUNCATE TABLE t",
            "SET binlog_format = ROW",
            "INSERT INTO t VALUES (3, 'c')",
        ),
    ),
    Case(
        (
            "XA START 'x'",
            "INSERT INTO u VALUES (1, 'x')",
            "XA END 'x'",
            "XA PREPARE 'x'",
            "XA COMMIT 'x'",
            "SET NAMES binary",
            "CREATE TABLE other (a INT)",
            "SET NAMES big5",
            "DROP TABLE other",
            "SET NAMES ujis",
            "ALTER TABLE u COMMENT = 'x'",
            "SET NAMES swe7",
            "TRUNCATE TABLE t",
        ),
        before=(U,),
    ),
    Case(
        (
            "ALTER TABLE t MODIFY name VARCHAR(9) COMMENT 'x', MODIFY id INT NOT NULL COMMENT 'y'",
            "ALTER TABLE t MODIFY name VARCHAR(9) NULL DEFAULT 'x' FIRST",
            "ALTER TABLE t ADD z INT, ADD INDEX (name)",
            "ALTER TABLE t RENAME COLUMN z TO zz",
            "INSERT INTO t (id, name) VALUES (3, 'c')",
            "ALTER TABLE t DROP COLUMN zz, MODIFY name VARCHAR(9) AFTER id",
        ),
    ),
    Case(("CREATE OR REPLACE DATABASE {db}", f"CREATE TABLE {{db}}.t {COLUMNS}"), SchemaChanged),
)  # fmt: skip


def test_the_reader_stops_or_is_right(database: Database) -> None:
    wrong = [f"{case.statements}: {found}" for case in CASES if (found := fault(database, case))]
    assert not wrong, "\n".join(wrong)


def fault(database: Database, case: Case) -> str:
    """What is wrong with the reading of `case`; nothing where all is right."""
    for table, kind in database.execute("SHOW FULL TABLES"):
        database.execute(f"DROP {'TABLE' if kind == 'BASE TABLE' else kind} `{table}`")
    database.execute(f"CREATE TABLE t {COLUMNS}", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    if case.before:
        database.execute(*case.before)
    table = replace(wanted(database, "t", [case.key]), other_key=case.key != "id")
    rows: dict[Any, tuple[Any, ...]] = {row[case.key == "name"]: row for row in database.execute("SELECT * FROM t")}
    start = position(database)
    database.execute(*(statement.format(db=database.name) for statement in case.statements))
    try:
        changes = read(database, table, start).to_pylist()
    except BinlogError as error:
        return "" if case.stops is type(error) else str(error)
    for change in changes:
        if change["_op"] == "t":
            rows.clear()
        elif change["_op"] == "d":
            del rows[change[case.key]]
        else:
            rows[change[case.key]] = (change["id"], change["name"])
    now = sorted(database.execute("SELECT * FROM t"))
    return "" if case.stops is None and sorted(rows.values()) == now else f"{sorted(rows.values())} for {now}"
