"""Formats by name: how the bytes of a message become rows of a table; and what a connector checks at planning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches

from tidegate.pipelines.connectors.flink import REFUSED_FORMATS
from tidegate.pipelines.connectors.options import misnamed_fields
from tidegate.pipelines.connectors.spec import OptionSpec
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.sources.formats import avro, canal, changes, csv, debezium, json_text, raw
from tidegate.pipelines.sources.formats.format import (
    DECODED,
    VALUE,
    Format,
    FormatSpec,
    Wanted,
    metadata_column,
    wanted,
)

__all__ = [
    "DECODED",
    "FORMATS",
    "VALUE",
    "Format",
    "FormatSpec",
    "Wanted",
    "format_named",
    "format_options",
    "metadata_column",
    "metadata_of",
    "problems",
    "wanted",
]

_ALL: Sequence[Format] = (
    json_text.FORMAT, csv.FORMAT, raw.FORMAT, avro.FORMAT, debezium.FORMAT, canal.FORMAT, changes.FORMAT,
)  # fmt: skip
FORMATS: Mapping[str, Format] = {made.spec.name: made for made in _ALL}


def format_named(name: str) -> Format:
    """The format called `name`. Raises PlanningError."""
    if name in FORMATS:
        return FORMATS[name]
    raise PlanningError(
        unknown(name, tuple(FORMATS)), where="'format'", state="nothing was read", next_command="name another format"
    )


def format_options(names: Sequence[str], *, prefix: str = "") -> tuple[OptionSpec, ...]:
    """The options of these formats, as a connector's own. `prefix`: what it puts before them (`value.`)."""
    return tuple(replace(option, name=prefix + option.name) for name in names for option in FORMATS[name].spec.options)


def metadata_of(name: str, *, prefix: str = "") -> dict[str, str]:
    """The METADATA keys of the format called `name`, with their types; none where there is no such format. `prefix`:
    what a connector puts before them."""
    return {prefix + key: found.type for key, found in FORMATS[name].spec.metadata.items()} if name in FORMATS else {}


def problems(name: str, wanted: Wanted, *, names: Sequence[str], option: str = "format") -> list[str]:
    """What is wrong, at planning, with a table whose `option` is `name`. `names`: the formats that its connector
    reads."""
    if name not in names:
        return [f"'{option}': {unknown(name, names)}"]
    chosen = FORMATS[name]
    own = {known.name for known in chosen.spec.options}
    others = {known.name: other for other in names if other in FORMATS for known in FORMATS[other].spec.options}
    strays = [
        f"'{key}' has no meaning: it is an option of {others[key]}, and the {option} is {name}"
        for key in wanted.options
        if key in others and key not in own
    ]
    fields = misnamed_fields(wanted.columns, by=f"the {option} {name}", by_name=chosen.spec.rows is not None)
    return [*strays, *fields, *chosen.check(wanted)]


def unknown(name: str, names: Sequence[str]) -> str:
    """The error text for a format that is not among `names`."""
    if name in REFUSED_FORMATS:
        return f"the format '{name}' cannot be read: {REFUSED_FORMATS[name]}"
    near = get_close_matches(name, names, 1)
    hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(names)}"
    return f"there is no format '{name}' here: {hint}"
