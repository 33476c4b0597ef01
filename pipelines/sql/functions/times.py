"""DATE_FORMAT, TO_TIMESTAMP, EXTRACT, … for a session in UTC, and the instant that is every "now"."""

from __future__ import annotations

from tidegate.pipelines.sql.functions.function import ANY, DAY, MOMENT, NUMBER, TEXT, WHOLE, Call, Function, same
from tidegate.pipelines.syntax.types import BIGINT, DATE, INSTANT, INT, STRING, STRINGS, FlinkType, Kind, spark_string

INSTANT_SQL = "_instant"
DEFAULT_PATTERN = "yyyy-MM-dd HH:mm:ss"
PATTERN_LETTERS = frozenset("GyMLdDEFahHkKmsSVzOXxZQq")
"""Letters of a date pattern that Java and Spark read alike."""

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


def field_of(unit: str, sql: str) -> str:
    """A field of a date or timestamp as a BIGINT."""
    return f"CAST({_FIELDS[unit].format(sql)} AS BIGINT)"


def _field(name: str, unit: str) -> Function:
    return Function((name,), (DAY,), BIGINT, lambda call: field_of(_needs_time(call, unit), call.sqls[0]))


def _needs_time(call: Call, unit: str) -> str:
    if unit in ("HOUR", "MINUTE", "SECOND") and call.types[-1].kind is Kind.DATE:
        call.refuse(f"type clash: a DATE has no {unit}", "CAST it to TIMESTAMP(3)", len(call.arguments) - 1)
    return unit


def _pattern(call: Call) -> str:
    if len(call.arguments) < 2:
        return spark_string(DEFAULT_PATTERN)
    pattern = call.arguments[1].constant
    if isinstance(pattern, str):
        quoted = False
        for letter in pattern:
            if letter == "'":
                quoted = not quoted
            elif letter.isalpha() and not quoted and letter not in PATTERN_LETTERS:
                hint = {"Y": "the year is `y`", "u": "the year is `y`"}.get(letter, "put plain text in quotes: ''T''")
                call.refuse(f"`{letter}` is no letter of a date pattern", hint, 1)
    return call.sqls[1]


def _date_format(call: Call) -> str:
    value, of = call.sqls[0], call.types[0]
    if of.kind in STRINGS:
        value = f"CAST({value} AS TIMESTAMP)"
    elif not DAY.takes(of):
        call.refuse(f"type clash: DATE_FORMAT takes a TIMESTAMP, DATE or STRING, not {of}", None, 0)
    return f"date_format({value}, {_pattern(call)})"


def _parsed(call: Call) -> str:
    """A STRING read as an instant; NULL where it is malformed, as in Flink."""
    if len(call.arguments) == 1:
        return f"try_to_timestamp({call.sqls[0]})"
    return f"try_to_timestamp({call.sqls[0]}, {_pattern(call)})"


def _to_timestamp(call: Call) -> str:
    return f"CAST(date_trunc('MILLISECOND', {_parsed(call)}) AS TIMESTAMP_NTZ)"


def _to_timestamp_ltz(call: Call) -> str:
    precision = call.arguments[1].constant if len(call.arguments) > 1 else 3
    if precision not in (0, 3):
        call.refuse("the precision of TO_TIMESTAMP_LTZ is 0 (seconds) or 3 (milliseconds)", None, 1)
    if precision == 0:
        return f"timestamp_seconds({call.sqls[0]})"
    return f"timestamp_millis(CAST({call.sqls[0]} AS BIGINT))"


def _unix_timestamp(call: Call) -> str:
    if not call.arguments:
        call.refuse(
            "UNIX_TIMESTAMP() is not supported: a recomputation would give another value",
            "write EXTRACT(EPOCH FROM CURRENT_TIMESTAMP), the plan's instant",
        )
    return f"unix_seconds(try_to_timestamp({call.sqls[0]}, {_pattern(call)}))"


def _from_unixtime(call: Call) -> str:
    return f"date_format(timestamp_seconds({call.sqls[0]}), {_pattern(call)})"


def _extract(call: Call) -> str:
    return field_of(_needs_time(call, call.units[0]), call.sqls[0])


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
    if of.kind is Kind.DATE and call.units[0] not in _DAYS:
        call.refuse(f"type clash: a DATE has no {call.units[0]}", "CAST it to TIMESTAMP(3)", 0)
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
    if of.kind is Kind.DATE and unit.upper() not in _DAYS:
        call.refuse(f"type clash: a DATE has no {unit.upper()}", "CAST it to TIMESTAMP(3)", 1)
    return f"CAST(date_trunc('{unit.upper()}', {call.sqls[1]}) AS {of.spark})"


def _in_zone(function: str):
    """A moment moved by a time zone's offset from UTC at that moment."""

    def write(call: Call) -> str:
        moment, zone = call.arguments
        return f"CAST({function}(CAST({moment.sql} AS TIMESTAMP), {zone.sql}) AS {moment.type.spark})"

    return write


def _since_1970(name: str) -> Function:
    return Function((name,), (MOMENT,), BIGINT, f"{name.lower()}(CAST({{0}} AS TIMESTAMP))")


_TRUNCATED = (*_DAYS, "HOUR", "MINUTE", "SECOND", "MILLISECOND")
_NOW = ("NOW", "CURRENT_ROW_TIMESTAMP", "PROCTIME", "SYSTEM_PROCTIME")

FUNCTIONS = (
    Function(("CURRENT_TIMESTAMP",), (), INSTANT, INSTANT_SQL, usage="CURRENT_TIMESTAMP"),
    *(Function((name,), (), INSTANT, INSTANT_SQL) for name in _NOW),
    Function(("LOCALTIMESTAMP",), (), _LOCAL, f"CAST({INSTANT_SQL} AS TIMESTAMP_NTZ)", usage="LOCALTIMESTAMP"),
    Function(("CURRENT_DATE",), (), DATE, f"CAST({INSTANT_SQL} AS DATE)", usage="CURRENT_DATE"),
    _field("YEAR", "YEAR"),
    _field("QUARTER", "QUARTER"),
    _field("MONTH", "MONTH"),
    _field("WEEK", "WEEK"),
    _field("DAYOFMONTH", "DAY"),
    _field("DAYOFYEAR", "DOY"),
    _field("DAYOFWEEK", "DOW"),
    _field("HOUR", "HOUR"),
    _field("MINUTE", "MINUTE"),
    _field("SECOND", "SECOND"),
    Function(("FLOOR TO",), (ANY,), same(0), _truncated, usage="FLOOR(time TO unit)"),
    Function(("CEIL TO", "CEILING TO"), (ANY,), same(0), _raised, usage="CEIL(time TO unit)"),
    Function(("EXTRACT",), (DAY,), BIGINT, _extract, usage="EXTRACT(unit FROM time)"),
    Function(("DATE_FORMAT",), (ANY, TEXT), STRING, _date_format, usage="DATE_FORMAT(time, pattern)"),
    Function(("TO_DATE",), (TEXT, TEXT), DATE, lambda call: f"CAST({_parsed(call)} AS DATE)", least=1),
    Function(("TO_TIMESTAMP",), (TEXT, TEXT), _LOCAL, _to_timestamp, least=1),
    Function(("TO_TIMESTAMP_LTZ",), (NUMBER, WHOLE), INSTANT, _to_timestamp_ltz, least=1),
    Function(("UNIX_TIMESTAMP",), (TEXT, TEXT), BIGINT, _unix_timestamp, least=0),
    Function(("FROM_UNIXTIME",), (NUMBER, TEXT), STRING, _from_unixtime, least=1),
    Function(
        ("TIMESTAMPADD",),
        (WHOLE, ANY),
        lambda call: call.types[1].null(),
        _add,
        usage="TIMESTAMPADD(unit, integer, time)",
    ),
    Function(("TIMESTAMP_SECONDS",), (WHOLE,), INSTANT, "timestamp_seconds({0})"),
    Function(("TIMESTAMP_MILLIS",), (WHOLE,), INSTANT, "timestamp_millis({0})"),
    Function(("TIMESTAMP_MICROS",), (WHOLE,), FlinkType(Kind.TIMESTAMP_LTZ, 6), "timestamp_micros({0})"),
    _since_1970("UNIX_SECONDS"),
    _since_1970("UNIX_MILLIS"),
    _since_1970("UNIX_MICROS"),
    Function(("DATE_TRUNC",), (TEXT, DAY), same(1), _date_trunc, usage="DATE_TRUNC('unit', time)"),
    Function(("TO_UTC_TIMESTAMP",), (MOMENT, TEXT), same(0), _in_zone("to_utc_timestamp")),
    Function(("FROM_UTC_TIMESTAMP",), (MOMENT, TEXT), same(0), _in_zone("from_utc_timestamp")),
    Function(("DATE_ADD",), (DAY, WHOLE), DATE, "date_add(CAST({0} AS DATE), CAST({1} AS INT))"),
    Function(("DATE_SUB",), (DAY, WHOLE), DATE, "date_sub(CAST({0} AS DATE), CAST({1} AS INT))"),
    Function(("LAST_DAY",), (DAY,), DATE, "last_day(CAST({0} AS DATE))"),
    Function(("TIMESTAMPDIFF",), (DAY, DAY), INT, _difference, usage="TIMESTAMPDIFF(unit, from, to)"),
)
