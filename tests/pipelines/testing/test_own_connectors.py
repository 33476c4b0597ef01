"""Tidegate's own connectors pass what it asks of every connector (docs/connectors.md)."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tidegate.pipelines.sources import datagen, delta, filesystem, hybrid, scripted
from tidegate.pipelines.sources.scripted import ScriptedInput
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.testing import connector_tests
from tidegate.pipelines.watermarks import MIN_TIMESTAMP

pytestmark = pytest.mark.usefixtures("spark", "files_root")


TestDatagen = connector_tests(
    datagen.CONNECTOR,
    "CREATE TABLE t (id INT, at TIMESTAMP(3)) WITH ('connector' = 'datagen', 'rows-per-second' = '3')",
)


def files(arrival: int, directory: Path) -> None:
    """Two files an arrival, finished long ago."""
    for number in (1, 2):
        path = directory / f"{arrival}-{number}.json"
        path.write_text("".join(json.dumps({"id": id_, "name": path.name}) + "\n" for id_ in range(number)))
        os.utime(path, (1_700_000_000 + arrival, 1_700_000_000 + arrival))


TestFilesystem = connector_tests(
    filesystem.CONNECTOR,
    "CREATE TABLE t (id INT, name STRING) WITH ('connector' = 'filesystem', 'path' = '{directory}', 'format' = 'json')",
    files,
)


def delta_table(directory: Path) -> str:
    """A Delta table without rows."""
    write_deltalake(str(directory), pa.table({"id": pa.array([], pa.int32()), "name": pa.array([], pa.string())}))
    return f"CREATE TABLE t (id INT, name STRING) WITH ('connector' = 'delta', 'path' = '{directory}')"


def commits(arrival: int, directory: Path) -> None:
    for number in (1, 2):
        rows = {"id": pa.array(range(number), pa.int32()), "name": [f"{arrival}-{number}"] * number}
        write_deltalake(str(directory), pa.table(rows), mode="append")


TestDelta = pytest.mark.thorough(connector_tests(delta.CONNECTOR, delta_table, commits))


SCRIPTED = "CREATE TABLE t (id INT PRIMARY KEY NOT ENFORCED, name STRING) WITH ('connector' = 'scripted'{more})"


def pushed(arrival: int, scratch: Path) -> None:
    """Rows of both phases, with the end of the first between them."""
    own = ScriptedInput(scratch, compile_script(SCRIPTED.format(more="")).table("t"))
    own.rows([{"id": arrival, "name": "new"}, {"id": 7}], "+I")
    if arrival == 1:
        own.watermark(MIN_TIMESTAMP, True)
    own.rows([{"id": 7, "name": f"changed {arrival}"}], "+U")


PHASES = ", 'phases' = 'true', 'signals' = 'true'"
TestScripted = connector_tests(scripted.CONNECTOR, SCRIPTED.format(more=PHASES), pushed)


def parts(directory: Path) -> str:
    """A folder of files, then rows that are made."""
    return f"""
    CREATE TABLE old (id INT, name STRING) WITH ('connector' = 'filesystem', 'path' = '{directory}', 'format' = 'json');
    CREATE TABLE live (id INT, name STRING) WITH ('connector' = 'datagen', 'rows-per-second' = '3');
    CREATE TABLE t (id INT, name STRING) WITH ('connector' = 'hybrid', 'hybrid.sources' = 'old, live');
    """


TestHybrid = pytest.mark.thorough(connector_tests(hybrid.CONNECTOR, parts, files))
