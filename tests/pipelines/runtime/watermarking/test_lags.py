"""Which strategies are a column less a constant, and that it is Spark's own number."""

from __future__ import annotations

import datetime as dt
from datetime import timedelta

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipelines.runtime.watermarking import builtin
from pipelines.runtime.watermarking.lags import Lag, lag_of
from pipelines.watermarks import (
    BoundedOutOfOrderness,
    ExpressionWatermarks,
    NoWatermarks,
    SourceWatermarks,
    WatermarkStrategy,
)

TIMES = [0, 1, 999, 1_000, -1, -999, -1_000, -1_001, 1_767_225_600_123_456, -62_135_596_800_000_000]


@pytest.mark.parametrize(
    ("expression", "column", "micros"),
    [
        ("`at`", "at", 0),
        ("at", "at", 0),
        ("(at)", "at", 0),
        ("(`at` - INTERVAL '5' SECOND)", "at", 5_000_000),
        ("((`at`) - INTERVAL '0.000001' SECOND)", "at", 1),
        ("`at` - INTERVAL '-1' MINUTE", "at", -60_000_000),
        ("`at` - INTERVAL '1' DAY", "at", 86_400_000_000),
        ("`at` - INTERVAL '0 00:01:30.500000' DAY TO SECOND", "at", 90_500_000),
        ("`e`.`at` - INTERVAL '5' SECOND", "e.at", 5_000_000),
        ("ntz - INTERVAL '1' HOUR", "ntz", 3_600_000_000),
    ],
)
def test_a_column_less_an_interval(spark: SparkSession, expression: str, column: str, micros: int) -> None:
    generator = ExpressionWatermarks(expression, "TIMESTAMP(3)")
    lag = lag_of(generator)
    assert lag == Lag(column, micros)
    at = F.timestamp_micros("us")
    rows = spark.createDataFrame([(time,) for time in TIMES], "us BIGINT").select(
        "us", at.alias("at"), F.struct(at.alias("at")).alias("e"), at.cast("timestamp_ntz").alias("ntz")
    )
    found = builtin.valued(rows, generator).select("us", builtin.VALUE).collect()
    assert [row[1] for row in found] == [lag.value(row[0]) for row in found]


def test_bounded_out_of_orderness() -> None:
    lag = lag_of(BoundedOutOfOrderness(timedelta(milliseconds=7)))
    assert lag == Lag("_rowtime", millis=8)
    assert [lag.value(time) for time in (0, 999, 1_000, -1)] == [-8, -8, -7, -9]
    assert lag_of(WatermarkStrategy.for_monotonous_timestamps().generator_factory()) == Lag("_rowtime", millis=1)


@pytest.mark.parametrize(
    "generator",
    [
        ExpressionWatermarks("`at`", "BIGINT"),
        ExpressionWatermarks("`at` - INTERVAL '1' MONTH", "TIMESTAMP(3)"),
        ExpressionWatermarks("`at` - INTERVAL '1-2' YEAR TO MONTH", "TIMESTAMP(3)"),
        ExpressionWatermarks("`at` - MAKE_DT_INTERVAL(0, 0, 0, id)", "TIMESTAMP(3)"),
        ExpressionWatermarks("`at` + INTERVAL '1' SECOND", "TIMESTAMP(3)"),
        ExpressionWatermarks("IF(flag, `at`, NULL)", "TIMESTAMP(3)"),
        ExpressionWatermarks("`at` - INTERVAL '5' SECOND - INTERVAL '5' SECOND", "TIMESTAMP(3)"),
        ExpressionWatermarks("TIMESTAMP '2026-01-01 00:00:00'", "TIMESTAMP(3)"),
        ExpressionWatermarks("`a.b`", "TIMESTAMP(3)"),
        *(
            ExpressionWatermarks(f"`at` - INTERVAL {written}", "TIMESTAMP(3)")
            for written in (
                "5 SECONDS",
                "'5' SECONDS",
                "'5 seconds'",
                "500 MILLISECONDS",
                "'1' WEEKS",
                "'+-5' SECOND",
                "'--5' SECOND",
                "'' SECOND",
                "'99999999999999' DAY",
            )
        ),
        ExpressionWatermarks("what is this", "TIMESTAMP(3)"),
        SourceWatermarks("`at`", "TIMESTAMP(3)"),
        NoWatermarks(),
    ],
)
def test_anything_else_has_no_lag(generator: object) -> None:
    assert lag_of(generator) is None


def test_a_lag_is_a_time_and_not_a_duration() -> None:
    """Python's rounding of negative numbers is Spark's: down."""
    at = dt.datetime(1969, 12, 31, 23, 59, 59, 999_500, tzinfo=dt.UTC)
    micros = (at - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // timedelta(microseconds=1)
    assert Lag("at").value(micros) == -1
