"""A broadcast input: readings of sensors against limits that change, without a join."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tidegate.process import (
    Collector,
    NonPartitionedContext,
    PartitionedContext,
    StateDeclarations,
    TwoInputBroadcastStreamProcessFunction,
)
from tidegate.sql import compile_script

LIMITS = StateDeclarations.broadcast_state("limits", "STRING", "ROW<least BIGINT, greatest BIGINT>")
ALARMS = StateDeclarations.reducing_state("alarms", "BIGINT", lambda sum, one: sum + one)


class Alarm(NamedTuple):
    """A reading outside of the limits of its kind, and how many the sensor has had with it."""

    sensor: str
    reading: int
    what: str
    alarms_so_far: int


class Limits(TwoInputBroadcastStreamProcessFunction):
    """Every task knows all limits; a reading meets them as they stood when it landed. No limits, no alarm."""

    def uses_states(self):
        return (LIMITS, ALARMS)

    def process_record_from_broadcast_input(self, record, ctx: NonPartitionedContext) -> None:
        limits = ctx.get_state_manager().get_state(LIMITS)
        limits.put(record.kind, {"least": record.least, "greatest": record.greatest})

    def process_record_from_non_broadcast_input(self, record, output: Collector, ctx: PartitionedContext) -> None:
        limit = ctx.get_state_manager().get_state(LIMITS).get(record.kind)
        if limit is None or limit["least"] <= record.reading <= limit["greatest"]:
            return
        alarms = ctx.get_state_manager().get_state(ALARMS)
        alarms.add(1)
        what = "too low" if record.reading < limit["least"] else "too high"
        output.collect(Alarm(record.sensor, record.reading, what, alarms.get()))


tables = Path(__file__).with_name("tables.sql")

pipeline = compile_script(tables.read_text(encoding="utf-8"), path=str(tables)).process(
    "alarms",
    ["readings", "limits"],
    key={"readings": "sensor"},
    function=Limits(),
)
