"""DATE_FORMAT, TO_TIMESTAMP, EXTRACT, … for a session in UTC, and the instant that is every "now"."""

from __future__ import annotations

import re
from functools import partial

from tidegate.pipelines.sql.functions.function import ANY, DAY, MOMENT, NUMBER, TEXT, WHOLE, Call, Function, alike, same
from tidegate.pipelines.sql.functions.refused import RECOMPUTE
from tidegate.pipelines.syntax.types import (
    BIGINT,
    DATE,
    INSTANT,
    INT,
    STRING,
    STRINGS,
    TIMESTAMPS,
    FlinkType,
    Kind,
    spark_string,
)

INSTANT_SQL = "_instant"
DEFAULT_PATTERN = "yyyy-MM-dd HH:mm:ss"
PATTERN_LETTERS = frozenset("GyMLdDEahHkKmsSVzOXxZQq")
"""Letters of a date pattern that Java and Spark read alike."""
_WEEKS = "which day a week begins with depends on the machine that Flink runs on"
_NO_LETTERS = {
    **dict.fromkeys("wW", (_WEEKS, "EXTRACT(WEEK FROM t) is the ISO week")),
    **dict.fromkeys("ec", (_WEEKS, "EXTRACT(DOW FROM t) is the day of the week, and `E` its name")),
    "Y": (f"it is the year of a week, and {_WEEKS}", "the year is `y`"),
    "F": ("it depends on the version of Java", "EXTRACT(DAY FROM t) is the day of the month"),
    "u": ("it is the day of the week", "the year is `y`"),
}
"""Letters that Java has and Spark reads otherwise or not at all: why they cannot be given, and what to write."""

_LOCAL = FlinkType(Kind.TIMESTAMP, 3)
_FIELDS = {
    "YEAR": "year({0})",
    "QUARTER": "quarter({0})",
    "MONTH": "month({0})",
    "WEEK": "weekofyear({0})",
    "DAY": "dayofmonth({0})",
    "DOY": "dayofyear({0})",
    "DOW": "dayofweek({0})",
    "HOUR": "hour({0})",
    "MINUTE": "minute({0})",
    "SECOND": "second({0})",
    "EPOCH": "unix_seconds(CAST({0} AS TIMESTAMP))",
}
_DAYS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY")
_CLOCK = ("HOUR", "MINUTE", "SECOND", "MILLISECOND")


def _field(call: Call, unit: str) -> str:
    """A field of a date or timestamp as a BIGINT."""
    _needs_time(call, unit)
    return f"CAST({_FIELDS[unit].format(call.sqls[0])} AS BIGINT)"


def _needs_time(call: Call, unit: str) -> None:
    if unit in _CLOCK and call.types[-1].kind is Kind.DATE:
        call.refuse(f"type clash: a DATE has no {unit}", "CAST it to TIMESTAMP(3)", len(call.arguments) - 1)


def _pattern(call: Call, *, newer: bool = False, reads: bool = False) -> str:
    """The pattern as Spark's. Flink reads it by Java's DateTimeFormatter (`newer`) or by SimpleDateFormat. `reads`: it
    is of a text that is read, not written."""
    if len(call.arguments) < 2:
        return spark_string(DEFAULT_PATTERN)
    pattern = call.arguments[1].constant
    if not isinstance(pattern, str):
        return call.sqls[1]
    parts = pattern.split("'")  # every second one is in quotes
    plain = "'".join(parts[::2])
    for letter in plain:
        if newer and letter == "u":
            continue
        if letter.isalpha() and letter not in PATTERN_LETTERS:
            why, hint = _NO_LETTERS.get(letter, ("", "put plain text in quotes: ''T''"))
            what = f"`{letter}` of a date pattern is not supported: {why}" if why else ""
            call.refuse(what or f"`{letter}` is no letter of a date pattern", hint, 1)
        if not newer and letter in "[]{}#":
            call.refuse(f"`{letter}` means something else to Flink in {call.name}", f"write ''{letter}''", 1)
    if reads:
        _check_read(call, plain, newer)
    # Java's `u` is the year that its `y` is, but for those before Christ.
    written = [part if place % 2 else part.replace("u", "y") for place, part in enumerate(parts)]
    return spark_string("'".join(written))


def _check_read(call: Call, plain: str, newer: bool) -> None:
    """Raise SqlError for a pattern by which Flink reads another time than Spark."""
    zone = next((letter for letter in plain if letter in "VzOXxZ"), None)
    if newer and zone:
        what = f"`{zone}`: a TIMESTAMP has no time zone, and Flink passes over the one that it reads"
        call.refuse(what, "leave it out, and take the text in front of it: TO_TIMESTAMP(LEFT(s, 19))", 1)
    if newer and set(plain) & {"h", "K"} and "a" not in plain:
        call.refuse("an hour from 1 to 12 is nothing without `a`, AM or PM", "the hour of the day is `H`", 1)
    if not newer and re.search("(?<!y)yy(?!y)", plain):
        what = "of a year of two digits, Flink takes the century by the day on which it runs"
        read = "CAST({} AS DATE)" if call.name == "TO_DATE" else "EXTRACT(EPOCH FROM {})"
        call.refuse(what, f"years from 2000 on: {read.format('TO_TIMESTAMP(s, pattern)')}", 1)


def _date_format(call: Call) -> str:
    value, of = call.sqls[0], call.types[0]
    if of.kind in STRINGS:
        value = f"CAST({value} AS TIMESTAMP)"
    elif not DAY.takes(of):
        call.refuse(f"type clash: DATE_FORMAT takes a TIMESTAMP, DATE or STRING, not {of}", None, 0)
    return f"date_format({value}, {_pattern(call, newer=of.kind in TIMESTAMPS)})"


def _parsed(call: Call, *, newer: bool = False) -> str:
    """A STRING read as an instant; NULL where it is malformed, as in Flink."""
    if len(call.arguments) == 1:
        return f"try_to_timestamp({call.sqls[0]})"
    return f"try_to_timestamp({call.sqls[0]}, {_pattern(call, newer=newer, reads=True)})"


def _to_timestamp(call: Call) -> str:
    return f"CAST(date_trunc('MILLISECOND', {_parsed(call, newer=True)}) AS TIMESTAMP_NTZ)"


def _to_timestamp_ltz(call: Call) -> str:
    precision = call.arguments[1].constant if len(call.arguments) > 1 else 3
    if precision not in (0, 3):
        call.refuse("the precision of TO_TIMESTAMP_LTZ is 0 (seconds) or 3 (milliseconds)", None, 1)
    if precision == 0:
        return f"timestamp_seconds({call.sqls[0]})"
    return f"timestamp_millis(CAST({call.sqls[0]} AS BIGINT))"


def _unix_timestamp(call: Call) -> str:
    if not call.arguments:
        hint = "write EXTRACT(EPOCH FROM CURRENT_TIMESTAMP), the plan's instant"
        call.refuse(f"UNIX_TIMESTAMP() is not supported: {RECOMPUTE}", hint)
    return f"unix_seconds(try_to_timestamp({call.sqls[0]}, {_pattern(call, reads=True)}))"


def _from_unixtime(call: Call) -> str:
    return f"date_format(timestamp_seconds({call.sqls[0]}), {_pattern(call)})"


def _add(call: Call) -> str:
    unit, (amount, moment) = call.units[0], call.arguments
    if not DAY.takes(moment.type):
        call.refuse(f"type clash: TIMESTAMPADD takes a TIMESTAMP or DATE, not {moment.type}", None, 1)
    added = f"timestampadd({unit}, {amount.sql}, {moment.sql})"
    if moment.type.kind is not Kind.DATE:
        return added
    if unit not in _DAYS:
        call.refuse(f"type clash: {unit} cannot be added to a DATE", "CAST it to TIMESTAMP(3)", 1)
    return f"CAST({added} AS DATE)"


def _difference(call: Call) -> str:
    return f"CAST(timestampdiff({call.units[0]}, {call.sqls[0]}, {call.sqls[1]}) AS INT)"


def _truncated(call: Call) -> str:
    """FLOOR(time TO unit)."""
    moment, of = call.arguments[0], call.types[0]
    if not DAY.takes(of):
        call.refuse(f"type clash: {call.name}(… TO {call.units[0]}) takes a TIMESTAMP or DATE, not {of}", None, 0)
    _needs_time(call, call.units[0])
    return f"CAST(date_trunc('{call.units[0]}', {moment.sql}) AS {of.spark})"


def _raised(call: Call) -> str:
    """CEIL(time TO unit)."""
    floor, moment, of = _truncated(call), call.sqls[0], call.types[0]
    next_one = f"CAST(timestampadd({call.units[0]}, 1, {floor}) AS {of.spark})"
    return f"CASE WHEN {floor} = {moment} THEN {moment} ELSE {next_one} END"


def _date_trunc(call: Call) -> str:
    """DATE_TRUNC('unit', time), Spark's spelling of FLOOR(time TO unit)."""
    unit, of = call.arguments[0].constant, call.types[1]
    if not isinstance(unit, str) or unit.upper() not in _TRUNCATED:
        call.refuse("DATE_TRUNC's unit is a constant", f"one of {', '.join(_TRUNCATED)}", 0)
    _needs_time(call, unit.upper())
    return f"CAST(date_trunc('{unit.upper()}', {call.sqls[1]}) AS {of.spark})"


def _in_zone(function: str):
    """A moment moved by a time zone's offset from UTC at that moment."""

    def write(call: Call) -> str:
        moment, zone = call.arguments
        return f"CAST({function}(CAST({moment.sql} AS TIMESTAMP), {zone.sql}) AS {moment.type.spark})"

    return write


def _convert_tz(call: Call) -> str:
    """CONVERT_TZ(text, from, to). Of a time that a zone's clocks show twice Java takes the later one, Spark the
    earlier one."""
    for place in (1, 2):
        zone = call.arguments[place].constant
        if isinstance(zone, str) and (sign := re.match(r"(?:UTC?)?([+-].*)", zone, re.IGNORECASE)):
            call.refuse(f"Flink takes the time zone {zone} for UTC", f"write 'GMT{sign[1]}'", place)
    text, zone, other = call.sqls
    whole = spark_string(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?!\d)")
    read = f"try_to_timestamp(regexp_extract({text}, {whole}, 1), '{DEFAULT_PATTERN}')"
    found = f"array(named_struct('at', {read}, 'zone', {zone}))"
    utc = "to_utc_timestamp(_c.at, _c.zone)"
    found = f"transform({found}, _c -> named_struct('at', _c.at, 'zone', _c.zone, 'utc', {utc}))"
    later = " ".join(
        f"WHEN from_utc_timestamp(_c.utc + INTERVAL '{minutes}' MINUTE, _c.zone) = _c.at "
        f"THEN _c.utc + INTERVAL '{minutes}' MINUTE"
        for minutes in (60, 30)
    )
    utc = f"transform({found}, _c -> CASE {later} ELSE _c.utc END)[0]"
    return f"date_format(from_utc_timestamp({utc}, {other}), '{DEFAULT_PATTERN}')"


_TRUNCATED = (*_DAYS, *_CLOCK)
_NAMES = {"DAY": "DAYOFMONTH", "DOY": "DAYOFYEAR", "DOW": "DAYOFWEEK"}
"""The functions that give a unit, where they are not called like it."""
_NOW = ("NOW", "CURRENT_ROW_TIMESTAMP", "PROCTIME", "SYSTEM_PROCTIME")

FUNCTIONS = (
    Function(("CURRENT_TIMESTAMP",), (), INSTANT, INSTANT_SQL, usage="CURRENT_TIMESTAMP"),
    *(Function((name,), (), INSTANT, INSTANT_SQL) for name in _NOW),
    Function(("LOCALTIMESTAMP",), (), _LOCAL, f"CAST({INSTANT_SQL} AS TIMESTAMP_NTZ)", usage="LOCALTIMESTAMP"),
    Function(("CURRENT_DATE",), (), DATE, f"CAST({INSTANT_SQL} AS DATE)", usage="CURRENT_DATE"),
    *(
        Function((_NAMES.get(unit, unit),), (DAY,), BIGINT, partial(_field, unit=unit))
        for unit in _FIELDS
        if unit != "EPOCH"
    ),
    Function(("FLOOR TO",), (ANY,), same(0), _truncated, usage="FLOOR(time TO unit)"),
    Function(("CEIL TO", "CEILING TO"), (ANY,), same(0), _raised, usage="CEIL(time TO unit)"),
    Function(("EXTRACT",), (DAY,), BIGINT, lambda call: _field(call, call.units[0]), usage="EXTRACT(unit FROM time)"),
    Function(("DATE_FORMAT",), (ANY, TEXT), STRING, _date_format, usage="DATE_FORMAT(time, pattern)"),
    Function(("TO_DATE",), (TEXT, TEXT), DATE, lambda call: f"CAST({_parsed(call)} AS DATE)", least=1),
    Function(("TO_TIMESTAMP",), (TEXT, TEXT), _LOCAL, _to_timestamp, least=1),
    Function(("TO_TIMESTAMP_LTZ",), (NUMBER, WHOLE), INSTANT, _to_timestamp_ltz, least=1),
    Function(("UNIX_TIMESTAMP",), (TEXT, TEXT), BIGINT, _unix_timestamp, least=0),
    Function(("FROM_UNIXTIME",), (NUMBER, TEXT), STRING, _from_unixtime, least=1),
    Function(("TIMESTAMPADD",), (WHOLE, ANY), same(1), _add, usage="TIMESTAMPADD(unit, integer, time)"),
    *alike((WHOLE,), INSTANT, "TIMESTAMP_SECONDS TIMESTAMP_MILLIS"),
    *alike((WHOLE,), FlinkType(Kind.TIMESTAMP_LTZ, 6), "TIMESTAMP_MICROS"),
    *(
        Function((f"UNIX_{unit}",), (MOMENT,), BIGINT, f"unix_{unit.lower()}(CAST({{0}} AS TIMESTAMP))")
        for unit in ("SECONDS", "MILLIS", "MICROS")
    ),
    Function(("DATE_TRUNC",), (TEXT, DAY), same(1), _date_trunc, usage="DATE_TRUNC('unit', time)"),
    Function(("TO_UTC_TIMESTAMP",), (MOMENT, TEXT), same(0), _in_zone("to_utc_timestamp")),
    Function(("FROM_UTC_TIMESTAMP",), (MOMENT, TEXT), same(0), _in_zone("from_utc_timestamp")),
    Function(("CONVERT_TZ",), (TEXT, TEXT, TEXT), STRING, _convert_tz),
    *(
        Function((name,), (DAY, WHOLE), DATE, f"{name.lower()}(CAST({{0}} AS DATE), CAST({{1}} AS INT))")
        for name in ("DATE_ADD", "DATE_SUB")
    ),
    Function(("LAST_DAY",), (DAY,), DATE, "last_day(CAST({0} AS DATE))"),
    Function(("TIMESTAMPDIFF",), (DAY, DAY), INT, _difference, usage="TIMESTAMPDIFF(unit, from, to)"),
)
