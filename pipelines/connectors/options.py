"""WITH options: those that every source or every target has, and the checking of all of them.

A value that holds `${VAR}` is known only when it is resolved, so it is checked then, by `resolve_options`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from tidegate.pipelines.connectors.spec import ConnectorSpec, OptionSpec
from tidegate.pipelines.connectors.table import Column, Table
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.syntax.durations import EXAMPLES, parse_duration
from tidegate.pipelines.syntax.secrets import is_secret, is_variable, needs_variables
from tidegate.pipelines.syntax.types import folded

CHANGELOG_RETENTION, LANDED_RETENTION, QUARANTINE_RETENTION = (
    "changelog.retention", "landed.retention", "quarantine.retention",
)  # fmt: skip

FIELD_NAME = "fields.#.name"

OnUnmatched = Literal["quarantine", "block", "publish"]
"""What becomes of a released probe row without a match."""

CONNECTOR = OptionSpec("connector", required=True, doc="What the table reads from or writes to.", changes="identity")

SINK_OPTIONS: tuple[OptionSpec, ...] = (
    OptionSpec(
        "insert.id",
        doc="The stable name of the INSERT into this table. The lake stores the INSERT's state under this name. "
        "Default: the table's name. A new name begins at the first row; no other INSERT may have published to its "
        "target.",
        changes="neither",
    ),
    OptionSpec(
        "gate.on-unmatched",
        "choice",
        default="quarantine",
        choices=("quarantine", "block", "publish"),
        doc="What happens to a released probe row without a match. quarantine: it is quarantined with its reason. "
        "block: the whole epoch is held. publish: as in SQL, LEFT fills the build's columns with NULL and INNER "
        "drops the row; both are counted by reason.",
        changes="rows",
    ),
    OptionSpec(
        "gate.proof",
        "choice",
        default="true",
        choices=("true", "columns"),
        doc="The match proof: counts from the join's own pass, which show that every match was made at or after the "
        "flip and against the pinned epoch. Nothing is published without it. columns: every published row also has "
        "columns that identify the version that it met.",
        changes="rows",
    ),
    OptionSpec(
        "gate.unmatched-ratio.max",
        "float",
        doc="The greatest share of rows without a match that an epoch may have, from 0 to 1. An epoch above it is "
        "held.",
        changes="neither",
    ),
    OptionSpec(
        "gate.unmatched-ratio.window",
        "integer",
        doc="How many published epochs the usual share of rows without a match is computed over. An epoch well above "
        "the usual share is held. Default: no such check.",
        changes="neither",
    ),
    OptionSpec(
        "gate.unmatched-ratio.min-rows",
        "integer",
        default="100",
        doc="An epoch with fewer rows is not held for its share, and does not count for the usual share.",
        changes="neither",
    ),
    OptionSpec(
        "quality.suite",
        doc="The path of a Great Expectations suite (JSON), relative to the script. It is run on the rows of every "
        "epoch before they are published. An epoch that does not meet it is held.",
        changes="neither",
    ),
    OptionSpec(
        "gate.timeout",
        "duration",
        default="10 min",
        doc="How long the checks of one epoch may take. After that the run fails, and nothing of the epoch is "
        "published.",
        changes="neither",
    ),
    OptionSpec(
        "release.max-rows",
        "integer",
        default="10000000",
        doc="About how many rows one epoch of the INSERT releases. A larger release is split into several epochs, each "
        "with its own verdict. An epoch of the INSERT takes at least one whole epoch of the probe, in event time at "
        "least one whole millisecond. A backfill is never split.",
        changes="neither",
    ),
    OptionSpec(
        QUARANTINE_RETENTION,
        "duration",
        doc="Quarantined rows that were released or discarded longer ago than this are removed from the quarantine. "
        "Rows that nobody has decided about are never removed. Default: everything stays.",
        changes="neither",
    ),
)
"""Options of every table that an INSERT writes to."""

SOURCE_OPTIONS: tuple[OptionSpec, ...] = (
    OptionSpec(
        FIELD_NAME,
        doc="The name of the column's field in the source (`fields.id.name` for the column `id`), where the column "
        "cannot have it: `_id`, `a b`, `a.b`. For connectors and formats that find columns by name. Default: the "
        "column's own name.",
        changes="rows",
    ),
    OptionSpec(
        CHANGELOG_RETENTION,
        "duration",
        doc="Versions older than watermark - retention may be removed. The newest version of each key at or below the "
        "watermark stays. Default: everything stays.",
        changes="neither",
    ),
    OptionSpec(
        LANDED_RETENTION,
        "duration",
        doc="For a probe: epochs that landed longer ago than this are removed from its table, oldest first, when no "
        "INSERT needs them any more. What they were joined to can then not be verified or backfilled again. "
        "Default: everything stays.",
        changes="neither",
    ),
    OptionSpec(
        "scan.max-rows-per-epoch",
        "integer",
        doc="About how many rows one epoch may have, if the source can count them before it reads. An aligned epoch "
        "may overshoot its group's limit by this many rows. Default: the connector's own limit, or 100000 while the "
        "table has an alignment group to wait for.",
        changes="neither",
    ),
    OptionSpec(
        "scan.watermark.emit.strategy",
        "choice",
        default="on-periodic",
        choices=("on-periodic", "on-event"),
        doc="When a watermark is emitted. on-periodic: once an epoch. on-event: after rows.",
        changes="rows",
    ),
    OptionSpec(
        "scan.watermark.emit.on-event.gap",
        "integer",
        default="1",
        doc="With on-event: a watermark is emitted after every this many rows.",
        changes="rows",
    ),
    OptionSpec(
        "scan.watermark.idle-timeout",
        "duration",
        doc="A split without rows for this long is idle and no longer holds the watermark back. Default: never.",
        changes="rows",
    ),
    OptionSpec(
        "scan.watermark.alignment.group",
        doc="The name of an alignment group. Sources of one group wait for each other, so that none runs ahead by more "
        "than the drift.",
        changes="neither",
    ),
    OptionSpec(
        "scan.watermark.alignment.max-drift",
        "duration",
        doc="How far a split may be ahead of its group's slowest split.",
        changes="neither",
    ),
    OptionSpec(
        "scan.watermark.alignment.update-interval",
        "duration",
        default="1 s",
        doc="How often the group's members compare their watermarks.",
        changes="neither",
    ),
)
"""Options of every table that an INSERT reads. The `scan.watermark.*` ones need WATERMARK FOR."""

WATERMARK_PREFIX = "scan.watermark."


def common_options(spec: ConnectorSpec) -> tuple[OptionSpec, ...]:
    """The options that a table of this connector has beside the connector's own."""
    own = (*(SOURCE_OPTIONS if spec.source else ()), *(SINK_OPTIONS if spec.sink else ()))
    return (CONNECTOR, *own, *spec.foreign)


def without_effect(table: Table, spec: ConnectorSpec) -> dict[str, str]:
    """The options of a table that are taken and have no effect, with why."""
    known = (*spec.options, *common_options(spec))
    found = {key: find_option(key, known) for key in table.options}
    return {
        key: "It asks for what is done anyway" if option.effect == "refused" else option.doc
        for key, option in found.items()
        if option is not None and option.effect != "own"
    }


def not_done(option: OptionSpec, value: str) -> bool:
    """Whether an option asks for something that is not done here."""
    return option.effect == "refused" and value.casefold() not in option.spares


def find_option(key: str, known: Sequence[OptionSpec]) -> OptionSpec | None:
    """The option that `key` is: of that name, of a family `name.*`, or `a.#.b` with any path for `#`."""
    for option in known:
        if option.name == key:
            return option
    for option in known:
        if option.name.endswith(".*") and key.startswith(option.name[:-1]) and len(key) >= len(option.name):
            return option
        head, hole, tail = option.name.partition("#")
        if hole and key.startswith(head) and key.endswith(tail) and len(key) > len(head) + len(tail):
            return option
    return None


def path_of(key: str, option: OptionSpec) -> str | None:
    """The text in place of `#` in a key; None for an option without one."""
    head, hole, tail = option.name.partition("#")
    return key[len(head) : len(key) - len(tail)] if hole else None


def spelled(known: Sequence[OptionSpec], columns: Sequence[str]) -> list[str]:
    """The names that keys may have, with every column's name for `#`."""
    names: list[str] = []
    for option in known:
        if option.effect != "own":
            continue
        names.extend([option.name.replace("#", column) for column in columns] if "#" in option.name else [option.name])
    return names


NAMES = ("scan.watermark.alignment.group", FIELD_NAME)
"""Options that are names and must not be empty: no table is in a group without a name, and no field has none."""

AT_LEAST_ONE = ("scan.max-rows-per-epoch", "release.max-rows", "scan.watermark.emit.on-event.gap")
LONGER_THAN_NOTHING = ("scan.watermark.idle-timeout", "scan.watermark.alignment.update-interval", "gate.timeout")
LEAST_WINDOW = 5
"""Epochs that 'gate.unmatched-ratio.window' needs to know a range."""


_PARSERS: Mapping[str, tuple[Callable[[str], object], tuple[str, str]]] = {
    "integer": (int, ("is no whole number", "write digits: '1000'")),
    "float": (float, ("is no number", "for example '0.5'")),
    "duration": (parse_duration, ("is no duration", f"for example {EXAMPLES}")),
}
"""By kind of an option: what raises ValueError for a wrong value, and (what, hint) of it."""


def wrong_value(option: OptionSpec, value: str) -> tuple[str, str] | None:
    """What is wrong with a value, as (what, hint); None when nothing is. The value itself is not named."""
    if option.kind == "choice" and value not in option.choices:
        return "is none of the choices", f"choose one of {', '.join(f'{choice!r}' for choice in option.choices)}"
    if option.kind == "boolean" and value.lower() not in ("true", "false"):
        return "is no boolean", "write 'true' or 'false'"
    if option.kind in _PARSERS:
        parse, wrong = _PARSERS[option.kind]
        try:
            parse(value)
        except ValueError:
            return wrong
    if not value.strip() and (option.required or option.kind != "string" or option.name in NAMES):
        return "is empty", "write a value"
    if option.name in AT_LEAST_ONE and int(value) < 1:
        return "is no number of rows", "write a number from 1 on, or leave the option out"
    if option.name in LONGER_THAN_NOTHING and not parse_duration(value):
        return "must be positive", "write '1 s', or leave the option out"
    if option.name == "gate.unmatched-ratio.max" and not 0 <= float(value) <= 1:
        return "is no share", "write a number from 0 to 1: '0.05'"
    if option.name == "gate.unmatched-ratio.window" and int(value) < LEAST_WINDOW:
        return f"is too short: a range needs {LEAST_WINDOW} epochs", "write '30', or leave the option out"
    if option.name == "gate.unmatched-ratio.min-rows" and int(value) < 0:
        return "is less than none", "write '100'"
    return None


def field_option(column: str) -> str:
    """The option that names a column's field in the source."""
    return FIELD_NAME.replace("#", column)


def misnamed_fields(columns: Sequence[Column], *, by: str, by_name: bool = True) -> list[str]:
    """What is wrong with the fields of `columns`, which are read from one record: two that are of one field, whatever
    its case (Spark takes them for one); or a name where `by`, a connector or a format, finds columns by their place."""
    named = [column for column in columns if column.field_name is not None]
    if named and not by_name:
        return [f"'{field_option(named[0].name)}' has no meaning: {by} finds no column by its name"]
    found: dict[str, Column] = {}
    for column in sorted(columns, key=lambda column: column.field_name is not None):
        other = found.setdefault(folded(column.source_name), column)
        if other is not column and column.field_name is not None:
            return [
                f"'{field_option(column.name)}' = '{column.field_name}': {other.name} is read from "
                f"`{other.source_name}`, and a field is read into one column"
            ]
    return []


def flag(options: Mapping[str, str], name: str, default: str = "false") -> bool:
    """The value of a boolean option."""
    return options.get(name, default).lower() == "true"


def misplaced(options: Mapping[str, str], option: str, default: str, belong: Mapping[str, Sequence[str]]) -> list[str]:
    """What is wrong with options that belong to one value of `option`: what `belong` lists of a value must be given
    with that value, and has no meaning with another."""
    chosen, found = options.get(option, default), []
    for value, names in belong.items():
        if chosen == value:
            found += [f"'{option}' = '{value}' needs '{name}'" for name in names if name not in options]
        else:
            found += [f"'{name}' is for '{option}' = '{value}'" for name in names if name in options]
    return found


def misspelled_pattern(options: Mapping[str, str], name: str) -> list[str]:
    """What is wrong with an option that is a regular expression, where it is given and needs no environment."""
    pattern = options.get(name, "")
    if needs_variables(pattern):
        return []
    try:
        re.compile(pattern)
    except re.error as error:
        return [f"'{name}' is no regular expression: {error}"]
    return []


def shown_value(key: str, value: str) -> str:
    """A value for a message: never one of a secret option."""
    return "***" if is_secret(key) and not is_variable(value) else value


def resolve_options(table: Table, spec: ConnectorSpec, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The real values of a table's options, `${VAR}` replaced and checked once more; without defaults.

    Raises PlanningError that names the option, and never a value that came out of the environment.
    """
    resolved = table.options.resolve(environment, table.name)
    check_resolved(table, resolved, (*spec.options, *common_options(spec)))
    return resolved


def check_resolved(table: Table, resolved: Mapping[str, str], known: Sequence[OptionSpec]) -> None:
    """Check values that came out of the environment; all others were when the script was compiled.

    Raises PlanningError that names the option, and never its value.
    """
    for key, value in resolved.items():
        option = find_option(key, known)
        wrong = wrong_value(option, value) if option is not None and needs_variables(table.options[key]) else None
        if wrong is not None:
            raise PlanningError(
                f"the value of '{key}' {wrong[0]}",
                where=f"table {table.name}, '{key}' = '{shown_value(key, table.options[key])}'",
                state="nothing was run",
                next_command=f"correct the environment variable ({wrong[1]}), and run again",
            )


def on_unmatched(target: Table) -> OnUnmatched:
    """What becomes of a released probe row without a match: the target's 'gate.on-unmatched', or its default."""
    spec = next(spec for spec in SINK_OPTIONS if spec.name == "gate.on-unmatched")
    return target.options.get(spec.name, spec.default)  # type: ignore[return-value]
