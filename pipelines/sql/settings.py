"""SET 'key' = 'value' at the top of a script: what holds for all of its tables, under Flink's own names."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from pipelines.sql.durations import EXAMPLES, parse_duration
from pipelines.sql.errors import suggest
from pipelines.sql.model import needs_variables
from pipelines.sql.source import Source
from pipelines.sql.syntax import SetOption, Statement

AUTO_WATERMARK_INTERVAL = "pipeline.auto-watermark-interval"

SETTINGS = (AUTO_WATERMARK_INTERVAL,)


def auto_watermark_interval(source: Source, statements: Sequence[Statement]) -> timedelta | None:
    """What the script sets; None where it sets nothing.

    Raises SqlError: an unknown key, one that is set twice or not at the top, a value that is no duration.
    """
    found: dict[str, timedelta] = {}
    top = True
    for statement in statements:
        if not isinstance(statement, SetOption):
            top = False
            continue
        key, value = statement.key.text, statement.value.text
        if key not in SETTINGS:
            what = f"there is no setting '{key}'"
            raise source.error(statement.key.span, what, suggest(key, SETTINGS, "a script's settings"))
        if not top:
            hint = "put it in front of the first CREATE: it holds for all of the script"
            raise source.error(statement.span, "SET stands at the top of a script", hint)
        if key in found:
            raise source.error(statement.key.span, f"'{key}' is set twice")
        if needs_variables(value):
            hint = "give it to the run: $TIDEGATE_AUTO_WATERMARK_INTERVAL, or --auto-watermark-interval"
            raise source.error(statement.value.span, f"'{key}' can not come from the environment", hint)
        try:
            found[key] = parse_duration(value)
            continue
        except ValueError:
            pass
        raise source.error(statement.value.span, f"'{key}' = '{value}' is no duration", f"for example {EXAMPLES}")
    return found.get(AUTO_WATERMARK_INTERVAL)
