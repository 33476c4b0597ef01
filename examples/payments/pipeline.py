"""Two inputs with the same key: which orders are paid within 15 minutes, and which are not?"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from tidegate.process import (
    Collector,
    EventTimeExtension,
    EventTimeManager,
    PartitionedContext,
    StateDeclarations,
    TwoInputNonBroadcastEventTimeStreamProcessFunction,
)
from tidegate.sql import compile_script

PATIENCE = 900_000
"""ms"""

ORDER = StateDeclarations.value_state("order", "ROW<amount BIGINT, due BIGINT>")
PAID = StateDeclarations.reducing_state("paid", "BIGINT", lambda sum, paid: sum + paid)


class OrderState(NamedTuple):
    """Order `order_id` is `paid` or `unpaid` at `time` (ms); `open_amount` of it is not paid."""

    order_id: int
    state: str
    open_amount: int
    time: int


class Payments(TwoInputNonBroadcastEventTimeStreamProcessFunction):
    """Adds up the payments of an order, which may come before it, until it is paid or its time is over."""

    def uses_states(self):
        return (ORDER, PAID)

    def init_event_time_process_function(self, event_time_manager: EventTimeManager) -> None:
        self.event_time_manager = event_time_manager

    def process_record_from_first_input(self, record, output: Collector, ctx: PartitionedContext) -> None:
        due = record.time + PATIENCE
        ctx.get_state_manager().get_state(ORDER).update({"amount": record.amount, "due": due})
        self.event_time_manager.register_timer(due)
        self._tell_if_paid(record.time, output, ctx)

    def process_record_from_second_input(self, record, output: Collector, ctx: PartitionedContext) -> None:
        ctx.get_state_manager().get_state(PAID).add(record.paid)
        self._tell_if_paid(record.time, output, ctx)

    def on_event_timer(self, timestamp: int, output: Collector, ctx: PartitionedContext) -> None:
        self._tell("unpaid", timestamp, output, ctx)

    def _tell_if_paid(self, time: int, output: Collector, ctx: PartitionedContext) -> None:
        order = ctx.get_state_manager().get_state(ORDER).value()
        if order is not None and order["amount"] <= (ctx.get_state_manager().get_state(PAID).get() or 0):
            self.event_time_manager.delete_timer(order["due"])
            self._tell("paid", time, output, ctx)

    def _tell(self, state: str, time: int, output: Collector, ctx: PartitionedContext) -> None:
        states = ctx.get_state_manager()
        order, paid = states.get_state(ORDER), states.get_state(PAID)
        left = max(order.value()["amount"] - (paid.get() or 0), 0)
        output.collect(OrderState(states.get_current_key(), state, left, time))
        order.clear()
        paid.clear()


event_time = (
    EventTimeExtension.new_watermark_generator_builder(lambda event: event.time)
    .with_max_out_of_order_time(timedelta(seconds=10))
    .build_as_process_function()
)

tables = Path(__file__).with_name("tables.sql")

pipeline = compile_script(tables.read_text(encoding="utf-8"), path=str(tables)).process(
    "order_states",
    [("orders", event_time), ("payments", event_time)],
    key="order_id",
    function=EventTimeExtension.wrap_process_function(Payments()),
)
