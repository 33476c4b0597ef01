"""The input of the checks: the staged epoch as it was recorded, and its files as they are on disk now.

Nothing here needs Spark: a Parquet footer gives rows, columns and nulls in about a millisecond.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pat

from tidegate.pipelines.lake import StagedFile
from tidegate.pipelines.lake.delta_log import opened
from tidegate.pipelines.location import Location
from tidegate.pipelines.runtime.gate import CheckResult, StagedEpoch
from tidegate.pipelines.runtime.releasing.violations import greatest
from tidegate.pipelines.sql.model import ProcessInsert
from tidegate.pipelines.syntax.settings import NOT_NULL_ENFORCER

_PLAIN = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
}

QUARANTINE_NULLS = f"SET '{NOT_NULL_ENFORCER}' = 'DROP'"
"""The line of a script that quarantines rows with NULL in a NOT NULL column, keys too."""


def kind(found: pa.DataType) -> str:
    """Spark's simple name of an Arrow type; Arrow's own name where Spark has none. Nullability does not count."""
    if found in _PLAIN:
        return _PLAIN[found]
    if pat.is_string(found) or pat.is_large_string(found) or pat.is_string_view(found):
        return "string"
    if pat.is_binary(found) or pat.is_large_binary(found) or pat.is_binary_view(found):
        return "binary"
    if pat.is_timestamp(found):
        return "timestamp" if found.tz else "timestamp_ntz"
    if pat.is_decimal(found):
        return f"decimal({found.precision},{found.scale})"
    if pat.is_list(found) or pat.is_large_list(found):
        return f"array<{kind(found.value_type)}>"
    if pat.is_map(found):
        return f"map<{kind(found.key_type)},{kind(found.item_type)}>"
    if pat.is_struct(found):
        return f"struct<{','.join(f'{field.name}:{kind(field.type)}' for field in found)}>"
    return str(found)


@dataclass(frozen=True)
class Footer:
    """A staged file as its own footer describes it. It lies `at` a place; `path` is its name in the staged row.

    `columns`: name -> type, in stored order. `nulls`: name -> null values; None where the footer does not say.
    `violated`: the greatest mask of violated constraints among its rows; None where the footer does not say.
    """

    path: str
    at: Location
    disposition: str
    size: int
    rows: int
    columns: Mapping[str, str]
    nulls: Mapping[str, int | None]
    violated: int | None


@dataclass(frozen=True)
class Evidence:
    """A staged epoch, and what was found on disk for it.

    Attributes:
        footers: the recorded files that are there and can be read.
        broken: recorded files that are gone or are no Parquet files; path -> what is wrong.
        tables: disposition -> the columns (name -> type) of the Delta table that would adopt its files.
    """

    staged: StagedEpoch
    footers: tuple[Footer, ...]
    broken: Mapping[str, str]
    tables: Mapping[str, Mapping[str, str]]

    def nulls(self, column: str) -> int | None:
        """NULL values of a column in the files to publish; None where a file does not say it."""
        found = [self._nulls_in(footer, column) for footer in self.footers if footer.disposition == "publish"]
        known = [count for count in found if count is not None]
        return sum(known) if len(known) == len(found) else None

    def _nulls_in(self, footer: Footer, column: str) -> int | None:
        if not footer.rows or column in footer.nulls:
            return footer.nulls.get(column, 0) if footer.rows else 0
        if column not in footer.columns:
            return None
        # A footer counts what is inside of nested values, and not the values themselves.
        with Location(footer.at).parquet() as file:
            return file.read([column]).column(column).null_count

    def rows(self, disposition: str) -> int:
        """Rows of the readable files of one disposition, by their footers."""
        return sum(footer.rows for footer in self.footers if footer.disposition == disposition)


@dataclass(frozen=True)
class Check:
    """One check of the gate.

    Attributes:
        name: The name of its results.
        of_join: Checks an epoch of joined rows.
        of_process: Checks an epoch of a process, whose output rows are not its input rows; None if `of_join` does.
    """

    name: str
    of_join: Callable[[Evidence], CheckResult]
    of_process: Callable[[Evidence], CheckResult] | None = None

    def __call__(self, evidence: Evidence) -> CheckResult:
        """The result for the evidence's epoch."""
        if self.of_process is not None and isinstance(evidence.staged.insert, ProcessInsert):
            return self.of_process(evidence)
        return self.of_join(evidence)


def gather(staged: StagedEpoch) -> Evidence:
    """Read every footer and the schemas of the tables. Raises OSError if the disk fails: that is no verdict."""
    footers, broken = [], {}
    for file in (StagedFile(**file) for file in staged.staged.files):
        try:
            footers.append(read_footer(staged.path_of(file), file))
        except FileNotFoundError:
            broken[file.path] = "is gone"
        except pa.ArrowInvalid as error:
            broken[file.path] = f"is not a Parquet file ({str(error).splitlines()[0]})"
    tables = {
        "publish": staged.lake.target_path(staged.target),
        "quarantine": staged.lake.quarantine_path(staged.target, staged.insert),
    }
    return Evidence(staged, tuple(footers), broken, {name: delta_columns(path) for name, path in tables.items()})


def read_footer(path: Location, file: StagedFile) -> Footer:
    """The footer of one file. Raises FileNotFoundError, pa.ArrowInvalid, OSError."""
    footer = path.footer()
    return Footer(
        path=file.path,
        at=path,
        disposition=file.disposition,
        size=path.size(),
        rows=footer.num_rows,
        columns={field.name: kind(field.type) for field in footer.schema.to_arrow_schema()},
        nulls=_nulls(footer),
        violated=greatest(footer),
    )


def delta_columns(path: Location) -> dict[str, str]:
    """The columns of a Delta table, in stored order; none when there is no table."""
    table = opened(path)
    return {field.name: kind(field.type) for field in pa.schema(table.schema.to_arrow())} if table else {}


def _nulls(footer: pq.FileMetaData) -> dict[str, int | None]:
    found: dict[str, int | None] = {}
    for group in range(footer.num_row_groups):
        for index in range(footer.num_columns):
            column = footer.row_group(group).column(index)
            name, known = column.path_in_schema, column.statistics
            before = found.get(name, 0)
            if before is None or known is None or not known.has_null_count:
                found[name] = None
            else:
                found[name] = before + known.null_count
    return found


def listed(counts: Mapping[str, int]) -> str:
    """ "10 key-absent@u, 2 deleted@u", the greatest first; "none" when there is nothing."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count:,} {name}" for name, count in ordered) or "none"


def subject(staged: StagedEpoch) -> str:
    """The epoch that a sentence is about, as text."""
    return f"INSERT {staged.plan.insert}, epoch {staged.plan.epoch}"
