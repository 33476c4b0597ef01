"""What alignment lets a topic's plan read, by the times that the broker tells of records; the broker is made up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from tidegate.pipelines.connectors.protocol import PlanRequest, SourceContext, Step, StoredStep
from tidegate.pipelines.connectors.registry import connector
from tidegate.pipelines.sources.kafka.cluster import Partition
from tidegate.pipelines.sources.kafka.source import KafkaSource
from tidegate.pipelines.sql import compile_script

SCRIPT = """
CREATE TABLE fast (id BIGINT, at TIMESTAMP_LTZ(3) METADATA FROM 'timestamp', WATERMARK FOR at AS at) WITH (
    'connector' = 'kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'nowhere:1', 'format' = 'json',
    'format.on-error' = 'quarantine', 'scan.startup.mode' = 'earliest-offset');
CREATE TABLE told (id BIGINT, at TIMESTAMP_LTZ(3)) WITH ('connector' = 'delta');
INSERT INTO told SELECT id, at FROM fast;
"""
READ = 2
"""Messages that earlier epochs have read."""


@dataclass
class MadeUp:
    """One partition with a message at each of `times`."""

    times: list[int]
    isolation: str = field(default="read_committed")

    def offsets(self, partitions: Iterable[Partition], at: str) -> dict[Partition, int]:
        return dict.fromkeys(partitions, 0 if at == "earliest" else len(self.times))

    def first_after(self, partitions: Iterable[Partition], time: int) -> dict[Partition, tuple[int, int]]:
        """As the broker answers: of the whole partition, whatever was read of it."""
        offset = next((place for place, at in enumerate(self.times) if at > time), None)
        return {} if offset is None else dict.fromkeys(partitions, (offset, self.times[offset]))


@pytest.mark.parametrize("ahead", [True, False], ids=["others are behind", "the slowest"])
@pytest.mark.parametrize(
    ("times", "stop", "held"),
    [
        pytest.param([10, 20, 30, 90, 40], 3, {"t-0": 90}, id="the next one past the limit is not read yet"),
        # The one at 900 is in quarantine, so nobody has counted its time. Those behind it are within the limit.
        pytest.param([10, 900, 20, 30], 4, {}, id="one past the limit was read and gave no row"),
        pytest.param([10, 20, 30, 40], 4, {}, id="all within the limit"),
    ],
)
def test_a_plan_stops_at_the_first_unread_record_past_the_limit(
    times: list[int], stop: int, held: dict[str, int], ahead: bool
) -> None:
    context = SourceContext(
        table=compile_script(SCRIPT).table("fast"),
        options=dict(compile_script(SCRIPT).table("fast").options),
        generation=1,
        splits=cast(Any, None),
        scratch="",
        clock=lambda: 0,
    )
    source = connector("kafka").source(context)
    assert isinstance(source, KafkaSource)
    source._cluster = cast(Any, MadeUp(times))
    ends = {"topics": {"t": {"id": "I", "partitions": {"0": len(times)}}}, "at": 0}
    read = {"topics": {"t": {"id": "I", "ordinal": 0, "partitions": {"0": [0, READ]}}}, "ends": ends, "seen_at": 0}
    before = StoredStep(Step({**read, "reached": False}), 1, 1, 0)
    planned = source.plan(
        PlanRequest(
            previous=before, first=before, flipped=True, ends=ends, instant=0, max_rows=100, limit=60,
            ahead=frozenset({"t-0"}) if ahead else frozenset(),
        )
    )  # fmt: skip
    assert planned.step is not None
    assert planned.step.ranges["topics"]["t"]["partitions"] == {"0": [READ, stop]}
    assert planned.held == held
