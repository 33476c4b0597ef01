"""Reads a Delta table: first all of one version, then what later commits did, in order.

The snapshot is the bounded phase: the table flips when it has landed, which is also when it is past its ends as of its
first plan. A commit that only added rows is read by its files. One that changed or removed rows is read from the
change data feed, for a build side; without the feed, or for a probe, it is refused by its version.

Versions go on from those that were read only in the same history: each step keeps a digest of the commit that it ends
at, and a table whose commit of that version is another one by then (it was brought back from a backup) is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from sqlglot import exp

from tidegate.pipelines import paths
from tidegate.pipelines.commands import Advised, redeclare, resnapshot, then
from tidegate.pipelines.connectors.options import misnamed_fields
from tidegate.pipelines.connectors.protocol import (
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
from tidegate.pipelines.connectors.table import Column, Table
from tidegate.pipelines.errors import PlanningError, SourceError
from tidegate.pipelines.sources import planning
from tidegate.pipelines.sources.delta.commits import SPLIT, Commit, CommitLog, identities, path_part, still_there
from tidegate.pipelines.sources.rows import NOTHING_AFTER, misfit, misfit_error, quarantines

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = "columns"
"""Key in a step's ranges: the identities of the script's columns (`identities`)."""

COMMIT = "commit"
"""Key in a step's ranges: the digest of the commit that it ends at (`CommitLog.digest`); None where the log has no file
of that commit."""

SNAPSHOT = "snapshot"
"""The split that says of which version a snapshot is read, where one was refused for its rows; of other versions the
name has the one before them."""

REFUSED = "refused"
"""Key in that split's detail: the version whose rows did not fit."""

MENDED = "mended"
"""The mode of a step of versions that were refused for their rows, and mended by later ones."""

_FILE_GONE = r"PATH_NOT_FOUND|FILE_NOT_EXIST|FILE_NOT_FOUND|FileNotFoundException|File not found"
_VERSION_GONE = r"VERSION_NOT_FOUND|VersionNotFound|VERSIONS_NOT_CONTIGUOUS|TRUNCATED_TRANSACTION_LOG"

MAX_STEP_VERSIONS = 50
MAX_STEP_FILES = 10_000


class DeltaSource(Source):
    """One Delta table."""

    asks_rows = False

    def __init__(self, context: SourceContext) -> None:
        self._context = context
        self._table = context.table
        self._stated: dict[str, Json] | None = None
        path = context.options.get("path", "")
        if not path or "://" in path:
            raise PlanningError(
                f"'path' of {self._table.name} is a folder that this machine can read, not {path!r}",
                where=f"WITH options of {self._table.name}",
                state="nothing was read",
                next_command="write the table's folder into 'path', and run again",
            )
        # Where the machine's owner names folders, a table outside of them is not read.
        home = self._table.home
        where = paths.allowed(path, self._table.name, home) if paths.restricted() else paths.placed(path, home)
        self._log = CommitLog(where, self._table.name)
        if why := paths.delta_problem(self._log.path):
            raise self._error(f"'path': {why}", next_command="give the table's folder another name, and run again")

    def preflight(self, position: SourcePosition) -> None:
        """The table is there, and has the script's columns in the script's types."""
        if not self._log.exists():
            raise self._error("there is no Delta table here", next_command="correct 'path', or make the table first")
        self._check_columns(self._log.schema(), "")

    def _check_columns(self, schema: Mapping[str, Any], since: str) -> None:
        from pyspark.sql.types import StructType

        found = {field.name: field.dataType.simpleString() for field in StructType.fromJson(dict(schema))}
        for column in self._table.physical_columns:
            name = column.source_name
            if name not in found:
                raise self._error(
                    f"the Delta table has no column {name}{since}",
                    next_command=redeclare(f"take {column.name} out of the script; the table has {', '.join(found)}"),
                )
            if not _same_type(column, found[name]):
                raise self._error(
                    f"column {name} is {found[name]} in the Delta table{since}, {column.type} in the script",
                    next_command=redeclare("write the table's type into the script, and cast in the SELECT"),
                )

    def ends(self, position: SourcePosition) -> Json:
        return {"version": self._log.latest(), "id": self._log.id()}

    def plan(self, request: PlanRequest) -> Planned:
        ends, first, previous = request.ends, request.first, request.previous
        latest = ends["version"]
        if first is None or previous is None:
            columns = self._columns(self._log.schema(latest))
            commit = self._log.digest(latest)
            ranges = {"mode": "snapshot", "to": latest, "id": ends["id"], COLUMNS: columns, COMMIT: commit}
            return Planned(Step(ranges, phase="bounded", flips=True, summary=f"snapshot of version {latest}"))
        before = self._ranges(previous)
        start = before["to"]
        if first.step.ranges["id"] != ends["id"]:
            raise self._another(start)
        self._check_history(before)
        # Ends that were taken before another run read on lie before what is read: there is nothing to read up to them.
        mode, stop, late = self._next(start, max(start, latest), request)
        held = {} if late is None else {SPLIT: late}
        if stop == start:
            return Planned(held=held)
        columns = self._same_columns(before, start + 1)
        commit = self._log.digest(stop)
        ranges = {"mode": mode, "from": start, "to": stop, "id": ends["id"], COLUMNS: columns, COMMIT: commit}
        # Once more, as the commits above may already be those of a table that was brought back in the meantime.
        self._check_history(before)
        return Planned(Step(ranges, summary=f"versions {start + 1}-{stop} of {latest}"), held)

    def _ranges(self, stored: StoredStep) -> Json:
        """The ranges of a step, as of the version that is read of it (`_mended`)."""
        if self._stated is None:
            self._stated = {row["split"]: row["detail"] for row in self._context.splits.rows()}
        return {**stored.step.ranges, **self._stated.get(_split_of(stored), {})}

    def _mended(self, stored: StoredStep) -> Json:
        """The ranges of a step that is to be read. One that was refused for its rows is read up to the newest version,
        where they may be mended; which version that is, is stored before it is read. Of a snapshot that is the table
        as of that version; of later versions what they have added since, and left."""
        ranges = self._ranges(stored)
        latest = self._log.latest()
        if ranges.get(REFUSED) != ranges["to"] or latest <= ranges["to"]:
            return ranges
        if ranges["mode"] == "snapshot":
            schema = self._log.schema(latest)
            self._check_columns(schema, f" as of version {latest}")
            made: Json = {"to": latest, COLUMNS: self._columns(schema), COMMIT: self._log.digest(latest)}
        elif still_there(self._commits(ranges["from"], latest)) is None:
            return ranges
        else:
            made = {"to": latest, "mode": MENDED, COMMIT: self._log.digest(latest)}
        self._state(stored, made)
        return {**ranges, **made}

    def _commits(self, start: int, stop: int) -> list[Commit]:
        """The commits after `start`, up to `stop`."""
        return [self._log.commit(version) for version in range(start + 1, stop + 1)]

    def _refused(self, stored: StoredStep) -> None:
        """Keep in mind that a step was refused for its rows."""
        ranges, stated = self._ranges(stored), self._stated or {}
        self._state(stored, {**stated.get(_split_of(stored), {}), REFUSED: ranges["to"]})

    def _state(self, stored: StoredStep, detail: Json) -> None:
        split = {"split": _split_of(stored), "ordinal": 0, "detail": {"kind": "file", **detail}}
        self._context.splits.add([split])
        self._context.splits.restate([split])
        self._stated = {**(self._stated or {}), _split_of(stored): detail}

    def _another(self, version: int) -> SourceError:
        return self._error(
            f"another Delta table lies here than the one that was read, or planned, up to version {version}",
            next_command=resnapshot(self._table.name, "reads it anew"),
        )

    def _check_history(self, ranges: Json, state: str = NOTHING_AFTER) -> None:
        """Raises SourceError if the table is not the one that the step of `ranges` read or planned: the commit that the
        step ends at is another one now, or not there. Nothing is compared where the log's cleanup took that commit's
        file."""
        version, there = ranges["to"], self._log.digest(ranges["to"])
        gone = there is None and self._log.latest() < version
        if gone or (there is not None and ranges[COMMIT] not in (None, there)):
            raise self._error(
                f"version {version} of the Delta table, up to which it was read or planned, is "
                f"{'gone' if gone else 'another commit now'}: the table was brought back from a backup, or made anew",
                next_command=resnapshot(self._table.name, "reads it anew"),
                state=state,
            )

    def _columns(self, schema: Mapping[str, Any]) -> dict[str, str]:
        """The identities of the script's columns, by their paths."""
        wanted = tuple(path_part(column.source_name) for column in self._table.physical_columns)
        inside = tuple(f"{name}." for name in wanted)
        found = identities(schema).items()
        return {path: identity for path, identity in found if path in wanted or path.startswith(inside)}

    def _same_columns(self, before: Json, version: int) -> dict[str, str]:
        """The identities of the script's columns from `version` on. Raises SourceError if one of them is not the column
        that was read `before` under its name, or is gone."""
        schema = self._log.commit(version).schema
        known = before[COLUMNS]
        if schema is None:
            return dict(known)
        since = f" from version {version} on"
        self._check_columns(schema, since)
        columns = self._columns(schema)
        for path, identity in columns.items():
            if known.get(path, identity) != identity:
                raise self._error(
                    f"column {path} of the Delta table is another one{since}: it was renamed, or dropped and added "
                    "again, so its values are others than those that were read under that name",
                    next_command=resnapshot(self._table.name, "reads the table anew"),
                )
        return columns

    def _next(self, start: int, latest: int, request: PlanRequest) -> tuple[str, int, int | None]:
        """The longest run of commits after `start` that one reader can read in one step, and which reader: only the
        first of them may change the table itself (its columns, their names, or whether it has a feed). At least one
        commit with rows, whatever alignment's limit is, unless others are behind this table, as the slowest of the
        group may be this one. If the next commit is past that limit, also its time."""
        mode, files, rows = "nothing", 0, 0
        most, limit = request.max_rows, planning.limit(request, self._table)
        for version in range(start + 1, min(latest, start + MAX_STEP_VERSIONS) + 1):
            commit = self._log.commit(version)
            files, rows = files + len(commit.added), rows + commit.rows
            other = mode != "nothing" and commit.effect not in (mode, "nothing")
            many = files > MAX_STEP_FILES or (most is not None and rows > most)
            late = limit is not None and commit.timestamp > limit
            late = late and (mode != "nothing" or (SPLIT in request.ahead and commit.effect != "nothing"))
            anew = commit.schema is not None
            if other or late or ((many or anew) and version > start + 1):
                return mode, version - 1, commit.timestamp if late and commit.effect != "nothing" else None
            if commit.effect == "changed":
                self._check_feed(commit)
            if commit.effect != "nothing":
                mode = commit.effect
        return mode, min(latest, start + MAX_STEP_VERSIONS), None

    def _check_feed(self, commit: Commit) -> None:
        what = f"version {commit.version} ({commit.operation}) of the Delta table changed or removed rows"
        if self._table.role != "build" or self._table.also_probe:
            raise self._error(
                f"{what}: a probe side takes only what is added",
                next_command=resnapshot(self._table.name, "reads the table as it is now"),
            )
        if not self._log.feeds_changes(commit.version):
            raise self._error(
                f"{what} without a change data feed",
                next_command=then("set delta.enableChangeDataFeed = true on the table", resnapshot(self._table.name)),
            )

    def read(self, spark: SparkSession, step: StoredStep) -> DataFrame:
        from tidegate.pipelines.sources.delta import reading

        if step.step.ranges["id"] != self._log.id():
            raise self._another(step.step.ranges["to"])
        self._check_history(self._ranges(step))
        ranges, path = self._mended(step), str(self._log.path)
        mode, stop = ranges["mode"], ranges["to"]
        if mode == "snapshot":
            rows = reading.snapshot(spark, path, self._table, stop, self._timestamp(stop))
        elif mode == "changed":
            # Where nothing was changed yet, there may have been no feed yet.
            versions = range(ranges["from"] + 1, stop + 1)
            first = next(version for version in versions if self._log.commit(version).effect == "changed")
            rows = reading.changes(spark, path, self._table, first, stop)
        else:
            commits = self._commits(ranges["from"], stop)
            if mode == MENDED:
                commits = still_there(commits) or commits
            chosen = [commit for commit in commits if commit.added] or commits[-1:]
            schema = self._log.plain_schema(stop) if all(commit.plain for commit in chosen) else None
            rows = reading.added(spark, path, self._table, chosen, schema)
        keeps = quarantines(self._context.options)
        return reading.landable(rows, self._table, snapshot=mode == "snapshot", quarantines=keeps)

    def landed(self, step: StoredStep, rows: DataFrame | None) -> Landed:
        # The table may have been brought back while it was read.
        ranges = self._ranges(step)
        self._check_history(ranges, "its rows are written and not landed, so nothing reads them")
        stop = ranges["to"]
        behind = self._log.latest() > stop
        since = self._timestamp(stop + 1) if behind else None
        lag = 0 if since is None else max(self._context.clock() - since, 0)
        return Landed(lag_ms=lag, position=f"version {stop}", splits=frozenset({SPLIT}))

    def unread(self, position: SourcePosition) -> Unread | None:
        """`protocol.KnowsItsEnd`: the versions after the last step."""
        if position.previous is None:
            return None
        stop, latest = self._ranges(position.previous)["to"], self._log.latest()
        if latest <= stop:
            return Unread()
        return Unread(latest - stop, "version", self._timestamp(stop + 1))

    def is_the_same(self, position: SourcePosition) -> bool:
        """`protocol.KnowsItsPlace`: by the table's id, and by the commit that was read last."""
        previous = position.previous
        if previous is None or not self._log.exists() or self._ranges(previous)["id"] != self._log.id():
            return False
        self._check_history(self._ranges(previous))
        return True

    def explain(self, error: BaseException, step: StoredStep) -> SourceError | None:
        """The typed error of a row that does not fit, and of files that VACUUM or the log's cleanup took."""
        text, summary = str(error), step.step.summary
        if (found := misfit(error)) is not None:
            self._refused(step)
            what = f"{self._table.name}: version {found['version']} of the Delta table: {found['error']}"
            return misfit_error(what, step.place, "rows")
        if not re.search(f"{_FILE_GONE}|{_VERSION_GONE}", text):
            return None
        path = re.escape(self._log.path.name)
        named = re.search(rf"{path}/([^\s'\",;)]+?\.(?:parquet|json|bin))", unquote(text))
        file = f"the file {named.group(1)}" if named else "a file"
        return self._error(
            f"{file} of the Delta table is gone, which {summary} needs: VACUUM or the cleanup of the log took it "
            "before it was read",
            next_command=resnapshot(
                self._table.name,
                "reads the table as it is now: rows that were there only in between are not read; and make "
                "delta.deletedFileRetentionDuration longer than the time between two runs",
            ),
        )

    def _timestamp(self, version: int) -> int | None:
        """When `version` was committed; None if its entry in the log is gone."""
        try:
            return self._log.commit(version).timestamp
        except SourceError:
            return None

    def _error(self, what: str, *, next_command: Advised, state: str = NOTHING_AFTER) -> SourceError:
        return SourceError(
            f"{self._table.name}: {what}",
            where=str(self._log.path),
            state=state,
            next_command=next_command,
        )


def _split_of(stored: StoredStep) -> str:
    """The split that says up to which version a step is read, where one was refused."""
    start = stored.step.ranges.get("from")
    return SNAPSHOT if start is None else f"versions after {start}"


def _same_type(column: Column, spark_type: str) -> bool:
    """A column of the type void holds nothing but NULL, which every type has."""
    if spark_type == "void":
        return True
    return exp.DataType.build(column.spark_type, dialect="spark") == exp.DataType.build(spark_type, dialect="spark")


def check(table: Table) -> Sequence[str]:
    """A source needs a path; a target has a place in the lake."""
    if why := paths.problem(table.options.get("path", "")):
        return [f"'path': {why}"]
    if table.role == "sink" and ERROR_OPTION.name in table.options:
        return [f"'{ERROR_OPTION.name}' has no meaning: {table.name} is a target"]
    if table.role in ("build", "probe") and not table.options.get("path"):
        return [f"'path' is missing: where is the Delta table that {table.name} reads?"]
    return misnamed_fields(table.physical_columns, by=table.connector)


class DeltaConnector:
    """`'connector' = 'delta'`."""

    spec = ConnectorSpec(
        name="delta",
        doc="A Delta table: as a source its newest version first, then what later commits add; as a target its rows "
        "are published to it.",
        options=(
            OptionSpec(
                "path",
                doc="The table's folder. A source needs it. A target without it is in the lake.",
                changes="identity",
            ),
            ERROR_OPTION,
        ),
        source=True,
        sink=True,
        by_name=True,
        system_time=True,
        system_watermark=True,
        phases=lambda options: True,
        signals=lambda options: True,
        check=check,
    )

    def source(self, context: SourceContext) -> Source:
        return DeltaSource(context)


CONNECTOR = DeltaConnector()
