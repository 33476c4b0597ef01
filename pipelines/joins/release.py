"""One release: landed probe rows in, staged files out, every outcome counted in the same pass; one Spark job.

    a task reads its share of the probe and finds what its rows meet (task)  ->  Spark SQL, for all that is an
    expression  ->  a task writes and counts (writer)

An INSERT that asks for columns alone has no SQL, and one task does both. A join whose key is an expression, or follows
from what ON has left of an earlier join, is a second look-up behind the SQL that gives the key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tidegate.pipelines.connectors.spec import SEQ_TYPE
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.frames import as_views
from tidegate.pipelines.joins.outcome import DISCARDED, MATCHED, PREDICATE, TIME_NULL, WHERE, Outcomes, ask, why_number
from tidegate.pipelines.joins.query import Query, flat, split_where
from tidegate.pipelines.joins.task import OWN, Frame, Groups, Meeting, Pass, ProbeColumns, Reading, frames_of
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
    """The join of one INSERT over its `tables` (by name)."""

    insert: Insert
    tables: Mapping[str, Table]
    release: Release

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
        return {alias: _named(alias, columns, self._expressions()) for alias, columns in stored.items()}

    def _expressions(self, *, keys: bool = True) -> list[str]:
        insert = self.insert
        found = [item.expression for item in insert.projections]
        found += [condition.expression for condition in insert.conditions]
        found += [each.condition for each in insert.constraints]
        found += [join.predicate or "" for join in insert.joins]
        return found + [key.probe for join in insert.joins for key in join.keys if keys]

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
        return any("_instant" in text for text in self._expressions())

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
        probe, insert = self.insert.probe_alias, self.insert
        later = [
            key.probe for number, join in enumerate(insert.joins) for key in join.keys if number not in self._groups[0]
        ]
        found = _named(probe, self._types[probe], [*self._expressions(keys=False), *later])
        return {**{flat(probe, name): kind for name, kind in found.items()}, **self._own()}

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
        first, *more = self._groups
        columns = {**self._of_probe(), **probe.travelling}
        work = self._pass(first, [self._plain_keys(number) or [] for number in first], builds, columns)
        if self._columns_alone:
            columns = {item.name: self._refs[item.expression][0] for item in self.insert.projections}
            writer = Writer(self.insert, self.release, columns, folders, probe.looked_up)
            found = self._read(spark, probe, work, writer)
            return merged([row["result"] for row in found.collect()], self.insert, self.release)
        rows, columns = self._read(spark, probe, work), work[1]
        for before, group in zip([first, *more], more, strict=False):
            keys = {name: text for number in group for name, text in self._keys(number).items()}
            rows = self._sql(rows, columns, before, lambda query, keys=keys: query.select("keyed", keys))
            names = [[f"_key{n}_{place}" for place in range(len(self.insert.joins[n].keys))] for n in group]
            work = self._pass(group, names, builds, columns)
            rows, columns = _mapped(rows, frames_of, *work), work[1]
        rows = self._sql(rows, columns, [first, *more][-1], self._conclude)
        names = {item.name: item.name for item in self.insert.projections}
        writer = Writer(self.insert, self.release, names, folders, probe.looked_up)
        found = _mapped(rows, frames_of, None, {}, writer)
        return merged([row["result"] for row in found.collect()], self.insert, self.release)

    @property
    def _columns_alone(self) -> bool:
        insert = self.insert
        return (
            len(self._groups) == 1
            and not (insert.conditions or insert.constraints or self.release.discard)
            and all(join.predicate is None for join in insert.joins)
            and all(self._refs.get(item.expression, ("", ""))[1] == item.spark_type for item in insert.projections)
        )

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
        """The look-up of some joins in frames of `columns`, and the columns that it gives."""
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
        settled = not open_after and len(numbers) == len(insert.joins)
        instant = self.release.instant if self._asks_instant else None
        return Pass(tuple(meetings), tuple(columns), instant, settled), columns

    def _read(
        self, spark: SparkSession, probe: Probe, work: tuple[Pass, Columns], writer: Writer | None = None
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
            return _mapped(rows, frames_of, *work, writer)
        types = {name: arrow_type(kind) for name, kind in self._types[alias].items()}
        reading, shares = Reading(alias, types, probe.releasable, event), list(probe.shares)

        def frames(numbers: Iterable[pa.RecordBatch]) -> Iterator[Frame]:
            for batch in numbers:
                for number in batch.column(0).to_pylist():
                    yield from reading.frames(shares[number])

        return _mapped(spark.range(0, len(shares), 1, len(shares)), frames, *work, writer)

    def _sql(
        self, rows: DataFrame, columns: Columns, looked_up: Sequence[int], then: Callable[[Query], None]
    ) -> DataFrame:
        """What the rest of ON says of the joins that were just looked up, then what `then` adds."""
        with as_views({"rows": rows}) as views:
            query = Query(views["rows"], [quoted(name) for name in columns])
            for alias, types in self._types.items():
                if there := [name for name in types if quoted(flat(alias, name)) in query.columns]:
                    query.scope[alias] = there
            for number in looked_up:
                if self.insert.joins[number].predicate is not None:
                    self._test(query, number)
            then(query)
            return rows.sparkSession.sql(query.text())

    def _test(self, query: Query, number: int) -> None:
        """The rest of ON, which is tested on the version that was met; of another one nothing is seen."""
        join, why = self.insert.joins[number], quoted(f"_why{number}")
        failed = f"{why} IS NULL AND NOT coalesce(({join.predicate}), false)"
        tested = f"CAST(IF({failed}, {why_number(PREDICATE)}, {why}) AS TINYINT)"
        query.select(f"tested{number}", {why: tested}, keep=[name for name in query.columns if name != why])
        own = {quoted(flat(join.alias, name)) for name in self._types[join.alias]}
        shown = {name: f"IF({why} IS NULL, {name}, NULL)" if name in own else name for name in query.columns}
        query.step(f"chosen{number}", shown)

    def _conclude(self, query: Query) -> None:
        """Add `_outcome`, a number (`Outcomes`), and the target's columns, in the place of the tables'."""
        insert, release, known = self.insert, self.release, Outcomes(self.insert)
        of_probe, of_all = split_where(insert)
        if insert.conditions:
            tests = {"_of_probe": f"coalesce(({of_probe}), false)", "_of_all": f"coalesce(({of_all}), false)"}
            query.select("tested", tests)
        numbered = list(enumerate(insert.joins))
        missing = known.missed_sql("unmatched", numbered)
        lost = known.missed_sql("dropped", [(number, join) for number, join in numbered if join.kind == "INNER"])
        where, matched = known.number(WHERE), known.number(MATCHED)
        left_out, rest = (
            f"IF({asked}, NULL, {where})" if insert.conditions else "NULL" for asked in ("_of_probe", "_of_all")
        )
        if insert.time == "event":
            left_out += f", IF(_probe_time IS NULL, {known.number(TIME_NULL)}, NULL)"
        by = [left_out, lost, rest, missing] if release.on_unmatched == "publish" else [left_out, missing, rest]
        outcome = f"coalesce({', '.join(by)}, {matched})"
        if release.discard:
            outcome = f"IF({known.dropped_sql(outcome)}, {outcome}, {known.number(DISCARDED)})"
        query.select("concluded", {"_outcome": outcome})
        flats = {quoted(flat(alias, name)) for alias, types in self._types.items() for name in types}
        own = [name for name in query.columns if name not in {*flats, "_of_probe", "_of_all"}]
        # What is dropped is only counted: an expression that fails on such a row fails nothing.
        guard = f"CASE WHEN NOT {known.dropped_sql()} THEN ({{}}) END" if self._drops else "{}"
        items = {quoted(item.name): guard.replace("{}", item.expression) for item in insert.projections}
        query.select("projected", items, keep=own)
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
    """The rows once a task has looked them up (`work`): as rows of `columns`, or what was reported of their files."""

    def call(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        given = frames(batches)
        if writer is not None:
            result = writer.write(given if work is None else work.over(given))
            yield pa.RecordBatch.from_pydict({"result": [result]})
        elif work is not None:
            yield from work.batches(given)

    return rows.mapInArrow(call, "result STRING" if writer is not None else ddl(dict(columns)))
