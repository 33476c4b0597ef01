"""Is a build table in the lake what the source's own table is, at a known place of the source's log?

1. All rows are read again beside the log, in parallel, in many read views: somewhere between two places of the log.
   They are stored as hashes, and compared bucket by bucket with the lake's latest state.
2. A key that changed between the two places cannot be compared so, and a difference is only a suspicion. The keys of
   both are read again in one read view, whose place is known, and compared with the lake's state at that very place.
   What changed meanwhile, where the source does not report the place exactly, is read once more.

The changelog is first brought past the place that it is compared at. Nothing of it is changed.

Rows as hashes are the same Spark SQL for the source's table and for the lake's latest state, so that equal rows have
equal numbers and only differences have to be examined. Every row becomes its key, `_bucket` (by key), `_row` (64 bits
over all columns) and `_cells` (32 bits a column, so that a differing column can be named). A checksum is count, xor and
sum over the `_row`s of a bucket.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from shutil import rmtree
from typing import Annotated, Any, ClassVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from tidegate.pipelines.commands import STATUS, Advised, NextCommand, resnapshot
from tidegate.pipelines.connectors.protocol import Comparable, Comparison, LogPlace
from tidegate.pipelines.connectors.registry import comparable
from tidegate.pipelines.connectors.spec import SEQ_PARTS
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import LeaseHeld, PlanningError, SourceDiffers, SourceError, TidegateError
from tidegate.pipelines.frames import as_views
from tidegate.pipelines.lake import WatermarkRow
from tidegate.pipelines.lake.stream import Stream
from tidegate.pipelines.progress import Task
from tidegate.pipelines.records.failure import Failure
from tidegate.pipelines.records.kinds import Count, Hidden, Note, fact
from tidegate.pipelines.runtime.epochs import stored_step
from tidegate.pipelines.runtime.opening import source_after
from tidegate.pipelines.runtime.runner import Runner
from tidegate.pipelines.syntax.types import quoted, spark_string
from tidegate.pipelines.text import counted, key

NEWEST_FIRST = ", ".join(f"_seq.{part} DESC" for part in SEQ_PARTS)


def latest_sql(changelog: str, keys: Sequence[str], columns: Sequence[str]) -> str:
    """SQL that gives one row a key, the one with the greatest `_seq`: `columns`, `_generation`, `_epoch` and `_gone`,
    which is true where it is a delete, or older than the last truncate.

    `changelog`: a relation: a build side's rows of one generation up to the pinned epoch.
    """
    by_key = ", ".join(map(quoted, keys))
    carried = ", ".join(dict.fromkeys([*map(quoted, keys), *map(quoted, columns), "_generation", "_epoch"]))
    rank = f"row_number() OVER (PARTITION BY {by_key} ORDER BY {NEWEST_FIRST})"
    ranked = f"SELECT {carried}, _op, _seq, {rank} AS _rank FROM {changelog} WHERE _op <> 't'"
    last_truncate = f"(SELECT max(_seq) FROM {changelog} WHERE _op = 't')"
    gone = f"_op = 'd' OR coalesce(_seq < {last_truncate}, false) AS _gone"
    return f"SELECT {carried}, {gone} FROM ({ranked}) WHERE _rank = 1"


ROWS_PER_BUCKET = 20_000


def hashed(keys: Sequence[str], columns: Sequence[str], buckets: int) -> list[str]:
    """The expressions to select from rows with these `columns`. A null has a hash of its own: xxhash64 alone would skip
    it."""
    own = [quoted(key) for key in keys]
    parts = [part for column in columns for part in (quoted(column), f"{quoted(column)} IS NULL")]
    cells = ", ".join(f"hash({quoted(column)}, {quoted(column)} IS NULL)" for column in columns)
    return [
        *own,
        f"CAST(pmod(xxhash64({', '.join(own)}), {int(buckets)}) AS INT) AS _bucket",
        f"xxhash64({', '.join(parts)}) AS _row",
        f"array({cells}) AS _cells",
    ]


def checksums(rows: str) -> str:
    """One line a bucket: how many rows, and two sums that do not depend on their order."""
    return (
        "SELECT _bucket, count(1) AS _rows, bit_xor(_row) AS _xor, sum(CAST(_row AS DECIMAL(38, 0))) AS _sum "
        f"FROM {rows} GROUP BY _bucket"
    )


def differing_buckets(source: str, lake: str) -> str:
    """Buckets whose checksums differ, and how many rows both sides have in all."""
    same = " AND ".join(f"s.{name} <=> l.{name}" for name in ("_rows", "_xor", "_sum"))
    return (
        "SELECT sum(coalesce(s._rows, 0)) AS _source, sum(coalesce(l._rows, 0)) AS _lake, "
        f"collect_list(IF({same}, NULL, coalesce(s._bucket, l._bucket))) AS _differing "
        f"FROM ({checksums(source)}) s FULL OUTER JOIN ({checksums(lake)}) l ON s._bucket = l._bucket"
    )


def differences(source: str, lake: str, keys: Sequence[str], columns: Sequence[str]) -> str:
    """Keys for which both sides differ: the key, `_kind` (missing, extra, changed; in the lake) and the names of the
    columns that differ."""
    equal = " AND ".join(f"s.{quoted(key)} = l.{quoted(key)}" for key in keys)
    shown = ", ".join(f"coalesce(s.{quoted(key)}, l.{quoted(key)}) AS {quoted(key)}" for key in keys)
    names = ", ".join(map(spark_string, columns))
    changed = f"filter(array({names}), (name, i) -> s._cells[i] <> l._cells[i])"
    return (
        f"SELECT {shown}, "
        "CASE WHEN l._row IS NULL THEN 'missing' WHEN s._row IS NULL THEN 'extra' ELSE 'changed' END AS _kind, "
        f"IF(s._row IS NULL OR l._row IS NULL, array(), {changed}) AS _columns "
        f"FROM {source} s FULL OUTER JOIN {lake} l ON {equal} WHERE NOT (s._row <=> l._row)"
    )


def seen_at(place: LogPlace) -> str:
    """Rows of a changelog that a read view at `place` contains: those of the snapshot, and the changes before it in the
    log."""
    return (
        f"(_seq.phase = 0 OR _seq.file < {int(place.file)} OR "
        f"(_seq.file = {int(place.file)} AND _seq.position < {int(place.position)}))"
    )


def between(low: LogPlace, high: LogPlace) -> str:
    """Changes that one read view between the two places contains and another does not."""
    return f"(_seq.phase <> 0 AND {seen_at(high)} AND NOT {seen_at(low)})"


SHOWN = 1_000
"""How many differences are listed; all are counted."""
TOLD = 20
"""How many a person is shown."""
MOST_KEYS = 20_000
"""Up to so many keys are read by name; for more, all rows are read again, in one read view."""
ROUNDS = 5
"""How often keys that change while they are read are read again, before they are reported as unsettled."""
WAIT_S = 300.0
"""How long another runner that works on the table may take to bring the changelog past the cut."""
_POLL_S = 0.5

Key = dict[str, Any]
"""Column of the primary key -> value."""


@dataclass(frozen=True)
class RowDifference:
    """A key for which lake and source differ.

    `kind`: missing (the source has it, the lake does not), extra (the reverse), changed; then `columns` differ.
    """

    key: dict[str, Any]
    kind: str
    columns: tuple[str, ...] = ()

    def __str__(self) -> str:
        kinds = {
            "missing": "is not in the lake",
            "extra": "is in the lake, and not in the source",
            "changed": f"differs in {', '.join(self.columns)}",
        }
        return f"{key(self.key)} {kinds[self.kind]}"


@dataclass(frozen=True)
class SourceReconciliation:
    """The result for one table.

    Attributes:
        rows: of the lake's latest state; `source_rows` of the source, as it was read first.
        chunks, buckets, differing_buckets: read, compared, and different at first.
        low, high: the log positions between which the first reading was; `cut` is the position of the last one, the
            same as `high` if there was only one.
        rechecked: keys that were read again, and `rounds` how often.
        differences: how many keys differ; `shown` are some of them.
        unsettled: keys that changed at every reading: neither equal nor different.
    """

    table: str
    generation: int
    rows: Count
    source_rows: int
    chunks: int
    buckets: int
    differing_buckets: int
    low: LogPlace
    high: LogPlace
    cut: LogPlace
    rechecked: Count
    rounds: int
    differences: Count
    shown: tuple[RowDifference, ...]
    unsettled: int
    seconds: float

    @property
    @fact()
    def passed(self) -> bool:
        return not self.differences and not self.unsettled

    @property
    def notes(self) -> tuple[Note, ...]:
        name, at = self.table, self.cut.text
        if self.passed:
            again = f", {counted(self.rechecked, 'key')} read twice" if self.rechecked else ""
            return (Note(f"{name}: {counted(self.rows, 'row')}, as the source has them at {at}{again}", "good"),)
        if not self.differences:
            return (Note(f"{name}: {counted(self.unsettled, 'key')} changed at every reading: not compared", "bad"),)
        differ = "differs" if self.differences == 1 else "differ"
        text = f"{name}: {counted(self.differences, 'key')} of {self.rows:,} {differ} from the source at {at}"
        details = [str(item) for item in self.shown[:TOLD]]
        if self.differences > TOLD:
            details.append(f"and {counted(self.differences - len(details), 'more key')}: see --json")
        begins = "begins anew from a fresh snapshot; readers stay on this one until it is complete"
        return (Note(text, "bad", next=resnapshot(name, begins), details=tuple(details)),)

    def error(self, next_command: Advised) -> SourceDiffers:
        """The differences as an error. Keys are data, and are not in it."""
        kinds = {kind: sum(item.kind == kind for item in self.shown) for kind in ("changed", "missing", "extra")}
        text = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items() if count)
        differ = "differs" if self.differences == 1 else "differ"
        what = f"{counted(self.differences, 'key')} of {self.table} {differ} from the source ({text})"
        if not self.differences:
            what = (
                f"{counted(self.unsettled, 'key')} of {self.table} changed at every reading, and could not be compared"
            )
        return SourceDiffers(
            what,
            where=f"{self.table}, generation {self.generation}, at {self.cut.text}",
            state="nothing was changed; the target keeps what was published",
            next_command=next_command,
        )


@dataclass(frozen=True)
class Reconciliation:
    """All tables that were compared with their sources. `stopped`: what ended it before all were."""

    OPTIONAL: ClassVar = ("error",)

    tables: tuple[SourceReconciliation, ...]
    stopped: Annotated[TidegateError | None, Hidden()] = None

    @property
    @fact()
    def error(self) -> Failure | None:
        return None if self.stopped is None else Failure.of(self.stopped)

    @property
    @fact()
    def rows(self) -> Count:
        return sum(item.rows for item in self.tables)

    @property
    @fact()
    def differences(self) -> Count:
        return sum(item.differences for item in self.tables)

    @property
    def cause(self) -> TidegateError | None:
        """Why the comparison has failed: what ended it, or the first table that differs."""
        differing = [item for item in self.tables if not item.passed]
        if self.stopped is not None or not differing:
            return self.stopped
        return differing[0].error(NextCommand("reconcile", ("--table", differing[0].table), "lists the keys"))

    @property
    @fact()
    def passed(self) -> bool:
        return self.error is None and all(item.passed for item in self.tables)

    @property
    def notes(self) -> tuple[Note, ...]:
        return tuple(note for item in self.tables for note in item.notes)


def reconcile(runner: Runner, tables: Sequence[str], wait_s: float = WAIT_S) -> Reconciliation:
    """Compare build tables with their sources, one after another. An error ends it: it is raised if nothing was
    compared before, else `stopped`."""
    found: list[SourceReconciliation] = []
    for table in tables:
        try:
            found.append(reconcile_source(runner, table, wait_s))
        except TidegateError as error:
            if not found:
                raise
            return Reconciliation(tuple(found), error)
    return Reconciliation(tuple(found))


def reconcile_source(runner: Runner, table: str, wait_s: float = WAIT_S) -> SourceReconciliation:
    """Compare a build table in the lake with the source's own.

    Raises PlanningError (not a table that can be compared), SourceError (it cannot be read, or has not flipped; the
    changelog does not come past the cut).
    """
    runner.definitions.require()
    found = runner.pipeline.table(table)
    with _opened(runner, found) as (comparison, landed):
        try:
            return _Reconciling(runner, found, comparison, landed.generation, wait_s).run()
        except (PySparkException, Py4JError) as error:
            typed = comparison.explain(error)
            if typed is None:
                raise
            raise typed from error


def _comparable(runner: Runner) -> Advised:
    """The command for the tables of the script that can be compared with their source."""
    words = tuple(word for table in comparable(runner.pipeline.sources) for word in ("--table", table.name))
    return NextCommand("reconcile", words) if words else "tables of mysql-cdc can be; the script has none"


@contextmanager
def _opened(runner: Runner, table: Table) -> Iterator[tuple[Comparison, WatermarkRow]]:
    newest = runner.lake.epochs.last(table.name)
    landed = Stream(runner.lake, table.name).generation(newest.generation).last if newest else None
    if landed is None or landed.flip_epoch is None:
        raise SourceError(
            f"{table.name} is still loading: before its flip it is no image of the source's table",
            where=f"generation {newest.generation if newest else 1}",
            state="nothing was read",
            next_command=NextCommand("run", does="then reconcile again"),
        )
    opened = source_after(runner.lake, table, landed, runner.environment, runner.clock, runner.progress)
    with opened as (source, position):
        if not isinstance(source, Comparable):
            raise PlanningError(
                f"{table.name} cannot be read again beside its log: its connector is {table.connector}",
                where=table.name,
                state="nothing was read",
                next_command=_comparable(runner),
            )
        yield source.comparison(position), landed


@dataclass
class _Reconciling:
    """One table's work. `folder` holds the hashes of what was read, for as long as it takes."""

    runner: Runner
    table: Table
    comparison: Comparison
    generation: int
    wait_s: float
    folder: Path = field(init=False)

    def __post_init__(self) -> None:
        self.folder = self.runner.lake.scratch(self.table.name) / f"reconcile-{uuid.uuid4().hex[:8]}"
        self.spark: SparkSession = self.runner.session()
        self.keys = list(self.table.primary_key)
        self.columns = [*self.comparison.columns]
        self.landed = Stream(self.runner.lake, self.table.name).generation(self.generation)
        self.buckets = max(16, self.landed.sums().rows // ROWS_PER_BUCKET)

    def run(self) -> SourceReconciliation:
        try:
            return self._run()
        finally:
            rmtree(self.folder, ignore_errors=True)

    def _run(self) -> SourceReconciliation:
        began = time.monotonic()
        low, chunks = self.comparison.low(), self._read_all()
        high = self.comparison.high()
        bar = self.runner.progress.task(f"{self.table.name}: compare", None, "readings")
        self._catch_up(high)
        first = self.spark.read.parquet(str(self.folder / "all"))
        lake = self._state_at(high)
        moved = self._changed(low, high)
        source_rows, rows, buckets, suspects = self._by_bucket(first, lake, moved)
        bar.advance(1)
        asked = None if moved is None or suspects is None else [*moved, *suspects]
        cut, rounds, rechecked, total = high, 0, 0, 0
        found: list[RowDifference] = []
        while (asked is None or asked) and rounds < ROUNDS:
            if asked is not None and len(asked) > MOST_KEYS:
                asked = None
            rounds += 1
            cut, differing, count, rest = self._at_once(asked, rounds)
            rechecked += len(asked) if asked is not None else rows
            found += differing
            total += count
            asked = rest
            bar.advance(1)
        return SourceReconciliation(
            table=self.table.name,
            generation=self.generation,
            rows=rows,
            source_rows=source_rows,
            chunks=chunks,
            buckets=self.buckets,
            differing_buckets=buckets,
            low=low,
            high=high,
            cut=cut,
            rechecked=rechecked,
            rounds=rounds,
            differences=total,
            shown=tuple(found[:SHOWN]),
            unsettled=rows if asked is None else len(asked),
            seconds=time.monotonic() - began,
        )

    # --- the source ----------------------------------------------------------------------------------------------

    def _read_all(self) -> int:
        """Read every row once, in parallel, and store the hashes; returns how many chunks it took."""
        bar: Task | None = None
        done = total = 0
        for rows, done_now, total in self.comparison.batches(self.spark):
            bar = bar or self.runner.progress.task(f"{self.table.name}: read the source", total, "chunks")
            self._keep(rows, "all")
            bar.advance(done_now - done)
            done = done_now
        return total

    def _keep(self, rows: DataFrame, name: str) -> None:
        marks = ["_seq.file AS _file", "_seq.position AS _position"]
        hashes = rows.selectExpr(*hashed(self.keys, self.columns, self.buckets), *marks)
        hashes.write.mode("append").parquet(str(self.folder / name))

    def _at_once(
        self, asked: Sequence[Key] | None, number: int
    ) -> tuple[LogPlace, list[RowDifference], int, Sequence[Key] | None]:
        """Read these keys (all rows for None) in one view, and compare. Returns the position, what differs, how many
        keys differ, and the keys that changed meanwhile and have to be read once more."""
        low = self.comparison.low()
        self._keep(self.comparison.at_once(self.spark, asked), f"again-{number}")
        high = self.comparison.high()
        again = self.spark.read.parquet(str(self.folder / f"again-{number}"))
        if self.comparison.exact:
            at = again.selectExpr("max(struct(_file, _position)) AS at").collect()[0]["at"]
            if at is not None:
                low = high = _named(high, at[0], at[1])
        self._catch_up(high)
        moved = self._changed(low, high)
        if moved is None:
            return high, [], 0, asked
        frames = {"source": again, "lake": self._state_at(high)}
        if asked is not None:
            frames["asked"] = self._frame(asked)
        with as_views(frames) as views:
            sides = [views["source"], views["lake"]]
            if asked is not None:
                sides = [self._only(side, views["asked"]) for side in sides]
            rows = self.spark.sql(differences(sides[0], sides[1], self.keys, self.columns))
        if moved:
            rows = rows.join(self._frame(moved), self.keys, "left_anti")
        found, count = self._collected(rows)
        wanted = None if asked is None else {tuple(key.values()) for key in asked}
        return high, found, count, [key for key in moved if wanted is None or tuple(key.values()) in wanted]

    # --- the lake ------------------------------------------------------------------------------------------------

    def _changelog(self) -> DataFrame:
        last = self.landed.last
        return self.landed.at(self.spark, last.epoch if last else 0)

    def _state_at(self, place: LogPlace) -> DataFrame:
        """The latest state of every key as of a place, as hashes."""
        with as_views({"changelog": self._changelog().where(seen_at(place))}) as views:
            latest = latest_sql(views["changelog"], self.keys, self.columns)
            return self.spark.sql(f"SELECT * FROM ({latest}) WHERE NOT _gone").selectExpr(
                *hashed(self.keys, self.columns, self.buckets)
            )

    def _changed(self, low: LogPlace, high: LogPlace) -> list[Key] | None:
        """The keys that changed between two positions; None if there are more than can be read by name, or a
        truncate."""
        if not low < high:
            return []
        changes = self._changelog().where(between(low, high))
        own = [quoted(key) for key in self.keys]
        rows = changes.selectExpr("_op = 't' AS _truncated", *own).distinct().limit(MOST_KEYS + 1).collect()
        if len(rows) > MOST_KEYS or any(row["_truncated"] for row in rows):
            return None
        return [self._key(row) for row in rows]

    def _catch_up(self, place: LogPlace) -> None:
        """Bring the changelog past `place`, or wait for the runner that works on it."""
        end = time.monotonic() + self.wait_s
        while self._reached() < place:
            try:
                try:
                    self.runner.advance(self.table.name)
                finally:
                    self.runner.leases.release(self.table.name)  # others may land while rows are compared
                if self._reached() >= place:
                    return
                self._refuse(place, "its alignment group holds it back")
            except LeaseHeld as error:
                if time.monotonic() > end:
                    self._refuse(place, f"{error.holder} works on it, and has not come so far in {self.wait_s:g} s")
                time.sleep(_POLL_S)

    def _refuse(self, place: LogPlace, why: str) -> None:
        raise SourceError(
            f"the changelog of {self.table.name} does not come past the cut: {why}",
            where=f"cut {place.text}, landed up to {self._reached().text}",
            state="what has landed is kept; nothing was compared",
            next_command=replace(STATUS, does="then reconcile again"),
        )

    def _reached(self) -> LogPlace:
        last = self.landed.last
        assert last is not None
        (plan,) = self.runner.lake.epochs.rows(self.table.name, generation=self.generation, epoch=last.epoch)
        return self.comparison.after(stored_step(plan))

    # --- both ----------------------------------------------------------------------------------------------------

    def _by_bucket(
        self, source: DataFrame, lake: DataFrame, moved: Sequence[Key] | None
    ) -> tuple[int, int, int, list[Key] | None]:
        """Compare checksums, and narrow down to keys: rows of the source and of the lake, how many buckets differ, and
        the keys that may."""
        if moved:
            out = self._frame(moved)
            source, lake = (side.join(out, self.keys, "left_anti") for side in (source, lake))
        with as_views({"source": source, "lake": lake}) as views:
            totals = self.spark.sql(differing_buckets(views["source"], views["lake"])).collect()[0]
            differing = sorted(totals["_differing"])
            extra = len(moved or ())
            counts = int(totals["_source"] or 0) + extra, int(totals["_lake"] or 0) + extra
            if moved is None:
                return *counts, len(differing), None
            if not differing:
                return *counts, 0, []
            chosen = f"_bucket IN ({', '.join(map(str, differing))})"
            sides = [f"(SELECT * FROM {views[name]} WHERE {chosen})" for name in ("source", "lake")]
            rows = self.spark.sql(differences(sides[0], sides[1], self.keys, self.columns))
        suspects = rows.select(*map(quoted, self.keys)).limit(MOST_KEYS + 1).collect()
        if len(suspects) > MOST_KEYS:
            return *counts, len(differing), None
        return *counts, len(differing), [self._key(row) for row in suspects]

    def _collected(self, rows: DataFrame) -> tuple[list[RowDifference], int]:
        rows = rows.persist()
        try:
            count = rows.count()
            shown = rows.limit(SHOWN).collect() if count else []
        finally:
            rows.unpersist()
        return [RowDifference(self._key(row), row["_kind"], tuple(row["_columns"])) for row in shown], count

    def _key(self, row: Row) -> Key:
        values = {key: row[key] for key in self.keys}
        return {key: bytes(value) if isinstance(value, bytearray) else value for key, value in values.items()}

    def _frame(self, keys: Sequence[Key]) -> DataFrame:
        types = {column.name: column.spark_type for column in self.table.columns}
        schema = ", ".join(f"{quoted(key)} {types[key]}" for key in self.keys)
        return self.spark.createDataFrame([tuple(key[name] for name in self.keys) for key in keys], schema)

    def _only(self, rows: str, wanted: str) -> str:
        equal = " AND ".join(f"r.{quoted(key)} = w.{quoted(key)}" for key in self.keys)
        return f"(SELECT /*+ BROADCAST(w) */ r.* FROM {rows} r LEFT SEMI JOIN {wanted} w ON {equal})"


def _named(like: LogPlace, file: int, position: int) -> LogPlace:
    """A place with a text as that of another."""
    stem, _, digits = like.text.partition(":")[0].rpartition(".")
    return LogPlace(file, position, f"{stem}.{file:0{len(digits)}d}:{position}")
