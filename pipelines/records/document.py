"""A record as JSON: the names of its facts are the interface (docs/cli.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any

from tidegate.pipelines.commands import AS_WRITTEN, Advice, Commands, NextCommand
from tidegate.pipelines.records.kinds import facts_of


def as_json(value: Any, commands: Commands = AS_WRITTEN) -> Any:
    """A record, or a value of one, as JSON values; next commands are written as `commands` shows them. What JSON has no
    type for stays as it is, for `text.document` to write."""
    if isinstance(value, (Advice, NextCommand)):
        return commands.shown(value)
    if is_dataclass(value) and not isinstance(value, type):
        optional = getattr(value, "OPTIONAL", ())
        return {
            each.name: as_json(found, commands)
            for each in facts_of(type(value))
            if not each.said and ((found := each.value(value)) is not None or each.name not in optional)
        }
    if isinstance(value, Mapping):
        return {name: as_json(each, commands) for name, each in value.items()}
    if isinstance(value, (tuple, list, set, frozenset)):
        return [as_json(each, commands) for each in value]
    return value
