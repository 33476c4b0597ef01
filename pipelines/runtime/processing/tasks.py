"""What the tasks of an epoch are told: the function, what it reads and gives, and where its state is."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.process.engine.rows import InputShape
from tidegate.pipelines.process.engine.task import TaskPlan
from tidegate.pipelines.runtime.processing.columns import input_columns, output_schema, output_types
from tidegate.pipelines.runtime.processing.inputs import EpochInputs
from tidegate.pipelines.runtime.processing.state import StateBefore
from tidegate.pipelines.runtime.processing.tables import ProcessTables

PER_TASK = 200_000
"""About how many rows a task of an epoch takes."""


def task_plan(inputs: EpochInputs, state: StateBefore, folder: Path) -> TaskPlan:
    """The plan of an epoch's tasks, which write their state into `folder`.

    Raises PlanningError where the function cannot be sent to them.
    """
    tables, plan, steps = inputs.tables, inputs.plan, inputs.found.steps
    spec, span = tables.spec, plan.process
    return TaskPlan(
        function=_pickled(spec.function, plan.insert),
        path=tuple(entry or os.getcwd() for entry in sys.path),
        steps=steps,
        inputs=tuple(_shape(tables, place) for place in range(len(spec.inputs))),
        keys=len(tables.state.keys),
        outputs=tuple(map(output_schema, tables.given)),
        columns=tables.state,
        groups=state.groups(),
        due=state.due(steps.end),
        tasks=max(1, min(spec.buckets, (span.rows + state.living) // PER_TASK + 1)),
        folder=str(folder),
        generation=plan.generation,
        epoch=plan.epoch,
        rewrite=span.rewrite,
        broadcast=inputs.broadcast(),
        keyed=bool(spec.inputs[0].key),
        types=() if spec.windowed else tuple(map(output_types, tables.targets)),
    )


def _shape(tables: ProcessTables, place: int) -> InputShape:
    pipeline, spec = tables.on_lake.pipeline, tables.spec
    columns = input_columns(pipeline, spec, place)
    generators = [] if spec.windowed else pipeline.generators(spec.inputs[place].table)
    extractor = _pickled(generators[0].extractor, tables.on_lake.insert.id) if generators else None
    return InputShape(tuple(columns), extractor)


def _pickled(function: Any, insert: str) -> bytes:
    try:
        return cloudpickle.dumps(function)
    except Exception as error:  # whatever its attributes raise when they are pickled
        raise PlanningError(
            f"the function of {insert} cannot be sent to a worker: {type(error).__name__}: {error}",
            where=f"process {insert}",
            state="the epoch is planned and not staged",
            next_command="keep connections and files out of its attributes: make them in open()",
        ) from error
