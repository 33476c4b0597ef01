"""Errors of Spark, Delta Lake and the disk in the middle of a step, raised as typed errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from tidegate.pipelines.commands import MEND, remedy
from tidegate.pipelines.errors import ConcurrentRun, LeaseHeld, PlanningError, TidegateError
from tidegate.pipelines.functions import failure
from tidegate.pipelines.sql.model import Insert, ProcessInsert

ENGINE = (PySparkException, Py4JError, DeltaError, OSError)
"""What the engine and the disk raise: no fault of the step's own code."""

AGAIN = "then run the same command again: it goes on at this epoch"
VALUE = "change the expression that fails (TRY_CAST gives NULL where CAST fails; WHERE leaves a row out)"
"""What to do where SQL cannot compute with a value (SQLSTATE class 22, data exception)."""
ANOTHER = "write the function that fails anew under another name and call that one, or leave the row out by WHERE"
"""What to do about a function of the script: what it gave is published, so it stays what it is."""


class StepFailed(TidegateError):
    """Spark, Delta Lake or the disk failed inside a step. What it had committed is safe, the next run finishes it."""


class Failed(dict[str, TidegateError]):
    """The tables that stopped in a run, each with the error that stopped it. With `raises`, errors are raised at
    once."""

    def __init__(self, *, raises: bool = False) -> None:
        super().__init__()
        self.raises = raises

    @contextmanager
    def taken(self, table: str) -> Iterator[None]:
        """Collect the error of the source `table` inside the block; raise one that affects the whole run."""
        try:
            yield
        except (LeaseHeld, ConcurrentRun, PlanningError):
            raise
        except TidegateError as error:
            if self.raises:
                raise
            self[table] = error

    def stops(self, insert: Insert) -> bool:
        """Whether an INSERT reads a table that stopped. If so, its outputs count as stopped too."""
        found = next((self[name] for name in insert.inputs if name in self), None)
        if found is not None and isinstance(insert, ProcessInsert):
            self.update(dict.fromkeys(insert.outputs, found))
        return found is not None

    def error(self) -> TidegateError:
        """The first failure, with a text that names all tables that stopped, and says that the others went on."""
        first, *others = dict.fromkeys(self.values())
        whys = "".join(f"; {self._names(error)} stopped as well: {error.what}" for error in others)
        before = f"{first.state}; " if first.state else ""
        first.reword(state=f"{before}{self._names(first)} stopped, and what reads it; all else went on{whys}")
        return first

    def _names(self, error: TidegateError) -> str:
        return " and ".join(name for name, stopped_by in self.items() if stopped_by is error)


@contextmanager
def explained(name: str, where: str, state: str) -> Iterator[None]:
    """Raise the errors of ENGINE as StepFailed of the table or INSERT `name`."""
    try:
        yield
    except ENGINE as error:
        of_function = failure(error)
        then = remedy(str(error), VALUE if "SQLSTATE: 22" in str(error) else MEND)
        what, then = (first_line(error), then) if of_function is None else (of_function, ANOTHER)
        raise StepFailed(f"{name}: {what}", where=where, state=state, next_command=then + f", {AGAIN}") from error


def first_line(error: BaseException) -> str:
    """The message of an engine's error, without its stack."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if isinstance(error, (DeltaError, OSError)):  # has none, and names the cause last
        return " ".join(lines)[:500]
    messages = [line for line in lines if not line.startswith(("at ", "JVM stacktrace", "Traceback", "File "))]
    cause = next((line for line in reversed(messages) if "Error:" in line or "Exception:" in line), None)
    return (cause or (messages[0] if messages else type(error).__name__))[:500]


def engine_lost() -> bool:
    """Whether the Spark engine that this process started was stopped or is gone."""
    context = SparkContext._active_spark_context
    try:
        return context is None or bool(context._jsc.sc().isStopped())  # type: ignore[union-attr]
    except (Py4JError, OSError, AttributeError):  # nobody is there to ask; a stopped context has no `_jsc`
        return True
