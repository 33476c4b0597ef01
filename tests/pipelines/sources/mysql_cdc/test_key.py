"""Keys that differ on the server never become one here: they are read as they are, or refused."""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from tests.conftest import Database
from tests.pipelines.sources.mysql_cdc.binlog.recording import position, read, wanted
from tests.pipelines.sources.mysql_cdc.driver import context_of, declare
from tidegate.pipelines.connectors.protocol import SourcePosition
from tidegate.pipelines.sources.cdc import errors as snapshot
from tidegate.pipelines.sources.cdc.chunks import WHOLE
from tidegate.pipelines.sources.mysql_cdc import errors as binlog
from tidegate.pipelines.sources.mysql_cdc import preflight
from tidegate.pipelines.sources.mysql_cdc.catalog import Server, SourceTable
from tidegate.pipelines.sources.mysql_cdc.options import parse
from tidegate.pipelines.sources.mysql_cdc.source import MysqlCdcSource, _warn_once
from tidegate.pipelines.sources.mysql_cdc.types import SourceColumn

DATES = {
    "DATE": ("TIMESTAMP(3)", ("2024-02-29", "0001-01-01", "9999-12-31"), ("2023-02-29", "0000-00-00", "2024-06-00")),
    "DATETIME(3)": ("TIMESTAMP(3)", ("2024-02-29 23:59:59.999",), ("2024-02-30 00:00:00", "0000-00-00 00:00:00")),
    "TIMESTAMP": ("TIMESTAMP_LTZ(3)", ("2024-02-29 12:00:00",), ("0000-00-00 00:00:00",)),
}
LAX = "SET SESSION sql_mode = 'ALLOW_INVALID_DATES'"


def by_snapshot(database: Database, kind: str, folder: Path, other: str = "TIMESTAMP(3)") -> pa.Table:
    """What a task of Spark reads of the table."""
    types = {"TIMESTAMP(3)": "TIMESTAMP_NTZ", "TIMESTAMP_LTZ(3)": "TIMESTAMP"}
    table = declare(database.options("t"), {"k": kind, "other": other}, ["k"], types=types)
    with closing(MysqlCdcSource(context_of(table, folder))) as source:
        compared = source.comparison(SourcePosition())
        return pa.Table.from_batches(compared.reader([WHOLE], "TRUE").read(0))


@pytest.mark.parametrize("kind", DATES)
def test_a_key_whose_date_does_not_exist_is_refused_by_either_phase(
    kind: str, database: Database, tmp_path: Path
) -> None:
    declared, good, bad = DATES[kind]
    database.execute(f"CREATE TABLE t (k {kind} PRIMARY KEY, other DATETIME)")
    table, start = wanted(database, "t", ["k"]), position(database)
    for value in good:  # what is no key may be any date: it counts on, or is NULL
        database.execute(LAX, f"INSERT INTO t VALUES ('{value}', '2023-02-29')")
    by_log = read(database, table, start)
    found = by_snapshot(database, declared, tmp_path)
    assert sorted(found["k"].to_pylist()) == sorted(by_log["k"].to_pylist())
    assert found["other"].to_pylist() == by_log["other"].to_pylist()
    assert [str(value)[:10] for value in set(found["other"].to_pylist())] == ["2023-03-01"]
    for value in bad:
        start = position(database)
        database.execute(LAX, f"INSERT INTO t VALUES ('{value}', NULL)")
        with pytest.raises(snapshot.UnreadableKey, match="in the key column k") as refused:
            by_snapshot(database, declared, tmp_path)
        assert "UPDATE" in refused.value.next_command
        with pytest.raises(binlog.UnreadableKey, match="in the key column k") as refused:
            read(database, table, start)
        assert "--resnapshot" in refused.value.next_command
        database.execute("SET SESSION sql_mode = ''", f"DELETE FROM t WHERE k = '{value}'")


OF_TWO_CODES = {
    "cp932": ("X'8782', X'E040', X'FA40'", "X'FA59', X'EEEF'"),
    "hebrew": ("X'E0', X'61'", "X'FB', X'A1'"),
    "sjis": ("X'8340'", "X'5C'"),
    "ascii": ("X'61'", "X'E9'"),
}
"""By character set: codes that are the only ones of their character, or those that the server writes; and others."""


@pytest.mark.parametrize("charset", OF_TWO_CODES)
def test_a_text_key_that_has_another_code_is_refused_by_either_phase(
    charset: str, database: Database, tmp_path: Path
) -> None:
    good, bad = OF_TWO_CODES[charset]
    text = f"VARCHAR(9) CHARACTER SET {charset} COLLATE {charset}_nopad_bin"
    database.execute(f"CREATE TABLE t (k {text} PRIMARY KEY, other {text})")
    table, start = wanted(database, "t", ["k"]), position(database)
    for code in good.split(", "):
        database.execute(f"INSERT INTO t VALUES (_{charset} {code}, NULL)")
    by_log = read(database, table, start)
    found = by_snapshot(database, "STRING", tmp_path, "STRING")
    assert sorted(found["k"].to_pylist()) == sorted(by_log["k"].to_pylist())
    for code in bad.split(", "):
        start = position(database)
        database.execute(
            "SET SESSION sql_mode = ''", f"INSERT INTO t VALUES (CONVERT(_binary {code} USING {charset}), NULL)"
        )
        with pytest.raises(snapshot.UnreadableKey, match=rf"of {charset} .* in the key column k"):
            by_snapshot(database, "STRING", tmp_path, "STRING")
        with pytest.raises((binlog.UnreadableKey, binlog.UnsupportedEvent)):
            read(database, table, start)
        database.execute(f"DELETE FROM t WHERE HEX(k) = HEX({code})")


def test_the_error_value_of_an_enum_is_none_of_its_empty_member(database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (k ENUM('a', '') PRIMARY KEY, other ENUM('a', ''))")
    table, start = wanted(database, "t", ["k"]), position(database)
    database.execute("SET SESSION sql_mode = ''", "INSERT IGNORE INTO t VALUES ('', 'nope'), ('a', '')")
    by_log, found = read(database, table, start), by_snapshot(database, "STRING", tmp_path, "STRING")
    assert sorted(found["k"].to_pylist()) == sorted(by_log["k"].to_pylist()) == ["", "a"]
    assert found["other"].to_pylist() == ["", ""]
    start = position(database)
    database.execute("SET SESSION sql_mode = ''", "INSERT IGNORE INTO t VALUES ('nope', 'a')")
    with pytest.raises(snapshot.UnreadableKey, match=r"the error value of an ENUM, .* in the key column k"):
        by_snapshot(database, "STRING", tmp_path, "STRING")
    with pytest.raises(binlog.UnreadableKey, match=r"the error value of an ENUM, .* in the key column k"):
        read(database, table, start)


def described(column: SourceColumn, collation: str | None = None) -> SourceTable:
    return SourceTable("BASE TABLE", "InnoDB", 1, (column,), {column.name: collation}, {}, "")


OPTIONS = parse({name: "x" for name in ("hostname", "username", "password", "database-name", "table-name")})


@pytest.mark.parametrize(
    ("have", "want", "spark", "zone", "says"),
    [
        ("timestamp", "TIMESTAMP(3)", "TIMESTAMP_NTZ", "Europe/Berlin", "declare k as TIMESTAMP_LTZ(3)"),
        ("datetime", "TIMESTAMP_LTZ(3)", "TIMESTAMP", "America/New_York", "declare k as TIMESTAMP(3)"),
        ("tinyint", "BOOLEAN", "BOOLEAN", "UTC", "declare k as TINYINT"),
        ("timestamp", "TIMESTAMP(3)", "TIMESTAMP_NTZ", "UTC", None),
        ("timestamp", "TIMESTAMP(3)", "TIMESTAMP_NTZ", "Etc/GMT-3", None),
        ("timestamp", "TIMESTAMP_LTZ(3)", "TIMESTAMP", "Europe/Berlin", None),
        ("datetime", "TIMESTAMP(3)", "TIMESTAMP_NTZ", "Europe/Berlin", None),
        ("date", "TIMESTAMP(3)", "TIMESTAMP_NTZ", "Europe/Berlin", None),
    ],
)
def test_a_type_that_makes_two_keys_one_is_refused(have: str, want: str, spark: str, zone: str, says: str | None):
    table = declare({}, {"k": want, "v": want}, ["k"], types={want: spark})
    found = preflight.check_key_types(described(SourceColumn("k", have, have)), replace(OPTIONS, time_zone=zone), table)
    assert [str(refusal.fix).partition(" in the CREATE")[0] for refusal in found] == ([says] if says else [])


def test_the_type_to_declare_for_a_key_has_the_digits_of_the_table() -> None:
    table = declare({}, {"k": "TIMESTAMP(3)"}, ["k"], types={"TIMESTAMP(3)": "TIMESTAMP_NTZ"})
    key = described(SourceColumn("k", "timestamp", "timestamp(6)", fraction=6))
    (refusal,) = preflight.check_key_types(key, replace(OPTIONS, time_zone="Europe/Berlin"), table)
    assert str(refusal.fix).startswith("declare k as TIMESTAMP_LTZ(6) in the CREATE TABLE")


MARIADB = Server("mariadb", (11, 4), {}, "''@''")


@pytest.mark.parametrize(
    ("kind", "collation", "says"),
    [
        ("varchar", "utf8mb4_general_ci", "case, accents or blanks at the end"),
        ("varchar", "utf8mb4_bin", "differ in blanks at the end"),
        ("char", "utf8mb4_bin", None),
        ("char", "utf8mb4_uca1400_ai_ci", "case, accents or blanks at the end"),
        ("varchar", "utf8mb4_nopad_bin", None),
        ("varchar", "utf8mb4_0900_bin", None),
        ("varbinary", None, None),
    ],
)
def test_what_the_server_takes_for_one_key_is_named(kind: str, collation: str | None, says: str | None) -> None:
    table = declare({}, {"k": "STRING", "v": "STRING"}, ["k"])
    column = SourceColumn("k", kind, f"{kind}(9)", charset="utf8mb4" if collation else None)
    notes = list(preflight.collation_notes(described(column, collation), MARIADB, table))
    assert len(notes) == (says is not None)
    if says:
        assert says in notes[0]
        assert "COLLATE utf8mb4_nopad_bin" in notes[0]
        (of_mysql,) = preflight.collation_notes(described(column, collation), replace(MARIADB, flavor="mysql"), table)
        assert "COLLATE utf8mb4_0900_bin" in of_mysql


def test_a_warning_is_logged_once_a_lake(database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    database.execute("CREATE TABLE t (k VARCHAR(9) PRIMARY KEY)")
    table = declare(database.options("t"), {"k": "STRING"}, ["k"], name=f"warned_{database.name}")
    with closing(MysqlCdcSource(context_of(table, tmp_path))) as source, caplog.at_level(logging.WARNING):
        source.preflight(SourcePosition())
        source.preflight(SourcePosition())
        _warn_once.cache_clear()  # another process
        source._preflight(object())  # type: ignore[arg-type] any step before
    assert [record.getMessage().partition(" by ")[0] for record in caplog.records] == [
        f"warned_{database.name}: the server compares the key column k"
    ]
