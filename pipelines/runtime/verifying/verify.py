"""Recompute every published epoch from its pins, and compare: target and quarantine must hold exactly those rows.

Equal means equal as multisets, in both directions. What can no longer be recomputed is never called equal: rows beyond
retention, and epochs of another text of the INSERT, are reported as such.

An epoch is recomputed by the definition that it was made under, as the lake stores it: the script may have changed
since.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, reduce
from typing import Literal

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidegate.pipelines.clock import system_clock
from tidegate.pipelines.commands import NextCommand, remedy
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import LakeError, PlanningError
from tidegate.pipelines.frames import as_views, settings
from tidegate.pipelines.lake import Lake, delta_log
from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.lake.stream import Stream
from tidegate.pipelines.location import Location
from tidegate.pipelines.progress import Progress, SilentProgress
from tidegate.pipelines.records.kinds import Count, Note, fact
from tidegate.pipelines.runtime.called import register
from tidegate.pipelines.runtime.definitions import as_defined
from tidegate.pipelines.runtime.epochs import ReleasePlan
from tidegate.pipelines.runtime.epochs.generations import on_lake
from tidegate.pipelines.runtime.epochs.history import ReleasedEpoch, history_of
from tidegate.pipelines.runtime.failures import ENGINE, first_line
from tidegate.pipelines.runtime.lost_commits import refuse_lost_insert, refuse_other_lake
from tidegate.pipelines.runtime.quarantine import quarantined_in, removed, removed_upto
from tidegate.pipelines.runtime.retention import Retention
from tidegate.pipelines.runtime.stored_definitions import covered
from tidegate.pipelines.runtime.verifying.recompute import (
    VIOLATION,
    Views,
    compared,
    lot_rows,
    pin_rows,
    proof_names,
    recompute_sql,
    release_rows,
)
from tidegate.pipelines.sql.canonical import computes
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.sql.model import Insert, ProcessInsert
from tidegate.pipelines.syntax.types import quoted
from tidegate.pipelines.text import counted
from tidegate.pipelines.text import key as shown_key

EXAMPLES = 10

MANY_STEPS = {"spark.sql.analyzer.maxIterations": "1000"}
"""Spark looks through a query once for each of the steps that follow one another, of which each join has about ten."""

SHOWN = 20
"""Differences, and epochs, that a person is shown."""

Place = Literal["publish", "quarantine", "drop", "violation"]
EpochState = Literal["equal", "different", "rows lost", "beyond retention", "other script"]


@dataclass(frozen=True)
class RowDifference:
    """Rows of one epoch that are `missing` from a place although its pins give them, or `unexpected` there. Of dropped
    rows, and of constraints that a row violates (place violation), only counts are stored. `keys`: up to ten, as JSON
    of the target's primary key (of the whole row if it has none); of mere counts, the reasons."""

    place: Place
    kind: Literal["missing", "unexpected"]
    rows: Count
    keys: tuple[str, ...]

    def __str__(self) -> str:
        rows = counted(self.rows, "row")
        is_, are = ("is", "has") if self.rows == 1 else ("are", "have")
        missing = self.kind == "missing"
        match self.place:
            case "publish":
                text = f"{rows} {is_} missing in the target" if missing else f"{rows} {is_} unexpected in the target"
            case "quarantine":
                text = f"{rows} {is_} {self.kind} in the quarantine"
            case "drop":
                text = f"{rows} {are} {'not been' if missing else 'been'} dropped, against what its pins give"
            case _:
                text = f"{rows} {are} {'not been' if missing else 'been'} counted as violating a constraint, against it"
        return f"{text}: {'; '.join(map(_row_key, self.keys))}" if self.keys else text


def _row_key(text: str) -> str:
    """A row of `RowDifference.keys` for people: `id = 7, name = 'ann'`; a reason as it is."""
    found = json.loads(text) if text.startswith("{") else None
    return text if found is None else shown_key(found)


@dataclass(frozen=True)
class EpochReport:
    """One published epoch. `rows` were released by it; `detail` says why it was not recomputed. `beyond_retention`: how
    many of its rows found nothing because retention had removed versions of their time before it was planned."""

    generation: int
    epoch: int
    rows: int
    state: EpochState
    differences: tuple[RowDifference, ...] = ()
    detail: str = ""
    beyond_retention: int = 0


@dataclass(frozen=True)
class VerifyReport:
    """All published epochs of an INSERT. `problems` are findings that belong to no single epoch. `script_differs`: the
    given script differs from the lake's definition, by which the epochs are verified."""

    insert: str
    epochs: tuple[EpochReport, ...]
    problems: tuple[str, ...] = ()
    script_differs: bool = False

    @property
    @fact()
    def differences(self) -> Count:
        """Rows that are missing or unexpected."""
        return sum(difference.rows for epoch in self.epochs for difference in epoch.differences)

    @property
    @fact()
    def rows(self) -> Count:
        """Released rows that were recomputed."""
        return sum(epoch.rows for epoch in self.epochs if epoch.state in ("equal", "different"))

    @property
    @fact()
    def passed(self) -> bool:
        """Whether nothing was found. Epochs beyond retention do not count: see `unproved`. Epochs of another script do
        count, since nobody can say what their rows should be; so do rows that are gone though no retention has removed
        them."""
        return not self.problems and not any(
            epoch.state in ("different", "other script", "rows lost") for epoch in self.epochs
        )

    @property
    @fact()
    def unproved(self) -> Count:
        """Epochs that cannot be recomputed any more."""
        return len(self.not_proved)

    @property
    def not_proved(self) -> tuple[EpochReport, ...]:
        """Those epochs."""
        return tuple(epoch for epoch in self.epochs if epoch.state not in ("equal", "different"))

    @property
    def note(self) -> Note:
        """What was found, and below it what differs."""
        if not self.epochs:
            return Note(f"{self.insert}: nothing is published yet", details=self.problems)
        proved = len(self.epochs) - self.unproved
        text = f"{self.insert}: {counted(self.rows, 'released row')} in {counted(proved, 'epoch')} recomputed"
        if self.passed:
            rest = f", {counted(self.unproved, 'epoch')} cannot be recomputed" if self.unproved else ""
            return Note(f"{text}, no row differs{rest}", "good", details=tuple(self._details()))
        lost, others = (sum(epoch.state == state for epoch in self.epochs) for state in ("rows lost", "other script"))
        differ = "differs" if self.differences == 1 else "differ"
        found = [f"{counted(self.differences, 'row')} {differ}"] if self.differences else []
        found += [f"{counted(lost, 'epoch')} read rows that are lost"] if lost else []
        found += [counted(len(self.problems), "problem")] if self.problems else []
        found += [f"{counted(others, 'epoch')} of another script"] if others else []
        return Note(f"{text}, {' and '.join(found)}", "bad", details=tuple(self._details()))

    def _details(self) -> Iterator[str]:
        if self.script_differs:
            yield "by the definition in the lake: the script defines this INSERT differently"
        yield from self.problems
        found = [(epoch, item) for epoch in self.epochs for item in epoch.differences]
        yield from (f"epoch {epoch.generation}/{epoch.epoch}: {item}" for epoch, item in found[:SHOWN])
        if len(found) > SHOWN:
            yield "and more: see --json"
        if beyond := sum(epoch.beyond_retention for epoch in self.epochs):
            yield f"{counted(beyond, 'row')} found nothing: retention had removed the versions of their time"
        for epoch in self.not_proved[:SHOWN]:
            yield f"epoch {epoch.generation}/{epoch.epoch}: {epoch.state} ({epoch.detail})"
        if self.unproved > SHOWN:
            yield f"and {counted(self.unproved - SHOWN, 'more epoch')}"


Counts = dict[str, dict[tuple[int, int], int]]
"""Place -> (generation, epoch) -> rows."""


Unproved = dict[tuple[int, int], tuple[EpochState, str]]
"""(generation, epoch) -> its state (other than proved), and why."""


BATCH_ROWS = 2_000_000
"""Released rows that one statement recomputes, in whole epochs; a single epoch may be larger."""


LOOKS = 3
"""How often a lost commit is looked for: a runner that commits meanwhile may look like one."""


def verify(
    pipeline: Pipeline,
    lake: Lake,
    spark: Callable[[], SparkSession],
    insert: str,
    progress: Progress | None = None,
    environment: Mapping[str, str] | None = None,
) -> VerifyReport:
    """Recompute the published epochs of the INSERT called `insert`. Changes nothing and takes no lease.

    `environment`: what `${VARIABLE}` in options is replaced by; None for the process's own.

    Raises PlanningError for a process: what its function gave depends on all that came before.
    """
    pipeline = on_lake(lake, pipeline)
    if isinstance(pipeline.insert(insert), ProcessInsert):
        raise PlanningError(
            f"{insert} is a process: its epochs cannot be recomputed one by one",
            where=f"process {insert}",
            state="nothing was looked at",
            next_command="declare it once more under another name, run it, and compare the two tables",
        )
    pipeline, _ = covered(lake, pipeline, environment)
    stored = as_defined(lake, pipeline, insert) or pipeline
    report = Proof(stored, lake, stored.insert(insert), environment).report(spark, progress or SilentProgress())
    return replace(report, script_differs=stored is not pipeline)


@dataclass(frozen=True)
class Proof:
    """The published epochs of one INSERT, compared with what their pins give. `environment`: replaces `${VARIABLE}` in
    options, None for the process's own."""

    pipeline: Pipeline
    lake: Lake
    insert: Insert
    environment: Mapping[str, str] | None = None

    @property
    def target(self) -> Table:
        return self.pipeline.table(self.insert.target)

    @property
    def quarantine(self) -> Location:
        return self.lake.quarantine_path(self.target, self.insert)

    def report(self, session: Callable[[], SparkSession], progress: Progress) -> VerifyReport:
        """All published epochs, each with what differs from what its definition and its pins give."""
        epochs = history_of(self.lake, self.pipeline, self.insert)
        published = [epoch for epoch in epochs if epoch.published]
        if not published:
            return VerifyReport(self.insert.id, (), tuple(self._lost_commits()))
        spark = session()
        with self._read():
            return self._report(spark, epochs, published, progress)

    def _report(
        self,
        spark: SparkSession,
        epochs: Sequence[ReleasedEpoch],
        published: Sequence[ReleasedEpoch],
        progress: Progress,
    ) -> VerifyReport:
        counts = self.counts(spark)
        unproved = self._quarantined(epochs)
        task = progress.task(f"verify {self.insert.id}", len(published), "epochs")
        found: dict[tuple[int, int], list[RowDifference]] = {}
        for number in dict.fromkeys(epoch.plan.definition for epoch in published):
            made = [epoch for epoch in published if epoch.plan.definition == number]
            pipeline = as_defined(self.lake, self.pipeline, self.insert.id, number)
            if pipeline is None:
                text = "a function that it calls has changed since this epoch was made"
                unproved |= {epoch.key: ("other script", text) for epoch in made}
                continue
            own = replace(self, pipeline=pipeline, insert=pipeline.insert(self.insert.id))
            unproved |= own.unproved(counts, made)
            for batch in _batches([epoch for epoch in made if epoch.key not in unproved]):
                for key, difference in own.differences(spark, batch):
                    found.setdefault(key, []).append(difference)
                task.advance(len(batch), f"{sum(len(items) for items in found.values())} differences")
            different = [epoch for epoch in made if epoch.key in found]
            if different:  # retention may have removed rows that they read while they were compared
                unproved |= own.unproved(own.counts(spark), different) | self._quarantined(epochs)
        task.advance(len(unproved))
        reports = []
        for epoch in published:
            key, rows = epoch.key, epoch.staged.counts.get("rows", 0) if epoch.staged else 0
            if key in unproved:
                state, why = unproved[key]
                reports.append(EpochReport(*key, rows, state, detail=why))
            else:
                differences = tuple(found.get(key, ()))
                state, beyond = "different" if differences else "equal", _beyond_retention(epoch)
                reports.append(EpochReport(*key, rows, state, differences, beyond_retention=beyond))
        problems = (*self._problems(counts, epochs), *self._lost_commits())
        return VerifyReport(self.insert.id, tuple(reports), problems)

    @contextmanager
    def _read(self) -> Iterator[None]:
        """Raise what Spark and the disk say of a table that is damaged, or not there, as LakeError."""
        missing = [path for path in self._places.values() if delta_log.opened(path) is None]
        try:
            if missing:
                raise FileNotFoundError("there is no table" if missing[0].is_there() else "it is not there")
            yield
        except ENGINE as error:
            text = str(error)
            named = next((path for path in self._places.values() if f"{path}/" in text), None)
            where = missing[0] if missing else named
            raise LakeError(
                f"{self.insert.id} cannot be verified: {first_line(error)}",
                where=str(where or self.lake.root),
                state="nothing was changed; whether its rows are right is not known",
                next_command=remedy(text, "bring what is damaged or gone back from a backup")
                + ", then: "
                + NextCommand("verify"),
            ) from error

    def _lost_commits(self) -> list[str]:
        """What the lake has lost of this INSERT, without which the epochs that are known are not all there are."""
        found: LakeError | None = None
        for _ in range(LOOKS):
            try:
                refuse_other_lake(self.lake, self.pipeline)
                refuse_lost_insert(self.lake, self.insert.id, self.lake.target_path(self.target))
            except LakeError as error:
                found = error
            else:
                return []
        return [] if found is None else [found.what]

    # --- what can be recomputed ----------------------------------------------------------------------------------

    def counts(self, spark: SparkSession) -> Counts:
        """How many rows each table that is read has, by generation and epoch, in one job; and those that landed and are
        not in its table any more, as `gone <table>`."""
        places = self._places
        frames = [
            lake_rows.read(spark, path).select(F.lit(place).alias("place"), "_generation", "_epoch")
            for place, path in places.items()
        ]
        found: Counts = {place: {} for place in places}
        for row in reduce(DataFrame.unionByName, frames).groupBy("place", "_generation", "_epoch").count().collect():
            found[row["place"]][(row["_generation"], row["_epoch"])] = row["count"]
        gone = {f"gone {table}": self._gone(table, found[f"table {table}"]) for table in self._tables}
        return found | gone

    @property
    def _places(self) -> dict[str, Location]:
        """Every table that is read."""
        tables = {f"table {table}": Stream.of(self.lake, self.pipeline, table).path for table in sorted(self._tables)}
        return tables | {"target": self.lake.target_path(self.target), "quarantine": self.quarantine}

    @property
    def _tables(self) -> set[str]:
        return {*self.insert.probes, *self.insert.builds}

    def unproved(self, counts: Counts, epochs: Sequence[ReleasedEpoch]) -> Unproved:
        """Epochs whose rows are no longer all there, or whose INSERT had another text; with the reason."""
        found: Unproved = {}
        gone = {table: counts[f"gone {table}"] for table in self._tables}
        reach = cache(lambda table, generation: Stream(self.lake, table).generation(generation).removed)
        retention = Retention(self.lake, self.pipeline, system_clock, self.environment)
        own = computes(self.pipeline, self.insert)
        for epoch in epochs:
            plan = epoch.plan
            if plan.computes != own:
                text = "the script's INSERT has changed since this epoch was made"
                found[epoch.key] = ("other script", text)
                continue
            state: EpochState = "beyond retention"
            texts: list[str] = []
            joined = plan.pins if plan.reads[0] < plan.reads[1] else ()
            for table, generation, after, upto, pin, parts in [
                *((item.table, item.generation, *plan.reads_of(item), None, item.parts) for item in plan.takes),
                *((pin.table, pin.generation, 0, pin.epoch, pin, ()) for pin in joined),
            ]:
                removed = reach(table, generation)
                if pin is None and not plan.joined and not removed.asked_by(parts):
                    after = max(after, removed.epoch or 0)  # of epochs that are gone it reads no row
                number = sum(n for (g, e), n in gone[table].items() if g == generation and after < e <= upto)
                if not number:
                    continue
                if pin is None and removed.epoch is not None:
                    low = max(after, removed.epoch)
                    if any(n for (g, e), n in gone[table].items() if g == generation and low < e <= upto):
                        state = "rows lost"
                else:
                    in_all = sum(n for (g, _), n in gone[table].items() if g == generation)
                    if in_all > removed.rows:
                        state = "rows lost"
                    elif pin is not None and retention.spares(epoch, pin, removed):
                        continue
                texts.append(f"{counted(number, 'row')} of {table} that it read {'is' if number == 1 else 'are'} gone")
            if texts:
                why = ", and no retention has removed so many" if state == "rows lost" else ""
                found[epoch.key] = (state, " and ".join(dict.fromkeys(texts)) + why)
        return found

    def _gone(self, table: str, there: dict[tuple[int, int], int]) -> dict[tuple[int, int], int]:
        """(generation, epoch) -> rows that landed by the watermark log and are not in the table any more."""
        log = {(row.generation, row.epoch): row.rows for row in Stream(self.lake, table).log()}
        return {key: count - there.get(key, 0) for key, count in log.items() if count > there.get(key, 0)}

    def _quarantined(self, epochs: Sequence[ReleasedEpoch]) -> Unproved:
        """The epochs some of whose quarantined rows were released or discarded since and then removed by retention; and
        the epochs that had joined such rows again."""
        found: Unproved = {}
        for item in removed(quarantined_in(epochs), removed_upto(self.lake, self.insert, self.quarantine)):
            rows = f"{counted(item.rows, 'row')} that epoch {item.epoch} had quarantined ({item.reason})"
            text = f"{rows} {'is' if item.rows == 1 else 'are'} gone"
            for plan in (item.plan, *([item.taken] if item.state == "released" and item.taken else [])):
                found.setdefault((plan.generation, plan.epoch), ("beyond retention", text))
        return found

    # --- what differs ---------------------------------------------------------------------------------------------

    def differences(
        self, spark: SparkSession, batch: Sequence[ReleasedEpoch]
    ) -> Iterator[tuple[tuple[int, int], RowDifference]]:
        """(generation, epoch) and what differs there."""
        plans = [epoch.plan for epoch in batch]
        for row in self._differences(spark, plans, batch).collect():
            kind = "missing" if row["_extra"] else "unexpected"
            difference = RowDifference(row["_place"], kind, int(row["_rows"]), tuple(row["_keys"]))
            yield (row["_generation"], row["_epoch"]), difference

    def _differences(
        self, spark: SparkSession, plans: Sequence[ReleasePlan], batch: Sequence[ReleasedEpoch]
    ) -> DataFrame:
        """One row per epoch, place and kind: `_extra` (true: missing), `_rows`, `_keys`."""
        frames = {
            "releases": spark.createDataFrame(release_rows(self.insert, plans)),
            "target": lake_rows.read(spark, self.lake.target_path(self.target)),
            "quarantine": lake_rows.read(spark, self.quarantine),
            "counted": spark.createDataFrame(_counted(batch)),
            "lots": spark.createDataFrame(lot_rows(plans)),
        }
        for number, name in enumerate(self.insert.taken):
            frames[f"probe{number}"] = Stream.of(self.lake, self.pipeline, name).rows(spark)
        for number, join in enumerate(self.insert.joins):
            frames[f"build{number}"] = Stream.of(self.lake, self.pipeline, join.build).rows(spark)
            frames[f"pins{number}"] = spark.createDataFrame(pin_rows(join, number, plans))
        register(spark, self.insert.calls(self.pipeline.functions))
        with as_views(frames) as views:
            builds, pins = ([views[f"{kind}{n}"] for n in range(len(self.insert.joins))] for kind in ("build", "pins"))
            probes = [views[f"probe{number}"] for number in range(len(self.insert.taken))]
            expected = recompute_sql(
                self.insert,
                self.target,
                self.pipeline.tables,
                plans,
                Views(views["releases"], probes, builds, pins, views["quarantine"], views["lots"]),
            )
            with settings(spark, MANY_STEPS):
                return spark.sql(self._difference_sql(plans, expected, views))

    def _difference_sql(self, plans: Sequence[ReleasePlan], expected: str, views: dict[str, str]) -> str:
        columns, proof = compared(self.target, self.insert), proof_names(self.insert)
        shown = ", ".join(columns)
        plain = ", ".join(self._comparable(name) for name in columns)
        own = ", ".join(quoted(column.name) for column in self.target.stored_columns)
        blank = ", ".join(f"CAST(NULL AS {column.spark_type})" for column in self.target.stored_columns)
        epochs = " OR ".join(
            f"(_generation = {generation} AND _epoch BETWEEN {low} AND {high})"
            for generation, low, high in _spans(plans)
        )
        reasons, none = ", ".join(["_reason", *proof]) if proof else "NULL", ", NULL" * len(proof)
        sides = [
            f"SELECT {shown}, 1L AS _side FROM ({expected})",
            f"SELECT 'publish', {own}, _op, _generation, _epoch, NULL, NULL, NULL, {reasons}, -1L "
            f"FROM {views['target']} WHERE {epochs}",
            f"SELECT 'quarantine', {own}, _op, _generation, _epoch, _probe_epoch, _split, _offset, _reason{none}, -1L "
            f"FROM {views['quarantine']} WHERE {epochs}",
            f"SELECT place, {blank}, NULL, generation, epoch, NULL, NULL, NULL, reason{none}, -rows "
            f"FROM {views['counted']}",
        ]
        key = [quoted(name) for name in self.target.primary_key] or [
            quoted(column.name) for column in self.target.stored_columns
        ]
        example = f"IF(_place IN ('drop', '{VIOLATION}'), _reason, left(to_json(struct({', '.join(key)})), 300))"
        group = "_place, _generation, _epoch, _extra"
        return f"""
            WITH _both AS ({" UNION ALL ".join(sides)}),
            _plain AS (SELECT {plain}, {example} AS _example, _side FROM _both),
            _unlike AS (
              SELECT {shown}, min(_example) AS _example, sum(_side) AS _sum FROM _plain
              GROUP BY {shown} HAVING sum(_side) <> 0
            ),
            _ranked AS (
              SELECT _place, _generation, _epoch, _sum > 0 AS _extra, abs(_sum) AS _count, _example,
              row_number() OVER (PARTITION BY _place, _generation, _epoch, _sum > 0 ORDER BY _example) AS _rank
              FROM _unlike
            )
            SELECT {group}, sum(_count) AS _rows,
            array_sort(collect_list(IF(_rank <= {EXAMPLES}, _example, NULL))) AS _keys
            FROM _ranked GROUP BY {group} ORDER BY _generation, _epoch, _place, _extra
        """

    def _comparable(self, name: str) -> str:
        """A column as GROUP BY can take it: Spark cannot compare maps, but their sorted entries."""
        types = {quoted(column.name): column.spark_type.upper() for column in self.target.stored_columns}
        if types.get(name, "").startswith("MAP<"):
            return f"array_sort(map_entries({name})) AS {name}"
        if "MAP<" in types.get(name, ""):
            return f"to_json(named_struct('value', {name})) AS {name}"
        return name

    # --- what belongs to no epoch ---------------------------------------------------------------------------------

    def _problems(self, counts: Counts, epochs: Sequence[ReleasedEpoch]) -> Iterator[str]:
        published = [epoch for epoch in epochs if epoch.published]
        plans = [each.plan for each in epochs if (each.published or each.replaced) and not each.plan.looks_back]
        for number, name in enumerate(self.insert.taken):
            upto = 0
            for plan, own in sorted(((plan, plan.takes[number]) for plan in plans), key=lambda pair: pair[1].after):
                if own.after != upto:
                    what = "left out" if own.after > upto else "released twice"
                    low, high = sorted((own.after, upto))
                    yield f"epochs {low + 1} to {high} of {name} were {what} before epoch {plan.epoch}"
                upto = max(upto, own.upto)
        quarantined, taken = {(item.epoch, item.reason) for item in quarantined_in(epochs)}, set[tuple[int, str]]()
        for plan in (epoch.plan for epoch in published if epoch.plan.lots):
            own = {whole for whole in quarantined if any(lot.holds(*whole) for lot in plan.lots)}
            for number, reason in sorted(own & taken):
                yield f"what epoch {number} has quarantined ({reason}) was taken twice, again by epoch {plan.epoch}"
            taken |= own
        known = {epoch.key for epoch in published}
        if not known.issuperset({*counts["target"], *counts["quarantine"]}):  # another runner has published meanwhile
            now = history_of(self.lake, self.pipeline, self.insert)
            known |= {epoch.key for epoch in now if epoch.published}
        for place in ("target", "quarantine"):
            for (generation, epoch), number in sorted(counts[place].items()):
                if (generation, epoch) not in known:
                    yield (
                        f"the {place} has {counted(number, 'row')} of generation {generation}, epoch {epoch}, "
                        "which was not published"
                    )


def _counted(batch: Sequence[ReleasedEpoch]) -> pa.Table:
    """The rows that are in no table and only counted: dropped rows, and violated constraints."""
    found = []
    for epoch in batch:
        named = {"generation": epoch.plan.generation, "epoch": epoch.plan.epoch}
        counts, facts = (epoch.staged.counts, epoch.staged.facts) if epoch.staged else ({}, {})
        found += [
            {**named, "place": "drop", "reason": name, "rows": number}
            for name, number in counts.items()
            if number and name.startswith("dropped:")
        ]
        found += [
            {**named, "place": VIOLATION, "reason": name.removeprefix("violations@"), "rows": number}
            for name, number in facts.items()
            if number and name.startswith("violations@")
        ]
    kinds = {"place": pa.string(), "generation": pa.int32(), "epoch": pa.int64()}
    return pa.Table.from_pylist(found, pa.schema({**kinds, "reason": pa.string(), "rows": pa.int64()}))


def _spans(plans: Sequence[ReleasePlan]) -> Iterator[tuple[int, int, int]]:
    """(generation, least epoch, greatest epoch) of the plans."""
    for generation in sorted({plan.generation for plan in plans}):
        epochs = [plan.epoch for plan in plans if plan.generation == generation]
        yield generation, min(epochs), max(epochs)


def _beyond_retention(epoch: ReleasedEpoch) -> int:
    counts = epoch.staged.counts if epoch.staged else {}
    return sum(rows for name, rows in counts.items() if ":beyond-retention@" in name)


def _batches(epochs: Sequence[ReleasedEpoch]) -> Iterator[list[ReleasedEpoch]]:
    batch: list[ReleasedEpoch] = []
    rows = 0
    for epoch in epochs:
        released = epoch.staged.counts.get("rows", 0) if epoch.staged else 0
        if batch and rows + released > BATCH_ROWS:
            yield batch
            batch, rows = [], 0
        batch.append(epoch)
        rows += released
    if batch:
        yield batch
