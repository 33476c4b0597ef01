"""A source's log that is about to be deleted from under the cursor: asks the source itself, now and then."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import dagster as dg

from tidegate.orchestration.alerts.incident import Incident
from tidegate.orchestration.alerts.options import AlertOptions
from tidegate.orchestration.alerts.watched import WatchedTable, last_run, opened, positions
from tidegate.orchestration.text import seconds
from tidegate.pipelines.commands import RUN, resnapshot
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.runtime.landing.asking import log_retention
from tidegate.pipelines.runtime.scripts import load_script
from tidegate.pipelines.sql.pipeline import Pipeline

ASK_EVERY_S = 60
ANSWER_WITHIN = "5 s"
"""For a connection to come about, and for each answer of the server."""
_SET_KAFKA = "kafka-configs.sh --alter --entity-type topics --entity-name TOPIC --add-config retention.ms=1209600000"
_KEEP_MORE = {"mysql-cdc": "SET GLOBAL binlog_expire_logs_seconds = 604800;"}


def passing_log(watched: WatchedTable, instance: dg.DagsterInstance, options: AlertOptions) -> Incident | None:
    """The log after the cursor of this table is gone, or will be soon. Without a script there is no address to ask at.

    Raises TidegateError where the source cannot be asked.
    """
    lake, table = opened(watched.lake), declared(watched)
    if lake is None or table is None:
        return None
    found = log_retention(lake, table, answer_within=ANSWER_WITHIN)
    if found is None or found.left_s is None or found.kept_s is None:
        return None
    if found.left_s >= found.kept_s * options.retention_left:
        return None
    gone = not found.left_s
    run = watched.commands.shown(RUN)
    again = watched.commands.shown(resnapshot(watched.table))
    return Incident(
        key=f"retention {watched.subject} {'gone' if gone else 'passing'}",
        kind="retention",
        title=f"the log that {watched.name} has not read yet is gone from the server."
        if gone
        else f"the server deletes the log that {watched.name} has not read yet in about {seconds(found.left_s * 1000)} "
        f"(it keeps {seconds(found.kept_s * 1000)}).",
        pipeline=watched.pipeline,
        said=(
            "The table cannot go on from where it is: begin a new generation; readers stay on the old one meanwhile."
            if gone
            else "Land it before, or the table has to be read anew from a snapshot.",
        ),
        positions={**positions(lake, [watched.table]), f"{watched.table}, cursor": found.position},
        run=last_run(instance, watched.pipeline, options.dagster_url, watched.key),
        next=(again,) if gone else (run, f"or let the server keep more: {_KEEP_MORE.get(table.connector, _SET_KAFKA)}"),
        replaces=f"retention {watched.subject} passing" if gone else "",
        details={"table": watched.table, "left_s": found.left_s, "kept_s": found.kept_s, "lake": watched.lake},
        subject=f"the passing log of {watched.name}",
    )


def declared(watched: WatchedTable) -> Table | None:
    """The table as its script declares it now; None without a script, and where the script has lost it."""
    if not watched.script or not Path(watched.script).exists():
        return None
    return _compiled(watched.script, Path(watched.script).stat().st_mtime_ns).tables.get(watched.table)


@lru_cache(maxsize=64)
def _compiled(script: str, changed: int) -> Pipeline:
    return load_script(Path(script))
