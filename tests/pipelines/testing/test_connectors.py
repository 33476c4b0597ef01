"""The suite for authors of connectors: a right one passes, and for each rule there is one that breaks it."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tidegate.pipelines.connectors import registry
from tidegate.pipelines.connectors.protocol import (
    Json,
    Landed,
    Planned,
    PlanRequest,
    SourceContext,
    SourcePosition,
    Step,
    StoredStep,
)
from tidegate.pipelines.connectors.spec import ConnectorSpec, OptionSpec
from tidegate.pipelines.errors import PlanningError, SourceError
from tidegate.pipelines.testing import RuleBroken, connector_tests
from tidegate.pipelines.testing.connectors import _Case
from tidegate.pipelines.testing.rules import RULES
from tidegate.pipelines.testing.trace import Observer, Trace

DDL = "CREATE TABLE t (id BIGINT PRIMARY KEY NOT ENFORCED) WITH ('connector' = 'counted', 'password' = 'hush-hush')"
SEQ = "named_struct('phase', 0, 'log', 0, 'file', 0L, 'position', id, 'row', 0) AS _seq"


class Counted:
    """Numbers from 0 on; those that are there at first are its bounded phase."""

    def __init__(self, owner: Connector, context: SourceContext) -> None:
        self.owner, self.context = owner, context

    def preflight(self, position: SourcePosition) -> None: ...

    def ends(self, position: SourcePosition) -> Json:
        return {"to": self.owner.there}

    def plan(self, request: PlanRequest) -> Planned:
        previous = request.previous
        start, stop = previous.step.ranges["to"] if previous else 0, request.ends["to"]
        if previous and start == stop:
            return Planned()
        phase = "unbounded" if previous else "bounded"
        return Planned(Step({"from": start, "to": stop}, phase, not previous, f"to {stop}"))

    def planned(self, request: PlanRequest, ranges: Json, **more: Any) -> Planned:
        """The next step with `ranges` beside its own, and with `more`."""
        step = Counted.plan(self, request).step
        return Planned(step and replace(step, ranges={**step.ranges, **ranges}, **more))

    def read(self, spark: SparkSession, step: StoredStep) -> DataFrame:
        rows = spark.range(step.step.ranges["from"], step.step.ranges["to"], 1, 1)
        time = "CAST(NULL AS TIMESTAMP) AS _rowtime"
        return rows.selectExpr("id", "'c' AS _op", SEQ, time, "'0' AS _split", "id AS _offset")

    def landed(self, step: StoredStep, rows: DataFrame | None) -> Landed:
        if step.step.flips:
            self.emit()
        return Landed(position=f"{step.step.ranges['to']}", splits=frozenset({"0"}))

    def delegate_watermark_periodic_emit(self, on_watermark_emit: Callable[[], None]) -> bool:
        self.emit = on_watermark_emit
        return True

    def close(self) -> None: ...


@dataclass
class Connector:
    made: type[Counted] = Counted
    there: int = 0
    calls: int = field(default=0)
    spec = ConnectorSpec(
        "counted",
        (OptionSpec("password"),),
        "Numbers.",
        phases=lambda options: True,
        signals=lambda options: True,
    )

    def source(self, context: SourceContext) -> Counted:
        return self.made(self, context)

    def call(self) -> int:
        self.calls += 1
        return self.calls


def judged(made: type[Counted], tmp_path: Path, **more: Any) -> dict[str, RuleBroken]:
    """The rules that a connector breaks, by name."""
    connector = Connector(made)

    def feed(arrival: int) -> None:
        connector.there += 3

    tests = connector_tests(connector, DDL, feed, **more)
    broken = {}
    for name, test in inspect.getmembers(tests, inspect.isfunction):
        try:
            test(None, tmp_path=tmp_path)
        except RuleBroken as error:
            broken[name.removeprefix("test_")] = error
    return broken


# --- one for each rule -----------------------------------------------------------------------------------------------


class NeverEnds(Counted):
    """Plans a step though nothing is left."""

    def plan(self, request: PlanRequest) -> Planned:
        done = request.previous.step.ranges if request.previous else {}
        step = super().plan(request).step
        return Planned(step or Step({**done, "from": request.ends["to"]}, summary="nothing"))


class Needs(Counted):
    """Cannot land a step without rows."""

    def landed(self, step: StoredStep, rows: DataFrame | None) -> Landed:
        if rows is None:
            raise SourceError("no rows")
        return super().landed(step, rows)


class Cursor(Counted):
    """Counts its steps in the object."""

    number = 0

    def plan(self, request: PlanRequest) -> Planned:
        done = request.previous.step.ranges["to"] if request.previous else 0
        planned = self.planned(
            replace(request, ends={"to": min(request.ends["to"], done + 2)}), {"number": self.number + 1}
        )
        self.number += planned.step is not None
        return planned


class Tuples(Counted):
    """Its ranges come back from JSON as others."""

    def plan(self, request: PlanRequest) -> Planned:
        return self.planned(request, {"span": (1, 2)})


class Tells(Counted):
    """Stores its password."""

    def plan(self, request: PlanRequest) -> Planned:
        return self.planned(request, {"url": f"me:{self.context.options['password']}@there"})


class Narrow(Counted):
    """A column in another type."""

    def read(self, spark: SparkSession, step: StoredStep) -> DataFrame:
        return super().read(spark, step).selectExpr("CAST(id AS INT) AS id", "* EXCEPT (id)")


class Nameless(Counted):
    """Rows without the name of their split, of a kind that no build side has."""

    def read(self, spark: SparkSession, step: StoredStep) -> DataFrame:
        return super().read(spark, step).selectExpr("* EXCEPT (_split)", "IF(id = 1, NULL, '0') AS _split")


class OpenEnd(Counted):
    """Reads what is there now, and not what was planned."""

    def read(self, spark: SparkSession, step: StoredStep) -> DataFrame:
        now = {**step.step.ranges, "to": self.owner.there}
        return super().read(spark, replace(step, step=replace(step.step, ranges=now)))


class Counts(Counted):
    """What it finds after a commit depends on how often it was asked."""

    def landed(self, step: StoredStep, rows: DataFrame | None) -> Landed:
        return replace(super().landed(step, rows), position=f"call {self.owner.call()}")


class Twice(Counted):
    """Flips with every step."""

    def plan(self, request: PlanRequest) -> Planned:
        return self.planned(request, {}, flips=True)


class Never(Counted):
    """Does not say that its bounded phase is over."""

    def plan(self, request: PlanRequest) -> Planned:
        return self.planned(request, {}, flips=False)


class Again(Counted):
    """Counts its offsets from 0 in every step."""

    def read(self, spark: SparkSession, step: StoredStep) -> DataFrame:
        rows = super().read(spark, step)
        return rows.selectExpr("* EXCEPT (_offset)", f"_offset - {step.step.ranges['from']} AS _offset")


class Backwards(Counted):
    """Its order of changes goes back while its offsets go on."""

    def read(self, spark: SparkSession, step: StoredStep) -> DataFrame:
        seq = SEQ.replace("'position', id", "'position', -id")
        return super().read(spark, step).selectExpr("* EXCEPT (_seq)", seq)


BROKEN = [
    ("a_run_ends", NeverEnds, "would give more"),
    ("a_source_without_rows_works", Needs, "a step without rows stopped the run: SourceError: no rows"),
    ("a_restart_plans_the_same_step", Cursor, "'number': 1}, the one that went on unbounded {'from'"),
    ("ranges_are_json_without_secrets", Tuples, "comes back as {'from': 0, 'to': 0, 'span': [1, 2]}"),
    ("ranges_are_json_without_secrets", Tells, "`ranges` holds the value of 'password'"),
    ("rows_have_their_columns", Narrow, "id is int, not bigint"),
    ("rows_have_their_columns", Nameless, "_split of a row is NULL"),
    ("a_step_read_again_gives_equal_rows", OpenEnd, "read again after all others have landed, 3 rows are 6"),
    ("a_crash_before_the_cursor_changes_nothing", Counts, "`Landed.position` was 'call 1', and is 'call 2'"),
    ("the_flip_comes_once_and_last", Twice, "it flips a second time"),
    ("the_flip_comes_once_and_last", Never, "no step flips: whoever joins to the table waits for ever"),
    ("order_is_kept", Again, "split 0 has offset 0 after 2"),
    ("order_is_kept", Backwards, "_seq goes back from"),
]


def test_a_right_connector_breaks_no_rule(spark: SparkSession, tmp_path: Path) -> None:
    assert judged(Counted, tmp_path) == {}


def _first_of_each_rule() -> list[Any]:
    """The others of a rule in `make test-all`."""
    seen: set[str] = set()
    found = []
    for rule, made, said in BROKEN:
        marks = (pytest.mark.thorough,) if rule in seen else ()
        seen.add(rule)
        found.append(pytest.param(rule, made, said, id=made.__name__, marks=marks))
    return found


@pytest.mark.parametrize(("rule", "made", "said"), _first_of_each_rule())
def test_each_rule_finds_who_breaks_it(
    rule: str, made: type[Counted], said: str, spark: SparkSession, tmp_path: Path
) -> None:
    broken = judged(made, tmp_path, max_steps=4)
    error = broken[rule]
    assert said in error.what
    assert error.next_command == RULES[rule].remedy
    assert f"broken rule: {RULES[rule].sentence}" in str(error)
    others = {name: other for name, other in broken.items() if name != rule}
    assert all("since the run stopped" in other.what or other.__cause__ is not None for other in others.values())


def test_every_rule_has_somebody_who_breaks_it() -> None:
    assert {rule for rule, _, _ in BROKEN} == set(RULES)


def test_a_snapshot_of_a_live_table_may_be_another_one_later(spark: SparkSession, tmp_path: Path) -> None:
    class Live(Counted):
        def read(self, spark: SparkSession, step: StoredStep) -> DataFrame:
            ranges = step.step.ranges if step.step.phase == "unbounded" else {"from": 0, "to": self.owner.there}
            return super().read(spark, replace(step, step=replace(step.step, ranges=ranges)))

    assert judged(Live, tmp_path, live_snapshot=True) == {}


# --- what it needs ---------------------------------------------------------------------------------------------------


def test_fixtures_are_asked_for_by_their_names() -> None:
    def ddl(directory: Path, topics: object) -> str:
        return ""

    def feed(arrival: int, scratch: Path, topics: object, broker: object) -> None: ...

    test = vars(connector_tests(Connector(), ddl, feed))["test_order_is_kept"]
    assert list(inspect.signature(test).parameters) == ["self", "tmp_path", "topics", "broker"]
    assert test.__doc__.startswith("In a split `_offset` ascends")


def test_the_ddl_has_one_table_of_the_connector(spark: SparkSession, tmp_path: Path) -> None:
    tests: Any = connector_tests(Connector(), "CREATE TABLE t (id INT) WITH ('connector' = 'print')")
    with pytest.raises(PlanningError, match="the DDL has 0 tables of 'connector' = 'counted'"):
        tests.test_order_is_kept(None, tmp_path=tmp_path)


def test_a_connector_is_known_by_its_name_while_it_is_tested() -> None:
    own = Connector()
    with registry.given(own):
        assert "counted" in registry.names()
        with registry.given(Connector()):
            assert registry.connector("counted") is not own
        assert registry.connector("counted") is own
    assert "counted" not in registry.names()


def test_pytest_is_not_needed_to_import_it() -> None:
    code = "import sys; sys.modules['pytest'] = None; import tidegate.testing as t; t.Harness, t.connector_tests"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_no_repr_shows_a_secret() -> None:
    case = _Case(Connector(), None, None, 1, None, {"PASSWORD": "hush-hush"}, False, 1)  # type: ignore[arg-type]
    assert "hush-hush" not in repr(case)
    assert {field.name for field in fields(Trace) if not field.repr} == {"secrets"}
    assert {field.name for field in fields(Observer) if not field.repr} == {"environment"}
