"""What engines and the disk throw, told as errors are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import NoReturn

import pytest
from deltalake.exceptions import CommitFailedError, DeltaError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from tidegate.pipelines.errors import TidegateError
from tidegate.pipelines.runtime.failures import StepFailed, engine_lost, explained, first_line


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(28, "No space left on device"), "[Errno 28] No space left on device"),
        (DeltaError("Generic error\n  while copying\n  No space left"), "Generic error while copying No space left"),
        (RuntimeError("Job aborted.\n\tat a.b\njava.io.IOException: full\n\tat c.d"), "java.io.IOException: full"),
        (RuntimeError(""), "RuntimeError"),
    ],
)
def test_the_line_that_tells_the_cause(error: Exception, says: str) -> None:
    assert first_line(error) == says


@pytest.mark.parametrize("thrown", [OSError(28, "No space left on device"), CommitFailedError("No space left on it")])
def test_it_names_the_owner_the_place_and_the_state(thrown: Exception) -> None:
    with pytest.raises(StepFailed) as failed, explained("enriched", "generation 1, epoch 2", "it is planned"):
        raise thrown
    error = failed.value
    assert error.what.startswith("enriched: ")
    assert "No space left" in error.what
    assert (error.where, error.state) == ("generation 1, epoch 2", "it is planned")
    assert "goes on at this epoch" in error.next_command
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
