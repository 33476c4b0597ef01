"""INSERT … FROM TABLE(TUMBLE(…)) on tables, epoch by epoch, against plain Python."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.cases import at_length
from tests.pipelines.process.windows.test_windowed import PAIRS
from tests.pipelines.runtime.crashing import crash_at
from tests.pipelines.runtime.plays import places_of
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.process.errors import ProcessError
from tidegate.pipelines.process.windows import Windows, cumulate, hop, tumble
from tidegate.pipelines.runtime.processes.outputs import open_windows
from tidegate.pipelines.testing import Harness
from tidegate.pipelines.watermarks import MAX_TIMESTAMP, MIN_TIMESTAMP
from tidegate.quality_checks.reconcile import reconcile_all

SCRIPT = """
CREATE TABLE clicks (item STRING, price DECIMAL(10, 2), n INT, big BIGINT, x DOUBLE, at TIMESTAMP(3),
    WATERMARK FOR at AS at) WITH ('connector' = 'scripted');
CREATE TABLE tumbled (item STRING, opened TIMESTAMP(3), closed TIMESTAMP(3), moment TIMESTAMP(3), clicks BIGINT,
    priced BIGINT, total DECIMAL(38, 2), n INT, big BIGINT, low DECIMAL(10, 2), high DOUBLE, mean_n INT,
    mean DECIMAL(38, 6), kinds BIGINT) WITH ('connector' = 'scripted');
CREATE TABLE hopped (opened TIMESTAMP(3), clicks BIGINT) WITH ('connector' = 'scripted');
CREATE TABLE grown (upper STRING, closed TIMESTAMP(3), doubled DECIMAL(38, 2)) WITH ('connector' = 'scripted');

CREATE VIEW seen AS SELECT item AS thing, at AS t, price, n, big, x FROM clicks WHERE n IS NULL OR n <> 3;

INSERT INTO tumbled
SELECT c.thing, window_start, window_end, window_time, COUNT(*), COUNT(price), SUM(price), SUM(n), SUM(big), MIN(price),
    MAX(x), AVG(n), AVG(price), COUNT(DISTINCT n)
FROM TABLE(TUMBLE(TABLE seen, DESCRIPTOR(t), INTERVAL '10' SECONDS)) AS c
GROUP BY window_start, window_end, window_time, thing;

INSERT INTO hopped (clicks, opened)
SELECT COUNT(*), window_start
FROM TABLE(HOP(TABLE clicks, DESCRIPTOR(at), INTERVAL '5' SECONDS, INTERVAL '10' SECONDS))
GROUP BY window_start, window_end
HAVING COUNT(*) > 4;

INSERT INTO grown
SELECT UPPER(item), window_end, CAST(SUM(price) * 2 AS DECIMAL(38, 2))
FROM CUMULATE(DATA => TABLE clicks, TIMECOL => DESCRIPTOR(clicks.at), STEP => INTERVAL '5' SECOND,
    SIZE => INTERVAL '15' SECOND, OFFSET => INTERVAL '1' SECOND)
GROUP BY UPPER(item), window_start, window_end;
"""


class Row(NamedTuple):
    item: str | None
    price: Decimal | None
    n: int | None
    big: int | None
    x: float | None
    time: int | None

    @property
    def pushed(self) -> dict[str, Any]:
        values = self._asdict()
        time = values.pop("time")
        return {**values, "at": None if time is None else moment(time)}


Epoch = tuple[list[Row], int]
"""Rows that land together, and the watermark behind them."""

Emitted = list[tuple]


def moment(time: int) -> datetime:
    return datetime(1970, 1, 1) + timedelta(milliseconds=time)


def epochs() -> list[Epoch]:
    chosen = random.Random(7)

    def row(low: int, high: int) -> Row:
        return Row(
            chosen.choice(["tea", "cup", None]),
            chosen.choice([None, Decimal(chosen.randrange(-99_999, 99_999)) / 100]),
            chosen.choice([None, 1, 2, 3, -4]),
            chosen.choice([None, 2**59, -(2**59), 5]),
            chosen.choice([None, 0.5, 1.25, -3.0]),
            chosen.choice([None, *[chosen.randrange(low, high) for _ in range(9)]]),
        )

    # Of the third one all rows are late, or left out: its windows are emitted all the same.
    drawn = [(0, 22_000, 40, 14_000), (6_000, 28_000, 40, 33_000), (0, 5_000, 8, 45_000), (22_000, 60_000, 40, None)]
    return [
        ([row(low, high) for _ in range(rows)], MAX_TIMESTAMP if end is None else end) for low, high, rows, end in drawn
    ]


def windows_of(windows: Windows, key: Callable[[Row], Any], taken: Callable[[Row], bool], found: list[Epoch]):
    """Every emitted window by epoch, with its rows; and how many rows were left out, and why."""
    now, waiting, emitted = MIN_TIMESTAMP, defaultdict(list), []
    left_out: dict[str, int] = dict.fromkeys(("where", "time-null", "late"), 0)
    for rows, end in found:
        for row in rows:
            if not taken(row):
                left_out["where"] += 1
            elif row.time is None:
                left_out["time-null"] += 1
            else:
                still = [window for window in windows.of(row.time) if window.end > now]
                left_out["late"] += not still
                for window in still:
                    waiting[window, key(row)].append(row)
        now = end
        emitted.append([(*known, waiting.pop(known)) for known in list(waiting) if known[0].end <= now])
    assert not waiting
    return emitted, left_out


def known(rows: Iterable[Row], column: str) -> list[Any]:
    return [getattr(row, column) for row in rows if getattr(row, column) is not None]


def whole(rows: list[Row], column: str, combine: Callable[[list[Any]], Any]) -> Any:
    values = known(rows, column)
    return combine(values) if values else None


def mean(values: list[Decimal]) -> Decimal:
    return (sum(values) / len(values)).quantize(Decimal("0.000001"), ROUND_HALF_UP)  # type: ignore[union-attr]


def tumbled(emitted: list[tuple]) -> Emitted:
    return [
        (
            item,
            moment(window.start),
            moment(window.end),
            moment(window.end - 1),
            len(rows),
            len(known(rows, "price")),
            whole(rows, "price", sum),
            whole(rows, "n", sum),
            whole(rows, "big", sum),
            whole(rows, "price", min),
            whole(rows, "x", max),
            whole(rows, "n", lambda values: int(sum(values) / len(values))),
            whole(rows, "price", mean),
            len(set(known(rows, "n"))),
        )
        for window, item, rows in emitted
    ]


def hopped(emitted: list[tuple]) -> Emitted:
    return [(moment(window.start), len(rows)) for window, _, rows in emitted if len(rows) > 4]


def grown(emitted: list[tuple]) -> Emitted:
    return [
        (item, moment(window.end), whole(rows, "price", lambda values: sum(values) * 2))
        for window, item, rows in emitted
    ]


def second(number: int) -> timedelta:
    return timedelta(seconds=number)


def everything(_: Row) -> bool:
    return True


ORACLE: dict[str, tuple] = {
    "tumbled": (tumble(second(10)), lambda row: row.item, lambda row: row.n != 3, tumbled),
    "hopped": (hop(second(5), second(10)), lambda row: None, everything, hopped),
    "grown": (
        cumulate(second(5), second(15), second(1)),
        lambda row: row.item and row.item.upper(),
        everything,
        grown,
    ),
}


def of(rows: list[dict[str, Any]], target: str) -> Emitted:
    own = [row for row in rows if row.get("_target", target) == target]
    return sorted((tuple(row[name] for name in row if name not in ("op", "_target")) for row in own), key=str)


def test_windows_of_sql_against_plain_python(spark: SparkSession, tmp_path: Path) -> None:
    """NULLs, late rows, rows without a time, and a crash between state and target that a new runner makes good."""
    harness, found = Harness(SCRIPT, spark, tmp_path), epochs()
    emitted = {target: windows_of(windows, key, taken, found) for target, (windows, key, taken, _) in ORACLE.items()}
    for number, (rows, end) in enumerate(found):
        harness.push("clicks", [row.pushed for row in rows])
        harness.watermark("clicks", end)
        if number == 1:
            crash_at(harness, "process.state")
        published = harness.advance()
        for target, (_, _, _, shown) in ORACLE.items():
            assert of(published, target) == sorted(shown(emitted[target][0][number]), key=str), (target, number)
    assert harness.advance() == []
    landed = sum(len(rows) for rows, _ in found)
    for target, (_, left_out) in emitted.items():
        places = places_of(harness, target)
        assert places.dropped == {reason: rows for reason, rows in left_out.items() if rows}, target
        assert places.landed == landed == places.matched + sum(left_out.values())
        assert left_out["late"], "no row was late: the test says less than it should"
    for added, (target, (_, left_out)) in zip(
        reconcile_all(harness.lake, harness.pipeline), emitted.items(), strict=True
    ):
        assert added.problems == ()
        assert added.rows.left_out == {reason: rows for reason, rows in left_out.items() if rows}
        (((name, output),), (source,)) = added.rows.outputs.items(), added.rows.inputs
        assert (source.landed, source.waiting, added.rows.handled) == (landed, 0, landed - sum(left_out.values()))
        assert (name, bool(output.not_having)) == (target, target == "hopped")
        assert output.given == output.published + output.not_having


def test_the_windows_that_spark_makes_are_those_of_the_python_functions(spark: SparkSession) -> None:
    """Before 1970 too, with offsets of all sizes; windows that were emitted are left out."""
    times = spark.range(-41, 42).selectExpr("id AS _time", "3L AS _now")
    found = [
        open_windows(times, table).selectExpr(f"{number} AS pair", "_time", "_end", f"{table.start('_end')} AS start")
        for number, (table, _) in enumerate(PAIRS)
    ]
    wanted = [
        (number, time, window.end, window.start)
        for number, (_, windows) in enumerate(PAIRS)
        for time in range(-41, 42)
        for window in windows.of(time)
        if window.end > 3
    ]
    assert sorted(map(tuple, reduce(DataFrame.union, found).collect())) == sorted(wanted)


VIEWS = """
CREATE TABLE views (item STRING, n BIGINT, p AS PROCTIME()) WITH ('connector' = 'scripted');
CREATE TABLE counted (item STRING, opened TIMESTAMP(3), moment TIMESTAMP_LTZ(3), total BIGINT)
    WITH ('connector' = 'scripted');
INSERT INTO counted SELECT item, window_start, window_time, SUM(n)
FROM TABLE(TUMBLE(TABLE views, DESCRIPTOR(p), INTERVAL '10' SECONDS))
GROUP BY window_start, window_end, window_time, item;
"""


SEVERAL = """
CREATE TABLE views (item STRING, p AS PROCTIME()) WITH ('connector' = 'scripted');
CREATE TABLE hopped (opened TIMESTAMP(3), closed TIMESTAMP(3), views BIGINT) WITH ('connector' = 'scripted');
CREATE TABLE grown (opened TIMESTAMP(3), closed TIMESTAMP(3), views BIGINT) WITH ('connector' = 'scripted');
INSERT INTO hopped SELECT window_start, window_end, COUNT(*)
FROM TABLE(HOP(TABLE views, DESCRIPTOR(p), INTERVAL '5' SECONDS, INTERVAL '10' SECONDS))
GROUP BY window_start, window_end;
INSERT INTO grown SELECT window_start, window_end, COUNT(*)
FROM TABLE(CUMULATE(TABLE views, DESCRIPTOR(p), INTERVAL '5' SECONDS, INTERVAL '10' SECONDS))
GROUP BY window_start, window_end;
"""


@pytest.mark.thorough  # in event time they overlap above
def test_windows_that_overlap_by_processing_time(spark: SparkSession, tmp_path: Path) -> None:
    now = [100_000]
    harness = Harness(SEVERAL, spark, tmp_path, clock=lambda: now[0])
    harness.end_of_snapshot("views")
    for landed_at in (101_000, 104_000, 112_000):
        now[0] = landed_at
        harness.push("views", [{"item": "tea"}])
        harness.runner.advance("views")
    now[0] = 120_000
    rows = harness.advance()

    def windows_in(target: str) -> Emitted:
        seconds = [[int((time - moment(0)).total_seconds()) for time in row[:2]] for row in of(rows, target)]
        return sorted((*times, row[2]) for times, row in zip(seconds, of(rows, target), strict=True))

    assert windows_in("hopped") == [(95, 105, 2), (100, 110, 2), (105, 115, 1), (110, 120, 1)]
    assert windows_in("grown") == [(100, 105, 2), (100, 110, 2), (110, 115, 1), (110, 120, 1)]


def test_the_same_windows_by_processing_time_and_a_changed_statement(spark: SparkSession, tmp_path: Path) -> None:
    now = [100_000]
    harness = Harness(VIEWS, spark, tmp_path, clock=lambda: now[0])

    def at(time: int, *rows: tuple[str, int]) -> Emitted:
        now[0] = time
        if rows:
            harness.push("views", [{"item": item, "n": n} for item, n in rows])
        return of(harness.advance(), "counted")

    assert at(101_000, ("tea", 2**62), ("cup", 1)) == []  # before the table has flipped
    harness.end_of_snapshot("views")
    assert at(109_999, ("tea", 1)) == []
    end = datetime(1970, 1, 1, 0, 1, 49, 999_000, tzinfo=UTC).replace(tzinfo=None)
    emitted = at(112_000, ("tea", 5))
    assert [(item, opened, moment.replace(tzinfo=None), n) for item, opened, moment, n in emitted] == [
        ("cup", datetime(1970, 1, 1, 0, 1, 40), end, 1),
        ("tea", datetime(1970, 1, 1, 0, 1, 40), end, 2**62 + 1),
    ]
    harness.runner.close()
    changed = Harness(VIEWS.replace("SUM(n)", "MAX(n)"), spark, tmp_path, clock=lambda: now[0])
    changed.push("views", [{"item": "tea", "n": 7}])
    with pytest.raises(PlanningError, match="defines insert counted differently"):
        changed.advance()
    changed.runner.close()
    harness = Harness(VIEWS, spark, tmp_path, clock=lambda: now[0])
    assert [row[3] for row in at(121_000)] == [5], "the refused script has not landed the 7: it is of the next window"
    assert [row[3] for row in at(131_000)] == [7]


def test_a_where_that_takes_nothing_and_a_sum_that_does_not_fit(spark: SparkSession, tmp_path: Path) -> None:
    never = """
    CREATE TABLE never (views BIGINT) WITH ('connector' = 'scripted');
    INSERT INTO never SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE views, DESCRIPTOR(p), INTERVAL '10' SECONDS)) WHERE FALSE
    GROUP BY window_start, window_end;
    """
    harness = Harness(VIEWS + never, spark, tmp_path, clock=lambda: 100_000)
    harness.push("views", [{"item": "tea", "n": 2**62}] * 2)
    harness.end_of_snapshot("views")
    assert harness.advance() == []
    (staged,) = harness.lake.staged.rows("insert never")
    assert (staged.counts["dropped:where"], staged.counts["processed"]) == (2, 0)
    harness.clock = lambda: 111_000
    harness.restart()
    with pytest.raises(ProcessError, match=r"overflow|OVERFLOW|out of range") as refused:
        harness.advance()
    assert "write another INSERT" in refused.value.next_command
    assert harness.published("counted") == []


@pytest.mark.parametrize("epochs", at_length([2, 1]))
def test_rows_that_land_with_a_turn_to_processing_time_are_not_late(
    epochs: int, spark: SparkSession, tmp_path: Path
) -> None:
    """They are counted as they are where the turn comes in an epoch of its own."""
    script = """
CREATE TABLE views (n INT, at TIMESTAMP(3), WATERMARK FOR at AS at) WITH ('connector' = 'scripted');
CREATE TABLE counted (n BIGINT) WITH ('connector' = 'scripted');
INSERT INTO counted SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE views, DESCRIPTOR(at), INTERVAL '10' SECOND))
GROUP BY window_start, window_end;
"""
    harness = Harness(script, spark, tmp_path)
    harness.push("views", [{"n": 1, "at": datetime(1970, 1, 1, 0, 0, 5)}])
    harness.watermark("views", 0)
    assert harness.advance() == []
    harness.push("views", [{"n": 1, "at": datetime(1970, 1, 1, 0, 0, second)} for second in (6, 7)])
    if epochs == 2:
        assert harness.advance() == []
    harness.end_of_snapshot("views")
    assert [row["n"] for row in harness.advance()] == [3]
    assert {row.counts["dropped:late"] for row in harness.lake.staged.rows("insert counted")} == {0}
    (checked,) = reconcile_all(harness.lake, harness.pipeline)
    assert checked.problems == ()
