"""Statements that change rows, logged as text: the table is named, and few of another table are passed over."""

from __future__ import annotations

import pytest

from tests.pipelines.sources.mysql_cdc.binlog.statements.test_ddl import TABLE
from tidegate.pipelines.sources.mysql_cdc.binlog.statements.ddl import Effect, judge
from tidegate.pipelines.sources.mysql_cdc.binlog.statements.query import Query
from tidegate.pipelines.sources.mysql_cdc.errors import StatementEvent


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO mysql.rds_heartbeat2(id, value) values (1,1795916110396) ON DUPLICATE KEY UPDATE value = 179",
        "DELETE FROM mysql.rds_sysinfo where name = 'innodb_txn_key'",
        "INSERT INTO `mysql`.`rds_monitor`(a, b) VALUES (UNIX_TIMESTAMP(), concat('x', now()))",
        "UPDATE mysql.rds_history SET a = 1 WHERE b IN (1, 2)",
    ],
)
def test_a_managed_server_s_own_rows_have_no_triggers(sql: str) -> None:
    assert judge(Query(sql, "d"), TABLE).effect is Effect.NONE


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("REPLACE INTO percona.checksums (db) SELECT 'x' FROM d.t", r"rows of percona\.checksums .*triggers or func"),
        ("UPDATE LOW_PRIORITY u SET a = 1", r"rows of d\.u were changed by a statement \(UPDATE …\).*did to d\.t with"),
        ("DELETE FROM t WHERE id = 1", r"rows of d\.t were changed by a statement .*not as rows; on the server"),
        ("UPDATE u, t SET t.name = 'x'", r"rows were changed .* whether it changed d\.t is not known"),
        ("CALL p()", r"rows were changed by a statement \(CALL …\)"),
        ("INSERT INTO mysql.rds_heartbeat2(id) VALUES (d.f())", r"rows of mysql\.rds_heartbeat2"),
        ("INSERT INTO mysql.rds_heartbeat2(id) VALUES (d.now())", r"rows of mysql\.rds_heartbeat2"),
        ("INSERT INTO mysql.rds_heartbeat2(id) VALUES (f(1))", r"rows of mysql\.rds_heartbeat2"),
        ("INSERT INTO mysql.rds_heartbeat2 SELECT * FROM v", r"rows of mysql\.rds_heartbeat2"),
        ("INSERT INTO mysql.mine (id) VALUES (1)", r"rows of mysql\.mine"),
        ("INSERT INTO rds_heartbeat2 (id) VALUES (1)", r"rows of d\.rds_heartbeat2"),
    ],
)
def test_what_else_a_statement_did_is_not_known(sql: str, says: str) -> None:
    with pytest.raises(StatementEvent, match=says) as stopped:
        judge(Query(sql, "d"), TABLE, where="binlog.000007:4")
    assert "SET GLOBAL binlog_format = 'ROW'" in stopped.value.what
    assert stopped.value.where == "binlog.000007:4"
    assert "--resnapshot" in stopped.value.next_command
