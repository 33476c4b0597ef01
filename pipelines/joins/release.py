"""One release: landed probe rows in, staged files out, every outcome counted on the way; one Spark job.

  a task reads its share of the probe and looks up its rows' versions (task)
      -> Spark SQL evaluates the expressions
          -> a task writes and counts (writer)

An INSERT that selects columns alone needs no SQL, and one task does both. Spark gets as columns only what it evaluates;
all other columns go from task to task packed into one (`task.PACKED`). A join whose key is an expression, or a column
that the ON of an earlier join may set to NULL, is looked up by a second task, behind the SQL that computes the key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.frames import settings_of_thread
from tidegate.pipelines.functions import PREFIX, all_of, called_where
from tidegate.pipelines.joins.outcome import (
    DISCARDED,
    MASK,
    MATCHED,
    PREDICATE,
    TIME_NULL,
    VIOLATED,
    WHERE,
    WITHOUT_TIME,
    Outcomes,
    bits,
    why_number,
)
from tidegate.pipelines.joins.task import (
    BYTES_BACK,
    CALLED,
    FIRST_SEQ,
    FURTHER,
    OWN,
    PACKED,
    ROW,
    UNMEASURED,
    Columns,
    Frame,
    Groups,
    Landed,
    LookUp,
    Pass,
    fixed_width,
    flat,
    frames_of,
)
from tidegate.pipelines.joins.writer import Release, Staged, Writer, merged
from tidegate.pipelines.lake.releasable import Releasable
from tidegate.pipelines.lake.rows import ddl
from tidegate.pipelines.sources.arrow_types import arrow_type
from tidegate.pipelines.sql.model import Insert
from tidegate.pipelines.sql.tree import HERE, Entry
from tidegate.pipelines.syntax.types import quoted, spark_string
from tidegate.pipelines.versions import IndexOf

_WIDTHS = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_CAST = re.compile(rf"CAST\((`[^`]*`\.`[^`]*`) AS ({'|'.join(_WIDTHS)})\)")

Frames = Callable[[Iterable[pa.RecordBatch]], Iterator[Frame]]
"""Turns the batches of a task into frames."""


@dataclass(frozen=True)
class Probe:
    """The landed rows that a plan releases.

    Attributes:
        releasable: Which rows of the table they are.
        shares: The row groups that each task reads.
        rows: The rows as a frame, of a table that the Parquet files alone do not give (deletion vectors, column
            mapping).
        columns: The probe's columns that a quarantined row holds; those of `rows` travel with every row.
    """

    releasable: Releasable
    shares: Sequence[Sequence[Groups]] = ()
    rows: DataFrame | None = None
    columns: Columns = field(default_factory=dict)


@dataclass(frozen=True)
class Joining:
    """The join of one INSERT over its `tables` (by name). `wide`: rows are known to be too wide for large batches;
    otherwise a task raises RowsTooWide if they are."""

    insert: Insert
    tables: Mapping[str, Table]
    release: Release
    wide: bool = False

    # --- columns -------------------------------------------------------------------------------------------------

    @cached_property
    def _types(self) -> dict[str, Columns]:
        """By alias, the columns that expressions of the INSERT name."""
        tables = {self.insert.probe_alias: self.insert.probe_table(self.tables)}
        tables |= {join.alias: self.tables[join.build] for join in self.insert.joins}
        stored = {
            alias: {column.name: column.spark_type for column in table.stored_columns}
            for alias, table in tables.items()
        }
        of_probe = stored[self.insert.probe_alias]
        for entry in self.insert.entries:
            stored.setdefault(entry.alias, {})[entry.column] = of_probe[entry.stored]
        texts = [*self._expressions(), *self._keys_from(0), *(join.asked for join in self.insert.joins)]
        return {alias: _named(alias, columns, texts) for alias, columns in stored.items()}

    @cached_property
    def _of_probe(self) -> dict[str, tuple[str, str]]:
        """The columns of a frame that are there before any join -> their alias, and the probe's column that they are
        of."""
        entries = [Entry(self.insert.probe_alias, name, name) for name in self._types[self.insert.probe_alias]]
        entries += [entry for entry in self.insert.entries if entry.column in self._types[entry.alias]]
        return {flat(entry.alias, entry.column): (entry.alias, entry.stored) for entry in entries}

    def _expressions(self, without: Container[str] = ()) -> list[str]:
        """All expressions but the keys, and but those of the target's columns `without`."""
        insert = self.insert
        found = [item.expression for item in insert.projections if item.name not in without]
        found += [condition.expression for condition in insert.conditions]
        found += [each.condition for each in insert.constraints]
        return found + [join.predicate or "" for join in insert.joins]

    def _keys_from(self, first: int) -> list[str]:
        """The keys of a join and of those after it."""
        return [key.probe for join in self.insert.joins[first:] for key in join.keys]

    @cached_property
    def _refs(self) -> dict[str, tuple[str, str]]:
        """A column's name in SQL -> its name in a frame, and its type."""
        return {
            f"{quoted(alias)}.{quoted(name)}": (flat(alias, name), kind)
            for alias, columns in self._types.items()
            for name, kind in columns.items()
        }

    @cached_property
    def _asks_instant(self) -> bool:
        return any("_instant" in text for text in [*self._expressions(), *self._keys_from(0)])

    @cached_property
    def _calls(self) -> bool:
        """Whether functions of the script are called, which get the rows' `_split` and `_offset`."""
        return any(PREFIX in text for text in [*self._expressions(), *self._keys_from(0)])

    @cached_property
    def _copied(self) -> dict[str, str]:
        """The target's columns that are copied from a table, and that Spark need not see: the target's name -> the name
        in a frame."""
        tested = self._tested(range(len(self.insert.joins)))
        judged = "\n".join(each.condition for each in self.insert.constraints).lower()
        found = dict[str, str]()
        for item in self.insert.projections:
            name, kind = self._refs.get(item.expression, ("", ""))
            if kind == item.spark_type and name not in tested and quoted(item.name).lower() not in judged:
                found[item.name] = name
        return found

    @cached_property
    def _evaluated(self) -> set[str]:
        """The columns of tables that Spark's SQL needs."""
        texts = [*self._expressions(without=self._copied), *self._keys_from(len(self._groups[0]))]
        return {flat(alias, name) for alias, types in self._types.items() for name in _named(alias, types, texts)}

    def _tested(self, numbers: Iterable[int]) -> list[str]:
        """The columns of a frame that `_tested_on` changes for some joins."""
        found = list[str]()
        for number in numbers:
            join = self.insert.joins[number]
            if join.predicate is not None:
                found += [f"_why{number}", *(flat(join.alias, name) for name in self._types[join.alias])]
        return found

    @cached_property
    def _groups(self) -> list[list[int]]:
        """The numbers of the joins that one task looks up together. The first group (it may be empty) has those whose
        keys are columns of the probe's frames; each further one begins with a join whose key SQL has to compute."""
        joins, first = self.insert.joins, list[int]()
        while len(first) < len(joins) and self._plain_keys(len(first)) is not None:
            first.append(len(first))
        found = [first]
        for number in range(len(first), len(joins)):
            keys = " ".join(key.probe for key in joins[number].keys).lower()
            again = any(f"{quoted(joins[one].alias)}.".lower() in keys for one in found[-1])
            if len(found) == 1 or again:
                found.append([number])
            else:
                found[-1].append(number)
        return found

    def _plain_keys(self, number: int) -> list[str] | None:
        """The frame's columns that are the keys of a join in the first group; None where SQL has to compute a key."""
        join, found = self.insert.joins[number], list[str]()
        hidden = [f"{quoted(each.alias)}." for each in self.insert.joins[:number] if each.predicate is not None]
        for key in join.keys:
            cast = _CAST.fullmatch(key.probe)
            column = cast[1] if cast else key.probe
            name, kind = self._refs.get(column, ("", ""))
            wanted = self.tables[join.build].column(key.column).spark_type
            kinds = [kind, *([cast[2]] if cast else []), wanted]
            whole = all(each in _WIDTHS for each in kinds) and kinds[0] in _WIDTHS[: _WIDTHS.index(kinds[-2]) + 1]
            if not name or not (whole or (kind == wanted and not cast)) or column.startswith(tuple(hidden)):
                return None
            found.append(name)
        return found

    # --- the job -------------------------------------------------------------------------------------------------

    def staged(
        self, spark: SparkSession, probe: Probe, builds: Mapping[str, IndexOf], folders: Mapping[str, str]
    ) -> Staged:
        """Join the probe's rows and write them below `folders`, by disposition. A task's error is raised as Spark's,
        with its whole text."""
        if probe.rows is None and not probe.shares:
            return merged([], self.insert, self.release)
        targets = {item.name: item.name for item in self.insert.projections} | self._copied
        landed = self._landed(probe)
        writer = Writer(
            self.insert, self.release, targets, folders, landed if landed.columns and not landed.carrying else None
        )
        rows, frames = _read(spark, probe, landed)
        work = self._pass(0, builds)
        if self._columns_alone:
            found = _written(rows, lambda batches: work.over(frames(batches)), writer)
        else:
            rows = self._tested_on(_looked_up(rows, frames, work), work, 0)
            for group in range(1, len(self._groups)):
                keys = self._with_keys(rows, work, group)
                work = self._pass(group, builds)
                rows = self._tested_on(_looked_up(keys, frames_of, work), work, group)
            found = _written(self._concluded(rows, work), frames_of, writer)
        with settings_of_thread(spark, UNMEASURED if self._measured and probe.rows is None else {}):
            return merged([row["result"] for row in found.collect()], self.insert, self.release)

    @property
    def _measured(self) -> bool:
        """Whether the size of a batch that Spark returns follows from the size of what it gets, which a task bounds:
        every value that it computes has a fixed width. A function of the script may compute any."""
        results = [item.spark_type for item in self.insert.projections if item.name not in self._copied]
        for join in self.insert.joins[len(self._groups[0]) :]:
            results += [self.tables[join.build].column(key.column).spark_type for key in join.keys]
        return not (self.wide or self._calls) and all(map(fixed_width, results))

    @property
    def _columns_alone(self) -> bool:
        insert = self.insert
        return (
            len(self._groups) == 1
            and not (insert.conditions or insert.constraints or self.release.discard)
            and all(join.predicate is None for join in insert.joins)
            and len(self._copied) == len(insert.projections)
        )

    def _pass(self, group: int, builds: Mapping[str, IndexOf]) -> Pass:
        """The look-up of a group of joins. Columns are not packed if SQL changes them, if nothing needs them after SQL,
        or if each pass makes them anew."""
        insert, numbers, lookups = self.insert, self._groups[group], list[LookUp]()
        tested, plain = self._tested(numbers), set(self._copied.values())
        last = group == len(self._groups) - 1
        not_packed = {*tested, "_instant", *CALLED, *(["_probe_time"] if last and not self.release.placed else [])}
        for number in numbers:
            join = insert.joins[number]
            keys, other = self._plain_keys(number) or [], None
            if group:
                keys, other = [f"_key{number}_{place}" for place in range(len(join.keys))], f"_other{number}"
                not_packed |= {*keys, other}
            columns, asked = tuple(self._types[join.alias]), join.of and flat(join.of, HERE)
            lookups.append(LookUp(number, join, builds[join.build], tuple(keys), other, columns, insert.proof, asked))
        met = [number for each in self._groups[: group + 1] for number in each]
        shown = {f"_why{number}": "TINYINT" for number in met}
        of_probe = dict.fromkeys(alias for alias, _ in self._of_probe.values())
        for alias in (*of_probe, *(insert.joins[number].alias for number in met)):
            flats = {flat(alias, name): kind for name, kind in self._types[alias].items()}
            shown |= {name: kind for name, kind in flats.items() if name in self._evaluated or name in tested}
            not_packed |= flats.keys() - plain if last else set()
        instant = self.release.instant if self._asks_instant else None
        shown |= {} if instant is None else {"_instant": "TIMESTAMP"}
        shown |= CALLED if self._calls else {}
        open_after = self.release.discard or insert.constraints or any(join.predicate for join in insert.joins)
        missed = () if self.release.on_unmatched == "publish" else tuple(f"_why{number}" for number in numbers)
        missed = None if open_after or self.release.placed or len(numbers) < len(insert.joins) else missed
        return Pass(
            tuple(lookups),
            frozenset(not_packed),
            shown,
            instant,
            missed,
            most_bytes=None if self.wide else BYTES_BACK,
            number=group,
            timed=insert.probe_alias if insert.time == "event" and not group else None,
            late_upto=self.release.late_upto,
            probe=insert.probe_alias,
        )

    def _landed(self, probe: Probe) -> Landed:
        event, stored = self.insert.time == "event", {name: of for name, (_, of) in self._of_probe.items()}
        kinds = {column.name: column.spark_type for column in self.insert.probe_table(self.tables).stored_columns}
        types = {name: arrow_type(kinds[name]) for name in stored.values()}
        columns = {name: arrow_type(kind) for name, kind in probe.columns.items()}
        carrying = bool(columns) and probe.rows is not None
        timed = event or self.release.placed
        return Landed(stored, types, columns, probe.releasable, timed, list(probe.shares), carrying)

    # --- SQL -----------------------------------------------------------------------------------------------------
    # Each step is a projection: SQL text takes Spark twice as long, and a view.

    def _scoped(self, rows: DataFrame, work: Pass) -> DataFrame:
        """The rows with a struct of each table's columns in addition, as expressions name them. Spark optimises the
        structs away."""
        structs = []
        for alias, types in self._types.items():
            there = [name for name in types if flat(alias, name) in work.shown]
            fields = ", ".join(f"{spark_string(name)}, {quoted(flat(alias, name))}" for name in there)
            structs += [f"named_struct({fields}) AS {quoted(alias)}"] if there else []
        return rows.selectExpr("*", *structs) if structs else rows

    def _tested_on(self, rows: DataFrame, work: Pass, group: int) -> DataFrame:
        """Test the terms of ON that are no key equalities, on the version that was found. Where one fails there is no
        match: the build's columns become NULL."""
        names = [*work.shown, ROW, PACKED]
        for number in self._groups[group]:
            join, why = self.insert.joins[number], f"_why{number}"
            if join.predicate is None:
                continue
            met = f"{why} IS NULL"
            failed = f"{met} AND NOT coalesce(({called_where(met, join.predicate)}), false)"
            tested = f"CAST(IF({failed}, {why_number(PREDICATE)}, {why}) AS TINYINT) AS {why}"
            rows = self._scoped(rows, work).selectExpr(*(quoted(name) for name in names if name != why), tested)
            own = {flat(join.alias, name) for name in self._types[join.alias]}
            seen = {quoted(name): f"IF({why} IS NULL, {quoted(name)}, NULL)" for name in names if name in own}
            rows = rows.selectExpr(*(quoted(name) for name in names if name not in own), *_aliased(seen))
        return rows

    def _with_keys(self, rows: DataFrame, work: Pass, group: int) -> DataFrame:
        """Replace the columns that Spark has (but for those that `_tested_on` has changed) by the keys of a group of
        joins, as values of the builds' types, and by whether a key has no equal value in the build's type."""
        found, taken = dict[str, str](), all_of(term for term in self.insert.terms[0] if PREFIX not in term)
        for number in self._groups[group]:
            join, other = self.insert.joins[number], list[str]()
            probed = [called_where(taken, key.probe) for key in join.keys]
            for place, (key, probe) in enumerate(zip(join.keys, probed, strict=True)):
                own = f"try_cast(({probe}) AS {self.tables[join.build].column(key.column).spark_type})"
                found[f"_key{number}_{place}"] = own
                other.append(f"NOT coalesce(({probe}) = {own}, false)")
            known = " AND ".join(f"({probe}) IS NOT NULL" for probe in probed)
            found[f"_other{number}"] = f"{known} AND ({' OR '.join(other)})"
        tested = self._tested(self._groups[group - 1])
        return self._scoped(rows, work).selectExpr(ROW, PACKED, *map(quoted, tested), *_aliased(found))

    def _concluded(self, rows: DataFrame, work: Pass) -> DataFrame:
        """Replace the tables' columns by the target's, and by `_outcome`, a number (`Outcomes`).

        WHERE must not remove an unmatched row without a count: its terms on the probe alone are tested first, the rest
        only on rows that matched (or that are published null-extended).
        """
        insert, release, known = self.insert, self.release, Outcomes(self.insert)
        numbered = list(enumerate(insert.joins))
        missing = known.missed_sql("unmatched", numbered)
        lost = known.missed_sql("dropped", [(number, join) for number, join in numbered if join.kind == "INNER"])
        of_probe, of_all = insert.terms
        left_out = f"IF({all_of(of_probe)}, NULL, {known.number(WHERE)})"
        if insert.time == "event":
            timed = next(number for number, join in numbered if join.time == "event")
            left_out += f", IF(_why{timed} = {WITHOUT_TIME}, {known.number(TIME_NULL)}, NULL)"
        before = [left_out, lost if release.on_unmatched == "publish" else missing]
        undecided = f"coalesce({', '.join(before)}) IS NULL"
        rest = f"IF({all_of(of_all, undecided)}, NULL, {known.number(WHERE)})"
        by = [*before, rest, *([missing] if release.on_unmatched == "publish" else [])]
        rows = self._scoped(rows, work).selectExpr(
            "*", f"coalesce({', '.join(by)}, {known.number(MATCHED)}) AS _outcome"
        )
        if release.discard:
            discarded = f"IF({known.dropped_sql()}, _outcome, {known.number(DISCARDED)})"
            rows = rows.withColumn("_outcome", F.expr(discarded))
        own = [ROW, PACKED, "_outcome", *(name for name in self._tested(self._groups[-1]) if name.startswith("_why"))]
        if any("_instant" in each.condition for each in insert.constraints):
            own.append("_instant")
        # What is dropped is only counted: an expression that fails on such a row fails nothing.
        kept = f"NOT {known.dropped_sql()}" if self._drops else "true"
        guard = f"CASE WHEN {kept} THEN ({{}}) END" if self._drops else "{}"
        evaluated = [item for item in insert.projections if item.name not in self._copied]
        items = {quoted(item.name): guard.replace("{}", called_where(kept, item.expression)) for item in evaluated}
        rows = rows.selectExpr(*own, *_aliased(items))
        return self._judged(rows) if insert.constraints else rows

    def _judged(self, rows: DataFrame) -> DataFrame:
        """Add the mask of violated constraints of each row that would be published, and change the outcome of rows that
        are quarantined for one."""
        constraints, known = self.insert.constraints, Outcomes(self.insert)
        last = known.last_published(publish_unmatched=self.release.on_unmatched == "publish")
        bit = bits(constraints)
        # NOT NULL is NULL, and IF takes that for false: no violation.
        mask = " + ".join(f"IF(NOT {each.condition}, {bit[each.name]}L, 0L)" for each in constraints)
        rows = rows.withColumn(MASK, F.expr(f"IF(_outcome <= {last}, {mask}, 0L)"))
        # The highest bit that is set is that of the severest constraint.
        cases = [
            f"WHEN {MASK} >= {bit[each.name]}L THEN {known.number(VIOLATED + each.name)}"
            for each in constraints
            if each.action != "warn"
        ]
        return rows.withColumn("_outcome", F.expr(f"CASE {' '.join(cases)} ELSE _outcome END")) if cases else rows

    @property
    def _drops(self) -> bool:
        inner = any(join.kind == "INNER" for join in self.insert.joins)
        return bool(self.insert.conditions) or (inner and self.release.on_unmatched == "publish")


def _named(alias: str, columns: Columns, expressions: Sequence[str]) -> Columns:
    """The columns of a table that expressions name."""
    text = "\n".join(expressions).lower()
    return {name: kind for name, kind in columns.items() if f"{quoted(alias)}.{quoted(name)}".lower() in text}


def _aliased(columns: Mapping[str, str]) -> list[str]:
    return [f"{expression} AS {name}" for name, expression in columns.items()]


def _read(spark: SparkSession, probe: Probe, landed: Landed) -> tuple[DataFrame, Frames]:
    """The frame that the first task reads, and how the task turns its batches into frames."""
    if probe.rows is not None:
        there = set(probe.rows.columns)
        asked = dict.fromkeys([*OWN.values(), "_rowtime", FIRST_SEQ, FURTHER, *landed.types, *landed.columns])
        return probe.rows.select(*(quoted(name) for name in asked if name in there)), landed.of

    def frames(numbers: Iterable[pa.RecordBatch]) -> Iterator[Frame]:
        for batch in numbers:
            for share in batch.column(0).to_pylist():
                yield from landed.frames(share)

    return spark.range(0, len(probe.shares), 1, len(probe.shares)), frames


def _looked_up(rows: DataFrame, frames: Frames, work: Pass) -> DataFrame:
    """The rows after a task's look-up, with the columns that Spark gets."""

    def call(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from work.batches(frames(batches))

    return rows.mapInArrow(call, ddl({**work.shown, ROW: "INT", PACKED: "BINARY"}))


def _written(rows: DataFrame, frames: Frames, writer: Writer) -> DataFrame:
    """The report of each task on the files that it has written."""

    def call(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"result": [writer.write(frames(batches))]})

    return rows.mapInArrow(call, "result STRING")
