"""Examples go on: another file into a folder, and a run reads only what is new; against plain Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pytest

from tests.stories.story import put, read
from tidegate.pipelines.testing import Harness

Start = Callable[[str], Harness]


@pytest.mark.thorough
def test_files_another_one_is_read_alone(start: Start) -> None:
    harness = start("files")
    assert len(harness.advance()) == 4
    put("changes/more.json", [{"data": {"user_id": 3, "gender": "back"}, "op": "+I"}])
    put("clicks/more.json", [{"user_id": 3, "item_id": 14}])
    assert [(row["item_id"], row["gender"]) for row in harness.advance()] == [(14, "back")]


@pytest.mark.thorough
def test_rates_each_order_at_the_rate_of_its_own_time(start: Start) -> None:
    """Later rates let orders out."""
    harness = start("rates")
    assert {row["order_id"]: row["dollars"] for row in harness.advance()} == {1: Decimal(110), 2: Decimal(120)}
    assert [(row["order_id"], row["_reason"]) for row in harness.quarantined("converted_order")] == [
        (3, "unmatched:before-first@r")
    ]

    def later(currency: str, rate: float, valid_from: str) -> None:
        data = {"currency": currency, "rate": rate, "valid_from": valid_from}
        put(f"rates/{valid_from[-8:-6]}.json", [{"data": data, "op": "+U"}])

    later("GBP", 1.5, "2026-01-02 11:00:00")
    assert {row["order_id"]: row["dollars"] for row in harness.advance()} == {4: Decimal(65)}
    later("EUR", 1.25, "2026-01-02 13:00:00")
    assert harness.advance() == [], "orders are known up to 12:00 less 5 s"
    put("orders/more.json", [{"order_id": 6, "currency": "GBP", "amount": 2.0, "order_time": "2026-01-02 12:30:00"}])
    assert {row["order_id"]: row["dollars"] for row in harness.advance()} == {5: Decimal(12)}
    assert harness.verify("converted_order").passed


def alarms_of(landed: list[tuple[str, dict[str, Any]]]) -> list[tuple]:
    """The alarms of rows (of which folder, row) in the order in which they landed."""
    limits: dict[str, tuple[int, int]] = {}
    count: dict[str, int] = {}
    found = []
    for folder, row in landed:
        if folder == "limits":
            limits[row["kind"]] = (row["least"], row["greatest"])
            continue
        low, high = limits.get(row["kind"], (row["reading"], row["reading"]))
        if low <= row["reading"] <= high:
            continue
        count[row["sensor"]] = count.get(row["sensor"], 0) + 1
        what = "too low" if row["reading"] < low else "too high"
        found.append((row["sensor"], row["reading"], what, count[row["sensor"]]))
    return sorted(found)


def test_limits_readings_meet_those_that_stand(start: Start) -> None:
    harness, landed = start("limits"), []
    alarms: list[dict[str, Any]] = []

    def land(folder: str) -> None:
        harness.runner.advance(folder)
        rows = read(folder)
        before = sum(1 for other, _ in landed if other == folder)
        landed.extend((folder, row) for row in rows[before:])

    alarms += harness.advance()  # readings land before limits, and wait for them
    landed += [(folder, row) for folder in ("limits", "readings") for row in read(folder)]
    assert len(alarms) == 3
    put("limits/2.json", [{"kind": "air", "least": -40, "greatest": 30}, {"kind": "light", "least": 0, "greatest": 9}])
    land("limits")
    put("readings/2.json", [{"sensor": "roof", "kind": "air", "reading": reading} for reading in (-30, 35, -41)])
    land("readings")
    alarms += harness.advance()
    shown = sorted((row["sensor"], row["reading"], row["what"], row["alarms_so_far"]) for row in alarms)
    assert shown == alarms_of(landed)
    assert len(shown) == 5


PATIENCE, DISORDER = 900_000, 10_000


def states_of(orders: Sequence[dict[str, Any]], payments: Sequence[dict[str, Any]], watermark: int) -> list[tuple]:
    """What each order emits once time has come to `watermark`, where all of this landed before it moved."""
    found = []
    for order in orders:
        paid = sum(item["paid"] for item in payments if item["order_id"] == order["order_id"])
        if paid >= order["amount"]:
            found.append((order["order_id"], "paid", 0))
        elif order["time"] + PATIENCE <= watermark:
            found.append((order["order_id"], "unpaid", order["amount"] - paid))
    return sorted(found)


@pytest.mark.thorough
def test_payments_orders_are_paid_or_not(start: Start) -> None:
    harness = start("payments")
    released = harness.advance()
    orders, payments = read("orders"), read("payments")
    come_to = min(max(row["time"] for row in rows) for rows in (orders, payments)) - DISORDER
    shown = sorted((row["order_id"], row["state"], row["open_amount"]) for row in released)
    assert shown == states_of(orders, payments, come_to) == [(1, "paid", 0), (2, "paid", 0), (3, "unpaid", 40)]
    last = come_to + DISORDER
    put("payments/2.json", [{"order_id": 4, "paid": 9, "time": last + PATIENCE + DISORDER}])
    put("orders/2.json", [{"order_id": 5, "amount": 5, "time": last + PATIENCE + DISORDER}])
    released = harness.advance()
    shown = sorted((row["order_id"], row["state"], row["open_amount"]) for row in released)
    assert shown == [(4, "unpaid", 1), (5, "paid", 0)]  # of 5 the money came an epoch before
