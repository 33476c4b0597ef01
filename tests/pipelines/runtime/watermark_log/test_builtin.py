"""The SQL of a built-in strategy says what its generator says, row by row: random splits, epochs, gaps, restarts."""

from __future__ import annotations

import datetime as dt
import itertools
import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests import cases
from tests.cases import at_length
from tidegate.pipelines.lake import SplitWatermark
from tidegate.pipelines.runtime.watermark_log import builtin
from tidegate.pipelines.runtime.watermark_log.builtin import SplitPass, SplitsBefore
from tidegate.pipelines.runtime.watermark_log.custom import GeneratorRun
from tidegate.pipelines.watermarks import (
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    BoundedOutOfOrderness,
    ExpressionWatermarks,
    SourceWatermarks,
    Watermark,
    WatermarkStrategy,
)

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
EXPRESSION = ExpressionWatermarks("value", "BIGINT")
BOUNDED = BoundedOutOfOrderness(timedelta(milliseconds=7))

_row = st.tuples(
    st.sampled_from("ab"),
    st.one_of(st.none(), st.integers(-500, 500)),  # the rowtime in tenths of a ms
    st.one_of(st.none(), st.integers(-50, 50)),  # what the expression gives
)
_epochs = st.lists(st.lists(_row, max_size=12), min_size=1, max_size=3)


def frame(spark: SparkSession, rows: Sequence[tuple[str, int, int | None, int | None]]) -> DataFrame:
    data = [
        {
            "_split": split,
            "_offset": offset,
            "_seq": offset,
            "_rowtime": None if tenths is None else EPOCH + timedelta(microseconds=tenths * 100),
            "value": value,
        }
        for split, offset, tenths, value in rows
    ]
    schema = "_split STRING, _offset BIGINT, _seq BIGINT, _rowtime TIMESTAMP, value BIGINT"
    arrow = spark.createDataFrame([], schema).toArrow().schema
    return spark.createDataFrame(pa.Table.from_pylist(data, schema=arrow), schema)


def by_hand(generator: builtin.BuiltIn, gap: int | None, rows: Sequence[Any], before: SplitsBefore) -> list[SplitPass]:
    """The same by the generator itself, a row at a time."""
    expression = isinstance(generator, ExpressionWatermarks)
    made = WatermarkStrategy.for_expression("", "BIGINT")
    strategy = made if expression else WatermarkStrategy.for_bounded_out_of_orderness(timedelta(milliseconds=7))
    strategy = strategy if gap is None else strategy.with_emission_on_event(gap)
    found = []
    for name, own in itertools.groupby(sorted(rows, key=lambda row: row[:2]), key=lambda row: row[0]):
        run = GeneratorRun(strategy, name, before, 0)
        for _, offset, tenths, value in own:
            least = MIN_TIMESTAMP if tenths is None else tenths // 10
            whole = MIN_TIMESTAMP if tenths is None else -(-tenths // 10)
            run.row(value if expression else {}, offset, least, whole)  # type: ignore[arg-type]
        found.append(run.end())
    return found


def after(before: SplitsBefore, passes: Sequence[SplitPass], floor: int | None) -> SplitsBefore:
    new = {item.split: SplitWatermark(item.split, item.watermark.timestamp, False, state=item.state) for item in passes}
    return SplitsBefore({**before.splits, **new}, floor)


@pytest.mark.parametrize("generator", at_length([EXPRESSION, BOUNDED]), ids=["expression", "bounded"])
@settings(max_examples=8 if cases.AT_LENGTH else 4, deadline=None, suppress_health_check=list(HealthCheck))
@given(epochs=_epochs, gap=st.sampled_from([None, 1, 3]), floor=st.one_of(st.none(), st.integers(-40, 40)))
def test_sql_says_what_the_generator_says(
    spark: SparkSession, generator: builtin.BuiltIn, epochs: list[list[Any]], gap: int | None, floor: int | None
) -> None:
    mine, theirs, offset = SplitsBefore(floor=floor), SplitsBefore(floor=floor), 0
    for epoch in epochs:
        rows = [(split, offset + n, tenths, value) for n, (split, tenths, value) in enumerate(epoch)]
        offset += len(rows)
        found = builtin.scan(frame(spark, rows), generator, gap, mine)
        expected = by_hand(generator, gap, rows, theirs)
        outcomes = [
            (item.split, item.rows, item.late, item.watermark) for item in sorted(found, key=lambda item: item.split)
        ]
        assert outcomes == [(item.split, item.rows, item.late, item.watermark) for item in expected]
        if rows:
            counted = on_the_way(frame(spark, rows), generator, gap, mine)
            assert counted == found or (counted is None and (gap == 3 or len(found) > 1))
        mine, theirs = after(mine, found, floor), after(theirs, expected, floor)


def on_the_way(
    rows: DataFrame, generator: builtin.BuiltIn, gap: int | None, before: SplitsBefore
) -> list[SplitPass] | None:
    """What is counted of rows on their way into the lake."""
    counts = (F.count(F.lit(1)).alias("rows"), *builtin.tally(before, gap), *builtin.ends_of_rows())
    return builtin.counted(builtin.valued(rows, generator).agg(*counts).collect()[0].asDict(), gap, before)


@pytest.mark.parametrize("gap", [None, 1, 3])
@pytest.mark.parametrize(
    "generator", [EXPRESSION, BOUNDED, SourceWatermarks("value", "BIGINT")], ids=["expression", "bounded", "source"]
)
def test_no_row_leaves_spark_sql(spark: SparkSession, generator: builtin.BuiltIn, gap: int | None) -> None:
    rows = builtin.valued(frame(spark, [("a", 0, 10, 1), ("b", 1, 20, 2)]), generator)
    before = SplitsBefore(floor=0)
    scanned = builtin._by_splits(rows, gap, before)
    for frame_ in (scanned, rows.agg(*builtin.tally(before, gap))):
        plan = frame_._jdf.queryExecution().toString()
        assert "Aggregate" in plan
        assert not re.search("python|arrow|pandas", plan, re.IGNORECASE)


def test_sql_delays_the_source_s_own_as_its_generator_does(spark: SparkSession) -> None:
    """At both ends of time too, which a type of 64 bits would wrap around."""
    generator = SourceWatermarks("value", "BIGINT", timedelta(milliseconds=5))
    ends = [MIN_TIMESTAMP + n for n in (0, 1, 5, 6)] + [MAX_TIMESTAMP - n for n in (0, 1, 5)]
    values = [*ends, -3, 0, 3, 100, None]
    rows = builtin.valued(frame(spark, [("a", n, None, value) for n, value in enumerate(values)]), generator)
    found = [row[0] for row in rows.orderBy("_offset").select(builtin.VALUE).collect()]
    assert found == [None if value is None else generator.delayed(Watermark(value)).timestamp for value in values]
    assert (found[0], found[1], found[4]) == (MIN_TIMESTAMP, MIN_TIMESTAMP, MAX_TIMESTAMP)


def test_a_state_of_an_older_lake_is_the_greatest_value() -> None:
    assert builtin.remembered(17) == (17, 0)
    assert builtin.remembered({"greatest": 5, "since": 2}) == (5, 2)
    assert builtin.remembered({"generator": {"greatest": 5}}) == (None, 0)
    assert builtin.remembered(None) == (None, 0)
