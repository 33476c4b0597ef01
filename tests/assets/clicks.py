"""FLIP-326's example over scripted tables: what the tests of assets and of the code location run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.copies import kept_files
from tests.pipelines.runtime.handmade import HandmadeLake
from tidegate.pipelines.lake import Layout
from tidegate.pipelines.sources.scripted import ScriptedInput
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.watermarks import MIN_TIMESTAMP

SCRIPT = """\
CREATE TABLE user_info (
    user_id INTEGER PRIMARY KEY NOT ENFORCED,
    gender STRING COMMENT 'f, m or d'
) COMMENT 'Everyone who signed up' WITH ('connector' = 'scripted', 'phases' = 'true', 'signals' = 'true');

CREATE TABLE click_event (
    user_id INTEGER,
    item_id INTEGER,
    proctime AS PROCTIME()
) WITH ('connector' = 'scripted');

CREATE TABLE enriched_click (
    user_id INTEGER,
    item_id INTEGER,
    gender STRING
) WITH ('connector' = 'scripted', 'gate.on-unmatched' = '%s');

INSERT INTO enriched_click
SELECT c.user_id, item_id, upper(gender) FROM click_event AS c
LEFT JOIN user_info FOR SYSTEM_TIME AS OF c.proctime ON c.user_id = user_info.user_id;
"""

REASON = "2 rows have no match."
"""Why the gate holds an epoch."""

Rows = Sequence[Mapping[str, Any]]


def script(on_unmatched: str = "quarantine", prefix: str = "") -> str:
    """The SQL; `on_unmatched` is what becomes of clicks of unknown users, `prefix` is put before every table."""
    text = SCRIPT % on_unmatched
    for table in ("user_info", "click_event", "enriched_click"):
        text = text.replace(table, prefix + table)
    return text


def pipeline(on_unmatched: str = "quarantine", name: str = "clicks", prefix: str = "") -> Pipeline:
    return replace(compile_script(script(on_unmatched, prefix)), name=name)


def handmade(lake: Path, prefix: str = "") -> HandmadeLake:
    """A lake of `pipeline`, which blocks what has no match; `prefix` is put before its tables' names."""
    return HandmadeLake(lake, pipeline("block", f"{prefix}clicks", prefix), watermark=None)


@contextmanager
def process_of_a_run() -> Iterator[None]:
    """Definitions are loaded as in a container that executes a run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["dagster", "api", "execute_run", "{}"])
        yield


def files(folder: Path) -> dict[str, int]:
    """What lies in a lake, but for leases and for why a run failed: path -> bytes."""
    return {str(path): path.stat().st_size for path in kept_files(folder)}


class Hand:
    """Tells the scripted tables of a lake what happens, without Spark."""

    def __init__(self, pipeline: Pipeline, lake: Path, prefix: str = "") -> None:
        self._pipeline = pipeline
        self._layout = Layout(lake)
        self._prefix = prefix

    def _input(self, table: str) -> ScriptedInput:
        name = self._prefix + table
        return ScriptedInput(self._layout.scratch(name), self._pipeline.table(name))

    def users(self, *user_ids: int) -> None:
        self._input("user_info").rows([{"user_id": number, "gender": "f"} for number in user_ids])

    def all_users_are_there(self) -> None:
        self._input("user_info").watermark(MIN_TIMESTAMP, True)

    def clicks(self, *user_ids: int) -> None:
        self._input("click_event").rows([{"user_id": number, "item_id": number * 10} for number in user_ids])

    def published(self) -> list[dict[str, Any]]:
        """The target's rows, read by delta-rs, in order of user_id."""
        path = self._layout.target_path(self._pipeline.table(f"{self._prefix}enriched_click"))
        if not DeltaTable.is_deltatable(str(path)):
            return []
        rows = DeltaTable(str(path)).to_pyarrow_table(columns=["user_id", "item_id", "gender"]).to_pylist()
        return sorted(rows, key=lambda row: row["user_id"])
