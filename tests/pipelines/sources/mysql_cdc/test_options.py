"""Options are named as flink-cdc names them; what cannot be right is refused before anything runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from scripts.options import filled
from tests.pipelines.sources.mysql_cdc.driver import declare
from tidegate.pipelines.connectors.table import Column
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.sources.mysql_cdc import CONNECTOR
from tidegate.pipelines.sources.mysql_cdc.options import check_options, parse
from tidegate.pipelines.sources.mysql_cdc.snapshot.reading import Reader
from tidegate.pipelines.sql import compile_script

GOOD = {
    "connector": "mysql-cdc",
    "hostname": "db.example",
    "username": "reader",
    "password": "s3cret",
    "database-name": "shop",
    "table-name": "user_info",
}


def test_defaults() -> None:
    options = parse(GOOD)
    assert (options.server.port, options.server.connect_timeout) == (3306, 30.0)
    assert (options.startup.mode, options.time_zone, options.chunk_rows) == ("initial", "UTC", 100_000)
    assert options.where == "shop.user_info on db.example:3306"
    assert "s3cret" not in repr(options)


def test_everything_said() -> None:
    options = parse(
        GOOD
        | {
            "port": "3307",
            "server-id": "5400-5402",
            "server-time-zone": "Europe/Berlin",
            "scan.startup.mode": "specific-offset",
            "scan.startup.specific-offset.file": "binlog.000003",
            "scan.startup.specific-offset.pos": "4711",
            "scan.incremental.snapshot.chunk.size": "8096",
            "connect.timeout": "500 ms",
            "heartbeat.interval": "5 min",
            "jdbc.properties.sslMode": "verify-full",
            "jdbc.properties.serverSslCert": "ca.pem",
        }
    )
    assert options.server.server_ids == (5400, 5401, 5402)
    assert (options.server.connect_timeout, options.server.tls_ca) == (0.5, "ca.pem")
    assert options.server.tls_identity
    assert (options.startup.file, options.startup.position) == ("binlog.000003", 4711)
    assert (options.chunk_rows, options.time_zone) == (8096, "Europe/Berlin")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"port": "0"}, "from 1 to 65535"),
        ({"port": "http"}, "whole number"),
        ({"table-name": "user_.*"}, "plain name, not a pattern"),
        ({"server-id": "9-5"}, "5400-5408"),
        ({"server-time-zone": "Mars/Olympus"}, "no such time zone"),
        ({"scan.startup.mode": "earliest-offset"}, "one of initial, snapshot"),
        ({"scan.startup.mode": "specific-offset"}, "needs 'scan.startup.specific-offset.file'"),
        ({"scan.startup.mode": "timestamp"}, "needs 'scan.startup.timestamp-millis'"),
        ({"scan.startup.timestamp-millis": "1"}, "is for 'scan.startup.mode' = 'timestamp'"),
        ({"scan.incremental.snapshot.chunk.size": "0"}, "from 1 to"),
        ({"connect.timeout": "soon"}, "no duration such as"),
        ({"jdbc.properties.sslMode": "trust"}, "encrypt alike only with 'verify-ca'"),
        ({"jdbc.properties.sslMode": "verify-ca"}, "needs 'jdbc.properties.serverSslCert'"),
        ({"jdbc.properties.serverSslCert": "ca.pem"}, "needs 'jdbc.properties.sslMode'"),
        ({"jdbc.properties.useSSL": "true"}, "write 'jdbc.properties.sslMode' = 'verify-full'"),
        ({"jdbc.properties.socketTimeout": "soon"}, "whole number"),
        ({"jdbc.properties.proxy": "http://p"}, "'jdbc.properties.proxy' cannot be followed"),
    ],
)
def test_what_cannot_be_right(given: dict[str, str], says: str) -> None:
    with pytest.raises(PlanningError, match="nothing was run") as refused:
        parse(GOOD | given)
    assert says in refused.value.what


def test_the_manual_says_what_the_options_are() -> None:
    page = (Path(__file__).parents[4] / "docs" / "mysql-cdc.md").read_text()
    assert filled(page) == page


def test_variables_are_not_judged_before_they_are_known() -> None:
    assert check_options(GOOD | {"port": "${PORT}", "scan.startup.mode": "initial"}) == []


@pytest.mark.parametrize(
    ("mode", "phases"),
    [("initial", True), ("snapshot", True), ("latest-offset", False), ("specific-offset", False), ("timestamp", False)],
)
def test_which_modes_have_a_bounded_phase(mode: str, phases: bool) -> None:
    options = GOOD | {"scan.startup.mode": mode}
    assert CONNECTOR.spec.phases(options) is phases
    assert CONNECTOR.spec.signals(options) is phases


def test_a_probe_and_an_unknown_metadata_column_are_refused() -> None:
    table = declare(GOOD, {"id": "INT"}, ["id"])
    assert CONNECTOR.spec.check(table) == []
    (says,) = CONNECTOR.spec.check(replace(table, role="probe"))
    assert "not the probe side" in says
    odd = replace(table, columns=(*table.columns, Column("x", "STRING", "STRING", metadata="rank")))
    assert "no metadata column 'rank'; it has database_name, op_ts, table_name" in CONNECTOR.spec.check(odd)[0]


def test_session_variables_of_the_script_cannot_undo_what_exactness_needs() -> None:
    options = parse(GOOD | {"jdbc.properties.sessionVariables": "a=1,tx_isolation='READ-COMMITTED'"})
    reader = Reader(options.snapshot_server, "tx_isolation", options.session_variables)
    settings = reader.settings
    assert settings.startswith("SET a=1,tx_isolation='READ-COMMITTED', tx_isolation='REPEATABLE-READ', time_zone = ")
    assert "a=1" not in repr(options) + repr(reader)


def test_time_limits_of_the_script_are_for_those_that_read_chunks() -> None:
    usual = parse(GOOD).snapshot_server
    assert (usual.connect_timeout, usual.read_timeout) == (30.0, 900.0)
    given = {"jdbc.properties.connectTimeout": "1500", "jdbc.properties.socketTimeout": "5000"}
    options = parse(GOOD | given)
    server = options.snapshot_server
    assert (server.connect_timeout, server.read_timeout) == (1.5, 5.0)
    assert options.server.connect_timeout == 30.0


def test_properties_that_no_row_depends_on_are_taken() -> None:
    flink = {"jdbc.properties.useSSL": "false", "jdbc.properties.serverTimezone": "UTC"}
    assert parse(GOOD | flink) == parse(GOOD)


def test_metadata_as_flink_cdc_declares_it() -> None:
    options = ", ".join(f"'{key}' = '{value}'" for key, value in GOOD.items())
    script = f"""CREATE TABLE t (id INT PRIMARY KEY NOT ENFORCED, db STRING METADATA FROM 'database_name' VIRTUAL,
        op_ts TIMESTAMP_LTZ(3) METADATA VIRTUAL, changed_at TIMESTAMP_LTZ(6) METADATA FROM 'op_ts') WITH ({options});
        CREATE TABLE c (id INT, p AS PROCTIME()) WITH ('connector' = 'datagen');
        CREATE TABLE s (id INT) WITH ('connector' = 'print');
        INSERT INTO s SELECT c.id FROM c LEFT JOIN t FOR SYSTEM_TIME AS OF c.p ON c.id = t.id"""
    columns = compile_script(script).table("t").columns
    assert [column.delivered for column in columns] == [None, None, "TIMESTAMP_LTZ(6)", None]
