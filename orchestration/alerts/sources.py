"""What sources themselves report: what has not landed, and how long they keep their logs. They are asked in threads, so
that one that never answers delays nobody."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path

from tidegate.assets.watched import WatchedTable
from tidegate.orchestration.alerts.scrubbing import scrub
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import TidegateError
from tidegate.pipelines.facts.at import At
from tidegate.pipelines.facts.problem import Reported, Scope, SourceScope, after
from tidegate.pipelines.facts.source_problems import landed
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.runtime.opening import log_retention, unread
from tidegate.pipelines.runtime.scripts import load_script
from tidegate.pipelines.sql.compile import Pipeline

ASK_EVERY_S = 60
ASK_FOR_S = 20.0
"""How long the sources are asked in one tick, all of them together; Dagster gives up a tick after a minute."""
AT_ONCE = 8
"""How many are asked at the same time."""
ANSWER_WITHIN = "5 s"
"""The time limit for a connection, and for each answer of the server."""


def asked(
    tables: Sequence[WatchedTable], before: Mapping[str, Reported], log: logging.Logger, now: int
) -> dict[str, Reported]:
    """What each source reports, by the table's subject. One that does not answer stays as `before`."""
    found, errors = dict(before), dict[str, object]()
    waiting, end = list(tables)[::-1], time.monotonic() + ASK_FOR_S
    open_ones = {table.subject for table in tables}

    def work() -> None:
        while time.monotonic() < end and waiting:
            try:
                table = waiting.pop()
            except IndexError:
                return
            for ask in (partial(_unread, table, now), partial(_retention, table)):
                try:
                    answer = ask(found.get(table.subject, Reported()))
                    if table.subject in open_ones:
                        found[table.subject] = answer
                except Exception as error:  # noqa: BLE001 one that fails must not silence the others
                    # Only the text of these is known to hold no secret.
                    errors[table.name] = error if isinstance(error, TidegateError | OSError) else type(error).__name__
            open_ones.discard(table.subject)

    threads = [threading.Thread(target=work, name="tidegate-asks", daemon=True) for _ in tables[:AT_ONCE]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    late = [table for table in tables if table.subject in open_ones]
    open_ones.clear()  # what comes later is not taken
    errors |= {table.name: f"no answer within {ASK_FOR_S:g} s" for table in late}
    for name, why in errors.items():
        log.warning(scrub(f"{name} could not be asked for what has not landed, and for its retention: {why}"))
    return {table.subject: found[table.subject] for table in tables if table.subject in found}


def _unread(table: WatchedTable, now: int, before: Reported) -> Reported:
    lake, declared_as = Lake.found(table.lake), declared(table)
    if lake is None or declared_as is None:
        return Reported()
    source = SourceScope(table.table, table.build)
    log = landed(At(lake, now, Scope()), source)
    if log is None:
        return replace(before, unread=None, connector=declared_as.connector)
    answer = after(before.unread, log, unread(lake, declared_as, log, answer_within=ANSWER_WITHIN), now)
    return replace(before, unread=answer, connector=declared_as.connector)


def _retention(table: WatchedTable, before: Reported) -> Reported:
    lake, declared_as = Lake.found(table.lake), declared(table)
    if lake is None or declared_as is None:
        return Reported()
    log = log_retention(lake, declared_as, answer_within=ANSWER_WITHIN)
    left, kept, position = (log.left_s, log.kept_s, log.position) if log is not None else (None, None, "")
    return Reported(before.unread, left, kept, position, declared_as.connector)


def declared(watched: WatchedTable) -> Table | None:
    """The table as its script declares it now; None without a script, and if the script no longer has it."""
    if not watched.script or not Path(watched.script).exists():
        return None
    return _compiled(watched.script, Path(watched.script).stat().st_mtime_ns).tables.get(watched.table)


@lru_cache(maxsize=64)
def _compiled(script: str, changed: int) -> Pipeline:
    return load_script(Path(script))
