"""One release: landed probe rows in, staged files out, every outcome counted in the same pass; one Spark job.

    a task reads its share of the probe and finds what its rows meet (task)  ->  Spark SQL, for all that is an
    expression  ->  a task writes and counts (writer)

An INSERT that asks for columns alone has no SQL, and one task does both. Spark is shown the columns that it evaluates;
the others go from task to task packed (`task.PACKED`). A join whose key is an expression, or follows from what ON has
left of an earlier join, is a second look-up behind the SQL that gives the key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tidegate.pipelines.connectors.spec import SEQ_TYPE
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.frames import settings_of_thread
from tidegate.pipelines.joins.outcome import (
    DISCARDED,
    MATCHED,
    PREDICATE,
    TIME_NULL,
    WHERE,
    WITHOUT_TIME,
    Outcomes,
    ask,
    why_number,
)
from tidegate.pipelines.joins.query import Query, flat, split_where
from tidegate.pipelines.joins.task import (
    BYTES_BACK,
    OWN,
    PACKED,
    ROW,
    UNMEASURED,
    Frame,
    Groups,
    Meeting,
    Pass,
    ProbeColumns,
    Reading,
    fixed_width,
    frames_of,
)
from tidegate.pipelines.joins.writer import Release, Staged, Writer, merged
from tidegate.pipelines.lake.releasable import Releasable
from tidegate.pipelines.lake.rows import LAKE_COLUMNS, ddl
from tidegate.pipelines.sources.arrow_types import arrow_type
from tidegate.pipelines.sql.model import Insert
from tidegate.pipelines.syntax.types import quoted
from tidegate.pipelines.versions import IndexOf

_WIDTHS = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_CAST = re.compile(rf"CAST\((`[^`]*`\.`[^`]*`) AS ({'|'.join(_WIDTHS)})\)")

Columns = Mapping[str, str]
"""Name -> Spark type."""


@dataclass(frozen=True)
class Build:
    """A build side at its pin. `horizon`: retention has removed versions that ended at or before it (us, UTC), so a row
    before it finds nothing."""

    index: IndexOf
    horizon: int | None = None


@dataclass(frozen=True)
class Probe:
    """The landed rows that a plan releases: row groups for each task, of which the `releasable` rows are taken; or
    `rows`, of a table whose files alone do not tell its rows. `columns`: those that a quarantined row holds."""

    releasable: Releasable
    shares: Sequence[Sequence[Groups]] = ()
    rows: DataFrame | None = None
    columns: Columns = field(default_factory=dict)

    @property
    def travelling(self) -> Columns:
        """What travels of them with each row, in one column."""
        own = ", ".join(f"{quoted(name)}: {kind}" for name, kind in self.columns.items())
        return {"_probe": f"STRUCT<{own}>"} if own and self.rows is not None else {}

    @property
    def looked_up(self) -> ProbeColumns | None:
        """Those that do not travel."""
        if not self.columns or self.rows is not None:
            return None
        types = {name: arrow_type(kind) for name, kind in self.columns.items()}
        return ProbeColumns(types, self.releasable, list(self.shares))


@dataclass(frozen=True)
class Joining:
    """The join of one INSERT over its `tables` (by name). Unless its rows are known to be `wide`, a task raises
    RowsTooWide where they are."""

    insert: Insert
    tables: Mapping[str, Table]
    release: Release
    wide: bool = False

    # --- columns -------------------------------------------------------------------------------------------------

    @cached_property
    def _types(self) -> dict[str, Columns]:
        """By alias, the columns that some expression names."""
        tables = {self.insert.probe_alias: self.tables[self.insert.probe]}
        tables |= {join.alias: self.tables[join.build] for join in self.insert.joins}
        stored = {
            alias: {column.name: column.spark_type for column in table.stored_columns}
            for alias, table in tables.items()
        }
        texts = [*self._expressions(), *self._keys_from(0)]
        return {alias: _named(alias, columns, texts) for alias, columns in stored.items()}

    def _expressions(self, without: Container[str] = ()) -> list[str]:
        """All but the keys; `without` the target's columns of some names."""
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
        """A column, by how SQL names it: the name under which it travels, and its type."""
        return {
            f"{quoted(alias)}.{quoted(name)}": (flat(alias, name), kind)
            for alias, columns in self._types.items()
            for name, kind in columns.items()
        }

    @cached_property
    def _asks_instant(self) -> bool:
        return any("_instant" in text for text in [*self._expressions(), *self._keys_from(0)])

    def _own(self) -> Columns:
        """What travels of the landed row beside the probe's columns."""
        found = {name: LAKE_COLUMNS[column] for name, column in OWN.items()} | {"_probe_op": "SMALLINT"}
        found |= {"_probe_time": "BIGINT"} if self.insert.time == "event" else {}
        return found | ({"_instant": "TIMESTAMP"} if self._asks_instant else {})

    def _of_join(self, number: int) -> Columns:
        """What travels of a join."""
        join = self.insert.joins[number]
        found = {flat(join.alias, name): kind for name, kind in self._types[join.alias].items()}
        found |= {f"_why{number}": "TINYINT", f"_build{number}_epoch": "BIGINT", f"_outside{number}": "BOOLEAN"}
        return found | ({f"_build{number}_seq": SEQ_TYPE} if self.insert.proof else {})

    def _of_probe(self) -> Columns:
        """What travels of the probe behind the first look-up: no column that is a key of it and nothing else."""
        probe = self.insert.probe_alias
        found = _named(probe, self._types[probe], [*self._expressions(), *self._keys_from(len(self._groups[0]))])
        return {**{flat(probe, name): kind for name, kind in found.items()}, **self._own()}

    @cached_property
    def _plain(self) -> dict[str, str]:
        """The target's columns that are a column as it was found, which Spark need not see, and under which name it
        travels."""
        tested = self._tested(range(len(self.insert.joins)))
        judged = "\n".join(each.condition for each in self.insert.constraints).lower()
        found = dict[str, str]()
        for item in self.insert.projections:
            name, kind = self._refs.get(item.expression, ("", ""))
            if kind == item.spark_type and name not in tested and quoted(item.name).lower() not in judged:
                found[item.name] = name
        return found

    @cached_property
    def _asked(self) -> set[str]:
        """What Spark is shown: what it evaluates, and what an outcome follows from."""
        texts = [*self._expressions(without=self._plain), *self._keys_from(len(self._groups[0]))]
        found = {flat(alias, name) for alias, types in self._types.items() for name in _named(alias, types, texts)}
        return found | {"_instant", *(f"_why{number}" for number in range(len(self.insert.joins)))}

    def _tested(self, numbers: Iterable[int]) -> list[str]:
        """The columns that the rest of ON of some joins changes: see `_test`."""
        found = list[str]()
        for number in numbers:
            join = self.insert.joins[number]
            if join.predicate is not None:
                found += [f"_why{number}", *(flat(join.alias, name) for name in self._types[join.alias])]
        return found

    @cached_property
    def _groups(self) -> list[list[int]]:
        """The joins that are looked up together, by number: at first those (there may be none) whose keys are known
        when the probe is read; each further group begins with a key that SQL has to give."""
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
        """The columns of the first frames that the keys of a join are; None where SQL has to give them."""
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
        self, spark: SparkSession, probe: Probe, builds: Mapping[str, Build], folders: Mapping[str, str]
    ) -> Staged:
        """Write what comes of the probe's rows below `folders`, by disposition. A task's error comes as Spark's, with
        its whole text."""
        if probe.rows is None and not probe.shares:
            return merged([], self.insert, self.release)
        names = {item.name: item.name for item in self.insert.projections} | self._plain
        writer = Writer(self.insert, self.release, names, folders, probe.looked_up)
        first, *more = self._groups
        columns = {**self._of_probe(), **probe.travelling}
        work, columns = self._pass(first, [self._plain_keys(number) or [] for number in first], builds, columns)
        if self._columns_alone:
            found = self._read(spark, probe, work, columns, writer)
        else:
            rows = self._read(spark, probe, work, columns)
            for before, group in zip(self._groups, more, strict=False):
                rows = self._sql(rows, before, partial(self._key, group))
                names = [[f"_key{n}_{place}" for place in range(len(self.insert.joins[n].keys))] for n in group]
                work, columns = self._pass(group, names, builds, columns)
                rows = _mapped(rows, frames_of, work, columns)
            found = _mapped(self._sql(rows, self._groups[-1], self._conclude), frames_of, None, {}, writer)
        with settings_of_thread(spark, UNMEASURED if self._measured and probe.rows is None else {}):
            return merged([row["result"] for row in found.collect()], self.insert, self.release)

    @property
    def _measured(self) -> bool:
        """Whether the bytes of a batch that Spark hands on follow from what it was handed, which a task bounds: each
        result has a width of its type."""
        results = [item.spark_type for item in self.insert.projections if item.name not in self._plain]
        for join in self.insert.joins[len(self._groups[0]) :]:
            results += [self.tables[join.build].column(key.column).spark_type for key in join.keys]
        return not self.wide and all(map(fixed_width, results))

    @property
    def _columns_alone(self) -> bool:
        insert = self.insert
        return (
            len(self._groups) == 1
            and not (insert.conditions or insert.constraints or self.release.discard)
            and all(join.predicate is None for join in insert.joins)
            and len(self._plain) == len(insert.projections)
        )

    def _key(self, numbers: Sequence[int], tested: Sequence[str], query: Query) -> None:
        """Add the keys of some joins, in the place of all that Spark was shown."""
        keys = {name: text for number in numbers for name, text in self._keys(number).items()}
        query.select(keys, keep=[ROW, PACKED, *map(quoted, tested)])

    def _keys(self, number: int) -> dict[str, str]:
        """SQL of a join's keys, as values of the build's types; and whether one is of none of them, so that nothing is
        equal to it."""
        join, found, other = self.insert.joins[number], dict[str, str](), list[str]()
        for place, key in enumerate(join.keys):
            own = f"try_cast(({key.probe}) AS {self.tables[join.build].column(key.column).spark_type})"
            found[f"_key{number}_{place}"] = own
            other.append(f"NOT coalesce(({key.probe}) = {own}, false)")
        known = " AND ".join(f"({key.probe}) IS NOT NULL" for key in join.keys)
        return {**found, f"_other{number}": f"{known} AND ({' OR '.join(other)})"}

    def _pass(
        self, numbers: Sequence[int], keys: Sequence[Sequence[str]], builds: Mapping[str, Build], columns: Columns
    ) -> tuple[Pass, Columns]:
        """The look-up of some joins in frames of `columns`, and the columns that it gives. What Spark then changes is
        not packed, nor what nobody asks for once it has seen it."""
        insert, meetings = self.insert, list[Meeting]()
        for number, names in zip(numbers, keys, strict=True):
            join, other = insert.joins[number], None if number in self._groups[0] else f"_other{number}"
            build, asked = builds[join.build], tuple(self._types[join.alias])
            event, horizon = join.time == "event", build.horizon
            meetings.append(
                Meeting(number, join.alias, tuple(names), other, build.index, asked, event, horizon, insert.proof)
            )
            columns = {**columns, **self._of_join(number)}
        open_after = self.release.discard or insert.constraints or any(join.predicate for join in insert.joins)
        missed = () if self.release.on_unmatched == "publish" else tuple(f"_why{number}" for number in numbers)
        missed = None if open_after or len(numbers) < len(insert.joins) else missed
        instant = self.release.instant if self._asks_instant else None
        tested, asked = self._tested(numbers), self._asked
        gone = {*tested, "_instant"}  # each pass makes the instant anew
        if numbers == self._groups[-1]:
            flats = {flat(alias, name) for alias, types in self._types.items() for name in types}
            gone |= flats - set(self._plain.values())
        shown = [name for name in columns if name in asked or name in tested]
        handed_on = [name for name in columns if name not in gone]
        at_once = None if self.wide else BYTES_BACK
        return Pass(tuple(meetings), tuple(handed_on), tuple(shown), instant, missed, at_once), columns

    def _read(
        self, spark: SparkSession, probe: Probe, work: Pass, columns: Columns, writer: Writer | None = None
    ) -> DataFrame:
        """The first look-up over the probe's rows: as rows, or written."""
        alias, event = self.insert.probe_alias, self.insert.time == "event"
        if probe.rows is not None:
            names = {quoted(flat(alias, name)): quoted(name) for name in self._types[alias]} | OWN
            names["_probe_op"] = "CAST(256 * ascii(_op) + ascii(substr(_op, 2)) AS SMALLINT)"
            names |= {"_probe_time": "unix_micros(_rowtime)"} if event else {}
            there = probe.rows.columns  # a column that was declared since comes with the next epoch that lands
            own = (
                quoted(name) if name in there else f"CAST(NULL AS {kind}) AS {quoted(name)}"
                for name, kind in probe.columns.items()
            )
            names |= {name: f"struct({', '.join(own)})" for name in probe.travelling}
            rows = probe.rows.selectExpr(*(f"{expression} AS {name}" for name, expression in names.items()))
            return _mapped(rows, frames_of, work, columns, writer)
        types = {name: arrow_type(kind) for name, kind in self._types[alias].items()}
        reading, shares = Reading(alias, types, probe.releasable, event), list(probe.shares)

        def frames(numbers: Iterable[pa.RecordBatch]) -> Iterator[Frame]:
            for batch in numbers:
                for number in batch.column(0).to_pylist():
                    yield from reading.frames(shares[number])

        return _mapped(spark.range(0, len(shares), 1, len(shares)), frames, work, columns, writer)

    def _sql(
        self, rows: DataFrame, looked_up: Sequence[int], then: Callable[[Sequence[str], Query], None]
    ) -> DataFrame:
        """What the rest of ON says of the joins that were just looked up, then what `then` adds."""
        query = Query(rows, list(map(quoted, rows.columns)))
        for alias, types in self._types.items():
            if there := [name for name in types if quoted(flat(alias, name)) in query.columns]:
                query.scope[alias] = there
        for number in looked_up:
            if self.insert.joins[number].predicate is not None:
                self._test(query, number)
        then(self._tested(looked_up), query)
        return query.rows

    def _test(self, query: Query, number: int) -> None:
        """The rest of ON, which is tested on the version that was met; of another one nothing is seen."""
        join, why = self.insert.joins[number], quoted(f"_why{number}")
        failed = f"{why} IS NULL AND NOT coalesce(({join.predicate}), false)"
        tested = f"CAST(IF({failed}, {why_number(PREDICATE)}, {why}) AS TINYINT)"
        query.select({why: tested}, keep=[name for name in query.columns if name != why])
        own = {quoted(flat(join.alias, name)) for name in self._types[join.alias]}
        shown = {name: f"IF({why} IS NULL, {name}, NULL)" if name in own else name for name in query.columns}
        query.step(shown)

    def _conclude(self, tested: Sequence[str], query: Query) -> None:
        """Add `_outcome`, a number (`Outcomes`), and the target's columns, in the place of the tables'."""
        insert, release, known = self.insert, self.release, Outcomes(self.insert)
        numbered = list(enumerate(insert.joins))
        missing = known.missed_sql("unmatched", numbered)
        lost = known.missed_sql("dropped", [(number, join) for number, join in numbered if join.kind == "INNER"])
        where, matched = known.number(WHERE), known.number(MATCHED)
        left_out, rest = (f"IF({asked}, NULL, {where})" for asked in split_where(insert))
        if insert.time == "event":
            left_out += f", IF(_why0 = {WITHOUT_TIME}, {known.number(TIME_NULL)}, NULL)"
        by = [left_out, lost, rest, missing] if release.on_unmatched == "publish" else [left_out, missing, rest]
        query.select({"_outcome": f"coalesce({', '.join(by)}, {matched})"})
        if release.discard:
            discarded = f"IF({known.dropped_sql()}, _outcome, {known.number(DISCARDED)})"
            query.step({**{name: name for name in query.columns}, "_outcome": discarded})
        own = [ROW, PACKED, "_outcome", *(name for name in tested if name.startswith("_why"))]
        if any("_instant" in each.condition for each in insert.constraints):
            own.append("_instant")
        # What is dropped is only counted: an expression that fails on such a row fails nothing.
        guard = f"CASE WHEN NOT {known.dropped_sql()} THEN ({{}}) END" if self._drops else "{}"
        evaluated = [item for item in insert.projections if item.name not in self._plain]
        items = {quoted(item.name): guard.replace("{}", item.expression) for item in evaluated}
        query.select(items, keep=own)
        if insert.constraints:
            last = known.last_published(publish_unmatched=release.on_unmatched == "publish")
            ask(query, insert, f"_outcome <= {last}")

    @property
    def _drops(self) -> bool:
        inner = any(join.kind == "INNER" for join in self.insert.joins)
        return bool(self.insert.conditions) or (inner and self.release.on_unmatched == "publish")


def _named(alias: str, columns: Columns, expressions: Sequence[str]) -> Columns:
    """The columns of a table that some expression names."""
    text = "\n".join(expressions).lower()
    return {name: kind for name, kind in columns.items() if f"{quoted(alias)}.{quoted(name)}".lower() in text}


def _mapped(
    rows: DataFrame,
    frames: Callable[[Iterable[pa.RecordBatch]], Iterator[Frame]],
    work: Pass | None,
    columns: Columns,
    writer: Writer | None = None,
) -> DataFrame:
    """The rows once a task has looked them up (`work`), which gives `columns`: as Spark is shown them, or what was
    reported of their files."""

    def call(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        given = frames(batches)
        if writer is not None:
            result = writer.write(given if work is None else work.over(given))
            yield pa.RecordBatch.from_pydict({"result": [result]})
        elif work is not None:
            yield from work.batches(given)

    if writer is not None or work is None:
        return rows.mapInArrow(call, "result STRING")
    return rows.mapInArrow(call, ddl({**{name: columns[name] for name in work.shown}, ROW: "INT", PACKED: "BINARY"}))
