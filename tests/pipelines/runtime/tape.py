"""The connector `tape` of the tests: several splits, each a list of rows that the test writes, read as the test likes.

A row is a dict by column; `_rowtime` in it is the source's own time (ms). Options: `rows-per-epoch` ("a=1,b=1000", all
there are without it), `bounded` (so many rows of every split are its bounded phase), `ends` (a split is over after its
last row), `chunks` (the splits of the bounded phase are not named as those that go on), `tells` (the source has
watermarks of its own: so many ms past the greatest `_rowtime` that it has read of a split).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tests.oracle.pins import rows_of
from tidegate.pipelines.connectors import registry
from tidegate.pipelines.connectors.protocol import (
    Json,
    Landed,
    Planned,
    PlanRequest,
    Source,
    SourceContext,
    SourcePosition,
    Step,
    StoredStep,
)
from tidegate.pipelines.connectors.spec import SOURCE_COLUMNS, ConnectorSpec, OptionSpec
from tidegate.pipelines.frames import empty_frame
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.sources import planning
from tidegate.pipelines.sql import Pipeline, compile_script
from tidegate.pipelines.watermarks import Watermark

Tape = Mapping[str, list[dict[str, Any]]]


def write(lake: Lake, table: str, tape: Tape) -> None:
    """What each split of `table` holds from now on."""
    folder = lake.scratch(table)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tape.json").write_text(json.dumps(tape))


def install(monkeypatch: Any) -> None:
    """Make the connector known, beside the installed ones."""
    points = {**registry._points(), "tape": EntryPoint("tape", f"{__name__}:CONNECTOR", registry.GROUP)}
    monkeypatch.setattr(registry, "_points", lambda: points)


class TapeSource:
    def __init__(self, context: SourceContext) -> None:
        self.context = context
        self.path = Path(context.scratch) / "tape.json"
        pairs = [pair.split("=") for pair in context.options.get("rows-per-epoch", "").split(",") if pair]
        self.steps = {split: int(rows) for split, rows in pairs}
        self.bounded = int(context.options.get("bounded", "0"))

    def tape(self) -> Tape:
        return json.loads(self.path.read_text()) if self.path.exists() else {}

    def preflight(self, position: SourcePosition) -> None:
        """It can be read."""

    def ends(self, position: SourcePosition) -> Json:
        return {split: len(rows) for split, rows in self.tape().items()}

    def plan(self, request: PlanRequest) -> Planned:
        previous = request.previous.step.ranges["splits"] if request.previous else {}
        first_ends, ends = planning.first_ends(request), request.ends
        loading = self.bounded and any(previous.get(split, [0, 0])[1] < self.bounded for split in ends)
        splits: dict[str, list[int]] = {}
        held: dict[str, int] = {}
        for split, end in ends.items():
            start = previous.get(split, [0, 0])[1]
            stop = min(end, self.bounded) if loading else end
            most = min(self.steps.get(split, stop), request.max_rows or stop)
            stop = start if split in request.blocked else max(start, min(stop, start + most))
            allowed = self.in_time(request, split, start, stop)
            if allowed < stop:
                held[split] = self.tape()[split][allowed]["_rowtime"]
            splits[split] = [start, allowed]
        if request.first is not None and all(start == stop for start, stop in splits.values()):
            return Planned(held=held)
        goal = dict.fromkeys(ends, self.bounded) if self.bounded else first_ends
        flips = not request.flipped and all(splits[split][1] >= goal[split] for split in goal if split in splits)
        step = Step(
            planning.ranges(request, ends, splits=splits),
            phase="bounded" if loading else "unbounded",
            flips=flips,
            summary=str(splits),
        )
        return Planned(step, held)

    def in_time(self, request: PlanRequest, split: str, start: int, stop: int) -> int:
        """`stop`, or the first row that is past the limit of the table's alignment group."""
        limit = planning.limit(request, self.context.table)
        if limit is None or start == stop:
            return stop
        rows, least = self.tape()[split], start + (split not in request.ahead)
        return next((place for place in range(least, stop) if rows[place]["_rowtime"] > limit), stop)

    def read(self, spark: SparkSession, step: StoredStep) -> DataFrame:
        columns = {
            **SOURCE_COLUMNS,
            **{column.name: column.spark_type for column in self.context.table.physical_columns},
        }
        schema = StructType.fromDDL(", ".join(f"`{name}` {kind}" for name, kind in columns.items()))
        tape, op = self.tape(), "c" if self.context.table.role == "build" else "+I"
        rows = [
            {
                **{name: value for name, value in row.items() if name != "_rowtime"},
                "_op": op,
                "_seq": {"phase": 1, "log": 0, "file": 0, "position": offset, "row": 0},
                "_rowtime": None if row.get("_rowtime") is None else row["_rowtime"] * 1000,
                "_split": split,
                "_offset": offset,
            }
            for split, (start, stop) in step.step.ranges["splits"].items()
            for offset, row in enumerate(tape[split][start:stop], start)
        ]
        if not rows:
            return empty_frame(spark, schema)
        arrow = spark.createDataFrame([], schema).toArrow().schema
        return spark.createDataFrame(pa.Table.from_pylist(rows, schema=arrow), schema)

    def landed(self, step: StoredStep, rows: DataFrame | None) -> Landed:
        splits = step.step.ranges["splits"]
        over = self.context.options.get("ends") == "true"
        ended = frozenset(split for split, (_, stop) in splits.items() if over and stop == len(self.tape()[split]))
        going = frozenset() if self.context.options.get("chunks") == "true" else frozenset(splits)
        return Landed(position=step.step.summary, splits=going, ended=ended, watermarks=self.watermarks(splits))

    def watermarks(self, splits: Mapping[str, list[int]]) -> list[tuple[str, Watermark]] | None:
        if "tells" not in self.context.options:
            return None
        ahead, tape = int(self.context.options["tells"]), self.tape()
        times = {split: [row["_rowtime"] for row in tape[split][:stop]] for split, (_, stop) in splits.items()}
        return [(split, Watermark(max(found) + ahead)) for split, found in times.items() if found]

    def delegate_watermark_periodic_emit(self, on_watermark_emit: Callable[[], None]) -> bool:
        return False

    def close(self) -> None:
        """Nothing is open."""


class TapeConnector:
    spec = ConnectorSpec(
        name="tape",
        doc="Rows of a test.",
        options=(
            OptionSpec("rows-per-epoch", changes="neither"),
            OptionSpec("bounded", "integer"),
            OptionSpec("ends", "boolean"),
            OptionSpec("chunks", "boolean"),
            OptionSpec("tells", "integer"),
        ),
        system_time=True,
        system_watermark=True,
        phases=lambda options: "bounded" in options,
        signals=lambda options: "bounded" in options,
    )

    def source(self, context: SourceContext) -> Source:
        return TapeSource(context)


CONNECTOR = TapeConnector()


JOINED = """
CREATE TABLE rates (k BIGINT, v BIGINT, n BIGINT, at AS TO_TIMESTAMP_LTZ(n, 3), PRIMARY KEY (k) NOT ENFORCED,
    WATERMARK FOR at AS at) WITH ('connector' = 'tape'{rates});
CREATE TABLE clicks (id BIGINT, k BIGINT, n BIGINT, at AS TO_TIMESTAMP_LTZ(n, 3),
    WATERMARK FOR at AS at - INTERVAL '0.006' SECOND) WITH ('connector' = 'tape'{clicks});
CREATE TABLE joined (id BIGINT, v BIGINT) WITH ('connector' = 'delta', 'gate.on-unmatched' = 'publish');
INSERT INTO joined SELECT c.id, r.v FROM clicks AS c LEFT JOIN rates FOR SYSTEM_TIME AS OF c.at AS r ON c.k = r.k
"""


def compiled(rates: str = "", clicks: str = "") -> Pipeline:
    """An event-time join of two tables of the connector, each with further options: `, 'name' = 'value'`."""
    return compile_script(JOINED.format(rates=rates, clicks=clicks))


def published(lake: Lake, pipeline: Pipeline) -> list[tuple[int, int | None]]:
    """(id, v) of all that was published, in order."""
    path = lake.target_path(pipeline.table("joined"))
    if not Path(path / "_delta_log").exists():
        return []
    rows = rows_of(str(path))
    return sorted(((row["id"], row["v"]) for row in rows), key=lambda row: row[0])
