"""An event-time join of two tables of the `tape` connector, for tests that kill, abort and hold back."""

from __future__ import annotations

from pathlib import Path

from tests.oracle.pins import rows_of
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.sql import Pipeline, compile_script

SCRIPT = """
CREATE TABLE rates (k BIGINT, v BIGINT, n BIGINT, at AS TO_TIMESTAMP_LTZ(n, 3), PRIMARY KEY (k) NOT ENFORCED,
    WATERMARK FOR at AS at) WITH ('connector' = 'tape'{rates});
CREATE TABLE clicks (id BIGINT, k BIGINT, n BIGINT, at AS TO_TIMESTAMP_LTZ(n, 3),
    WATERMARK FOR at AS at - INTERVAL '0.006' SECOND) WITH ('connector' = 'tape'{clicks});
CREATE TABLE joined (id BIGINT, v BIGINT) WITH ('connector' = 'delta', 'gate.on-unmatched' = 'publish');
INSERT INTO joined SELECT c.id, r.v FROM clicks AS c LEFT JOIN rates FOR SYSTEM_TIME AS OF c.at AS r ON c.k = r.k
"""


def compiled(rates: str = "", clicks: str = "") -> Pipeline:
    """The script, each table with further options: `, 'name' = 'value'`."""
    return compile_script(SCRIPT.format(rates=rates, clicks=clicks))


def published(lake: Lake, pipeline: Pipeline) -> list[tuple[int, int | None]]:
    """(id, v) of all that was published, in order."""
    path = lake.target_path(pipeline.table("joined"))
    if not Path(path / "_delta_log").exists():
        return []
    rows = rows_of(str(path))
    return sorted(((row["id"], row["v"]) for row in rows), key=lambda row: row[0])
