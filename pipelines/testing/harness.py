"""For tests, Tidegate's own and its users': a session, and a harness that drives a script by hand.

    harness = Harness(Path("pipeline.sql"), spark, tmp_path, scripted=True)
    harness.push("user_info", [{"user_id": 1, "gender": "f"}])
    harness.push("click_event", [{"user_id": 1, "item_id": 7}])
    assert harness.advance() == []                      # the build side is still loading
    harness.end_of_snapshot("user_info")
    assert [row["gender"] for row in harness.advance()] == ["f"]

Tables of `'connector' = 'scripted'` serve as sources, and as sinks; `scripted=True` puts them in the place of whatever
the script names. docs/testing.md has a whole file of tests.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from tidegate.pipelines.clock import Clock, system_clock
from tidegate.pipelines.connectors.options import FIELD_NAME, SINK_OPTIONS, SOURCE_OPTIONS, find_option
from tidegate.pipelines.connectors.registry import connector
from tidegate.pipelines.connectors.spec import OptionSpec
from tidegate.pipelines.connectors.table import Column, Options, Table
from tidegate.pipelines.errors import PlanningError, TidegateError
from tidegate.pipelines.lake import Lake, delta_log
from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.location import Location
from tidegate.pipelines.runtime.epochs import insert_owner
from tidegate.pipelines.runtime.quarantine import quarantined_by_epoch
from tidegate.pipelines.runtime.runner import Runner, RunReport
from tidegate.pipelines.runtime.session import start_session
from tidegate.pipelines.runtime.verifying.verify import VerifyReport, verify
from tidegate.pipelines.sinks.protocol import sink_of
from tidegate.pipelines.sources.scripted import CONNECTOR, ScriptedInput
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.sql.model import Insert
from tidegate.pipelines.testing.reading import by_arrow
from tidegate.pipelines.watermarks import MIN_TIMESTAMP

SMALL = {
    "spark.driver.extraJavaOptions": " ".join(
        ["-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=512m", "-XX:+UseSerialGC"]
    ),
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Settings for tests. Code that Spark generates costs more to compile than it saves on a few rows: with the expressions
interpreted too, a file of tests takes a fifth less of the processor's time.

The JVM compiles quickly rather than well. By default it then has 48 MB for compiled code: a few hundred queries fill
that, and from then on a quarter of its time goes into sweeping.
"""


def spark_session() -> SparkSession:
    """A local session with Delta on two cores; the active one if there is one.

    Made for small data and a short life: the JVM compiles quickly rather than well, and few tasks shuffle.
    """
    return start_session(master="local[2]", config=SMALL)


def _compiled(script: str | Path | Pipeline) -> Pipeline:
    from tidegate.pipelines.runtime.scripts import load_script
    from tidegate.pipelines.sql import compile_script

    if isinstance(script, Path):
        return load_script(script)
    if not isinstance(script, str):
        return script
    if "\n" not in script and script.endswith((".sql", ".py")):
        raise PlanningError(
            f"{script} is the name of a file, and a string is SQL",
            where="the harness's script",
            state="nothing was run",
            next_command=f"Harness(Path({script!r}), …)",
        )
    return compile_script(script)


class Harness:
    """Runs a script on a lake in `directory`, with sources that emit what the test gives them.

    Args:
        script: The SQL, the path of a script (.sql, .py), or a compiled Pipeline.
        spark: The session.
        directory: Where the lake and the scripted inputs lie; a second harness on it goes on where the first stopped.
        scripted: Whether all tables are the test's, whatever their connectors (see `played`): they read and write
            nothing outside of `directory` then.
        environment: What `${VARIABLE}` in options is replaced by; nothing of the process's own environment.
        clock: ms, UTC.

    Raises SqlError, and PlanningError for a path.
    """

    def __init__(
        self,
        script: str | Path | Pipeline,
        spark: SparkSession,
        directory: str | Path,
        *,
        scripted: bool = False,
        environment: Mapping[str, str] | None = None,
        clock: Clock = system_clock,
    ) -> None:
        pipeline = _compiled(script)
        self.pipeline = played(pipeline) if scripted else pipeline
        self.environment = dict(environment or {})
        self.spark = spark
        self.directory = Path(directory)
        self.clock = clock
        self.lake = Lake(self.directory / "lake")
        self.runner = self._runner()

    def _runner(self) -> Runner:
        return Runner(
            self.pipeline,
            self.lake,
            spark=lambda: self.spark,
            clock=self.clock,
            label="harness",
            environment=self.environment,
        )

    # --- input ---------------------------------------------------------------------------------------------------

    def push(self, table: str, rows: Sequence[Mapping[str, Any]] | pa.Table, op: str = "+I") -> None:
        """Append `rows`: dicts, or an Arrow table for many. `op`: +I -U +U -D. TIMESTAMP(3) is a naive UTC datetime; a
        missing key is NULL."""
        self._input(table).rows(rows if isinstance(rows, pa.Table) else [dict(row) for row in rows], op)

    def watermark(self, table: str, timestamp: int, use_processing_time: bool = False) -> None:
        """Make the table emit Watermark(timestamp in ms, use_processing_time)."""
        self._input(table).watermark(timestamp, use_processing_time)

    def idle(self, table: str) -> None:
        """Make the table idle until its next row or watermark."""
        self._input(table).idle()

    def end_of_snapshot(self, table: str) -> None:
        """End the bounded phase: Watermark(MIN, true)."""
        self.watermark(table, MIN_TIMESTAMP, use_processing_time=True)

    # --- what the pipeline does ----------------------------------------------------------------------------------

    def advance(self) -> list[dict[str, Any]]:
        """Run until nothing moves. Returns the rows published by it, in no order: the target's columns, `op`, and
        `_target` if the script has several INSERTs. Raises GateHeld when the gate holds an epoch, TidegateError for a
        time that Python cannot hold."""
        before = {insert.id: self._published(insert) for insert in self.pipeline.inserts}
        while self.run().moved:
            pass
        moved = [insert for insert in self.pipeline.inserts if self._published(insert) > before[insert.id]]
        return [row for insert in moved for row in self.published(insert.id, after=before[insert.id])]

    def run(self) -> RunReport:
        """One run, as the CLI and Dagster do it."""
        return self.runner.run()

    def restart(self) -> None:
        """Throw every object away, as if the process had been killed, and start again from the tables."""
        self.runner.leases.abandon()
        del self.runner
        gc.collect()
        self.lake = Lake(self.directory / "lake")
        self.runner = self._runner()

    def verify(self, insert: str) -> VerifyReport:
        """Recompute each published epoch of an INSERT from its pins, by other SQL than the join's; `passed` says
        whether the rows are the same."""
        return verify(self.pipeline, self.lake, lambda: self.spark, insert, environment=self.environment)

    # --- what came out -------------------------------------------------------------------------------------------

    def published(self, insert: str, after: int = 0) -> list[dict[str, Any]]:
        """The rows of an INSERT's target that were published after epoch `after`."""
        found = self.pipeline.insert(insert)
        path = self.lake.target_path(self.pipeline.table(found.target))
        return self._rows(path, found, after)

    def quarantined(self, insert: str) -> list[dict[str, Any]]:
        """The rows that the gate of an INSERT quarantined, with `_reason`; not those that were released since."""
        found = self.pipeline.insert(insert)
        path = self.lake.quarantine_path(self.pipeline.table(found.target), found)
        quarantined = quarantined_by_epoch(self.lake, self.pipeline, found)
        there = {(item.epoch, item.reason) for item in quarantined if item.state != "released"}
        rows = self._rows(path, found, extra=("_reason", "_epoch"))
        still = [row for row in rows if (row["_epoch"], row["_reason"]) in there]
        return [{name: value for name, value in row.items() if name != "_epoch"} for row in still]

    def _rows(self, path: Location, insert: Insert, after: int = 0, extra: Sequence[str] = ()) -> list[dict[str, Any]]:
        table = delta_log.opened(path) if (path / "_delta_log").is_there() else None
        if table is None:
            return []
        names = [column.name for column in self.pipeline.table(insert.target).stored_columns]
        several = len(self.pipeline.inserts) > 1
        try:
            rows = by_arrow(table, dict.fromkeys((*names, *extra, "_op", "_epoch")), after)
            if rows is None:
                rows = lake_rows.read(self.spark, path).where(f"_epoch > {after}").collect()
        except (ValueError, OverflowError) as error:
            raise TidegateError(
                f"a row of {insert.target} has a date or a time outside of the years 1 to 9999, which Python cannot "
                f"hold: {error}",
                where=f"the rows of {insert.id}",
                state="the row is in the table as it was computed",
                next_command="read it as text: "
                f'harness.spark.read.format("delta").load("{path}").selectExpr("CAST(… AS STRING)")',
            ) from error
        return [
            {
                **{name: row[name] for name in (*names, *extra)},
                "op": row["_op"],
                **({"_target": insert.target} if several else {}),
            }
            for row in sorted(rows, key=lambda row: row["_epoch"])
        ]

    def _published(self, insert: Insert) -> int:
        target = self.pipeline.table(insert.target)
        application = self.lake.application(insert_owner(insert.id), "publish", insert.generation)
        return max(sink_of(target, self.lake.target_path(target)).committed(application), 0)

    def _input(self, table: str) -> ScriptedInput:
        grows = only_grows(self.pipeline, table)
        return ScriptedInput(self.lake.scratch(table), self.pipeline.table(table), self.clock, only_grows=grows)


def only_grows(pipeline: Pipeline, name: str) -> bool:
    """Whether the table may have inserts only, as for any other connector: a processing-time probe, or an input of a
    process. Such rows are released one by one; in event time updates are joined at their own times."""
    whole = {table.name for table in pipeline.tables.values() if any(part.name == name for part in table.parts)}
    reading = [insert for insert in pipeline.inserts if {name, *whole} & {*insert.probes}]
    both = any(pipeline.table(each).also_probe for each in (name, *whole))
    return both or any(insert.time != "event" for insert in reading)


def played(pipeline: Pipeline) -> Pipeline:
    """`pipeline` with tables of `'connector' = 'scripted'` in the place of all that it reads and writes.

    Columns, keys, watermarks, constraints, and the options that every source or target has stay as they are. A source
    has phases, and signals their end, where its own connector does. Columns that the connector itself fills (METADATA,
    PARTITIONED BY, SYSTEM_ROWTIME()) are columns like others, filled by the test. Where Python emits the watermarks of
    a table without WATERMARK FOR (`with_strategy`, a process's generator), its rows move it, as ever.
    """
    used = {"build": SOURCE_OPTIONS, "probe": SOURCE_OPTIONS, "sink": SINK_OPTIONS}
    tables = {
        name: _played(table, used[table.role], _emits_watermarks(pipeline, table)) if table.role in used else table
        for name, table in pipeline.tables.items()
    }
    return replace(pipeline, tables=tables)


def _emits_watermarks(pipeline: Pipeline, table: Table) -> bool:
    in_python = pipeline.generators(table.name) or table.name in pipeline.strategies
    return table.watermark is not None or not in_python


def _played(table: Table, kept: tuple[OptionSpec, ...], tells_time: bool) -> Table:
    options = {
        name: value
        for name, value in table.options.items()
        if (option := find_option(name, kept)) is not None and option.name != FIELD_NAME
    }
    if table.role != "sink":
        spec = connector(table.connector).spec
        phases, signals = spec.phases(table.options), spec.signals(table.options)
        given = {"phases": phases, "signals": signals, "tells-time": tells_time}
        options |= {name: str(value).lower() for name, value in given.items()}
    return replace(
        table,
        columns=tuple(map(_delivered, table.columns)),
        options=Options({"connector": CONNECTOR.spec.name, **options}),
        parts=(),
        partition_columns=(),
    )


def _delivered(column: Column) -> Column:
    """The column, delivered in its declared type by the test."""
    column = replace(column, metadata=None, delivered=None, field_name=None)
    return replace(column, expression=None, sql=None) if column.source_time else column
