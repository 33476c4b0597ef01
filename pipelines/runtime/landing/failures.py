"""What fails while an epoch's rows are read, told with the table, the expression, the step and the state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pipelines.errors import SourceError, TidegateError
from pipelines.functions.failures import failure
from pipelines.runtime.failures import ENGINE, first_line
from pipelines.runtime.landing.expressions import failed_expression
from pipelines.runtime.landing.source_table import SourceTable
from pipelines.sources.protocol import ExplainsFailures, Source, StoredStep
from pipelines.watermarks import WatermarkError

_UNREAD = "the epoch is planned, none of its rows are committed; epochs before it stand"
UNLOGGED = "the epoch's rows are committed and its watermark is not, so nothing reads them yet"


def place(stored: StoredStep) -> str:
    """Which step it is, for people."""
    return f"generation {stored.generation}, epoch {stored.epoch}: {stored.step.summary}"


@contextmanager
def reading(own: SourceTable, source: Source, stored: StoredStep, watermark: str | None) -> Iterator[None]:
    """Raise what watermarks, Spark, Delta Lake and the disk throw as what it means for the step. `watermark`: the Spark
    SQL that the table's strategy evaluates."""
    try:
        yield
    except WatermarkError as error:
        raise SourceError(
            f"{own.name}: {error.what}",
            where=place(stored),
            state=UNLOGGED if own.holds(stored) else _UNREAD,
            next_command=f"{error.next_command}; then run the same command again: it goes on at this epoch",
        ) from error
    except TidegateError:
        raise
    except ENGINE as error:
        raise _explained(error, own, source, stored, watermark) from error


def _explained(
    error: BaseException, own: SourceTable, source: Source, stored: StoredStep, watermark: str | None
) -> TidegateError:
    what, where, mend = first_line(error), place(stored), "mend the cause"
    told, failed = failure(error), failed_expression(error, own.table, watermark)
    if told is not None:
        what, mend = told, "mend the function"
    elif failed is not None:
        what, where = f"{failed.name} failed: {what}", f"{failed.sql}; {where}"
        mend = "mend the expression (TRY_CAST gives NULL where CAST fails), or the source's row"
    elif isinstance(source, ExplainsFailures) and (explained := source.explain(error, stored)) is not None:
        return explained
    return SourceError(
        f"{own.name}: {what}",
        where=where,
        state=UNLOGGED if own.holds(stored) else _UNREAD,
        next_command=f"{mend}, then run the same command again: it goes on at this epoch",
    )
