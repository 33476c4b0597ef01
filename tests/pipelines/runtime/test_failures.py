"""What engines and the disk throw becomes a typed error."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from deltalake.exceptions import CommitFailedError, DeltaError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from tidegate.pipelines.errors import LeaseHeld, PlanningError, SourceError, TidegateError
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.runtime.failures import StepFailed, engine_lost, explained, first_line
from tidegate.pipelines.runtime.landing.advances import Advance
from tidegate.pipelines.runtime.runner import Released, Runner
from tidegate.pipelines.sql import compile_script


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(28, "No space left on device"), "[Errno 28] No space left on device"),
        (DeltaError("Generic error\n  while copying\n  No space left"), "Generic error while copying No space left"),
        (RuntimeError("Job aborted.\n\tat a.b\njava.io.IOException: full\n\tat c.d"), "java.io.IOException: full"),
        (RuntimeError(""), "RuntimeError"),
    ],
)
def test_the_line_that_shows_the_cause(error: Exception, says: str) -> None:
    assert first_line(error) == says


@pytest.mark.parametrize("thrown", [OSError(28, "No space left on device"), CommitFailedError("No space left on it")])
def test_it_names_the_owner_the_place_and_the_state(thrown: Exception) -> None:
    with pytest.raises(StepFailed) as failed, explained("enriched", "generation 1, epoch 2", "it is planned"):
        raise thrown
    error = failed.value
    assert error.what.startswith("enriched: ")
    assert "No space left" in error.what
    assert (error.where, error.state) == ("generation 1, epoch 2", "it is planned")
    assert error.next_command.startswith("make room on the disk")
    assert error.next_command.endswith("then run the same command again: it goes on at this epoch")
    assert error.__cause__ is thrown


@pytest.mark.parametrize("thrown", [TidegateError("typed already"), ValueError("a bug")])
def test_other_errors_stay_as_they_are(thrown: Exception) -> None:
    with pytest.raises(type(thrown)) as failed, explained("enriched", "", ""):
        raise thrown
    assert failed.value is thrown


def test_an_engine_that_works_is_not_lost(spark: SparkSession) -> None:
    assert spark.sparkContext is not None
    assert not engine_lost()


def _gone() -> NoReturn:
    raise ConnectionRefusedError


@pytest.mark.parametrize(
    "context",
    [
        None,
        SimpleNamespace(_jsc=None),
        SimpleNamespace(_jsc=SimpleNamespace(sc=_gone)),
        SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: True))),
    ],
)
def test_one_that_is_stopped_or_does_not_answer_is(context: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", context)
    assert engine_lost()


# --- a run of several sources ----------------------------------------------------------------------------------------

TABLES = "".join(
    f"CREATE TABLE {name} (id INT, at TIMESTAMP(3), WATERMARK FOR at AS at) WITH ('connector' = 'scripted');\n"
    for name in ("a", "b", "c")
)
APART = f"""{TABLES}
CREATE TABLE of_a (id INT) WITH ('connector' = 'scripted');
CREATE TABLE of_b (id INT) WITH ('connector' = 'scripted');
CREATE TABLE of_c (id INT) WITH ('connector' = 'scripted');
INSERT INTO of_a SELECT id FROM a;
INSERT INTO of_b SELECT id FROM b;
INSERT INTO of_c SELECT id FROM c;
"""


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, asked: list[str], **stopped: Exception) -> None:
    """A run whose sources fail as given; what works is added to `asked`."""

    def step(result: Any) -> Any:
        def done(self: Runner, name: str, **_: object) -> Any:
            if name in stopped:
                raise stopped[name]
            asked.append(name)
            return result(name)

        return done

    monkeypatch.setattr(Runner, "advance", step(lambda name: Advance(name, 1, (), None)))
    monkeypatch.setattr(Runner, "release", step(Released))
    with Runner(compile_script(APART), Lake(folder)) as runner:
        runner.run()


def test_a_source_that_fails_stops_what_reads_it_and_the_run_fails_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost, full = SourceError("its server is gone", state="nothing of it has landed"), StepFailed("the disk is full")
    with pytest.raises(SourceError, match="its server is gone") as failed:
        run(tmp_path, monkeypatch, asked := [], a=lost, c=full)
    assert asked == ["b", "of_b"]
    assert failed.value.state == (
        "nothing of it has landed; a stopped, and what reads it; all else went on; c stopped as well: the disk is full"
    )
    assert "c stopped as well" in str(failed.value)


@pytest.mark.parametrize("error", [LeaseHeld("b", "tidegate run"), PlanningError("the script has changed")])
def test_what_is_in_the_way_of_the_whole_run_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: TidegateError
) -> None:
    with pytest.raises(type(error)):
        run(tmp_path, monkeypatch, asked := [], b=error)
    assert asked == ["a"]
