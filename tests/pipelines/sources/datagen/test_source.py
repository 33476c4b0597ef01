import datetime as dt

import pytest
from pyspark.sql.types import StructType

from tests.pipelines.sources.sources_help import Bench, table
from tidegate.pipelines.connectors.protocol import Landed, Source, SourcePosition, Unread
from tidegate.pipelines.connectors.spec import SOURCE_COLUMNS
from tidegate.pipelines.connectors.table import Column
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.sources.datagen import CONNECTOR
from tidegate.pipelines.sources.datagen import source as datagen

START = 1_767_225_600_000
COLUMNS = {"user_id": "INT", "item_id": "INT"}
SPLITS = frozenset({"0"})
PROCTIME = Column("proctime", "TIMESTAMP_LTZ(3)", "TIMESTAMP", expression="_instant", proctime=True)


def bench(columns=COLUMNS, *, role="probe", **options) -> Bench:
    named = {name.replace("__", ".").replace("_", "-"): value for name, value in options.items()}
    return Bench(CONNECTOR, table(columns, "datagen", named, role=role, more=[PROCTIME]), "", now=START)


def spans(done: Bench) -> list[tuple[int, int, bool]]:
    return [(stored.step.ranges["from"], stored.step.ranges["to"], stored.step.flips) for stored in done.steps]


def test_rows_become_due_at_a_rate():
    run = bench(rows_per_second="10")
    source = run.source()
    assert isinstance(source, Source)
    assert not source.delegate_watermark_periodic_emit(lambda: None)
    source.preflight(SourcePosition())
    run.plan()
    assert run.plan() is None
    run.now += 1550
    run.plan()
    assert run.plan() is None
    run.now += 50
    run.plan()
    assert spans(run) == [(0, 0, False), (0, 15, True), (15, 16, False)]
    assert [stored.step.summary for stored in run.steps] == ["no row is due yet", "rows 1-15", "rows 16-16"]


def test_rows_that_are_due_at_the_start_flip_the_table():
    run = bench(rows_per_second="10", rows_at_start="500", number_of_rows="510")
    run.plan()
    run.now += 10_000
    run.plan()
    assert run.plan() is None
    assert spans(run) == [(0, 500, True), (500, 510, False)]
    assert run.steps[1].step.summary == "rows 501-510 of 510"


def test_what_is_due_and_not_made_is_counted_without_making_it():
    run = bench(rows_per_second="10", number_of_rows="30")
    assert run.source().unread(run.position) is None, "nothing is planned yet"
    run.now += 1000
    run.plan()
    assert run.source().unread(run.position) == Unread()
    run.now += 1550
    base = run.steps[0].step.ranges["base"]
    done = run.steps[-1].step.ranges["to"]
    found = run.source().unread(run.position)
    assert found == Unread(15, "row", base + done * 100)
    run.now += 60_000
    run.plan()
    run.plan()
    assert run.source().unread(run.position) == Unread(), "all that there will ever be"


def test_the_flip_is_at_the_ends_as_of_the_first_plan_however_late_it_is(monkeypatch):
    monkeypatch.setattr(datagen, "MAX_STEP_ROWS", 40)
    run = bench(rows_per_second="10", rows_at_start="100")
    run.plan()
    run.now += 60_000
    while run.plan():
        pass
    assert spans(run)[:4] == [(0, 40, False), (40, 80, False), (80, 100, True), (100, 140, False)]
    assert spans(run)[-1] == (660, 700, False)


def test_a_table_without_rows_flips():
    run = bench(number_of_rows="0")
    run.plan()
    run.now += 1000
    assert run.plan() is None
    assert spans(run) == [(0, 0, True)]
    assert run.steps[0].step.summary == "all of 0 rows"


def test_the_shortest_sequence_ends_the_table():
    options = {"fields.user_id.kind": "sequence", "fields.user_id.start": "11", "fields.user_id.end": "15"}
    run = Bench(CONNECTOR, table(COLUMNS, "datagen", {**options, "number-of-rows": "9"}), "", now=START)
    run.plan()
    run.now += 1000
    run.plan()
    assert run.plan() is None
    assert spans(run) == [(0, 0, False), (0, 5, True)]


def test_a_run_stops_at_the_ends_that_it_took():
    run = bench(rows_per_second="10")
    run.plan()
    run.now += 1000
    ends = run.source().ends(run.position)
    run.now += 1000
    run.plan(ends)
    assert run.plan(ends) is None
    assert spans(run)[1:] == [(0, 10, True)]


def test_a_clock_that_goes_back_brings_no_rows_and_takes_none():
    run = bench(rows_per_second="10", rows_at_start="5")
    run.plan()
    run.now -= 1000
    assert run.plan() is None


def landed(run: Bench, number: int) -> Landed:
    return run.source().landed(run.steps[number], None)


def test_landed_has_how_far_behind_the_step_was():
    run = bench(rows_per_second="10", number_of_rows="20")
    run.plan()
    run.now += 1000
    run.plan()
    assert landed(run, 1) == Landed(0, "row 10", splits=SPLITS)
    run.now += 550
    assert landed(run, 1) == Landed(550, "row 10", splits=SPLITS)
    run.plan()
    run.now += 5000
    run.plan()
    assert landed(run, 3) == Landed(0, "row 20", splits=SPLITS, ended=SPLITS)


def test_a_step_has_as_many_rows_as_the_runtime_allows():
    run = bench(rows_at_start="100")
    run.max_rows = 30
    step = run.plan({"at": START})
    assert step is not None
    assert (step.ranges["from"], step.ranges["to"], step.flips) == (0, 30, False)


@pytest.mark.parametrize(("role", "op"), [("probe", "+I"), ("build", "c")])
def test_read(spark, role, op):
    options = {"fields.user_id.min": "0", "fields.user_id.max": "9", "rows-per-second": "4", "rows-at-start": "1"}
    run = Bench(CONNECTOR, table(COLUMNS, "datagen", options, role=role, more=[PROCTIME]), "", now=START)
    run.plan()
    run.now += 1000
    run.plan()
    frame = run.source().read(spark, run.steps[1])
    assert set(frame.columns) == {*SOURCE_COLUMNS, *COLUMNS}
    types = {name: frame.schema[name].dataType for name in SOURCE_COLUMNS}
    ddl = ", ".join(f"{name} {spark_type}" for name, spark_type in SOURCE_COLUMNS.items())
    assert types == {field.name: field.dataType for field in StructType.fromDDL(ddl)}
    rows = frame.orderBy("_offset").collect()
    assert [(row["_op"], row["_split"], row["_offset"]) for row in rows] == [(op, "0", n) for n in (1, 2, 3, 4)]
    start = dt.datetime(2026, 1, 1)
    assert [row["_rowtime"].replace(tzinfo=None) for row in rows] == [
        start + n * dt.timedelta(seconds=0.25) for n in range(4)
    ]
    assert [tuple(row["_seq"]) for row in rows] == [(1, 0, 0, n, 0) for n in (1, 2, 3, 4)]
    assert all(0 <= row["user_id"] <= 9 for row in rows)
    assert rows == run.source().read(spark, run.steps[1]).orderBy("_offset").collect()


def test_a_large_step_is_read_by_several_tasks(spark):
    run = bench(rows_at_start="1000000")
    run.plan()
    frame = run.source().read(spark, run.steps[0])
    assert frame.rdd.getNumPartitions() > 1
    assert frame.count() == 1_000_000


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rows-per-second": "0"}, "'rows-per-second' is at least 1, not 0"),
        ({"number-of-rows": "-1"}, "'number-of-rows' is at least 0"),
        ({"rows-at-start": "-1"}, "'rows-at-start' is at least 0"),
        ({"seed": str(-(2**63) - 1)}, "'seed' is at least -9223372036854775808"),
        ({"fields.user_id.min": "a"}, "'fields.user_id.min' is no number"),
        ({"fields.user.min": "1"}, "no field user that could be generated; did you mean user_id?"),
        ({"fields.proctime.null-rate": "1"}, "no field proctime that could be generated"),
    ],
)
def test_wrong_options_are_refused_at_planning(options, words):
    wrong = table(COLUMNS, "datagen", options, more=[PROCTIME])
    assert any(words in error for error in CONNECTOR.spec.check(wrong))


def test_right_options_are_no_error():
    nested = {"user_id": "INT", "address": "ROW<`street` STRING>"}
    options = {"fields.user_id.min": "0", "fields.address.street.length": "5", "rows-per-second": "1"}
    assert list(CONNECTOR.spec.check(table(nested, "datagen", options))) == []


def test_what_an_environment_variable_says_is_checked_when_it_is_known():
    late = table(COLUMNS, "datagen", {"rows-per-second": "1", "fields.user_id.min": "${LEAST}"})
    assert list(CONNECTOR.spec.check(late)) == []
    late_rate = table(COLUMNS, "datagen", {"rows-per-second": "${RATE}"})
    assert list(CONNECTOR.spec.check(late_rate)) == []
    resolved = late_rate.options.resolve({"RATE": "0"})
    run = Bench(CONNECTOR, table(COLUMNS, "datagen", resolved), "")
    with pytest.raises(PlanningError, match="'rows-per-second' is at least 1, not 0"):
        run.source()
