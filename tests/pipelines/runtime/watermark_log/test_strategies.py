"""DDL and Python give the same objects."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.runtime.watermark_log import strategy_of
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.watermarks import ExpressionWatermarks, NoWatermarks, SourceWatermarks, WatermarkStrategy

SECOND = timedelta(seconds=1)


def pipeline(options: str = "", watermark: str = ", WATERMARK FOR at AS at - INTERVAL '5' SECOND") -> Pipeline:
    return compile_script(
        f"CREATE TABLE clicks (id INT, at TIMESTAMP(3){watermark}) WITH ('connector' = 'scripted'{options}); "
        "CREATE TABLE kept (id INT) WITH ('connector' = 'scripted'); INSERT INTO kept SELECT id FROM clicks"
    )


def of(made: Pipeline, interval: timedelta | None = None, **environment: str) -> WatermarkStrategy:
    return strategy_of(made, made.table("clicks"), environment, interval)


def test_watermark_for_is_an_expression() -> None:
    made = pipeline()
    spec = made.table("clicks").watermark
    assert spec is not None
    generator = of(made).generator_factory()
    assert isinstance(generator, ExpressionWatermarks)
    assert (generator.expression, generator.type) == (spec.expression, "TIMESTAMP(3)")
    assert (of(made).idle_timeout, of(made).alignment, of(made).gap) == (None, None, None)


@pytest.mark.parametrize(
    ("delay", "delay_ms"),
    [("", 0), (" - INTERVAL '5' SECOND", 5_000), (" - '1' HOUR", 3_600_000), (" - '0.0001' SECOND", 1)],
)
def test_the_source_s_own_watermark_is_its_word_and_else_ascending_times(delay: str, delay_ms: int) -> None:
    made = compile_script(
        f"CREATE TABLE clicks (id INT, at AS SYSTEM_ROWTIME(), WATERMARK FOR at AS SYSTEM_WATERMARK(){delay}) "
        "WITH ('connector' = 'datagen'); CREATE TABLE kept (id INT) WITH ('connector' = 'scripted'); "
        "INSERT INTO kept SELECT id FROM clicks"
    )
    generator = of(made).generator_factory()
    assert isinstance(generator, SourceWatermarks)
    assert (generator.expression, generator.type) == ("(`at` - INTERVAL '0.001' SECOND)", "TIMESTAMP_LTZ(3)")
    assert generator.behind == delay_ms


def test_a_table_without_is_in_processing_time() -> None:
    assert of(pipeline(watermark="")) == WatermarkStrategy.no_watermarks()
    assert of(pipeline(watermark="")).generator_factory is NoWatermarks


@pytest.mark.parametrize(
    ("options", "strategy"),
    [
        ("'scan.watermark.idle-timeout' = '1 min'", lambda base: base.with_idleness(60 * SECOND)),
        ("'scan.watermark.emit.strategy' = 'on-periodic'", lambda base: base),
        ("'scan.watermark.emit.strategy' = 'on-event'", lambda base: base.with_emission_on_event(1)),
        (
            "'scan.watermark.emit.strategy' = 'on-event', 'scan.watermark.emit.on-event.gap' = '7'",
            lambda base: base.with_emission_on_event(7),
        ),
        (
            "'scan.watermark.alignment.group' = 'g', 'scan.watermark.alignment.max-drift' = '2 s'",
            lambda base: base.with_watermark_alignment("g", 2 * SECOND, SECOND),
        ),
        (
            "'scan.watermark.alignment.group' = 'g', 'scan.watermark.alignment.max-drift' = '2 s', "
            "'scan.watermark.alignment.update-interval' = '${EVERY}'",
            lambda base: base.with_watermark_alignment("g", 2 * SECOND, 3 * SECOND),
        ),
    ],
)
def test_an_option_is_a_method(options: str, strategy) -> None:
    found = of(pipeline(f", {options}"), EVERY="3 s")
    wanted = strategy(of(pipeline()))
    assert (found.idle_timeout, found.gap, found.alignment) == (wanted.idle_timeout, wanted.gap, wanted.alignment)


def test_python_takes_the_place_of_all_that_ddl_says() -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_idleness(SECOND)
    made = pipeline(", 'scan.watermark.idle-timeout' = '1 min'").with_strategy("clicks", strategy)
    assert of(made) == strategy


@pytest.mark.parametrize(
    ("table", "strategy", "expected"),
    [
        ("click", WatermarkStrategy.no_watermarks(), "there is no table 'click', did you mean 'clicks'"),
        ("nope", WatermarkStrategy.no_watermarks(), "there is no table 'nope'"),
        ("clicks", None, "a strategy is a WatermarkStrategy, not None"),
        ("clicks", "5 s", "a strategy is a WatermarkStrategy, not '5 s'"),
    ],
)
def test_what_is_no_table_or_no_strategy_is_reported(table: str, strategy, expected: str) -> None:
    with pytest.raises(PlanningError, match=expected):
        pipeline().with_strategy(table, strategy)


def test_an_interval_of_zero_is_punctuated_for_every_table() -> None:
    assert of(pipeline(), timedelta(0)).gap == 1
    assert of(pipeline(), 5 * SECOND).gap is None
    gap = pipeline(", 'scan.watermark.emit.strategy' = 'on-event', 'scan.watermark.emit.on-event.gap' = '7'")
    assert of(gap, timedelta(0)).gap == 7


def test_a_script_sets_the_interval_and_a_run_takes_its_place() -> None:
    punctuated = replace(pipeline(), auto_watermark_interval=timedelta(0))
    assert of(punctuated).gap == 1
    assert of(punctuated, 5 * SECOND).gap is None
    assert of(replace(pipeline(), auto_watermark_interval=SECOND), timedelta(0)).gap == 1


def test_what_the_environment_lacks_is_reported() -> None:
    with pytest.raises(PlanningError, match="TIMEOUT"):
        of(pipeline(", 'scan.watermark.idle-timeout' = '${TIMEOUT}'"))
    assert of(pipeline(", 'phases' = '${OTHER}'")).idle_timeout is None


@pytest.mark.parametrize(
    ("options", "said", "expected"),
    [
        ("'scan.watermark.idle-timeout' = '${X}'", "soon", "is no duration"),
        ("'scan.watermark.idle-timeout' = '${X}'", "0 s", "must be positive"),
        ("'scan.watermark.emit.strategy' = 'on-event', 'scan.watermark.emit.on-event.gap' = '${X}'", "x", "no whole"),
        ("'scan.watermark.emit.strategy' = 'on-event', 'scan.watermark.emit.on-event.gap' = '${X}'", "0", "no number"),
        ("'scan.watermark.emit.strategy' = '${X}', 'scan.watermark.emit.on-event.gap' = '5'", "never", "choices"),
        ("'scan.watermark.alignment.group' = '${X}', 'scan.watermark.alignment.max-drift' = '2 s'", "", "is empty"),
    ],
)
def test_what_the_environment_has_wrong_is_reported_before_anything_runs(
    options: str, said: str, expected: str
) -> None:
    with pytest.raises(PlanningError, match=expected) as caught:
        of(pipeline(f", {options}"), X=said)
    assert "table clicks" in caught.value.where
    assert "${X}" in caught.value.where


def test_an_environment_that_says_when_to_emit_may_leave_the_gap_unused() -> None:
    made = pipeline(", 'scan.watermark.emit.strategy' = '${WHEN}', 'scan.watermark.emit.on-event.gap' = '5'")
    assert (of(made, WHEN="on-event").gap, of(made, WHEN="on-periodic").gap) == (5, None)
