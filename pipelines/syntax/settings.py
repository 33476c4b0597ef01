"""SET 'key' = 'value' at the top of a script: what holds for all of its tables, under Flink's own names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidegate.pipelines.syntax.durations import EXAMPLES, parse_duration
from tidegate.pipelines.syntax.errors import suggest
from tidegate.pipelines.syntax.flink_settings import foreign_setting
from tidegate.pipelines.syntax.secrets import needs_variables
from tidegate.pipelines.syntax.source import Source
from tidegate.pipelines.syntax.statements import SetOption, Statement

AUTO_WATERMARK_INTERVAL = "pipeline.auto-watermark-interval"
NOT_NULL_ENFORCER = "table.exec.sink.not-null-enforcer"

ENFORCERS = ("ERROR", "DROP")


def _enforcer(value: str) -> str:
    if value.upper() not in ENFORCERS:
        raise ValueError
    return value.upper()


_VALUES: Mapping[str, tuple[Callable[[str], Any], str, str]] = {
    AUTO_WATERMARK_INTERVAL: (parse_duration, "no duration", f"for example {EXAMPLES}"),
    NOT_NULL_ENFORCER: (_enforcer, "neither ERROR nor DROP", "ERROR holds the epoch, DROP quarantines the row"),
}
"""Key -> what reads its value, what a wrong one is, and what to write."""

SETTINGS = tuple(_VALUES)


def settings(source: Source, statements: Sequence[Statement]) -> dict[str, Any]:
    """What the script sets, by key.

    Raises SqlError: an unknown key, one that is set twice or not at the top, a value that the key cannot have.
    """
    found: dict[str, Any] = {}
    top = True
    for statement in statements:
        if not isinstance(statement, SetOption):
            top = False
            continue
        key, value = statement.key.text, statement.value.text
        foreign = None if key in SETTINGS else foreign_setting(key)
        if foreign is not None and foreign.refuses(value):
            what = f"'{key}' = '{value}' asks for what is not done here"
            raise source.error(statement.key.span, what, foreign.instead)
        if key not in SETTINGS and foreign is None:
            what = f"there is no setting '{key}'"
            raise source.error(statement.key.span, what, suggest(key, SETTINGS, "a script's settings"))
        if not top:
            hint = "put it in front of the first CREATE: it holds for all of the script"
            raise source.error(statement.span, "SET belongs at the top of a script", hint)
        if foreign is not None:
            continue
        if key in found:
            raise source.error(statement.key.span, f"'{key}' is set twice")
        if needs_variables(value):
            hint = "write the value itself"
            if key == AUTO_WATERMARK_INTERVAL:
                hint = "give it to the run: $TIDEGATE_AUTO_WATERMARK_INTERVAL, or --auto-watermark-interval"
            raise source.error(statement.value.span, f"'{key}' cannot come from the environment", hint)
        read, wrong, hint = _VALUES[key]
        try:
            found[key] = read(value)
            continue
        except ValueError:
            pass
        raise source.error(statement.value.span, f"'{key}' = '{value}' is {wrong}", hint)
    return found


def without_effect(statements: Sequence[Statement]) -> dict[str, str]:
    """The settings of Flink that a script has and that have no effect here, each with why."""
    keys = [each.key.text for each in statements if isinstance(each, SetOption) and each.key.text not in SETTINGS]
    return {key: foreign.note for key in keys if (foreign := foreign_setting(key)) is not None}
