"""The two joins that most runs are of: orders with rates in event time, clicks with users in processing time."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests import cases
from tidegate.pipelines.runtime.epochs import ReleasePlan
from tidegate.pipelines.runtime.epochs.history import ReleasedEpoch, history_of
from tidegate.pipelines.runtime.ledger import WhereRowsAre, where_rows_are
from tidegate.pipelines.sql import Pipeline
from tidegate.pipelines.testing import Harness
from tidegate.pipelines.watermarks import MAX_TIMESTAMP

CLICKS = """
CREATE TABLE user_info (user_id INT PRIMARY KEY NOT ENFORCED, gender STRING)
WITH ('connector' = 'scripted', 'phases' = 'true', 'signals' = 'true');
CREATE TABLE click_event (user_id INT, item_id INT, proctime AS PROCTIME()) WITH ('connector' = 'scripted');
CREATE TABLE enriched (user_id INT, item_id INT, gender STRING{constraints})
WITH ('connector' = 'scripted', 'gate.on-unmatched' = '{policy}');
INSERT INTO enriched SELECT c.user_id, c.item_id, u.gender FROM click_event AS c
{kind} JOIN user_info FOR SYSTEM_TIME AS OF c.proctime AS u ON c.user_id = u.user_id
"""


def clicks(kind: str = "LEFT", policy: str = "quarantine", constraints: str = "") -> str:
    """The script of clicks and users."""
    return CLICKS.format(kind=kind, policy=policy, constraints=constraints)


def taken_up(harness: Harness, script: str | Pipeline) -> Harness:
    """The lake of a harness under another script."""
    harness.runner.close()
    return Harness(script, harness.spark, harness.directory)


def epochs_of(harness: Harness, insert: str = "") -> list[ReleasedEpoch]:
    """The history of an INSERT, of the script's first one where none is named."""
    of = harness.pipeline.insert(insert) if insert else harness.pipeline.inserts[0]
    return history_of(harness.lake, harness.pipeline, of)


def places_of(harness: Harness, insert: str = "") -> WhereRowsAre:
    """Where the rows are that landed for an INSERT: each is in one place."""
    of = harness.pipeline.insert(insert) if insert else harness.pipeline.inserts[0]
    places = where_rows_are(harness.lake, of.id, of.probe, epochs_of(harness, of.id))
    assert places.balanced, places
    return places


def prove(harness: Harness, insert: str = "") -> WhereRowsAre:
    """Every epoch recomputes to what was published, and every landed row is in one place."""
    report = harness.verify(insert or harness.pipeline.inserts[0].id)
    assert report.passed, report
    assert not report.unproved
    return places_of(harness, insert)


RATES = """
CREATE TABLE rates (currency STRING, rate INT, valid_from TIMESTAMP(3), WATERMARK FOR valid_from AS valid_from,
    PRIMARY KEY (currency) NOT ENFORCED) WITH ('connector' = 'scripted');
CREATE TABLE orders (id INT, currency STRING, at TIMESTAMP(3), WATERMARK FOR at AS at) WITH ('connector' = 'scripted');
CREATE TABLE converted (id INT, rate INT) WITH ('connector' = 'scripted', 'gate.on-unmatched' = '{policy}');
INSERT INTO converted SELECT o.id, r.rate FROM orders AS o
{kind} JOIN rates FOR SYSTEM_TIME AS OF o.at AS r ON o.currency = r.currency {more}
"""


def moment(ms: int | None) -> datetime | None:
    return None if ms is None else datetime(2026, 1, 1) + timedelta(milliseconds=ms)


def at_ms(ms: int) -> int:
    """`ms` after the start, as a watermark's timestamp."""
    return int((datetime(2026, 1, 1) - datetime(1970, 1, 1)).total_seconds() * 1000) + ms


class Play:
    """Orders at times, rates valid from times, in ms after the start."""

    def __init__(
        self,
        spark: SparkSession,
        directory: Path,
        policy: str = "quarantine",
        kind: str = "LEFT",
        more: str = "",
        script: str = RATES,
    ) -> None:
        text = script.format(policy=policy, kind=kind, more=more)
        self.now = 1_000_000
        self.harness = Harness(text, spark, directory, clock=lambda: at_ms(self.now))

    def rate(self, currency: str | None, rate: int | None, at: int | None, op: str = "+I") -> None:
        self.harness.push("rates", [{"currency": currency, "rate": rate, "valid_from": moment(at)}], op)

    def order(self, number: int, currency: str | None, at: int | None, op: str = "+I") -> None:
        self.harness.push("orders", [{"id": number, "currency": currency, "at": moment(at)}], op)

    def watermarks(self, rates: int | None = None, orders: int | None = None) -> None:
        """What the sources emit from now on; a watermark that is None stays."""
        for table, at in (("rates", rates), ("orders", orders)):
            if at is not None:
                self.harness.watermark(table, at if at == MAX_TIMESTAMP else at_ms(at))

    def land(self, rates: int | None = None, orders: int | None = None) -> None:
        """Set watermarks, and land what has come."""
        self.watermarks(rates, orders)
        self.harness.runner.advance_all(["rates", "orders"])

    def upto(self, rates: int | None = None, orders: int | None = None) -> list[tuple[Any, ...]]:
        """Set watermarks and advance; what was published: (id, rate), with the op where it is not +I."""
        self.watermarks(rates, orders)
        return sorted(
            (row["id"], row["rate"], *(() if row["op"] == "+I" else (row["op"],))) for row in self.harness.advance()
        )

    @property
    def out(self) -> list[tuple[int, int | None]]:
        """(id, rate) of all that is published."""
        return sorted((row["id"], row["rate"]) for row in self.harness.published("converted"))

    @property
    def quarantined(self) -> dict[int, str]:
        return {row["id"]: row["_reason"] for row in self.harness.quarantined("converted")}

    @property
    def epochs(self) -> list[ReleasedEpoch]:
        return epochs_of(self.harness)

    @property
    def plan(self) -> ReleasePlan:
        """The newest epoch's."""
        plan = self.harness.runner.releasing("converted").position().plan
        assert plan is not None
        return plan

    def prove(self) -> None:
        """Every landed row is in one place; at length, every epoch recomputes to what was published, too."""
        (prove if cases.AT_LENGTH else places_of)(self.harness)
