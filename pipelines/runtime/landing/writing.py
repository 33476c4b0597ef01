"""Writing the rows of a planned step into its table: first as files that no commit names, then added by one commit.

Who writes them is up to the driver of the advance. Spark writes a step that lands alone, which is faster for millions
of rows. The tasks of one Spark job write the steps of one tick (`together`), which is faster for few.

What a source could not read as rows is stored in the table's quarantine (`Rejected`). An epoch's rows are written
first, which counts the rejected ones. If there are any, the step is read once more and they are committed, before the
rows are. A rerun of the epoch finds them there, so that rows and rejected add up to all that was read.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache, reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tidegate.pipelines.connectors.protocol import ReadsAlone, Source, StoredStep, WritesFiles
from tidegate.pipelines.connectors.registry import connector, only_grows
from tidegate.pipelines.connectors.spec import REJECTED
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.frames import settings
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.lake.adopt import adopt, footers_of, survey, surveyed, synced
from tidegate.pipelines.lake.delta_log import committed
from tidegate.pipelines.lake.records import StagedFile
from tidegate.pipelines.lake.stream import Generation
from tidegate.pipelines.location import Location
from tidegate.pipelines.parquet import BatchWriter
from tidegate.pipelines.runtime import faults
from tidegate.pipelines.runtime.landing.computed import committed_rows, computed, plan_instant, stored_as_delivered
from tidegate.pipelines.runtime.landing.failures import NOT_AN_INSERT
from tidegate.pipelines.runtime.watermark_log import EpochTime
from tidegate.pipelines.runtime.watermark_log.builtin import Tally, ends_of_files, ends_of_rows, merged
from tidegate.pipelines.sources.arrow_types import arrow_type
from tidegate.pipelines.syntax.types import spark_string

COLUMNS = {
    **lake_rows.LAKE_COLUMNS,
    "_reason": "STRING",
    "_key": "BINARY",
    "_value": "BINARY",
    "_headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}
"""Columns of the quarantine: where the rejected data was found, why it is no row, and its bytes. `_op` is null."""


@dataclass
class Rejected:
    """The rejected part of one epoch of `table`."""

    lake: Lake
    table: Table
    step: StoredStep
    observed: Observation | None = None

    @property
    def path(self) -> Location:
        return self.lake.rejected_path(self.table.name)

    @property
    def application(self) -> str:
        return self.lake.application(self.table.name, "rejected", self.step.generation)

    def apart(self, rows: DataFrame) -> DataFrame:
        """The rows of `Source.read` without the rejected ones, which are counted in passing."""
        if REJECTED not in rows.columns:
            return rows
        self.observed = observed = Observation(f"rejected {self.table.name} {self.step.generation} {self.step.epoch}")
        counted = rows.observe(observed, F.expr(f"count_if({REJECTED} IS NOT NULL) AS rejected"))
        return counted.where(f"{REJECTED} IS NULL").drop(REJECTED)

    def keep(self, again: Callable[[], DataFrame]) -> int | None:
        """Store what is rejected; returns how many, None for none. `again` reads the step once more.

        Called when the epoch's rows are written and before they are committed.
        """
        if self.observed is None:
            return None
        number = int(self.observed.get["rejected"])
        if number and committed(self.path, self.application) < self.step.epoch:
            lake_rows.ensure_table(self.path, COLUMNS, f"the quarantine of {self.table.name}")
            named = [f"{REJECTED}.{name[1:]} AS {name}" for name in COLUMNS if name not in lake_rows.LAKE_COLUMNS]
            found = again().where(f"{REJECTED} IS NOT NULL")
            found = found.selectExpr("CAST(NULL AS STRING) AS _op", "_seq", "_rowtime", "_split", "_offset", *named)
            generation, epoch = self.step.generation, self.step.epoch
            lake_rows.append(found, self.path, application=self.application, generation=generation, epoch=epoch)
        return number or None

    def quarantined(self, spark: SparkSession) -> int | None:
        """How many were rejected, by the quarantine's own rows: for an epoch whose rows an earlier run has
        committed."""
        if committed(self.path, self.application) < self.step.epoch:
            return None
        epoch = self.step.epoch
        return lake_rows.between(spark, self.path, self.step.generation, epoch - 1, epoch).count()


TALLY = ("count(1) AS rows", "count_if(_op = 't') AS truncates")
"""What is counted while an epoch is appended. If a crash has lost the count, its committed rows are counted."""

_INSERTED = (
    "CASE WHEN _op IN ('c', 'r', '+I') THEN '+I' "
    f"ELSE CAST(raise_error(concat({spark_string(NOT_AN_INSERT)}, coalesce(_op, 'NULL'))) AS STRING) END"
)
"""What a build side that is a probe, too, stores of a row: as a version it is an insert, as is each row of a probe."""

_LIKE_A_PROBE = "IF(_op IN ('c', 'r'), '+I', _op)"
"""What a build side stores of a row whose table, by its connector, only grows: so it may serve as a probe later."""

TAGS = ("_generation", "_epoch")
"""Stored columns that the lake adds."""

AT_ONCE = {"spark.sql.adaptive.enabled": "false", "spark.sql.execution.arrow.maxRecordsPerBatch": "65536"}
"""Settings for the job of a tick. It has no shuffle, so adaptive planning would only cost time."""


@dataclass(frozen=True)
class Counted:
    """What was counted of an epoch's rows: `tally` by name, with `rows` and `truncates`; how many were `rejected`, None
    for none; and the `files` that they were written to just now, None where an earlier run has."""

    tally: Mapping[str, Any]
    rejected: int | None = None
    files: Sequence[Location] | None = None

    @property
    def rows(self) -> int:
        return int(self.tally["rows"])


@dataclass(frozen=True)
class Written:
    """Files of an epoch in a folder of the table that no commit names yet."""

    folder: Location
    files: Sequence[StagedFile]
    counted: Counted


Writing = Callable[[], Written]
"""Writes a step's rows, or returns what was written before; raises what the engine raises."""


@dataclass(frozen=True)
class EpochWriter:
    """Commits the rows of one step of one table. `time` defines what to count of them; `aligned`: the plans of the next
    tables depend on what of this one has landed."""

    own: Generation
    table: Table
    stored: StoredStep
    time: EpochTime
    spark: SparkSession
    source: Source
    aligned: bool = False

    def commit(self) -> Generator[EpochWriter, Writing, Counted]:
        """Commit the step's rows, unless an earlier run has; returns what was counted of them. A generator: if Spark
        has to read the rows, it yields itself, and is sent how they are written."""
        if self.own.committed >= self.stored.epoch:
            return self._counted_again()
        written = self._by_source()
        if written is None:
            writing = yield self
            written = writing()
        faults.point("source.written", self.table.name)
        adopt(self.own.path, written.folder, written.files, application=self._application, epoch=self.stored.epoch)
        faults.point("source.appended", self.table.name)
        return replace(written.counted, files=[written.folder / file.path for file in written.files])

    @property
    def alone(self) -> bool:
        """Whether a job of its own must write the rows: of a first read, which may be of any size, and where the next
        table's plan depends on what has landed of this one."""
        phases = connector(self.table.connector).spec.phases(self.table.options)
        if self.aligned or self.stored.epoch == 1 or (phases and self.stored.step.phase == "bounded"):
            return True
        return isinstance(self.source, ReadsAlone) and self.source.reads_alone(self.stored)

    @property
    def _application(self) -> str:
        return self.own.application("data")

    def _folder(self) -> Location:
        generation, epoch = self.stored.generation, self.stored.epoch
        return lake_rows.folder_of(self.own.path, application=self._application, generation=generation, epoch=epoch)

    @cached_property
    def _types(self) -> dict[str, str]:
        return lake_rows.stored_columns(self.table)

    @cached_property
    def _rejected(self) -> Rejected:
        return Rejected(self.own.stream.lake, self.table, self.stored)

    def _read(self) -> DataFrame:
        """The step's rows as the lake stores them, without rejected ones and with computed columns. Where the source
        gives all columns as they are stored, there may be more of them, in another order."""
        rows = self._rejected.apart(self.source.read(self.spark, self.stored))
        if self.table.also_probe:
            rows = rows.withColumn("_op", F.expr(_INSERTED))
        elif self.table.role == "build" and only_grows(self.table):
            rows = rows.withColumn("_op", F.expr(_LIKE_A_PROBE))
        if stored_as_delivered(self.table) and self.table.watermark is None:
            given = {field.name: field.dataType.simpleString() for field in rows.schema}
            stored = _spelled(lake_rows.ddl(self._types))
            if given.items() >= {name: kind for name, kind in stored.items() if name not in TAGS}.items():
                return rows
        return computed(rows, self.table, self.stored)

    def _quarantined(self) -> int | None:
        return self._rejected.keep(lambda: self.source.read(self.spark, self.stored))

    def by_spark(self) -> Written:
        """Written by Spark, in a job of their own, and counted on the way."""
        generation, epoch = self.stored.generation, self.stored.epoch
        observed = Observation(f"landed {self.table.name} {generation} {epoch}")
        rows = self._read()
        seen, counts = self.time.counted(rows.withColumn("_instant", plan_instant(self.stored)))
        seen = seen.observe(observed, *map(F.expr, TALLY), *counts)
        seen = seen.select(*(lake_rows.quoted(name) for name in self._types if name not in TAGS))
        folder = lake_rows.write(seen, self.own.path, application=self._application, generation=generation, epoch=epoch)
        footers = footers_of(folder)
        tally = {**observed.get, **ends_of_files(list(footers.values()))}
        return Written(folder, synced(folder, surveyed(folder, footers)), Counted(tally, self._quarantined()))

    def by_tasks(self, number: int) -> tuple[Location, DataFrame]:
        """The folder in which tasks write them, and the frame of what each task reports, with `number`."""
        rows, folder = self._read(), self._folder()
        if "_instant" in (self.time.expression or ""):
            rows = self.time.valued(rows.withColumn("_instant", plan_instant(self.stored))).drop("_instant")
        else:
            rows = self.time.valued(rows)
        types = {name: arrow_type(kind) for name, kind in self._types.items()}
        task = TaskWriter(str(folder), self.stored.generation, self.stored.epoch, types, self.time.tally)

        def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield pa.RecordBatch.from_pydict({"table": pa.array([number], pa.int32()), "report": [task.write(batches)]})

        return folder, rows.mapInArrow(write, "table INT, report STRING")

    def reported(self, folder: Location, found: Sequence[str]) -> Written:
        """What tasks have written, once all have reported it."""
        parts = [json.loads(text) for text in found]
        files = synced(folder, [StagedFile(**file) for part in parts for file in part["files"]])
        return Written(folder, files, Counted(merged([part["tally"] for part in parts]), self._quarantined()))

    def _by_source(self) -> Written | None:
        """The files of a step that its source writes itself. None if it does not, or if Spark has to see each row to
        compute a column or its watermark."""
        plain = stored_as_delivered(self.table) and self.time.processing_time and not self.table.also_probe
        if not plain or not isinstance(self.source, WritesFiles):
            return None
        folder = self._folder()
        folder.make()
        names: Sequence[str] | None = ()
        try:
            names = self.source.write(self.spark, self.stored, str(folder))
        finally:
            if not names:  # what other tasks had written when one failed goes too
                folder.delete_all(where_it_can=True)
        if names is None:
            return None
        files = survey(folder, names)
        return Written(folder, files, Counted({"rows": sum(file.rows for file in files), "truncates": 0}))

    def _counted_again(self) -> Counted:
        """The counts of rows that an earlier run has committed."""
        quarantined = self._rejected.quarantined(self.spark)
        rows, counts = self.time.counted(committed_rows(self.own, self.spark, self.stored))
        tally = rows.agg(*map(F.expr, TALLY), *counts, *ends_of_rows()).collect()[0].asDict()
        return Counted(tally, quarantined)


@lru_cache(maxsize=256)
def _spelled(ddl: str) -> dict[str, str]:
    """Columns of a Spark DDL, with a frame's spelling of their types."""
    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    return {field.name: field.dataType.simpleString() for field in schema}


@dataclass(frozen=True)
class TaskWriter:
    """What a task does with a step's rows: it writes them to a file in `folder`, as `types`, and counts them."""

    folder: str
    generation: int
    epoch: int
    types: Mapping[str, pa.DataType]
    tally: Tally

    def write(self, batches: Iterator[pa.RecordBatch]) -> str:
        """Write the file, if there are rows; returns it and what was counted, as JSON. Another attempt writes another
        file, so that a reported file stays as it is. Raises OSError."""
        folder, name = Location(self.folder), f"part-{uuid.uuid4().hex}.parquet"
        counts = [self.tally.of(None)]
        with BatchWriter(folder / name) as file:
            for batch in batches:
                counts.append(self.tally.of(batch))
                file.write(self._stored(batch))
        footers = footers_of(folder, [name] if file.rows else [])
        found = {**merged(counts), **ends_of_files(list(footers.values()))}
        return json.dumps({"files": [asdict(each) for each in surveyed(folder, footers)], "tally": found})

    def _stored(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        given = dict(zip(TAGS, (self.generation, self.epoch), strict=True))
        columns = [
            pa.repeat(pa.scalar(given[name], kind), batch.num_rows) if name in given else batch.column(name).cast(kind)
            for name, kind in self.types.items()
        ]
        return pa.RecordBatch.from_arrays(columns, list(self.types))


def together(writers: Sequence[EpochWriter]) -> list[Written]:
    """Write the steps of several tables by one Spark job. Raises what the engine throws; nothing is committed then."""
    spark, folders = writers[0].spark, list[Location]()
    try:
        with settings(spark, AT_ONCE):
            frames = list[DataFrame]()
            for number, writer in enumerate(writers):
                folder, frame = writer.by_tasks(number)
                folders.append(folder)
                frames.append(frame)
            reports = reduce(DataFrame.unionAll, frames).collect()  # one row a task
        found = [[row["report"] for row in reports if row["table"] == number] for number in range(len(writers))]
        return [writer.reported(folder, each) for writer, folder, each in zip(writers, folders, found, strict=True)]
    except BaseException:
        for folder in folders:  # what tasks that still run put there anew goes with dead files
            folder.delete_all(where_it_can=True)
        raise
