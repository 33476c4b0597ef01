"""Who drives advances of source tables: one alone, by Spark jobs of its own, or those of a tick by one Spark job."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack
from functools import partial

from tidegate.pipelines.errors import TidegateError
from tidegate.pipelines.runtime.failures import ENGINE, first_line
from tidegate.pipelines.runtime.landing.advances import Advance
from tidegate.pipelines.runtime.landing.writing import EpochWriter, Writing, Written, together

log = logging.getLogger(__name__)

Steps = Generator[EpochWriter, Writing, Advance]
"""`SourceRunner.steps`."""


def alone(steps: Steps, writer: EpochWriter | None = None, writing: Writing | None = None) -> Advance:
    """Drive one advance to its end. `writer`: where it has stopped; what it writes there is written as `writing` says,
    else by Spark, as all that comes after it. Raises what it raises."""
    try:
        writer = writer or next(steps)
        while True:
            writer, writing = steps.send(writing or writer.by_spark), None
    except StopIteration as ended:
        return ended.value


def one_job(advances: Iterable[tuple[str, Callable[[], Steps]]]) -> dict[str, Advance | TidegateError]:
    """Drive the advances of several tables, each a step long; their rows are written by one Spark job, but for those
    that are written alone (`EpochWriter.alone`), in their turn. What became of each: one that fails stops no other.

    Where the common job fails, each is written by a job of its own, so that the error is that of the table that failed.
    """
    done: dict[str, Advance | TidegateError] = {}
    waiting: dict[str, tuple[Steps, EpochWriter]] = {}
    with ExitStack() as begun:
        for name, begin in advances:
            try:
                steps = begin()
                begun.callback(steps.close)
                writer = next(steps)
                if writer.alone:
                    done[name] = alone(steps, writer)
                else:
                    waiting[name] = steps, writer
            except StopIteration as ended:
                done[name] = ended.value
            except TidegateError as error:
                done[name] = error
        writings = _written([writer for _, writer in waiting.values()])
        for (name, (steps, writer)), writing in zip(waiting.items(), writings, strict=True):
            try:
                done[name] = alone(steps, writer, writing)
            except TidegateError as error:
                done[name] = error
    return done


def _written(writers: list[EpochWriter]) -> list[Writing]:
    """How each of them is written: it was, unless that failed."""
    try:
        return [partial(_as_it_is, written) for written in together(writers)] if writers else []
    except (TidegateError, *ENGINE) as error:
        names = ", ".join(writer.table.name for writer in writers)
        log.warning("%s cannot be written together, so each is alone: %s", names, first_line(error))
        return [writer.by_spark for writer in writers]


def _as_it_is(written: Written) -> Written:
    return written
