"""Tables of rows that sources land in: a build side's changelog, and a probe's landed rows.

Every row carries `_generation` and `_epoch`, so that a pin reads "this generation, up to this epoch" from today's
table, whatever was optimised or vacuumed meanwhile.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import cast

from deltalake import DeltaTable, Field, Schema
from deltalake import schema as delta_schema
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tidegate.pipelines.commands import STATUS
from tidegate.pipelines.connectors.spec import SOURCE_COLUMNS
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import ConcurrentRun, LakeError
from tidegate.pipelines.frames import empty_frame
from tidegate.pipelines.lake import delta_log
from tidegate.pipelines.lake.adopt import adopt, survey
from tidegate.pipelines.lake.by_name import TableState
from tidegate.pipelines.lake.commits import NO_CLEANING, by_delta_rs, commit, create, require_writable
from tidegate.pipelines.lake.statistics import SKIPPED_BY, fields_of, skipping, with_nulls
from tidegate.pipelines.location import Address, Location
from tidegate.pipelines.parquet import OF_SPARK
from tidegate.pipelines.syntax.types import quoted

LAKE_COLUMNS = {"_generation": "INT", "_epoch": "BIGINT", **SOURCE_COLUMNS}
"""They come first, so that files have bounds of them however wide the table is."""

FEW_FILES = 256
"""As many of a table as `read` names to Spark."""


def ddl(columns: dict[str, str]) -> str:
    """A Spark DDL string of name -> type."""
    return ", ".join(f"{quoted(name)} {spark_type}" for name, spark_type in columns.items())


def stored_columns(table: Table) -> dict[str, str]:
    """What the lake stores of a source table: name -> Spark type."""
    return {**LAKE_COLUMNS, **{column.name: column.spark_type for column in table.stored_columns}}


def struct_type(columns: dict[str, str]) -> StructType:
    """The Spark schema of name -> Spark type. Spark reads the types, so a session must be there."""
    return cast(StructType, StructType.fromDDL(ddl(columns)))


def ensure_table(
    path: Location,
    columns: dict[str, str],
    name: str,
    *,
    whole: bool = False,
    added: Collection[str] = (),
    anew: bool = False,
) -> None:
    """Make the Delta table of `name`, or check that the one at `path` still has the script's columns.

    `whole`: only Tidegate writes it, so it must have no other columns either: rows without them would read NULL.
    `added`: columns that it is given if it lacks them, or has a STRUCT of fewer fields. `anew`: nothing was
    ever committed to it, so that it is made again where its columns are others. Works through delta-rs, which takes ms
    where Spark takes s. Raises LakeError that names the difference.
    """
    wanted = Schema.from_json(struct_type(columns).json())
    table = delta_log.opened(path)
    again = anew and table is not None and table.schema != wanted and not table.files
    if table is not None and not again:
        there = {field.name: field.type for field in table.schema.fields}
        if later := [field for field in wanted.fields if field.name in added and _grows(there.get(field.name), field)]:
            add_columns(path, later)
        table = delta_log.opened(path) or table
        require_writable(table)
        _compare(table, wanted, name, whole, added)
        return
    configuration = skipping(json.loads(wanted.to_json())["fields"])
    if whole:
        configuration |= delta_log.OWN
    try:
        path.make()
        create(path, schema=wanted, mode="overwrite" if again else "ignore", configuration=configuration)
    except (DeltaError, OSError) as error:
        raise LakeError(
            f"the table of {name} cannot be made: {error}",
            where=str(path),
            state="nothing was changed",
            next_command="check the folder's owner and the disk's space, then run the same command again",
        ) from error


def is_as_made(path: Location) -> bool:
    """Whether the table at `path` is just as `ensure_table` makes one: nobody has written to it since."""
    table = delta_log.opened(path)
    if table is None or table.version != 0:
        return False
    made = skipping(fields_of(table))
    return made.items() <= table.metadata.configuration.items() and made != {}


def add_columns(path: Location, later: Sequence[Field]) -> None:
    """Give a table more columns. In a table that does not name the columns which readers skip files by, its files say
    before that all of their rows are NULL there."""
    table = delta_log.opened(path)
    if table is not None and table.files and SKIPPED_BY not in table.metadata.configuration:
        kinds = {field.name: json.loads(field.type.to_json()) for field in later}
        again = [
            AddAction(file.path, file.size, dict(file.partition), file.modified, False, counted)
            for file in table.files.values()
            if (counted := with_nulls(file.text, kinds)) is not None
        ]
        commit(table, again, note=f"statistics before {', '.join(kinds)} is added")
    fields, hooks = list(later), NO_CLEANING
    by_delta_rs(path, lambda at: DeltaTable(at).alter.add_columns(fields, post_commithook_properties=hooks))


def _grows(there: object, field: Field) -> bool:
    """Whether a table needs this column added: it lacks it, or has a STRUCT with fewer fields."""
    here = field.type
    if not isinstance(there, delta_schema.StructType) or not isinstance(here, delta_schema.StructType):
        return there is None
    return len(there.fields) < len(here.fields) and _types(there).items() <= _types(here).items()


def _alike(there: object, here: object) -> bool:
    """Whether two STRUCTs differ only in the order of their fields: added ones come last."""
    if not isinstance(there, delta_schema.StructType) or not isinstance(here, delta_schema.StructType):
        return False
    return _types(there) == _types(here)


def _types(struct: delta_schema.StructType) -> dict[str, str]:
    return {inner.name: inner.type.to_json() for inner in struct.fields}


def _compare(table: TableState, wanted: Schema, name: str, whole: bool, added: Collection[str] = ()) -> None:
    there = {field.name: field.type for field in table.schema.fields}
    if divided := table.metadata.partition_columns:
        raise LakeError(
            f"the table of {name} is partitioned by {', '.join(divided)}, and epochs are files of no partition",
            where=str(table.root),
            state="nothing was changed",
            next_command="give the script's table a new name or 'path'; readers skip files by their statistics",
        )
    changed = [
        f"{field.name} is {field.type} in the script, {there.get(field.name, 'not there')} in the lake"
        for field in wanted.fields
        if there.get(field.name) != field.type
        and not (field.name in added and _alike(there.get(field.name), field.type))
    ]
    if whole:
        given = {field.name for field in wanted.fields}
        changed += [f"{column} is in the lake and not in the script" for column in there if column not in given]
    if changed:
        raise LakeError(
            f"the columns of {name} have changed since its rows were stored: {'; '.join(changed)}",
            where=str(table.root),
            state="nothing was changed",
            next_command="put the old columns back, or run the script on another lake: --lake DIR",
        )


def append(rows: DataFrame, path: Location, *, application: str, generation: int, epoch: int) -> int:
    """Add an epoch's rows in one commit that carries (application, epoch); the number of rows.

    Spark writes the files, delta-rs commits them: a commit by Spark costs ten times as much as a small epoch's rows.
    What a crash leaves behind is files that no commit names; VACUUM removes them.
    Raises ConcurrentRun when that epoch is there already.
    """
    folder = write(rows, path, application=application, generation=generation, epoch=epoch)
    return adopt(path, folder, survey(folder), application=application, epoch=epoch)


def write(rows: DataFrame, path: Location, *, application: str, generation: int, epoch: int) -> Location:
    """The first half of `append`: writes an epoch's files into a new folder in the table; no commit names them yet."""
    folder = folder_of(path, application=application, generation=generation, epoch=epoch)
    order = [name for name in LAKE_COLUMNS if name not in ("_generation", "_epoch")]
    order += [name for name in rows.columns if name not in LAKE_COLUMNS]
    tagged = rows.select(
        F.lit(generation).cast("int").alias("_generation"),
        F.lit(epoch).cast("bigint").alias("_epoch"),
        *[quoted(name) for name in order],
    )
    tagged.write.options(**OF_SPARK).mode("errorifexists").parquet(str(folder))
    return folder


def folder_of(path: Location, *, application: str, generation: int, epoch: int) -> Location:
    """The name of a new folder in the table for an epoch's files. Raises ConcurrentRun when the epoch is there."""
    if delta_log.committed(path, application) >= epoch:
        raise ConcurrentRun(
            f"epoch {epoch} was committed by another runner",
            where=str(path),
            state="its rows stand, this run's were not written",
            next_command=STATUS,
        )
    return path / f"g{generation}-e{epoch}-{uuid.uuid4().hex[:8]}"


def read(spark: SparkSession, path: Address) -> DataFrame:
    """Today's table. A few files are named to Spark directly; for more, Spark reads Delta's log, which takes jobs."""
    table = delta_log.opened(path)
    if table is not None and table.plain and not table.metadata.partition_columns and len(table.files) <= FEW_FILES:
        return of_files(spark, table, table.paths())
    return spark.read.format("delta").load(str(path))


def between(spark: SparkSession, path: Address, generation: int, after: int, upto: int) -> DataFrame:
    """The rows of one generation with after < epoch <= upto.

    The files are chosen here, by their statistics: Delta's own reader runs a Spark job for that choice at every scan.
    Files that hold no other rows are read without a filter, which would be new code to compile at every epoch.
    """
    wanted = f"_generation = {int(generation)} AND _epoch > {int(after)} AND _epoch <= {int(upto)}"
    table = delta_log.opened(path)
    if table is None or not table.plain:
        return read(spark, path).where(wanted)
    found = delta_log.data_files(table, generation, after, upto)
    rows = of_files(spark, table, table.paths(found.files))
    return rows if found.exact else rows.where(wanted)


def of_files(spark: SparkSession, table: TableState, paths: Sequence[str]) -> DataFrame:
    """All rows of some data files of a table whose rows are just what its files hold (`TableState.plain`)."""
    schema = table.metadata.schema
    if not paths:
        return empty_frame(spark, StructType.fromJson(json.loads(schema)))
    return _of_files(spark, schema, tuple(paths))


@lru_cache(maxsize=16)
def _of_files(spark: SparkSession, schema: str, paths: tuple[str, ...]) -> DataFrame:
    """The rows of these files. Cached: files never change, and Spark looks each of them up anew for every frame."""
    return spark.read.schema(StructType.fromJson(json.loads(schema))).parquet(*paths)
