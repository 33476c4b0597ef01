"""Functions of a script's own in SELECT, ON and WHERE: for which rows they are called, and what a failure stops."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.cases import at_length
from tests.pipelines.runtime.plays import at_ms, moment, prove, taken_up
from tidegate.pipelines.functions import PREFIX, all_of, called_where
from tidegate.pipelines.runtime.epochs import Asked
from tidegate.pipelines.runtime.failures import StepFailed
from tidegate.pipelines.testing import Harness

DECLARED = "\n".join(
    f"CREATE FUNCTION {name} AS 'tests.pipelines.functions.samples.{name}' LANGUAGE PYTHON;"
    for name in ("parsed", "inverse", "fails_on_13", "fails_while", "never_mind", "half_an_hour_before")
)
F, G = f"{PREFIX}{'0' * 16}(_split, _offset", f"{PREFIX}{'1' * 16}(_split, _offset"


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("`a`.`_split` + 1", "`a`.`_split` + 1"),
        (f"{F}, `a`.`x`)", f"{F[:35]}IF(c, _split, NULL), _offset, `a`.`x`)"),
        (f"1 + {F}, {G}))", f"1 + {F[:35]}IF(c, _split, NULL), _offset, {G[:35]}IF(c, _split, NULL), _offset))"),
    ],
)
def test_a_call_whose_value_nobody_needs_has_no_split(expression: str, expected: str) -> None:
    assert called_where("c", expression) == expected
    assert called_where("true", expression) == expression


def test_terms_that_call_no_function_decide_for_which_rows_the_others_do() -> None:
    assert all_of([]) == "true"
    assert all_of(["a", "b"], "c") == "(a) AND (b)"
    assert all_of([f"{F})"]) == f"({F}))"
    assert all_of([f"{F})", "a"], "c") == f"(a) AND ({called_where('c AND (a)', F)}))"


PROCESSING = """
CREATE TABLE users (id BIGINT PRIMARY KEY NOT ENFORCED, name STRING, shop STRING)
WITH ('connector' = 'scripted', 'phases' = 'true', 'signals' = 'true');
CREATE TABLE shops (id INT PRIMARY KEY NOT ENFORCED, city STRING)
WITH ('connector' = 'scripted', 'phases' = 'true', 'signals' = 'true');
CREATE TABLE clicks (n INT, who STRING, path STRING, p AS PROCTIME()) WITH ('connector' = 'scripted');
CREATE TABLE sink (n INT, tenfold BIGINT, words STRING, share DOUBLE, city STRING)
WITH ('connector' = 'scripted', 'gate.on-unmatched' = '{policy}');
CREATE VIEW read_ids AS SELECT n, parsed(who, n) AS id, path, p, inverse(n) AS share FROM clicks WHERE n <> 0;
CREATE VIEW named AS SELECT id, never_mind(name, 'nobody') AS called, name, shop FROM users;
INSERT INTO sink SELECT c.n, fails_while(path, c.n), u.called, c.share, s.city FROM read_ids AS c
{kind} JOIN named FOR SYSTEM_TIME AS OF c.p AS u ON u.id = c.id AND fails_on_13(c.n) < 100
{kind} JOIN shops FOR SYSTEM_TIME AS OF c.p AS s ON s.id = parsed(u.shop)
WHERE fails_on_13(c.n + 3) <> 18 AND c.n <> 10 AND (s.city IS NULL OR never_mind(s.city) <> 'Bonn')
"""


def seen(rows: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((row["n"], row["tenfold"], row["words"], row["share"], row["city"]) for row in rows)


@pytest.mark.parametrize(("policy", "kind"), at_length([("publish", "LEFT"), ("quarantine", "INNER")], fast=0))
def test_select_on_and_where_call_functions_over_views_for_rows_that_are_still_there(
    spark: SparkSession, tmp_path: Path, policy: str, kind: str
) -> None:
    stop = tmp_path / "stop"
    harness = Harness(DECLARED + PROCESSING.format(policy=policy, kind=kind), spark, tmp_path / "lake")
    users = [(1, "ann", "7"), (2, None, "7"), (3, "cy", "x"), (4, "dee", "8"), (100, "zoe", "7")]
    harness.push("users", [dict(zip(("id", "name", "shop"), user, strict=True)) for user in users])
    harness.push("shops", [{"id": 7, "city": "Rome"}, {"id": 8, "city": "Bonn"}])
    harness.end_of_snapshot("users")
    harness.end_of_snapshot("shops")
    clicks = [
        (1, "1"),
        (2, "2"),
        (5, "3"),  # its user's shop is no number, so the key is -1
        (4, "4"),  # WHERE leaves its city out
        (0, "1"),  # the view leaves it out: inverse(0) would fail
        (10, "1"),  # WHERE leaves it out: fails_on_13(10 + 3) would fail
        (13, "9"),  # no user has its id: fails_on_13(13) would fail
        (15, "1"),  # a function leaves it out
        (100, "100"),  # ON leaves its user out by a function
        (6, None),  # no id
    ]
    rows = [{"n": n, "who": who, "path": str(stop)} for n, who in clicks]
    harness.push("clicks", rows)
    whole = [(1, 10, "ann", 1.0, "Rome"), (2, 20, "nobody", 0.5, "Rome")]
    nobody = [(6, 60, None, 1 / 6, None), (13, 130, None, 1 / 13, None), (100, 1000, None, 0.01, None)]
    lost = [(5, 50, "cy", 0.2, None), *nobody]
    assert seen(harness.advance()) == sorted([*whole, *lost] if policy == "publish" else whole)
    reasons = {row["n"]: row["_reason"] for row in harness.quarantined("sink")}
    unmatched = {5: "key-absent@s", 6: "key-null@u", 13: "key-absent@u", 100: "predicate@u"}
    assert reasons == ({} if policy == "publish" else {n: f"unmatched:{why}" for n, why in unmatched.items()})

    stop.touch()
    harness.push("clicks", [{**rows[0], "n": n} for n in (3, 7)])
    with pytest.raises(StepFailed) as caught:
        harness.advance()
    assert caught.value.what.startswith("sink: function fails_while failed at split ")
    assert ": RuntimeError: not yet (samples.py:" in caught.value.what
    assert "none of it is staged or published" in caught.value.state
    assert caught.value.next_command.startswith("write the function that fails anew under another name")
    stop.unlink()
    assert seen(harness.advance()) == [(3, 30, "ann", 1 / 3, "Rome"), (7, 70, "ann", 1 / 7, "Rome")]
    if policy == "quarantine":
        harness.push("shops", [{"id": -1, "city": "Bern"}])
        harness.advance()
        harness.runner.out_of_quarantine("sink", Asked())
        assert (5, 50, "cy", 0.2, "Bern") in seen(harness.published("sink"))
    prove(harness)


EVENTS = """
CREATE TABLE rates (currency STRING, rate INT, at TIMESTAMP(3), WATERMARK FOR at AS at,
    PRIMARY KEY (currency) NOT ENFORCED) WITH ('connector' = 'scripted');
CREATE TABLE orders (id INT, currency STRING, at TIMESTAMP(3), WATERMARK FOR at AS at) WITH ('connector' = 'scripted');
CREATE TABLE clean (id BIGINT, currency STRING, at TIMESTAMP(3), WATERMARK FOR at AS at) WITH ('connector' = 'delta');
CREATE TABLE converted (id BIGINT, rate DOUBLE, before TIMESTAMP(6)) WITH ('connector' = 'delta');
INSERT INTO clean SELECT fails_on_13(o.id), o.currency, o.at FROM orders AS o
JOIN rates FOR SYSTEM_TIME AS OF o.at AS r ON o.currency = r.currency AND fails_on_13(r.rate) > 1;
INSERT INTO converted SELECT o.id, {select}, half_an_hour_before(o.at) FROM clean AS o
JOIN rates FOR SYSTEM_TIME AS OF o.at AS r ON never_mind(NULL, o.currency) = r.currency WHERE fails_on_13(o.id) > 1
"""


def test_a_chain_in_event_time_calls_functions_and_another_one_is_another_statement(
    spark: SparkSession, tmp_path: Path
) -> None:
    first = Harness(DECLARED + EVENTS.format(select="inverse(r.rate)"), spark, tmp_path)
    rates = [("eur", 2, 0), ("eur", 4, 100), ("usd", 1, 0)]
    first.push("rates", [{"currency": name, "rate": rate, "at": moment(at)} for name, rate, at in rates])
    orders = [(1, "eur", 10), (2, "eur", 20), (3, "eur", 150), (4, "usd", 160)]
    first.push("orders", [{"id": id, "currency": name, "at": moment(at)} for id, name, at in orders[:3]])
    for table in ("rates", "orders"):
        first.watermark(table, at_ms(200))
    first.run()

    def row(id: int, rate: float, at: int) -> tuple[int, float, datetime]:
        before = moment(at)
        assert before is not None
        return id, rate, before - timedelta(minutes=30)

    def rows(harness: Harness) -> list[tuple[Any, ...]]:
        return sorted((row["id"], row["rate"], row["before"]) for row in harness.published("converted"))

    assert rows(first) == [row(2, 0.5, 20), row(3, 0.25, 150)]
    prove(first, "converted")
    other = taken_up(first, DECLARED + EVENTS.format(select="CAST(fails_on_13(r.rate) AS DOUBLE)"))
    other.push("orders", [{"id": id, "currency": name, "at": moment(at + 50)} for id, name, at in orders[2:]])
    for table in ("rates", "orders"):
        other.watermark(table, at_ms(300))
    other.run()
    assert rows(other) == [row(2, 0.5, 20), row(3, 0.25, 150), row(3, 4.0, 200)]
    assert {line["id"]: line["_reason"] for line in other.quarantined("clean")} == {4: "unmatched:predicate@r"}
