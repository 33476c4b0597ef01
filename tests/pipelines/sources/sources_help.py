"""Tables and contexts of connectors under test, without a compiler and a lake."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidegate.pipelines.connectors.protocol import (
    ExplainsFailures,
    Json,
    PlanRequest,
    Source,
    SourceContext,
    SourcePosition,
    SplitStore,
    Step,
    StoredStep,
)
from tidegate.pipelines.connectors.table import Column, Options, Role, Table, WatermarkSpec
from tidegate.pipelines.errors import SourceError

SPARK_TYPES = {"TIMESTAMP(3)": "TIMESTAMP_NTZ", "TIMESTAMP_LTZ(3)": "TIMESTAMP", "BYTES": "BINARY"}
SQL_ONLY = ("CHAR", "VARCHAR")


def spark_type(flink: str) -> str:
    """Spark's spelling, for the types that tests use."""
    if flink.startswith(SQL_ONLY):
        return "STRING"
    if flink.startswith(("BINARY", "VARBINARY")):
        return "BINARY"
    if flink.startswith("TIMESTAMP_LTZ"):
        return "TIMESTAMP"
    if flink.startswith("TIMESTAMP"):
        return "TIMESTAMP_NTZ"
    return SPARK_TYPES.get(flink, flink)


def table(
    columns: Mapping[str, str],
    connector: str,
    options: Mapping[str, str] | None = None,
    *,
    role: Role = "probe",
    rowtime: str | None = None,
    more: Sequence[Column] = (),
) -> Table:
    """A table `t` with columns name -> Flink type; `rowtime` declares WATERMARK FOR that column."""
    return Table(
        name="t",
        columns=(*[Column(name, flink, spark_type(flink)) for name, flink in columns.items()], *more),
        options=Options({"connector": connector, **(options or {})}),
        watermark=WatermarkSpec(rowtime, f"`{rowtime}`", "TIMESTAMP(3)") if rowtime else None,
        role=role,
    )


class NoSplits:
    """These connectors have no splits of their own."""

    prefix = ""

    def rows(self) -> list[dict[str, Any]]:
        return []

    def add(self, splits: Sequence[Json]) -> None:
        raise AssertionError("no splits are stored")

    def restate(self, splits: Sequence[Json]) -> None:
        raise AssertionError("no splits are stored")

    def cut(self, cuts: Mapping[str, Json]) -> None:
        raise AssertionError("no cuts are stored")


class MemorySplits:
    """Keeps splits as the lake does: each once, in order."""

    prefix = ""

    def __init__(self) -> None:
        self.kept: dict[str, dict[str, Any]] = {}

    def rows(self) -> list[dict[str, Any]]:
        return sorted(self.kept.values(), key=lambda row: row["ordinal"])

    def add(self, splits: Sequence[Json]) -> None:
        for split in splits:
            self.kept.setdefault(split["split"], {**split, "cut": None})

    def restate(self, splits: Sequence[Json]) -> None:
        for split in splits:
            self.kept[split["split"]].update(split)

    def cut(self, cuts: Mapping[str, Json]) -> None:
        raise AssertionError("no cuts are stored")


@dataclass
class Bench:
    """Runs a source as the runtime does: plans, stores, lands; keeps what the `epochs` table would keep."""

    connector: Any
    table: Table
    scratch: str
    now: int = 0
    generation: int = 1
    steps: list[StoredStep] = field(default_factory=list)
    flipped: bool = False
    splits: SplitStore = field(default_factory=NoSplits)
    max_rows: int | None = None
    limit: int | None = None
    ahead: frozenset[str] = frozenset()
    held: dict[str, int] = field(default_factory=dict)

    def context(self) -> SourceContext:
        """What the runtime hands to a new source."""
        return SourceContext(
            table=self.table,
            options=self.table.options.resolve({}),
            generation=self.generation,
            splits=self.splits,
            scratch=self.scratch,
            clock=lambda: self.now,
        )

    @property
    def position(self) -> SourcePosition:
        first, last = (self.steps[0], self.steps[-1]) if self.steps else (None, None)
        return SourcePosition(previous=last, first=first, flipped=self.flipped)

    def source(self) -> Source:
        """A new source, as after a restart."""
        return self.connector.source(self.context())

    def failure(
        self, spark: SparkSession, between: Callable[[], object] = lambda: None, *, at_once: bool = False
    ) -> SourceError:
        """How the source explains that the last step cannot be read. `between`: what happens before Spark reads its
        rows. `at_once`: it may fail before that, as the rows are asked for."""
        source, step = self.source(), self.steps[-1]
        frame = None if at_once else source.read(spark, step)
        between()
        with pytest.raises((PySparkException, Py4JJavaError)) as caught:
            (source.read(spark, step) if frame is None else frame).collect()
        assert isinstance(source, ExplainsFailures)
        explained = source.explain(caught.value, step)
        assert explained is not None, str(caught.value)
        return explained

    def plan(self, ends: Json | None = None) -> Step | None:
        """Plan the next step, and store it."""
        source, at = self.source(), self.position
        request = PlanRequest(
            **vars(at),
            ends=source.ends(at) if ends is None else ends,
            instant=self.now,
            max_rows=self.max_rows,
            limit=self.limit,
            ahead=self.ahead,
        )
        planned = source.plan(request)
        step, self.held = planned.step, dict(planned.held)
        if step is not None:
            self.steps.append(StoredStep(step, self.generation, len(self.steps) + 1, self.now))
            self.flipped = self.flipped or step.flips
        return step
