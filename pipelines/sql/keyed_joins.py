"""The joins of an INSERT, as far as they compare plain columns: by them a row without a match is explained, from a
script or from what an asset's definition says of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegate.pipelines.sql.model import Insert, Join
from tidegate.pipelines.sql.pipeline import Pipeline
from tidegate.pipelines.syntax.types import quoted


@dataclass(frozen=True)
class KeyedJoin:
    """A join of an INSERT. `keys`: column of the build (its primary key, in order) -> column of the probe; empty where
    one is an expression. `types`: the Spark types of the columns that the build stores."""

    probe: str
    build: str
    alias: str
    time: str
    keys: Mapping[str, str]
    types: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class MissedKey:
    """A probe row without a match: its key (column of the build -> value), why (`key-absent@user_info`), and the
    version of that key that comes nearest, as text."""

    key: Mapping[str, Any]
    reason: str
    nearest: str


def keyed_joins(pipeline: Pipeline, insert: Insert) -> tuple[KeyedJoin, ...]:
    """The joins of an INSERT, as far as they compare plain columns."""
    return tuple(_keyed(pipeline, insert, join) for join in insert.joins)


def _keyed(pipeline: Pipeline, insert: Insert, join: Join) -> KeyedJoin:
    own = f"{quoted(insert.probe_alias)}."
    keys = {key.column: key.probe.removeprefix(own) for key in join.keys if key.probe.startswith(own)}
    plain = {column: name[1:-1].replace("``", "`") for column, name in keys.items() if quoted(name[1:-1]) == name}
    types = {column.name: column.spark_type for column in pipeline.table(join.build).stored_columns}
    whole = len(plain) == len(join.keys)
    return KeyedJoin(insert.probe, join.build, join.alias, join.time, plain if whole else {}, types if whole else {})
