"""The index of a build's versions (tidegate.pipelines.versions): of which runs it consists, and the check that it has
every row of the build."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tidegate.pipelines.commands import either, resnapshot
from tidegate.pipelines.connectors.protocol import StoredStep
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import LakeError
from tidegate.pipelines.lake import Lake, delta_log
from tidegate.pipelines.lake.by_name import TableState
from tidegate.pipelines.lake.rows import LAKE_COLUMNS, ddl
from tidegate.pipelines.lake.stream import Generation, Removed, Stream
from tidegate.pipelines.location import Location
from tidegate.pipelines.sources.arrow_types import arrow_type
from tidegate.pipelines.syntax.types import quoted
from tidegate.pipelines.versions import (
    IndexOf,
    Made,
    Span,
    chained,
    folder_of,
    merged,
    newest,
    runs_in,
    shards_of,
    tidy,
)

INDEXES = "_versions"
"""The folder of all indexes, in the scratch of a lake: one for each build in it."""


@dataclass(frozen=True)
class Indexed:
    """The index of one generation of a build. Raises LakeError if its table is gone.

    `keys`: its primary key; `types`: the Spark types of all columns that it stores. `spark` copies the rows of a table
    whose files alone do not give them (deletion vectors, column mapping). `output`: the folder of a target that is
    joined; None for a source's table.
    """

    lake: Lake
    table: str
    keys: tuple[str, ...]
    types: Mapping[str, str]
    generation: int
    spark: SparkSession | None = None
    output: Location | None = None

    @classmethod
    def of(cls, lake: Lake, table: Table, generation: int, spark: SparkSession | None = None) -> Indexed:
        types = {column.name: column.spark_type for column in table.stored_columns}
        output = lake.target_path(table) if table.role == "sink" else None
        return cls(lake, table.name, table.primary_key, types, generation, spark, output)

    def upto(self, epoch: int) -> IndexOf:
        """The index for the joins of a pin."""
        spans = chained(self._known, epoch, self._own.landed)
        made = [each for span in spans for each in self._made(span)]
        if any(span not in self._known for span in spans):
            tidy(self._folder, made)
        held = self._own.landed(0, max(epoch, spans[-1][1])) if self._removed.nothing and spans else None
        return IndexOf(tuple(made), epoch, held)

    def missing(self, epoch: int) -> int:
        """How many rows have to be put into runs before the index can be used."""
        spans = chained(self._known, epoch, self._own.landed)
        return sum(self._own.landed(*span) for span in spans if span not in self._known)

    def merged(self, epoch: int) -> list[Made]:
        """The runs that upkeep merges the runs of earlier releases into; none if Spark would have to copy the rows."""
        if not self.plain:
            return []
        return [
            each
            for span in merged(self._known, epoch, self._own.landed)
            if span not in self._known
            for each in self._made(span)
        ]

    @property
    def plain(self) -> bool:
        return self._opened.plain

    @cached_property
    def _opened(self) -> TableState:
        found = self._own.stream.table
        if found is None:
            name, path = self.table, self._own.path
            raise LakeError(
                f"the table of {name} is gone",
                where=str(path),
                state="nothing was staged",
                next_command=either(f"bring {path} back from a backup", resnapshot(name)),
            )
        return found

    @cached_property
    def _own(self) -> Generation:
        return Stream(self.lake, self.table, self.output).generation(self.generation)

    @cached_property
    def _removed(self) -> Removed:
        return self._own.removed

    @cached_property
    def _run(self) -> Made:
        """What all runs have in common."""
        types = {name: arrow_type(kind) for name, kind in self.types.items()}
        return Made("", (), self.generation, 0, 0, self.keys, types)

    @cached_property
    def _folder(self) -> Path:
        marks = [self._removed, *([] if self.plain else [self._opened.version])]
        scratch = self.lake.scratch(INDEXES) / self.table
        return folder_of(scratch, str(self._opened.metadata.id), marks, self._run)

    @cached_property
    def _known(self) -> dict[Span, int]:
        return runs_in(self._folder, self._landed_at)

    def _landed_at(self, epoch: int) -> int | None:
        found = self._own.epoch(epoch)
        return found.landed_at if found else None

    def _made(self, span: Span) -> list[Made]:
        after, upto = span
        run = replace(self._run, files=tuple(self._files(span)), after=after, upto=upto)
        return shards_of(run, self._folder, self._landed_at(upto) or 0, self._known.get(span))

    def _files(self, span: Span) -> Sequence[str]:
        if self.plain:
            return self._opened.paths(delta_log.data_files(self._opened, self.generation, *span).files)
        copy = self._folder / f"{span[0]}-{span[1]}.plain"
        if not (copy / "_SUCCESS").exists() and self.spark is not None:
            self._own.rows(self.spark, *span).write.mode("overwrite").parquet(str(copy))
        return sorted(map(str, copy.glob("*.parquet")))


PLACES = ("_split", "_seq")
"""The columns that show where a row came from, and its place in the order of changes."""


def latest_rows(lake: Lake, table: Table, spark: SparkSession, step: StoredStep, keys: DataFrame) -> DataFrame:
    """`SourceContext.latest_rows` of a source. Its index has the keys and `_split` alone, so that a lookup takes as
    long in a large table as in a small one."""
    of_key = {column.name: column.spark_type for column in table.stored_columns if column.name in table.primary_key}
    types = {name: of_key[name] for name in table.primary_key}
    index = Indexed(lake, table.name, table.primary_key, {**types, "_split": "STRING"}, step.generation, spark)
    found = {name: LAKE_COLUMNS[name] for name in PLACES}
    columns = {name: arrow_type(kind) for name, kind in found.items()}
    whole = " AND ".join(f"{quoted(name)} IS NOT NULL" for name in types)  # NaN is a key; to `dropna` it is none
    asked = keys.select(*map(quoted, types)).where(whole)
    return asked.mapInArrow(partial(newest, index.upto(step.epoch - 1), columns), ddl({**types, **found}))
