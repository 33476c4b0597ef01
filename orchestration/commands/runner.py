"""The runner and the Spark session of a command."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from rich.markup import escape

from tidegate.orchestration.console.bars import Bars


def runner(
    pipeline: Any,
    lake: Path,
    master: str | None,
    bars: Bars,
    label: str,
    interval: timedelta | None = None,
    spark: Callable[[], Any] | None = None,
    *,
    announced: bool = True,
) -> Any:
    """The runner that a command uses; close it to let its leases go. `announced`: a lake that it makes is said."""
    from tidegate.pipelines.lake import Lake, Layout
    from tidegate.pipelines.runtime.runner import Runner

    if announced and not (Layout(lake).root / "_control").is_there():
        bars.console.print(f"This is a new lake: {escape(str(lake))}", soft_wrap=True)
    return Runner(
        pipeline,
        Lake(lake),
        say=lambda line: bars.console.print(escape(line), soft_wrap=True),
        spark=spark or session(lake, master, bars),
        progress=bars,
        label=label,
        auto_watermark_interval=interval,
    )


def session(lake: Path, master: str | None, bars: Bars) -> Callable[[], Any]:
    """A function that returns the Spark session. The JVM's output goes into a file of the lake, not between the bars;
    into one in a new temporary folder if the lake can only be read."""
    from tidegate.pipelines.location import Location
    from tidegate.pipelines.runtime.session import start_session

    only_read = Location(lake).is_there() and not os.access(lake, os.W_OK)
    folder = Path(mkdtemp(prefix="tidegate-")) if only_read else lake / "_scratch"
    return partial(start_session, master=master, progress=bars, log=folder / "spark.log")


@contextlib.contextmanager
def session_ahead(lake: Path, master: str | None, certain: bool) -> Iterator[Callable[[Bars], Callable[[], Any]]]:
    """The same, with the session started at once, in the background, if it is `certain` to be needed or the lake is
    new. Not if jars have to be downloaded, whose progress is shown. Raises LakeError, before anything is written, for a
    lake that another Tidegate has made."""
    from tidegate.pipelines.jars import is_complete
    from tidegate.pipelines.lake import Lake

    new = Lake.found(lake) is None
    if not is_complete() or not (certain or new):
        yield partial(session, lake, master)
        return
    from tidegate.pipelines.runtime.session import SessionAhead

    with SessionAhead(master=master, log=lake / "_scratch" / "spark.log") as start:
        yield lambda bars: partial(start, bars)
