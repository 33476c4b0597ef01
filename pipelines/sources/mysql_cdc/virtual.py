"""Which VIRTUAL columns have another value for each session that reads them.

Such a column is computed where it is read: the log has the value of the session that wrote, a snapshot that of the one
that reads. Settings of the session (zone, language, precision of a division, week) and the clock decide.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tidegate.pipelines.sources.mysql_cdc.catalog import SourceTable
from tidegate.pipelines.sources.mysql_cdc.names import lowered

_OF_THE_SESSION = re.compile(
    r"\b(?:from_unixtime|unix_timestamp|convert_tz|utc_\w+|now|sysdate|cur(?:date|time)|current_\w+|local(?:time\w*)?|"
    r"date_format|time_format|dayname|monthname|str_to_date|to_char|to_date|format|rand|random_bytes|uuid\w*|sys_guid|"
    r"user|session_user|system_user|database|schema|connection_id|last_insert_id|row_count|found_rows|version|sleep|"
    r"get_lock|is_(?:free|used)_lock|release_lock|load_file|benchmark|master_pos_wait|encrypt)\s*\(|"
    r"\bweek\s*\((?![^()]*,\s*\d+\))|/|@",
    re.IGNORECASE,
)
"""What a session's zone, language, precision, user or clock decides; a week without the day that it begins at."""
_QUOTED_NAME = re.compile(r"`(?:[^`]|``)*`")
_QUOTED = re.compile(_QUOTED_NAME.pattern + r"|'(?:[^'\\]|''|\\.)*'|\"(?:[^\"\\]|\"\"|\\.)*\"", re.DOTALL)
_OF_A_TIME_ALONE = re.compile(r"\b(?:hour|minute|second|microsecond|time_to_sec)\((`(?:[^`]|``)*`)\)", re.IGNORECASE)
"""What is computed of a TIME without a date; elsewhere the server may add today's."""


def session_dependent(table: SourceTable) -> Mapping[str, str]:
    """The VIRTUAL columns that follow the session that reads, and why: "computed of the TIMESTAMP at"."""
    kinds = {column.name: column.data_type for column in table.columns}
    bare = {name: _without_texts(expression) for name, expression in table.virtual.items()}
    why = {name: "a TIMESTAMP" for name in bare if kinds.get(name) == "timestamp"}
    for name, expression in bare.items():
        function = _OF_THE_SESSION.search(_QUOTED_NAME.sub("``", expression))
        if function:
            why[name] = f"computed of `{function.group().strip(' (')}`"
    instants = {name: "TIMESTAMP" for name, kind in kinds.items() if kind == "timestamp" and name not in bare}
    times = {name: "TIME" for name, kind in kinds.items() if kind == "time" and name not in why}
    for name, expression in bare.items():
        found = _first(instants, expression) or _first(times, _OF_A_TIME_ALONE.sub("", expression))
        if found:
            why.setdefault(name, f"computed of the {found}")
    while True:  # a VIRTUAL over one that follows the session follows it as well
        followers = dict.fromkeys(why, "VIRTUAL")
        more = {
            name: f"computed of the {found}"
            for name, expression in bare.items()
            if name not in why and (found := _first(followers, expression))
        }
        if not more:
            return why
        why |= more


def _without_texts(expression: str) -> str:
    """An expression without what its string literals hold. MySQL's information_schema has every quote escaped."""
    if re.match(r"[^'\"]*\\['\"]", expression):
        expression = re.sub(r"\\(.)", r"\1", expression, flags=re.DOTALL)
    return _QUOTED.sub(lambda quoted: quoted[0] if quoted[0].startswith("`") else "''", expression)


def _first(kinds: Mapping[str, str], expression: str) -> str | None:
    """The first of these columns that an expression names, with its kind. The servers quote the names of columns; a
    word before a parenthesis is a function."""
    names = {lowered(name[1:-1].replace("``", "`")) for name in _QUOTED_NAME.findall(expression)}
    if not names:
        names = {lowered(word) for word in re.findall(r"[\w$]+(?![\w$])(?!\s*\()", expression)}
    return next((f"{kind} {name}" for name, kind in kinds.items() if lowered(name) in names), None)
