from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.assets.clicks import Hand, pipeline, script
from tests.orchestration.services import Dagster, MailServer, Webhook, dagster_home, environment, free_port, running
from tidegate.pipelines.lake import Layout
from tidegate.pipelines.sources.mysql_cdc.server import EmbeddedMariaDb
from tidegate.pipelines.sources.scripted import ScriptedInput
from tidegate.pipelines.sql import compile_script

CLOSED = """
CREATE TABLE customer (customer_id INT PRIMARY KEY NOT ENFORCED, name STRING) WITH (
    'connector' = 'mysql-cdc', 'hostname' = '127.0.0.1', 'port' = '1', 'username' = 'reader',
    'password' = 'hunter2-in-the-script', 'database-name' = 'shop', 'table-name' = 'customer'
);
CREATE TABLE visit (customer_id INT, proctime AS PROCTIME()) WITH ('connector' = 'scripted');
CREATE TABLE named_visit (customer_id INT, name STRING) WITH ('connector' = 'scripted');
INSERT INTO named_visit SELECT visit.customer_id, name FROM visit
JOIN customer FOR SYSTEM_TIME AS OF visit.proctime ON visit.customer_id = customer.customer_id;
"""
"""A pipeline whose build side cannot be reached."""

SHOP = """
CREATE TABLE person (id INT PRIMARY KEY NOT ENFORCED, name STRING) WITH (
    'connector' = 'mysql-cdc', 'hostname' = '{host}', 'port' = '{port}', 'username' = 'reader',
    'password' = '${{SHOP_PASSWORD}}', 'database-name' = 'shop', 'table-name' = 'person'
);
CREATE TABLE call (id INT, proctime AS PROCTIME()) WITH ('connector' = 'scripted');
CREATE TABLE named_call (id INT, name STRING) WITH ('connector' = 'scripted');
INSERT INTO named_call SELECT call.id, name FROM call
JOIN person FOR SYSTEM_TIME AS OF call.proctime ON call.id = person.id;
"""
"""A pipeline whose build side is the tests' own server."""


SPANS = """
CREATE TABLE rates (currency STRING PRIMARY KEY NOT ENFORCED, rate INT, at TIMESTAMP(3), WATERMARK FOR at AS at)
WITH ('connector' = 'scripted');
CREATE TABLE orders (id INT, currency STRING, at TIMESTAMP(3), WATERMARK FOR at AS at) WITH ('connector' = 'scripted');
CREATE TABLE converted (id INT, rate INT) WITH ('connector' = 'scripted');
INSERT INTO converted SELECT orders.id, rates.rate FROM orders
LEFT JOIN rates FOR SYSTEM_TIME AS OF orders.at ON orders.currency = rates.currency;
"""
"""A pipeline in event time."""


def tell_orders(lake: Path) -> None:
    """An order in each of January, February and March 2026, and a rate that all of them meet."""
    spans, layout = compile_script(SPANS), Layout(lake)
    rates, orders = (ScriptedInput(layout.scratch(name), spans.table(name)) for name in ("rates", "orders"))
    rates.rows([{"currency": "EUR", "rate": 7, "at": datetime(2026, 1, 1)}])
    orders.rows([{"id": month, "currency": "EUR", "at": datetime(2026, month, 10)} for month in (1, 2, 3)])
    for events in (rates, orders):
        events.watermark(round(datetime(2026, 4, 1, tzinfo=UTC).timestamp() * 1000))


@pytest.fixture
def webhook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhook]:
    """A webhook that $TIDEGATE_WEBHOOK_URL names."""
    with Webhook() as found:
        monkeypatch.setenv("TIDEGATE_WEBHOOK_URL", found.url)
        yield found


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture(scope="package")
def dagster(tmp_path_factory: pytest.TempPathFactory, mariadb: EmbeddedMariaDb) -> Iterator[Dagster]:
    """`dg dev` on six pipelines of one lake: `strict` gets a click that its gate holds, `closed` reads a server that
    is not there, `late` is never run (its control rows are written by tests), `shop` reads the tests' MariaDB, `spans`
    is in event time, `service` is for a process that is not Dagster's. Alerts go to a webhook, to a mail server, and to
    a channel that nobody listens at."""
    folder = tmp_path_factory.mktemp("dagster")
    shop = SHOP.format(host=mariadb.host, port=mariadb.port)
    texts = {
        "strict": script("block", "s_"),
        "closed": CLOSED,
        "late": script("block", "l_"),
        "shop": shop,
        "spans": SPANS,
        "service": script("block", "o_"),
    }
    paths = []
    for name, text in texts.items():
        paths.append(folder / f"{name}.sql")
        paths[-1].write_text(text)
    lake = folder / "lake"
    strict = Hand(pipeline("block", prefix="s_"), lake, "s_")
    strict.users(1, 2)
    strict.all_users_are_there()
    strict.clicks(1, 2, 9)
    tell_orders(lake)
    with (
        Webhook() as webhook,
        MailServer() as mail,
        running(
            folder / "dagster.log",
            environment(
                dagster_home(folder / "home"),
                TIDEGATE_SCRIPT=":".join(str(path) for path in paths),
                TIDEGATE_LAKE=str(lake),
                TIDEGATE_WEBHOOK_URL=webhook.url,
                SHOP_PASSWORD="reader-secret",
                OTHER_PASSWORD="hunter2-in-the-environment",
                TIDEGATE_ALERT_URLS=f"{mail.url} json://user:hunter2-of-a-channel@127.0.0.1:{free_port()}/hooks/T0KEN",
                TIDEGATE_ALERT_RETENTION_LEFT="1",
            ),
            "dg",
            "dev",
        ) as address,
    ):
        yield Dagster(address, folder, strict, webhook, mail)


@pytest.fixture(scope="package")
def held_run(dagster: Dagster) -> str:
    """A run of `strict` that is over; its id."""
    dagster.watching()
    run_id = dagster.launch("strict")
    assert dagster.ended(run_id) == "FAILURE"
    return run_id
