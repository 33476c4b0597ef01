"""Reads the files of a folder that grows, each once, in the order of their time and name.

There is no bounded phase: a table flips when it has read the files that were there at its first plan, including files
that were not finished then, if they are waited for.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.pipelines import paths
from tidegate.pipelines.connectors import flink
from tidegate.pipelines.connectors.options import misnamed_fields, misspelled_pattern
from tidegate.pipelines.connectors.protocol import (
    FieldsSeen,
    Json,
    Landed,
    Planned,
    PlanRequest,
    Source,
    SourceContext,
    SourcePosition,
    Step,
    StoredStep,
    Unread,
)
from tidegate.pipelines.connectors.spec import ERROR_OPTION, ConnectorSpec, OptionSpec
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources import planning
from tidegate.pipelines.sources.filesystem.catalog import FORGOTTEN, Catalog, same_id
from tidegate.pipelines.sources.filesystem.listing import DEFAULT_PARTITION, SPLIT, File, Folder, Partitions
from tidegate.pipelines.sources.formats import FORMATS, format_options, metadata_of, problems, wanted
from tidegate.pipelines.sources.rows import misfit, misfit_error, no_rows, quarantines
from tidegate.pipelines.syntax.durations import parse_duration
from tidegate.pipelines.syntax.secrets import needs_variables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARQUET = "parquet"
FOLDER = "folder"
"""Key in a step's ranges: the folder's id (`Folder.id`)."""
PATH = "path"
"""Key in a step's ranges, where the table has a pattern, which goes by whole paths: where the folder lay."""
SETTLE_TIME = "1 s"
MAX_STEP_FILES = 1_000
MAX_STEP_BYTES = 2 << 30
SAMPLE_BYTES = 1 << 16


class FilesystemSource(Source):
    """One folder."""

    asks_rows = False

    def __init__(self, context: SourceContext) -> None:
        options = context.options
        self._context, self._table, self._format = context, context.table, options["format"]
        path = paths.allowed(options["path"], context.table.name, context.table.home)
        partitions = Partitions.of(context.table, options.get("partition.default-name", DEFAULT_PARTITION))
        self._folder = Folder(
            path,
            context.table.name,
            options.get("source.path.regex-pattern"),
            partitions,
            context.table.home,
            paths.as_written(options["path"]),
        )
        settle = parse_duration(options.get("source.settle-time", SETTLE_TIME))
        self._catalog = Catalog(self._folder, context.splits, int(settle.total_seconds() * 1000))

    def preflight(self, position: SourcePosition) -> None:
        """The folder is there."""
        if not self._folder.path.exists():
            raise self._folder.error("is not there", "correct 'path', or make the folder, and run again")

    def ends(self, position: SourcePosition) -> Json:
        """How many files were taken up, and the names of those that are not finished. A generation's first plan waits
        for these for as long as the settle time."""
        landed = position.previous.step.ranges["to"] if position.previous else 0
        if position.previous is not None:
            self._same_folder(position.previous.step.ranges, landed)
        waiting = self._catalog.take_up(landed)
        if waiting and position.first is None:
            self._catalog.wait(waiting)
            waiting = self._catalog.take_up(landed)
        return {"files": len(self._catalog), "waiting": waiting}

    def _same_folder(self, before: Json, landed: int) -> None:
        """Raise SourceError if another folder lies at the path than the one of a step, or its pattern leaves out what
        was read, as the folder was moved."""
        self._catalog.same_folder(before.get(FOLDER), landed)
        if self._folder.pattern is not None and before.get(PATH) not in (None, str(self._folder.path)):
            self._catalog.same_pattern(landed)

    def is_the_same(self, position: SourcePosition) -> bool:
        """`protocol.KnowsItsPlace`: by the folder's id, or by a file that was read."""
        if position.previous is None:
            return False
        before, now = position.previous.step.ranges.get(FOLDER), self._folder.id()
        # Folders of two disks may have one inode, but not one time of birth.
        if before and now and None not in (before["born"], now["born"]) and same_id(before, now):
            return True
        return self._catalog.has_what_was_read()

    def plan(self, request: PlanRequest) -> Planned:
        first_ends = planning.first_ends(request)
        start = request.previous.step.ranges["to"] if request.previous else 0
        end = request.ends["files"]
        if not request.flipped and start < first_ends["files"]:
            end = min(end, first_ends["files"])
        limit = planning.limit(request, self._table, "file.modification-time")
        in_time = _in_time(self._catalog.files[start:end], limit, ahead=SPLIT in request.ahead)
        stop = start + len(self._fitting(in_time, request.max_rows))
        held: dict[str, int] = {}
        if stop < end and _past(self._catalog.files[stop], limit):
            held[SPLIT] = _rowtime(self._catalog.files[stop])
        flips = not request.flipped and stop >= first_ends["files"] and self._are_past(first_ends["waiting"], stop)
        if stop == start and request.first is not None and not flips:
            return Planned(held=held)
        own: dict[str, Any] = {"from": start, "to": stop, FOLDER: self._folder.id()}
        if self._folder.pattern is not None:
            own[PATH] = str(self._folder.path)
        ranges = planning.ranges(request, request.ends, **own)
        return Planned(Step(ranges, flips=flips, summary=self._summary(start, stop)), held)

    def _fitting(self, files: list[File], max_rows: int | None) -> list[File]:
        """The first of `files`, as many as one step may have, but one at least."""
        rows = size = 0
        for place, file in enumerate(files):
            rows += self._rows_of(file) if max_rows else 0
            size += file.size
            many = place >= MAX_STEP_FILES or size > MAX_STEP_BYTES or rows > (max_rows or rows)
            if place and many:
                return files[:place]
        return files

    def _rows_of(self, file: File) -> int:
        """About how many rows a file has, by its footer or its first lines."""
        path = self._folder.full(file.name)
        if not path.is_file():
            return 0
        if self._format == PARQUET:
            from tidegate.pipelines.sources.filesystem.parquet import rows_of

            return rows_of(self._folder, file)
        with path.open("rb") as opened:
            sample = opened.read(SAMPLE_BYTES)
        return max(sample.count(b"\n"), 1) * max(file.size, 1) // max(len(sample), 1)

    def _are_past(self, awaited: list[str], stop: int) -> bool:
        """Whether the files that were unfinished at the first plan are read by now, or gone."""
        there = filter(None, map(self._folder.now, awaited))
        return all(self._catalog.holds(file, stop) for file in there)

    def _summary(self, start: int, stop: int) -> str:
        if stop == start:
            return "no file yet" if not start else "no more files of the first plan"
        if stop == start + 1:
            return f"file {stop}: {self._catalog.files[start].name}"
        return f"files {start + 1}-{stop} of {len(self._catalog)}"

    def read(self, spark: SparkSession, step: StoredStep) -> DataFrame:
        from tidegate.pipelines.sources.filesystem import parquet, rows

        start, stop = step.step.ranges["from"], step.step.ranges["to"]
        self._catalog.same_folder(step.step.ranges.get(FOLDER), start)
        chosen = rows.Chosen(self._folder, start, self._catalog.as_they_are(start, stop))
        files = [file for _, file in chosen.numbered()]
        if not files:
            return no_rows(spark, self._table)
        if self._format != PARQUET:
            return rows.of_lines(spark, chosen, self._table, self._context.options)
        options, columns = self._context.options, self._table.message_columns
        misfits: dict[str, str] = {}
        if quarantines(options):
            misfits = parquet.misfits(self._folder, files, columns)
        else:
            for file in files:
                parquet.check(self._folder, file, columns)
        return rows.of_parquet(spark, chosen, self._table, options, misfits)

    def landed(self, step: StoredStep, rows: DataFrame | None) -> Landed:
        stop = step.step.ranges["to"]
        rest = self._catalog.files[stop:]
        lag = max(int(time.time() * 1000) - rest[0].modified // 1_000_000, 0) if rest else 0
        return Landed(lag_ms=lag, position=f"{stop} file{'' if stop == 1 else 's'}", splits=frozenset({SPLIT}))

    def fields(self, spark: SparkSession, step: StoredStep) -> FieldsSeen:
        """`protocol.ShowsFields`: of the first lines of the step's files, or by all their footers."""
        from tidegate.pipelines.sources.filesystem import rows

        start, stop = step.step.ranges["from"], step.step.ranges["to"]
        # Their rows have landed, so they may be gone.
        there = [file if self._folder.now(file.name) == file else FORGOTTEN for file in self._catalog.files[start:stop]]
        chosen = rows.Chosen(self._folder, start, there)
        if self._format == PARQUET:
            return rows.fields_of_parquet(chosen, self._table.message_columns)
        return rows.fields_of_lines(spark, chosen, self._table, self._context.options)

    def unread(self, position: SourcePosition) -> Unread | None:
        """`protocol.KnowsItsEnd`: the finished files that are not read. None is taken up."""
        if position.previous is None:
            return None
        rest = self._catalog.left(position.previous.step.ranges["to"])
        if not rest:
            return Unread()
        oldest = min(file.modified for file in rest) // 1_000_000
        return Unread(len(rest), "file", oldest)

    def explain(self, error: BaseException, step: StoredStep) -> SourceError | None:
        """The typed error of a line that does not fit, and of a file that changed while it was read."""
        from tidegate.pipelines.sources.filesystem.lines import BROKEN, CHANGED
        from tidegate.pipelines.sources.filesystem.parquet import DAMAGED

        text = str(error)
        if (found := misfit(error) or misfit(error, BROKEN)) is not None:
            what = found.get("what", "the line at byte")
            sentence = f"{self._table.name}: {found['path']}, {what} {found['position']}: {found['error']}"
            return misfit_error(sentence, step.place, "rows" if what == "row" else "lines")
        if DAMAGED in text:
            return self._folder.error(
                f"is damaged: its footer can be read, and its rows cannot ({step.step.summary})",
                "put the right file in its place, and run again",
                name=self._folder.name(_path_behind(DAMAGED, text)),
            )
        if CHANGED in text:
            return self._folder.error(
                "changed, or was taken away, while it was read",
                "run again when it is finished",
                name=self._folder.name(_path_behind(CHANGED, text)),
            )
        return None


def _path_behind(mark: str, text: str) -> Path:
    return Path(text[text.index(mark) + len(mark) :].splitlines()[0])


def _rowtime(file: File) -> int:
    """The source's own time of a file: when it was last changed (ms, UTC)."""
    return file.modified // 1_000_000


def _past(file: File, limit: int | None) -> bool:
    return limit is not None and _rowtime(file) > limit


def _in_time(files: list[File], limit: int | None, *, ahead: bool) -> list[File]:
    """The first of `files`, up to one that is past the `limit` of the table's alignment group; at least one, unless
    others are behind this table, as the slowest of the group may be this one."""
    late = (place for place, file in enumerate(files) if _past(file, limit))
    return files[: max(next(late, len(files)), 0 if ahead else 1)]


LINES = ("json", "csv", "debezium-json", "canal-json", "changelog-json")
"""Formats with one message a line."""

METADATA: Mapping[str, str] = {
    "file.path": "STRING",
    "file.name": "STRING",
    "file.size": "BIGINT",
    "file.modification-time": "TIMESTAMP_LTZ(3)",
}
OPTIONS = (
    OptionSpec("path", required=True, doc="The folder, or one file. It may begin with file://.", changes="identity"),
    OptionSpec(
        "format", required=True, doc=f"How the files are written: {', '.join((*LINES, PARQUET))}.", changes="rows"
    ),
    OptionSpec(
        "source.path.regex-pattern",
        doc="A regular expression for the whole absolute path. Only files that match are read.",
        changes="rows",
    ),
    OptionSpec(
        "partition.default-name",
        default=DEFAULT_PARTITION,
        doc="For PARTITIONED BY: the value in a folder's name that stands for NULL.",
        changes="rows",
    ),
    OptionSpec(
        "source.settle-time",
        "duration",
        default=SETTLE_TIME,
        doc="A file is read when nothing has been written to it for this long.",
        changes="neither",
    ),
    ERROR_OPTION,
    *format_options(LINES),
)


def updates(options: Mapping[str, str]) -> bool:
    """Whether a table of these options has rows that change others."""
    chosen = FORMATS.get(options.get("format", ""))
    return chosen is not None and chosen.spec.changelog


def check(table: Table) -> Sequence[str]:
    """What is wrong with a table."""
    name, found = table.options["format"], []
    if why := paths.problem(table.options["path"]):
        found.append(f"'path': {why}")
    if needs_variables(name):
        found.append("'format' cannot come from the environment")
    elif name == "avro":
        # Known as the format of a message: these files are containers with a schema of their own.
        found.append("'format': files of Avro's own kind are not read: write them as parquet, which has the same types")
    elif name != PARQUET:
        found += problems(name, wanted(table, table.options), names=(*LINES, PARQUET))
    else:
        own = {option.name for option in format_options(LINES)}
        found += [f"'{key}' has no meaning: the format is parquet" for key in table.options if key in own]
        found += misnamed_fields(table.message_columns, by=PARQUET)
    if "partition.default-name" in table.options and not table.partition_columns:
        found.append("'partition.default-name' has no meaning without PARTITIONED BY")
    found += misspelled_pattern(table.options, "source.path.regex-pattern")
    if not table.message_columns:
        found.append(f"{table.name} has no column that is in the files")
    return found


class FilesystemConnector:
    """`'connector' = 'filesystem'`."""

    spec = ConnectorSpec(
        name="filesystem",
        doc="The files of a folder that grows, each read once.",
        options=OPTIONS,
        partitioned=True,
        by_name=True,
        foreign=(*flink.CONNECTORS["filesystem"], *flink.of_formats(LINES)),
        system_time=True,
        system_watermark=True,
        metadata=METADATA,
        format_metadata=lambda options: metadata_of(options.get("format", "")),
        updates=updates,
        check=check,
    )

    def source(self, context: SourceContext) -> Source:
        return FilesystemSource(context)


CONNECTOR = FilesystemConnector()
