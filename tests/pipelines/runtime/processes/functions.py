"""Process functions that the tests run on Spark."""

from __future__ import annotations

import os
import signal

from tidegate.pipelines.process import (
    EventTimeExtension,
    OneInputEventTimeStreamProcessFunction,
    OneInputStreamProcessFunction,
    StateDeclarations,
    TwoInputBroadcastEventTimeStreamProcessFunction,
    TwoInputNonBroadcastEventTimeStreamProcessFunction,
    TwoOutputEventTimeStreamProcessFunction,
    WatermarkDeclarations,
    WatermarkHandlingResult,
)

SEEN = StateDeclarations.list_state("seen", "BIGINT")
TOTAL = StateDeclarations.reducing_state("total", "BIGINT", lambda old, new: old + new)
LAST = StateDeclarations.value_state("last", "ROW<number BIGINT, name STRING>")
BY_NAME = StateDeclarations.map_state("by_name", "STRING", "BIGINT")
RULES = StateDeclarations.broadcast_state("rules", "STRING", "BIGINT")


class Timed(OneInputEventTimeStreamProcessFunction):
    """Sets a timer at the `number` of every record, and tells there what it has seen; every kind of state is used."""

    def uses_states(self):
        return (SEEN, TOTAL, LAST, BY_NAME)

    def init_event_time_process_function(self, event_time_manager) -> None:
        self.time = event_time_manager

    def process_record(self, record, output, ctx) -> None:
        if record.name == "fail":
            raise ValueError("this record is not liked")
        states = ctx.get_state_manager()
        states.get_state(SEEN).add(record.number)
        states.get_state(TOTAL).add(record.number)
        states.get_state(LAST).update({"number": record.number, "name": record.name})
        states.get_state(BY_NAME).put(record.name, record.number)
        self.time.register_timer(record.number)

    def on_event_timer(self, timestamp: int, output, ctx) -> None:
        states = ctx.get_state_manager()
        last, names = states.get_state(LAST).value(), sorted(states.get_state(BY_NAME).items())
        output.collect(
            (
                states.get_current_key(),
                timestamp,
                ",".join(map(str, states.get_state(SEEN).get())),
                states.get_state(TOTAL).get(),
                f"{last['name']}={last['number']}",
                " ".join(f"{name}:{number}" for name, number in names),
            )
        )


TIMED_COLUMNS = "k STRING, at BIGINT, seen STRING, total BIGINT, last STRING, names STRING"


class Ruled(TwoInputBroadcastEventTimeStreamProcessFunction):
    """Tells each record with the rule of its key; rule `all` asks every key how many it has seen."""

    def uses_states(self):
        return (RULES, SEEN)

    def process_record_from_non_broadcast_input(self, record, output, ctx) -> None:
        states = ctx.get_state_manager()
        states.get_state(SEEN).add(record.number)
        output.collect((record.k, record.number, states.get_state(RULES).get(record.k)))

    def process_record_from_broadcast_input(self, record, ctx) -> None:
        ctx.get_state_manager().get_state(RULES).put(record.k, record.rule)
        if record.k == "all":
            ctx.apply_to_all_partitions(self.count)

    def count(self, output, ctx) -> None:
        states = ctx.get_state_manager()
        output.collect(
            (states.get_current_key(), -len(states.get_state(SEEN).get()), states.get_state(RULES).get("all"))
        )


class Dies(Ruled):
    """Kills the process group in $TIDEGATE_KILL_GROUP, if there is one, when it has seen a 6."""

    def process_record_from_non_broadcast_input(self, record, output, ctx) -> None:
        super().process_record_from_non_broadcast_input(record, output, ctx)
        group = os.environ.get("TIDEGATE_KILL_GROUP")
        if group and record.number == 6:
            os.killpg(int(group), signal.SIGKILL)


class Paired(TwoInputNonBroadcastEventTimeStreamProcessFunction):
    """Joins a record of the first input with the next of the second, for 10 ms."""

    waiting = StateDeclarations.value_state("waiting", "BIGINT")

    def uses_states(self):
        return (self.waiting,)

    def init_event_time_process_function(self, event_time_manager) -> None:
        self.time = event_time_manager

    def process_record_from_first_input(self, record, output, ctx) -> None:
        ctx.get_state_manager().get_state(self.waiting).update(record.number)
        self.time.register_timer(record.number + 10)

    def process_record_from_second_input(self, record, output, ctx) -> None:
        waiting = ctx.get_state_manager().get_state(self.waiting)
        if waiting.value() is not None:
            self.time.delete_timer(waiting.value() + 10)
            output.collect({"k": record.k, "number": waiting.value(), "rule": record.rule})
            waiting.clear()

    def on_event_timer(self, timestamp: int, output, ctx) -> None:
        waiting = ctx.get_state_manager().get_state(self.waiting)
        if waiting.value() == timestamp - 10:
            output.collect((ctx.get_state_manager().get_current_key(), waiting.value(), None))
            waiting.clear()


class Halved(TwoOutputEventTimeStreamProcessFunction):
    """Even numbers to the first output, odd ones to the second; what the watermark comes to, to the second."""

    def process_record(self, record, output1, output2, ctx) -> None:
        if record.number % 2:
            output2.collect({"name": record.name, "odd": record.number})
        else:
            output1.collect((record.k, record.number))

    def on_event_time_watermark(self, watermark_timestamp: int, output1, output2, ctx) -> None:
        output2.collect(("watermark", watermark_timestamp))


class Tallied(TwoOutputEventTimeStreamProcessFunction):
    """Even numbers to the first output, odd ones to the second, with what their key has come to; that goes to both
    once more at a timer. One at a multiple of ten sets another one; `delete` deletes one."""

    def uses_states(self):
        return (TOTAL,)

    def init_event_time_process_function(self, event_time_manager) -> None:
        self.time = event_time_manager

    def process_record(self, record, output1, output2, ctx) -> None:
        if record.name == "delete":
            self.time.delete_timer(record.number)
            return
        total = ctx.get_state_manager().get_state(TOTAL)
        total.add(record.number)
        (output2 if record.number % 2 else output1).collect((record.k, record.number, total.get()))
        self.time.register_timer(record.number)

    def on_event_timer(self, timestamp: int, output1, output2, ctx) -> None:
        states = ctx.get_state_manager()
        if timestamp % 10 == 0:
            self.time.register_timer(timestamp + 1)
        for output in (output1, output2):
            output.collect((states.get_current_key(), -timestamp, states.get_state(TOTAL).get()))


PROGRESS = WatermarkDeclarations.new_builder("progress").type_long().combine_function_max().build()


class TellsTime(OneInputStreamProcessFunction):
    """Event time out of its own records (FLIP-499's CustomProcessFunction), idleness from `name`, and its progress."""

    def watermark_declarations(self):
        extension = EventTimeExtension
        return (extension.EVENT_TIME_WATERMARK_DECLARATION, extension.IDLE_STATUS_WATERMARK_DECLARATION, PROGRESS)

    def process_record(self, record, output, ctx) -> None:
        time, idle, progress = self.watermark_declarations()
        manager = ctx.get_non_partitioned_context().get_watermark_manager()
        if record.number >= 0:
            manager.emit_watermark(time.new_watermark(record.number))
            manager.emit_watermark(progress.new_watermark(record.number * 10))
        manager.emit_watermark(idle.new_watermark(record.name == "idle"))
        output.collect(record)


class Hears(OneInputEventTimeStreamProcessFunction):
    """Sets a timer at every number, and tells when it fires, and every other watermark that it is handed."""

    def init_event_time_process_function(self, event_time_manager) -> None:
        self.time = event_time_manager

    def process_record(self, record, output, ctx) -> None:
        self.time.register_timer(record.number)

    def on_event_timer(self, timestamp: int, output, ctx) -> None:
        output.collect(("timer", timestamp))

    def on_watermark(self, watermark, output, ctx):
        output.collect((watermark.identifier, int(watermark.value)))
        return WatermarkHandlingResult.PEEK


class Forwarded(OneInputStreamProcessFunction):
    """Tells every record again; of no key."""

    def process_record(self, record, output, ctx) -> None:
        output.collect(record)
