"""Errors while an epoch's rows are read, reported with the table, the expression, the step and the state; and which
table may not be read anew."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.errors.exceptions.base import QueryContextType

from tidegate.pipelines.commands import RESNAPSHOT, NextCommand, advice, remedy
from tidegate.pipelines.connectors.protocol import ExplainsFailures, Source, StoredStep
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import PlanningError, SourceError, TidegateError
from tidegate.pipelines.functions import failure
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.lake.stream import Generation, Stream
from tidegate.pipelines.runtime.epochs.history import newest_plans
from tidegate.pipelines.runtime.failures import AGAIN, ENGINE, first_line
from tidegate.pipelines.watermarks import WatermarkError


@dataclass(frozen=True)
class FailedExpression:
    """A table's own expression that could not be computed for some row.

    Attributes:
        name: whose it is: "computed column n", "the watermark".
        sql: what is declared, as the script has it: "n AS CAST(text AS INT)".
    """

    name: str
    sql: str


def failed_expression(error: BaseException, table: Table, watermark: str | None) -> FailedExpression | None:
    """The computed column or watermark of `table` that Spark's `error` comes from; None if it names none of them.

    `watermark` is the Spark SQL that the table's strategy evaluates. Spark's error has the text of an expression and
    the part of it that failed. Of two expressions with the same text the first is named: both fail on the same row.
    """
    declared = _declared(table, watermark)
    whole = next((failed for failed, text in declared if f" ==\n{text}\n" in str(error)), None)
    if whole is not None:
        return whole
    part = _fragment(error)
    return next((failed for failed, text in declared if part and part in text), None)


def _declared(table: Table, watermark: str | None) -> list[tuple[FailedExpression, str]]:
    found = [
        (
            FailedExpression(f"computed column {column.name}", f"{column.name} AS {column.sql or column.expression}"),
            expression,
        )
        for column in table.stored_columns
        if (expression := column.expression) is not None
    ]
    spec = table.watermark
    if watermark is not None:
        own = spec is not None and spec.expression == watermark
        sql = f"WATERMARK FOR {spec.column} AS {spec.sql or spec.expression}" if own and spec else watermark
        found.append((FailedExpression("the watermark", sql), watermark))
    return found


def _fragment(error: BaseException) -> str | None:
    if not isinstance(error, PySparkException):
        return None
    in_sql = (context for context in error.getQueryContext() if context.contextType() == QueryContextType.SQL)
    return next((context.fragment() for context in in_sql), None)


_UNREAD = "the epoch is planned, none of its rows are committed; epochs before it stand"
UNLOGGED = "the epoch's rows are committed and its watermark is not, so nothing reads them yet"


NOT_AN_INSERT = "not an insert: "
"""What Spark's error begins with, of a row that a probe cannot have; the row's op follows."""


@contextmanager
def reading(own: Generation, table: Table, source: Source, stored: StoredStep, watermark: str | None) -> Iterator[None]:
    """Turn errors of watermarks, Spark, Delta Lake and the disk into typed errors of the step. `watermark`: the Spark
    SQL that the table's strategy evaluates."""
    try:
        yield
    except WatermarkError as error:
        raise SourceError(
            f"{table.name}: {error.what}",
            where=stored.place,
            state=UNLOGGED if own.committed >= stored.epoch else _UNREAD,
            next_command=error.advice + "; then run the same command again: it goes on at this epoch",
        ) from error
    except TidegateError:
        raise
    except ENGINE as error:
        raise _explained(error, own, table, source, stored, watermark) from error


def releasing(lake: Lake, table: str) -> list[str]:
    """The INSERTs and processes of a lake that have released rows of a probe, or of an input."""
    return [plan.insert for plan in newest_plans(lake) if any(item.table == table for item in plan.takes)]


def refuse_second_release(lake: Lake, table: str) -> None:
    """Raise PlanningError if a new generation of a table would publish its rows a second time."""
    if inserts := releasing(lake, table):
        names = " and ".join(inserts)
        raise PlanningError(
            f"rows of {table} are released by {names}: a new generation begins at the first row, so they would be "
            "published a second time",
            where=f"--resnapshot {table}",
            state="nothing was changed",
            next_command=NextCommand("run", does=f"goes on where {table} stands")
            + f"; to begin anew, {_anew(table, names)}",
        )


@contextmanager
def own_way_out(lake: Lake, table: str) -> Iterator[None]:
    """Make an error's advice that of `table`: by its name, and by what the lake has of it. It is changed where it
    suggests a new generation, and that would be refused."""
    try:
        yield
    except TidegateError as error:
        error.reword(next_command=error.advice.of_table(table, lambda: not Stream(lake, table).empty))
        mend = error.advice.before(lambda command: RESNAPSHOT in command.arguments)
        if mend is not None and (inserts := releasing(lake, table)):
            error.reword(
                next_command=(mend or advice("bring back what is missing at the source"))
                + f", then run the same command again; to begin anew, {_anew(table, ' and '.join(inserts))} "
                "(a new generation would publish rows a second time)"
            )
        raise


def _anew(table: str, inserts: str) -> str:
    return f"give {table} and what {inserts} writes to new names in the script"


def _explained(
    error: BaseException, own: Generation, table: Table, source: Source, stored: StoredStep, watermark: str | None
) -> TidegateError:
    what, where, mend = first_line(error), stored.place, remedy(str(error))
    of_function, failed = failure(error), failed_expression(error, table, watermark)
    if of_function is not None:
        what, mend = of_function, "mend the function"
    elif failed is not None:
        what, where = f"{failed.name} failed: {what}", f"{failed.sql}; {where}"
        mend = "mend the expression (TRY_CAST gives NULL where CAST fails), or the source's row"
        if stored.epoch > 1:  # what has landed was declared by it
            mend = "mend the source's row (another expression needs another lake: --lake DIR)"
    elif NOT_AN_INSERT in str(error):
        what = "its source has changed or removed rows, and a table that is build side and probe at once only grows"
        names = (
            f"give {table.name} two new names in the script, one where it is joined and one where its rows are taken"
        )
        return SourceError(f"{table.name}: {what}", where=where, state=_UNREAD, next_command=names)
    elif isinstance(source, ExplainsFailures) and (explained := source.explain(error, stored)) is not None:
        return explained
    return SourceError(
        f"{table.name}: {what}",
        where=where,
        state=UNLOGGED if own.committed >= stored.epoch else _UNREAD,
        next_command=mend + f", {AGAIN}",
    )
