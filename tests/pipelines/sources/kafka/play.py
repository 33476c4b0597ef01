"""Runs tables of a topic on a lake, as a pipeline's sources, and looks at what landed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.oracle.pins import rows_of
from tidegate.pipelines.lake import WatermarkRow
from tidegate.pipelines.runtime.landing.advances import Advance
from tidegate.pipelines.testing import Harness

PROBE = """
CREATE TABLE events ({columns}) WITH ('connector' = 'kafka', {options});
CREATE TABLE kept ({kept}) WITH ('connector' = 'scripted');
INSERT INTO kept SELECT {names} FROM events;
"""

BUILD = """
CREATE TABLE users ({columns}, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = '{connector}', {options});
CREATE TABLE clicks (user_id BIGINT, item BIGINT, proctime AS PROCTIME()) WITH ('connector' = 'scripted');
CREATE TABLE joined (item BIGINT, name STRING) WITH ('connector' = 'scripted');
INSERT INTO joined SELECT c.item, u.name FROM clicks AS c
LEFT JOIN users FOR SYSTEM_TIME AS OF c.proctime AS u ON c.user_id = u.id;
"""


def options_sql(options: Mapping[str, str]) -> str:
    return ", ".join(f"'{key}' = '{value}'" for key, value in options.items())


def given(bootstrap: str, topic: str | None = None, **more: str) -> dict[str, str]:
    """Options of a table; in `more`, `__` stands for `.` and `_` for `-`."""
    named = {} if topic is None else {"topic": topic}
    own = {key.replace("__", ".").replace("_", "-"): value for key, value in more.items()}
    return {**named, "properties.bootstrap.servers": bootstrap, **own}


@dataclass(frozen=True)
class Room:
    """Pipelines of the run's broker, each on a lake of its own below `directory`."""

    spark: SparkSession
    bootstrap: str
    directory: Path

    def given(self, topic: str | None = None, **more: str) -> dict[str, str]:
        """Options of a table of this broker, see `given`."""
        return given(self.bootstrap, topic, **more)

    def play(self, script: str, folder: str = "") -> Play:
        return Play(script, self.spark, self.directory / folder)

    def probe(self, options: Mapping[str, str], folder: str = "", columns: str = "id BIGINT") -> Play:
        """A pipeline that reads one topic as the table `events`."""
        plain = [re.sub(r" (METADATA|NOT NULL).*", "", part) for part in columns.split(",\n")]
        names, kept = ", ".join(part.split()[0] for part in plain), ", ".join(plain)
        return self.play(PROBE.format(columns=columns, options=options_sql(options), kept=kept, names=names), folder)

    def build(
        self,
        options: Mapping[str, str],
        folder: str = "",
        columns: str = "id BIGINT, name STRING",
        connector: str = "upsert-kafka",
    ) -> Play:
        """A pipeline whose build side `users` is a topic."""
        return self.play(BUILD.format(columns=columns, options=options_sql(options), connector=connector), folder)


class Play:
    """One lake. The clock stands still unless it is moved."""

    def __init__(self, script: str, spark: SparkSession, directory: Path, now: int = 1_800_000_000_000) -> None:
        self.now = now
        self.spark = spark
        self.harness = Harness(script, spark, directory, clock=lambda: self.now)
        self.lake = self.harness.lake

    def advance(self, table: str = "events", **more: Any) -> Advance:
        return self.harness.runner.advance(table, **more)

    def landed(self, table: str = "events") -> list[dict[str, Any]]:
        """All landed rows, in the order of the epochs and of each split."""
        order = itemgetter("_generation", "_epoch", "_split", "_offset")
        return sorted(rows_of(str(self.lake.table_path(table))), key=order)

    def values(self, column: str = "id", table: str = "events") -> list[Any]:
        """One column of the landed rows."""
        return [row[column] for row in self.landed(table)]

    def joined(self, *users: int) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]], list[str]]:
        """A click of each of `users`, its item their number: what has landed of the build side (op, id, name), what is
        published (item, name), and why the others are in quarantine."""
        self.harness.push("clicks", [{"user_id": number, "item": number} for number in users])
        self.harness.advance()
        landed = [(row["_op"], row["id"], row["name"]) for row in self.landed("users")]
        published = sorted((row["item"], row["name"]) for row in self.harness.published("joined"))
        return landed, published, [row["_reason"] for row in self.harness.quarantined("joined")]

    def rejected(self, table: str = "events") -> list[dict[str, Any]]:
        """What the table's quarantine holds."""
        path = self.lake.rejected_path(table)
        if not Path(path).exists():
            return []
        return sorted(rows_of(str(path)), key=itemgetter("_epoch", "_split", "_offset"))

    def log(self, table: str = "events") -> list[WatermarkRow]:
        return self.lake.watermarks.rows(table)
