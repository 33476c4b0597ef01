"""One task over epochs of a process whose state is large.

`python -m tests.pipelines.process.keeping KEYS` prints the peak RSS of this process and the size of the living state in
MiB, and how many characters the function has read of it.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import cloudpickle

from tests.memory import peak_rss
from tidegate.pipelines.process import EventTimeExtension, OneInputEventTimeStreamProcessFunction, StateDeclarations
from tidegate.pipelines.process.engine.bucket import StateColumns
from tidegate.pipelines.process.engine.rows import InputShape
from tidegate.pipelines.process.engine.steps import Steps
from tidegate.pipelines.process.engine.task import KIND, REPORT, REPORTED, TaskPlan, run_task
from tidegate.pipelines.watermarks import MIN_TIMESTAMP

BUCKETS, NOTE, ADDED = 64, 4096, 4
NOTES = StateDeclarations.list_state("notes", "STRING")
COLUMNS = StateColumns(keys=(("_key_k", pa.int64()),), states=(("notes", pa.list_(pa.string())),))
OUTPUT = pa.schema([("k", pa.int64()), ("characters", pa.int64())])


class Keeps(OneInputEventTimeStreamProcessFunction):
    """Keeps every note; asked without one, it tells how much it has."""

    def uses_states(self):
        return (NOTES,)

    def process_record(self, record, output, ctx) -> None:
        notes = ctx.get_state_manager().get_state(NOTES)
        if record.note is None:
            output.collect((record.k, sum(map(len, notes.get()))))
        else:
            notes.add(record.note)


class Epochs:
    """The epochs of a process of one task, which has all keys."""

    def __init__(self, folder: Path, keys: int) -> None:
        self.folder, self.read, self._number = folder, 0, 0
        self._keys = np.array([key for bucket in range(BUCKETS) for key in range(bucket, keys, BUCKETS)])
        self._groups: dict[int, tuple[tuple[str, int], ...]] = {}
        self._function = cloudpickle.dumps(EventTimeExtension.wrap_process_function(Keeps()))

    def run(self, *, notes: bool = False, rows: bool = True, rewrite: bool = False) -> None:
        self._number += 1
        steps = Steps(MIN_TIMESTAMP, (MIN_TIMESTAMP,), self._number, (0,))
        plan = TaskPlan(
            self._function, (), steps, (InputShape(("k", "note")),), 1, (OUTPUT,), COLUMNS, self._groups, frozenset(),
            1, str(self.folder), epoch=self._number, rewrite=rewrite,
        )  # fmt: skip
        for batch in run_task(plan, 0, self._batches(notes) if rows else iter(())):
            if batch.column(KIND)[0].as_py() == REPORT:
                report = json.loads(batch.column(REPORTED)[0].as_py())
            else:
                self.read += pa.compute.sum(batch.column("_out0_1")).as_py()  # type: ignore[attr-defined]
        found = {} if rewrite else self._groups
        for place, bucket in enumerate(report["groups"]):
            found[bucket] = ((str(self.folder / report["file"]), place), *found.get(bucket, ()))
        self._groups = found

    def _batches(self, notes: bool) -> Iterator[pa.RecordBatch]:
        for start in range(0, len(self._keys), 500):
            keys = self._keys[start : start + 500]
            size = len(keys)
            text = [os.urandom(NOTE // 2).hex() for _ in range(size)] if notes else [None] * size
            columns: dict[str, Any] = {
                "_bucket": pa.array(keys % BUCKETS, pa.int32()),
                "_key0": pa.array(keys),
                "_step": pa.array(np.zeros(size, np.int32)),
                "_time": pa.nulls(size, pa.int64()),
                "_in0_0": pa.array(keys),
                "_in0_1": pa.array(text, pa.string()),
            }
            yield pa.record_batch(columns)


def main(keys: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        epochs = Epochs(Path(folder), keys)
        for _ in range(ADDED):
            epochs.run(notes=True)
        epochs.run()
        epochs.run(rows=False, rewrite=True)
        epochs.run()
    print("peak", peak_rss() >> 20, "state", keys * ADDED * NOTE >> 20, "read", epochs.read)


if __name__ == "__main__":
    main(int(sys.argv[1]))
