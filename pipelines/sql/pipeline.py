"""`Pipeline`: what a script and the functions of a Python program come to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.pipelines.sql.model import CompiledScript


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
