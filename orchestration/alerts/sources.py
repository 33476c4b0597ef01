"""What sources themselves report: what has not landed, and how long they keep their logs. They are asked in threads, so
that one that never answers delays nobody."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path

from tidegate.assets.watched import WatchedTable
from tidegate.orchestration.alerts.scrubbing import reason, scrub
from tidegate.orchestration.alerts.threads import work
from tidegate.pipelines.connectors.table import Table
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
ANSWER_WITHIN = "5 s"
"""The time limit for a connection, and for each answer of the server."""


def asked(
    tables: Sequence[WatchedTable], before: Mapping[str, Reported], log: logging.Logger, now: int
) -> dict[str, Reported]:
    """What each source reports, by the table's subject. One that does not answer stays as `before`."""
    known, errors = dict(before), dict[str, str]()

    def ask(table: WatchedTable) -> None:
        for question in (_unread, _retention):
            try:
                known[table.subject] = question(table, now, known.get(table.subject, Reported()))
            except Exception as error:  # noqa: BLE001 one that fails must not silence the others
                errors[table.name] = reason(error)

    ended = work([partial(ask, table) for table in tables], ASK_FOR_S, "tidegate-asks")
    late = {table.name: f"no answer within {ASK_FOR_S:g} s" for n, table in enumerate(tables) if n not in ended}
    for name, why in {**errors, **late}.items():
        log.warning(scrub(f"{name} could not be asked for what has not landed, and for its retention: {why}"))
    return {table.subject: known[table.subject] for table in tables if table.subject in known}


def _unread(table: WatchedTable, now: int, before: Reported) -> Reported:
    for lake, declared in _found(table):
        log = landed(At(lake, now, Scope()), SourceScope(table.table, table.build))
        answer = None
        if log is not None:
            answer = after(before.unread, log, unread(lake, declared, log, answer_within=ANSWER_WITHIN), now)
        return replace(before, unread=answer, connector=declared.connector)
    return Reported()


def _retention(table: WatchedTable, now: int, before: Reported) -> Reported:
    for lake, declared in _found(table):
        log = log_retention(lake, declared, answer_within=ANSWER_WITHIN)
        left, kept, position = (log.left_s, log.kept_s, log.position) if log is not None else (None, None, "")
        return Reported(before.unread, left, kept, position, declared.connector)
    return Reported()


def _found(table: WatchedTable) -> Iterator[tuple[Lake, Table]]:
    """The lake, and the table as its script declares it now; nothing where one of them is not there."""
    lake, script = Lake.found(table.lake), Path(table.script)
    if lake is not None and table.script and script.exists():
        tables = _compiled(table.script, script.stat().st_mtime_ns).tables
        if table.table in tables:
            yield lake, tables[table.table]


@lru_cache(maxsize=64)
def _compiled(script: str, changed: int) -> Pipeline:
    return load_script(Path(script))
