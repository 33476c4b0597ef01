"""Every refusal, on a real server, with the statement that mends it; and then that the statement does mend it."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.conftest import Database, own_server
from tests.pipelines.sources.mysql_cdc.driver import Driver, context_of, declare
from tidegate.pipelines.connectors.protocol import Comparable, SourcePosition
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.mysql_cdc import CONNECTOR
from tidegate.pipelines.sources.mysql_cdc.binlog.model import NO_CASCADES, Cascades
from tidegate.pipelines.sources.mysql_cdc.catalog import Server, read_cascades
from tidegate.pipelines.sources.mysql_cdc.preflight import check_settings
from tidegate.pipelines.syntax.dialect import parse_type
from tidegate.pipelines.syntax.types import quoted


def preflight(table: Table) -> None:
    with closing(CONNECTOR.source(context_of(table))) as source:
        source.preflight(SourcePosition())


def refusal(table: Table) -> SourceError:
    with pytest.raises(SourceError) as refused:
        preflight(table)
    return refused.value


def refused_by_reconcile(table: Table) -> SourceError:
    with closing(CONNECTOR.source(context_of(table))) as source:
        assert isinstance(source, Comparable)
        with pytest.raises(SourceError) as refused:
            source.comparison(SourcePosition())
    return refused.value


def test_a_good_table_passes(database: Database) -> None:
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(9))")
    preflight(declare(database.options("t"), {"ID": "BIGINT", "name": "STRING"}, ["ID"]))


@dataclass(frozen=True)
class Case:
    """A table, what is said of it, and the fix; `mended` are the statements after which it passes."""

    create: tuple[str, ...]
    says: str
    fix: str
    columns: tuple[tuple[str, str], ...] = (("id", "INT"),)
    key: tuple[str, ...] = ("id",)
    mended: tuple[str, ...] | None = None


TABLES = {
    "character set": Case(
        ("CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(9) CHARACTER SET big5)",),
        "name is text in the character set big5, which cannot be read from a log",
        "ALTER TABLE `{db}`.`t` CONVERT TO CHARACTER SET utf8mb4;   -- or leave it out of the CREATE TABLE of build",
        mended=("ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4",),
        columns=(("id", "INT"), ("name", "STRING")),
    ),
    "enum of bytes": Case(
        ("CREATE TABLE t (id INT PRIMARY KEY, name ENUM('a','b') CHARACTER SET binary)",),
        "name is enum('a','b') in the character set binary, which cannot be read from a log",
        "ALTER TABLE `{db}`.`t` MODIFY `name` enum('a','b') CHARACTER SET utf8mb4;"
        "   -- or leave it out of the CREATE TABLE of build",
        columns=(("id", "INT"), ("name", "STRING")),
    ),
    "engine": Case(
        ("CREATE TABLE t (id INT PRIMARY KEY) ENGINE=Aria",),
        "the table's engine is Aria: only InnoDB",
        "ALTER TABLE `{db}`.`t` ENGINE = InnoDB;",
    ),
    "cascade": Case(
        (
            "CREATE TABLE p (id INT PRIMARY KEY)",
            "CREATE TABLE t (id INT PRIMARY KEY, p INT,"
            " CONSTRAINT `to ``p` FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE)",
        ),
        "the foreign key to `p changes rows",
        "ALTER TABLE `{db}`.`t` DROP FOREIGN KEY `to ``p`;   -- or define it again with NO ACTION",
    ),
    "set null": Case(
        (
            "CREATE TABLE p (id INT PRIMARY KEY)",
            "CREATE TABLE t (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id) ON UPDATE SET NULL)",
        ),
        "the foreign key t_ibfk_1 changes rows",
        "ALTER TABLE `{db}`.`t` DROP FOREIGN KEY `t_ibfk_1`;   -- or define it again with NO ACTION",
    ),
    "system versioning": Case(
        ("CREATE TABLE t (id INT PRIMARY KEY) WITH SYSTEM VERSIONING",),
        "is system-versioned: its deletes come as updates",
        "ALTER TABLE `{db}`.`t` DROP SYSTEM VERSIONING;   -- this drops its history",
    ),
    "view": Case(
        ("CREATE TABLE base (id INT PRIMARY KEY)", "CREATE VIEW t AS SELECT * FROM base"),
        "is a view, whose changes are not in the binlog",
        "name the table that it reads",
    ),
    "no such column": Case(
        ("CREATE TABLE t (id INT PRIMARY KEY, gender INT)",),
        "the table has no column gendre; did you mean gender?",
        "edit the CREATE TABLE of build; the table has id, gender",
        columns=(("id", "INT"), ("gendre", "INT")),
    ),
    "narrow type": Case(
        ("CREATE TABLE t (id BIGINT UNSIGNED PRIMARY KEY)",),
        "column id is INT in the script and bigint(20) unsigned in the table",
        "edit the type of id in the CREATE TABLE of build",
    ),
    "a virtual column of the session": Case(
        ("CREATE TABLE t (id INT PRIMARY KEY, d DATE, v VARCHAR(20) AS (DAYNAME(d)))",),
        "v is VIRTUAL and computed of `dayname`",
        "leave v out of the CREATE TABLE of build, and compute it in the script",
        columns=(("id", "INT"), ("v", "STRING")),
    ),
    "another key": Case(
        ("CREATE TABLE t (id INT, n INT, PRIMARY KEY (id, n))",),
        "(id) is declared as the primary key, and the table's key is (id, n)",
        "declare PRIMARY KEY (id, n) NOT ENFORCED in the CREATE TABLE of build",
    ),
    "no key": Case(
        ("CREATE TABLE t (id INT)",),
        "(id) is declared as the primary key, and the table has no key at all",
        "ALTER TABLE `{db}`.`t` ADD PRIMARY KEY (`id`);",
    ),
    "key of a prefix": Case(
        ("CREATE TABLE t (id VARCHAR(9), PRIMARY KEY (id(3)))",),
        "the table has no key at all",
        "ALTER TABLE `{db}`.`t` ADD PRIMARY KEY (`id`);",
        columns=(("id", "STRING"),),
        mended=("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (id)",),
    ),
}


def virtual_columns(database: Database) -> None:
    """What follows the session is refused, by `reconcile` too, which cannot say more; what does not is read."""
    database.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, `at` TIMESTAMP NULL, d DATETIME, v INT AS (id * 2) VIRTUAL,"
        " s VARCHAR(30) AS (CONCAT(id, ' `at`/now()', \"it's\")) VIRTUAL, h INT AS (HOUR(d)) STORED,"
        " `year` INT AS (YEAR(d)), w INT AS (v + 1) VIRTUAL, x INT AS (HOUR(`at`)) VIRTUAL, y INT AS (x + 1) VIRTUAL)"
    )
    columns = {"id": "INT", "at": "TIMESTAMP_LTZ(6)", "v": "INT", "s": "STRING", "h": "INT", "year": "INT", "w": "INT"}
    preflight(declare(database.options("t"), columns, ["id"]))
    for name, of in (("x", "TIMESTAMP at"), ("y", "VIRTUAL x")):
        table = declare(database.options("t"), {"id": "INT", name: "INT"}, ["id"])
        for error in (refusal(table), refused_by_reconcile(table)):
            assert f"{name} is VIRTUAL and computed of the {of}, so each session" in error.what
            assert error.next_command == f"leave {name} out of the CREATE TABLE of build, and compute it in the script"
    database.execute("DROP TABLE t")


def test_virtual_columns(database: Database) -> None:
    virtual_columns(database)


@pytest.mark.parametrize("name", TABLES)
def test_tables(database: Database, name: str) -> None:
    case = TABLES[name]
    database.execute(*case.create)
    table = declare(database.options("t"), dict(case.columns), case.key)
    error = refusal(table)
    fix = case.fix.format(db=database.name)
    assert case.says in error.what
    assert error.next_command == fix
    assert error.state == "nothing was read"
    assert f"{database.name}.t on 127.0.0.1" in error.where
    if fix.startswith("ALTER") or case.mended:
        database.execute(*(case.mended or (fix.partition(";")[0],)))
        preflight(table)


LONGEST = {
    "TINYINT": ("-128", "VARCHAR(4)"),
    "TINYINT UNSIGNED": ("255", "VARCHAR(3)"),
    "SMALLINT": ("-32768", "VARCHAR(6)"),
    "SMALLINT UNSIGNED": ("65535", "VARCHAR(5)"),
    "MEDIUMINT": ("-8388608", "VARCHAR(8)"),
    "MEDIUMINT UNSIGNED": ("16777215", "VARCHAR(8)"),
    "INT": ("-2147483648", "VARCHAR(11)"),
    "INT UNSIGNED": ("4294967295", "VARCHAR(10)"),
    "BIGINT": ("-9223372036854775808", "VARCHAR(20)"),
    "BIGINT UNSIGNED": ("18446744073709551615", "VARCHAR(20)"),
    "BIT(1)": ("0", "VARCHAR(5)"),  # false
    "DECIMAL(4, 0)": ("-9999", "VARCHAR(5)"),
    "DECIMAL(4, 2)": ("-99.99", "VARCHAR(6)"),
    "DECIMAL(4, 4)": ("-0.9999", "VARCHAR(7)"),
    "DECIMAL(65, 30)": (f"-{'9' * 35}.{'9' * 30}", "VARCHAR(67)"),
    "YEAR": ("1999", "VARCHAR(4)"),
    "DATE": ("'9999-12-31'", "VARCHAR(10)"),
    "DATETIME": ("'9999-12-31 23:59:59'", "VARCHAR(19)"),
    "DATETIME(6)": ("'9999-12-31 23:59:59.999999'", "VARCHAR(26)"),
    "TIME": ("'-838:59:59'", "VARCHAR(10)"),
    "TIME(3)": ("'-838:59:58.999'", "VARCHAR(14)"),
    "CHAR(3)": ("'💩bc'", "VARCHAR(3)"),
    "VARCHAR(3) CHARACTER SET latin1": ("'abc'", "VARCHAR(3)"),
    "TINYTEXT": ("REPEAT('a', 255)", "VARCHAR(255)"),
    "ENUM('a', 'bcd')": ("'bcd'", "VARCHAR(3)"),
    "SET('a', 'bc')": ("'a,bc'", "VARCHAR(4)"),
    "INET4": ("'255.255.255.255'", "VARCHAR(15)"),
    "INET6": ("'1111:2222:3333:4444:5555:6666:7777:8888'", "VARCHAR(39)"),
    "UUID": ("UUID()", "VARCHAR(36)"),
    "BINARY(3)": ("'abc'", "VARBINARY(3)"),
    "VARBINARY(3)": ("'abc'", "VARBINARY(3)"),
    "TINYBLOB": ("REPEAT('a', 255)", "VARBINARY(255)"),
    "BIT(9)": ("511", "VARBINARY(2)"),
}
"""Per type of the server its longest value, and the shortest type to declare."""
BINARY = {"BINARY(3)", "VARBINARY(3)", "TINYBLOB", "BIT(9)"}


def test_a_declared_length_has_room_for_the_longest_value(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    columns = ", ".join(f"c{number} {kind}" for number, kind in enumerate(LONGEST))
    values = ", ".join(value for value, _ in LONGEST.values())
    database.execute(f"CREATE TABLE t (id INT PRIMARY KEY, {columns})", f"INSERT INTO t VALUES (1, {values})")
    exact = {f"c{number}": declared for number, (_, declared) in enumerate(LONGEST.values())}
    types = {kind: "BINARY" if kind.startswith("VARBINARY") else "STRING" for kind in exact.values()}
    table = declare(database.options("t"), {"id": "INT", **exact}, ["id"], types=types)
    driver = Driver(spark, tmp_path, table)
    driver.run()
    (row,) = driver.rows().where("_op = 'r'").select(*exact).collect()
    for (name, declared), kind in zip(exact.items(), LONGEST, strict=True):
        assert f"({len(row[name])})" in declared, (kind, row[name])
        length = len(row[name]) - 1
        short = f"VARBINARY({length})" if kind in BINARY else f"VARCHAR({length})"
        error = refusal(
            declare(database.options("t"), {"id": "INT", name: short}, ["id"], types={short: types[declared]})
        )
        assert f"column {name} is {short} in the script" in error.what
        assert f"longer values would not fit; declare it as {declared}" in error.what
        assert error.next_command == f"edit the type of {name} in the CREATE TABLE of build"


@pytest.mark.parametrize(
    ("kind", "declared", "fitting"),
    [
        ("TEXT", "VARCHAR(9)", "VARCHAR(65535)"),
        ("LONGTEXT", "VARCHAR(65535)", "STRING"),
        ("JSON", "VARCHAR(65535)", "STRING"),
        ("LONGBLOB", "VARBINARY(65535)", "BYTES"),
        ("POINT", "VARBINARY(65535)", "BYTES"),
        ("DOUBLE", "VARCHAR(99)", "STRING"),
        ("CHAR(9)", "CHAR(8)", "VARCHAR(9)"),
        ("CHAR(9)", "CHAR(9)", None),
        ("BINARY(9)", "BINARY(8)", "VARBINARY(9)"),
        ("DATETIME(3)", "TIMESTAMP(2)", "TIMESTAMP(3)"),
        ("DATETIME(3)", "TIMESTAMP(3)", None),
        ("DATETIME", "TIMESTAMP(0)", None),
        ("DATE", "TIMESTAMP(0)", None),
        ("TIMESTAMP(6)", "TIMESTAMP_LTZ(3)", "TIMESTAMP_LTZ(6)"),
        ("TIMESTAMP(6)", "TIMESTAMP_LTZ", None),
    ],
)
def test_a_declared_length_or_digits_of_a_second_that_do_not_suffice(
    database: Database, kind: str, declared: str, fitting: str | None
) -> None:
    database.execute(f"CREATE TABLE t (id INT PRIMARY KEY, c {kind})")
    spark_type = parse_type(declared).spark
    table = declare(database.options("t"), {"id": "INT", "c": declared}, ["id"], types={declared: spark_type})
    if fitting is None:
        preflight(table)
        return
    error = refusal(table)
    assert f"declare it as {fitting}" in error.what


def test_the_tables_whose_changes_a_cascade_follows(database: Database) -> None:
    other = f"{database.name}_`other`"
    database.execute(
        f"CREATE DATABASE {quoted(other)}",
        f"CREATE TABLE {quoted(other)}.`great ``grand` (id INT PRIMARY KEY, x INT UNIQUE)",
        "CREATE TABLE restricting (id INT PRIMARY KEY)",
        "CREATE TABLE grand (id INT PRIMARY KEY, g INT, r INT,"
        f" FOREIGN KEY (g) REFERENCES {quoted(other)}.`great ``grand` (x) ON UPDATE CASCADE,"
        " FOREIGN KEY (r) REFERENCES restricting (id))",
        "CREATE TABLE parent (id INT PRIMARY KEY, n INT, UNIQUE (id, n),"
        " FOREIGN KEY (n) REFERENCES grand (id) ON DELETE SET NULL)",
        "CREATE TABLE t (id INT PRIMARY KEY, p INT, q INT, r INT, KEY (p, q),"
        " CONSTRAINT own FOREIGN KEY (r) REFERENCES t (id) ON DELETE CASCADE,"
        " CONSTRAINT `to (p)` FOREIGN KEY (p, q) REFERENCES parent (id, n) ON DELETE CASCADE)",
        "CREATE TABLE u (id INT PRIMARY KEY, FOREIGN KEY (id) REFERENCES restricting (id))",
        "CREATE OR REPLACE USER seer@'127.0.0.1'",
        f"GRANT SELECT ON `{database.name}`.* TO seer@'127.0.0.1'",
    )
    with database.connect() as connection, connection.cursor() as cursor:
        found = read_cascades(cursor, database.name, "t")
        assert read_cascades(cursor, database.name, "u") == NO_CASCADES
    own = {(database.name, name) for name in ("t", "parent", "grand")}
    assert found == Cascades(("own", "to (p)"), frozenset({*own, (other, "great `grand")}))
    with (
        database.connect(user="seer", host="127.0.0.1", port=database.server.port) as connection,
        connection.cursor() as cursor,
    ):
        unseen = read_cascades(cursor, database.name, "t")
    assert unseen == Cascades(found.names, None)
    database.execute("DROP TABLE t, parent, grand", f"DROP DATABASE {quoted(other)}", "DROP USER seer@'127.0.0.1'")


def test_a_unique_key_without_nulls_will_do(database: Database) -> None:
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, mail VARCHAR(9) NOT NULL, UNIQUE (mail))")
    preflight(declare(database.options("t"), {"mail": "STRING"}, ["mail"]))


@pytest.mark.parametrize(
    ("asked", "says", "fix"),
    [
        ({"table-name": "user_inof"}, "has no table user_inof; did you mean user_info?", "edit 'table-name'"),
        ({"table-name": "zzz"}, "has no table zzz", "edit 'table-name'"),
        ({"database-name": "tset"}, "the server has no database tset; did you mean test", "edit 'database-name'"),
    ],
)
def test_what_is_not_there(database: Database, asked: dict[str, str], says: str, fix: str) -> None:
    database.execute("CREATE TABLE user_info (id INT PRIMARY KEY)", "CREATE DATABASE IF NOT EXISTS test")
    error = refusal(declare(database.options("user_info") | asked, {"id": "INT"}, ["id"]))
    assert says in error.what
    assert fix in error.next_command


def test_missing_grants_are_named_and_can_be_typed_as_they_stand(database: Database) -> None:
    database.execute(
        "CREATE TABLE t (id INT PRIMARY KEY)", "CREATE OR REPLACE USER 'li''m'@'127.0.0.1' IDENTIFIED BY 'x'"
    )
    table = declare(database.options("t") | {"username": "li'm", "password": "x"}, {"id": "INT"}, ["id"])
    error = refusal(table)
    grants = re.findall(r"GRANT [^;]+;", error.next_command)
    assert grants == [
        f"GRANT SELECT ON `{database.name}`.`t` TO 'li''m'@'127.0.0.1';",
        "GRANT REPLICATION CLIENT ON *.* TO 'li''m'@'127.0.0.1';",
        "GRANT REPLICATION SLAVE ON *.* TO 'li''m'@'127.0.0.1';",
    ]
    database.execute(f"GRANT SELECT (id) ON `{database.name}`.`t` TO 'li''m'@'127.0.0.1'")
    by_column = refusal(table)
    assert "not how it is defined" in by_column.what
    assert set(re.findall(r"GRANT [^;]+;", by_column.next_command)) == set(grants)
    database.execute(f"REVOKE SELECT (id) ON `{database.name}`.`t` FROM 'li''m'@'127.0.0.1'")
    for number, grant in enumerate(grants):
        assert re.findall(r"GRANT [^;]+;", refusal(table).next_command) == grants[number:]
        database.execute(grant)
    preflight(table)
    database.execute("DROP USER 'li''m'@'127.0.0.1'")


def test_a_wrong_password_is_an_error_without_it(database: Database) -> None:
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    error = refusal(declare(database.options("t") | {"password": "guessed-secret"}, {"id": "INT"}, ["id"]))
    assert "refuses the user" in error.what
    assert "guessed-secret" not in str(error)


def test_a_server_that_is_not_there(database: Database) -> None:
    error = refusal(declare(database.options("t") | {"port": "1"}, {"id": "INT"}, ["id"]))
    assert "cannot be reached" in error.what
    assert "127.0.0.1:1" in error.where


def test_a_prepared_transaction_is_on_neither_side_of_a_snapshot(database: Database) -> None:
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    table = declare(database.options("t"), {"id": "INT"}, ["id"])
    with database.connect() as connection, connection.cursor() as cursor:
        for statement in ("XA START 'x'", "INSERT INTO t VALUES (1)", "XA END 'x'", "XA PREPARE 'x'"):
            cursor.execute(statement)
        error = refusal(table)
        assert "1 prepared XA transactions are open" in error.what
        assert "XA COMMIT or XA ROLLBACK" in error.next_command
        preflight(declare(database.options("t") | {"scan.startup.mode": "latest-offset"}, {"id": "INT"}, ["id"]))
        cursor.execute("XA COMMIT 'x'")
    preflight(table)


SETTINGS: dict[str, tuple[str, str, str]] = {
    "binlog_format": ("MIXED", "ROW", "as statements"),
    "binlog_row_image": ("MINIMAL", "FULL", "without all of their columns"),
    "binlog_row_metadata": ("NO_LOG", "FULL", "without the columns' names"),
}


def test_settings_of_the_binlog(lone: Database) -> None:
    lone.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    table = declare(lone.options("t"), {"id": "INT"}, ["id"])
    for name, (wrong, _, _) in SETTINGS.items():
        lone.execute(f"SET GLOBAL {name} = {wrong}")
    lone.execute("SET GLOBAL binlog_expire_logs_seconds = 60")
    error = refusal(table)
    assert error.what.startswith("4 things keep shop.t from being read exactly:")
    for name, (wrong, right, why) in SETTINGS.items():
        assert f"{name} is {wrong}: changes come {why}" in error.what
        assert f"SET GLOBAL {name} = '{right}';" in error.next_command
    assert "purged after 60 s" in error.what
    for fix in re.findall(r"SET GLOBAL [^;]+;", error.next_command):
        lone.execute(fix)
    preflight(table)


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize(
    ("options", "what", "fix"),
    [
        ({"log_bin": None}, "the server writes no binlog (log_bin = OFF)", "[mysqld] log_bin = binlog"),
        ({"binlog_ignore_db": "shop"}, "leaves the database shop out of its binlog", "take the filter out"),
    ],
)
def test_a_server_whose_binlog_lacks_the_database(
    tmp_path: Path, options: dict[str, str | None], what: str, fix: str
) -> None:
    with own_server(tmp_path, **options) as shop:
        shop.execute("CREATE TABLE t (id INT PRIMARY KEY)")
        error = refusal(declare(shop.options("t"), {"id": "INT"}, ["id"]))
    assert what in error.what
    assert fix in error.next_command


MYSQL = Server(
    flavor="mysql",
    version=(8, 4),
    variables={
        "log_bin": "ON",
        "binlog_format": "ROW",
        "binlog_row_image": "FULL",
        "binlog_row_metadata": "FULL",
        "gtid_mode": "ON",
        "binlog_expire_logs_seconds": "2592000",
    },
    account="'reader'@'%'",
)


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("gtid_mode", "OFF", "gtid_mode is OFF"),
        ("binlog_row_value_options", "PARTIAL_JSON", "JSON changes come in part only"),
        ("binlog_row_metadata", "MINIMAL", "without the columns' names"),
    ],
)
def test_settings_of_mysql(variable: str, value: str, says: str) -> None:
    assert list(check_settings(MYSQL)) == []
    (found,) = check_settings(replace(MYSQL, variables={**MYSQL.variables, variable: value}))
    assert says in found.what
    assert f"SET GLOBAL {variable}" in str(found.fix)


def test_a_server_that_is_too_old_to_be_set_right() -> None:
    variables = {name: value for name, value in MYSQL.variables.items() if name != "binlog_row_metadata"}
    (found,) = check_settings(replace(MYSQL, variables=variables))
    assert found.what == "the server has no binlog_row_metadata, so it is too old"
    assert str(found.fix) == "use MariaDB 10.5 or MySQL 8, or a later one"
