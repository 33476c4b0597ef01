"""What the planner knows of a connector before anything runs: its options, and what its tables can do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tidegate.pipelines.connectors.table import Table

SEQ_TYPE = "STRUCT<phase: INT, log: INT, file: BIGINT, position: BIGINT, row: INT>"
"""The source's order of changes. A log source fills all five; a partitioned one uses file = partition and
position = offset; one with a single counter uses position alone."""

SEQ_PARTS = ("phase", "log", "file", "position", "row")

SOURCE_COLUMNS: Mapping[str, str] = {
    "_op": "STRING",
    "_seq": SEQ_TYPE,
    "_rowtime": "TIMESTAMP",
    "_split": "STRING",
    "_offset": "BIGINT",
}
"""What `Source.read` gives beside the table's physical columns.

`_op`: r (snapshot row) c u d t (truncate: key and row are null) for a build side; +I -U +U -D for a probe.
`_rowtime`: the source's own time of the change (null where it has none). `_split` names the unit it was read by and
`_offset` orders the rows inside it."""

REJECTED = "_rejected"
REJECTED_TYPE = "STRUCT<reason: STRING, key: BINARY, value: BINARY, headers: ARRAY<STRUCT<key: STRING, value: BINARY>>>"
"""An optional column of `Source.read`: null in a good row. If it is set, the frame's row stands for data that did not
fit, found at `_split` and `_offset`: it goes to the table's quarantine and is counted, and its other columns are
ignored. `reason` is a sentence, `value` the bytes as they were."""


@dataclass(frozen=True)
class OptionSpec:
    """One WITH option. `name` may end in `.*` (a family such as `jdbc.properties.*`) or hold a `#` for a column's name
    (`fields.#.min`). `kind` is what the value must parse as.

    `changes`: what another value would change: which source is read (identity), what its rows are stored as (rows),
    where a generation begins (start), so that a new one may have another value, or none of these (neither); then it is
    no part of the table's definition. By default identity.

    `effect`: whether it has a meaning here (own), has none and is taken (none; `doc` says why), or means something that
    is not done (refused, but for the values `spares`; `doc` says what to do). See `connectors/flink.py`.
    """

    name: str
    kind: Literal["string", "integer", "boolean", "duration", "choice", "float"] = "string"
    required: bool = False
    default: str | None = None
    choices: tuple[str, ...] = ()
    doc: str = ""
    changes: Literal["identity", "rows", "start", "neither"] = "identity"
    effect: Literal["own", "none", "refused"] = "own"
    spares: tuple[str, ...] = ()


@dataclass(frozen=True)
class ConnectorSpec:
    """What the planner knows of a connector before anything runs.

    Attributes:
        phases: whether a table with these options has a bounded phase before its unbounded one.
        signals: whether it says when the bounded one is over. Both get the options as written.
        append_only: as a probe, an input of a process or a part of such a table, it delivers inserts only, unless
            `updates` returns otherwise for these options; this does not hold for a build.
        system_time: its rows have a time of their own (`_rowtime`), for SYSTEM_ROWTIME().
        system_watermark: it also has watermarks of its own, for SYSTEM_WATERMARK(), without which no table declares
            SYSTEM_ROWTIME(): it returns them as `Landed.watermarks`, or its times ascend, so that no row before the
            greatest so far is still to come.
        tells_time: its watermarks are those of `Landed.watermarks`, whatever a table declares. Of other connectors
            these count only where a table declares SYSTEM_WATERMARK().
        foreign: options of other systems' connectors of that name that have no effect here, or are refused.
        parts: the options that name other tables of the script, which are read in its place; they are its
            `Table.parts`.
        partitioned: it takes PARTITIONED BY (`Table.partition_columns`).
        by_name: it finds columns by `Column.source_name`, which 'fields.#.name' may set; a format that it reads may
            still find them by their place.
        metadata: the METADATA keys that it delivers, with their types; `format_metadata`: those that a format adds.
        start_options: its options that say where a table begins, if it can begin at a time (`PlanRequest.start_at`).
        comparable: the source's table can be read again beside its log, to be compared with the changelog
            (`Comparable`).
        ordered_by_split: whether the order of a build's versions is known within a split alone, so that each row that
            lands in one is checked for its key in another.
    """

    name: str
    options: tuple[OptionSpec, ...]
    doc: str
    source: bool = True
    sink: bool = False
    append_only: bool = True
    needs_primary_key: bool = False
    partitioned: bool = False
    by_name: bool = False
    foreign: tuple[OptionSpec, ...] = ()
    start_options: tuple[str, ...] = ()
    system_time: bool = False
    system_watermark: bool = False
    tells_time: bool = False
    metadata: Mapping[str, str] = field(default_factory=dict)
    format_metadata: Callable[[Mapping[str, str]], Mapping[str, str]] = lambda options: {}
    phases: Callable[[Mapping[str, str]], bool] = lambda options: False
    signals: Callable[[Mapping[str, str]], bool] = lambda options: False
    updates: Callable[[Mapping[str, str]], bool] = lambda options: False
    ordered_by_split: Callable[[Mapping[str, str]], bool] = lambda options: False
    comparable: Callable[[Mapping[str, str]], bool] = lambda options: False
    parts: Callable[[Mapping[str, str]], Sequence[str]] = lambda options: ()
    check: Callable[[Table], Sequence[str]] = lambda table: ()
    """Further checks of one table at planning, no I/O; each string is an error to show."""

    def metadata_of(self, options: Mapping[str, str]) -> Mapping[str, str]:
        """The METADATA keys, with their types, that a table of these options may name."""
        return {**self.metadata, **self.format_metadata(options)}

    def only_grows(self, options: Mapping[str, str]) -> bool:
        """Whether a table of these options has inserts only."""
        return self.append_only and not self.updates(options)


ERROR_OPTION = OptionSpec(
    "format.on-error",
    "choice",
    default="fail",
    choices=("fail", "quarantine"),
    doc="What happens to a message or row that does not fit. fail: the step fails and names it. quarantine: it goes to "
    "the table's quarantine and is counted, and the others land.",
    changes="rows",
)
"""The option of connectors that read messages: what a table does with a message from which the format cannot make a
row."""


def never_signalling(spec: ConnectorSpec, options: Mapping[str, str]) -> bool:
    """Whether a table with these options has a bounded phase whose end nobody will report."""
    return spec.phases(options) and not spec.signals(options)


def ways_out(spec: ConnectorSpec, options: Mapping[str, str]) -> list[tuple[str, str]]:
    """Single options (name, value) that would make `never_signalling` false, found by trying each of them."""
    found: list[tuple[str, str]] = []
    for option in spec.options:
        choices = ("true", "false") if option.kind == "boolean" else option.choices
        for choice in choices:
            if options.get(option.name, option.default) != choice and not never_signalling(
                spec, {**options, option.name: choice}
            ):
                found.append((option.name, choice))
    return found
