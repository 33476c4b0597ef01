"""`Pipeline`: what a script and the functions of a Python program come to; and the joins of its INSERTs as far as they
compare plain columns, by which a row without a match is explained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidegate.pipelines.sql.model import CompiledScript, Insert, Join
from tidegate.pipelines.syntax.types import quoted


@dataclass(frozen=True)
class Pipeline(CompiledScript):
    """A compiled script, to which process functions can be added."""

    def process(
        self,
        name: str | Sequence[str],
        inputs: Any,
        key: Any,
        function: Any,
        schema: Any = None,
        *,
        options: Mapping[str, str] | None = None,
        buckets: int = 64,
    ) -> Pipeline:
        """This pipeline, with a process function (FLIP-499) whose output is a target as those of INSERTs are.

        Args:
            name: Of the output's table; two for a function with two outputs.
            inputs: A table, or several in the function's order. `(table, generator)` gives the table's event time by
                a generator that `EventTimeExtension` has built.
            key: The columns that make the key, the same of every input, or a mapping by table; None for none.
            function: A plain process function, or a wrapped event-time one.
            schema: The output's columns, as in a CREATE TABLE or name -> type; None where the script declares it. Two
                for two outputs.
            options: WITH options of an output whose schema is given; a Delta table otherwise.
            buckets: Into how many parts the keys are put; it stays what it was when the process first ran.

        Raises PlanningError, SqlError.
        """
        from tidegate.pipelines.sql.processes import with_process

        return with_process(self, name, inputs, key, function, schema, options=options, buckets=buckets)


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
