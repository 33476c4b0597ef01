"""UPPER, CONCAT, SUBSTRING, REGEXP_EXTRACT, …"""

from __future__ import annotations

import re

from tidegate.pipelines.sql.functions.function import (
    ANY,
    NUMBER,
    OCTETS,
    TEXT,
    TEXT_OR_OCTETS,
    WHOLE,
    Call,
    Function,
    alike,
)
from tidegate.pipelines.sql.values import Value
from tidegate.pipelines.syntax.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    INT,
    NUMERIC,
    STRING,
    STRINGS,
    FlinkType,
    Kind,
    array_of,
    spark_string,
)


def _trim(call: Call) -> str:
    return f"trim({call.units[0]} {call.sqls[0]} FROM {call.sqls[1]})"


def _substring(call: Call) -> str:
    """In Flink nothing begins in front of a text, and no length is negative."""
    sql, (text, *numbers) = f"substring({', '.join(call.sqls)})", call.sqls
    if all(isinstance(value.constant, int) and value.constant >= 0 for value in call.arguments[1:]):
        return sql
    negative = f"WHEN {numbers[1]} < 0 THEN NULL " if len(numbers) > 1 else ""
    return f"CASE {negative}WHEN char_length({text}) + {numbers[0]} < 0 THEN '' ELSE {sql} END"


def _overlay(call: Call) -> str:
    """In Flink a text that does not begin there stays as it is, and what is put over no character ends it."""
    (text, other, start, *size), all_there = call.sqls, " AND ".join(f"{sql} IS NOT NULL" for sql in call.sqls[1:])
    cases = f"WHEN ({start} < 1 OR {start} > char_length({text})) AND {all_there} THEN {text}"
    if size:
        cases += f" WHEN {size[0]} < 1 THEN concat(left({text}, {start} - 1), {other})"
    return f"CASE {cases} ELSE overlay({', '.join(call.sqls)}) END"


def _locate(call: Call) -> str:
    """A place in front of the text is its beginning in Flink, and NULL is no place."""
    first, text, *start = call.sqls
    if not start:
        return f"locate({first}, {text})"
    return f"CASE WHEN {start[0]} IS NOT NULL THEN locate({first}, {text}, IF({start[0]} < 1, 1, {start[0]})) END"


def _regexp_extract(call: Call) -> str:
    text, pattern, *group = call.sqls
    # Flink: the whole match unless a group is asked for, NULL where there is no match.
    return f"CASE WHEN {text} RLIKE {pattern} THEN regexp_extract({text}, {pattern}, {group[0] if group else '0'}) END"


def _regexp_replace(call: Call) -> str:
    """What is written in the place of matches is plain text in Flink; Spark reads `$1` and backslashes in it."""
    text, pattern, written = call.sqls
    constant = call.arguments[2].constant
    if isinstance(constant, str):
        written = spark_string(re.sub(r"([\\$])", r"\\\1", constant))
    else:
        for sign in ("\\", "$"):
            written = f"replace({written}, {spark_string(sign)}, {spark_string(chr(92) + sign)})"
    return f"regexp_replace({text}, {pattern}, {written})"


def _regexp(call: Call) -> str:
    """In Flink nothing matches an empty expression."""
    text, pattern = call.sqls
    return _unless_empty(call.arguments[1], f"IF({text} IS NULL, NULL, false)", f"({text} RLIKE {pattern})")


def _replace(call: Call) -> str:
    """As Java's: what is put in the place of an empty text stands in front of each character, and at the end."""
    text, searched, written = call.sqls
    around = f"concat({written}, array_join(transform(split({text}, ''), _c -> concat(_c, {written})), ''))"
    around = f"IF({text} = '', {written}, {around})"
    return _unless_empty(call.arguments[1], around, f"replace({text}, {searched}, {written})")


def _unless_empty(value: Value, empty: str, sql: str) -> str:
    """`sql`, or `empty` where a text is."""
    if isinstance(value.constant, str):
        return sql if value.constant else empty
    return f"IF({value.sql} = '', {empty}, {sql})"


SPACE = r"[\p{Z}\t-\r\x1c-\x1f&&[^\x{a0}\x{2007}\x{202f}]]"
"""White space by Java's Character.isWhitespace, at which Flink splits where no delimiter is given."""


def _literally(text: str) -> str:
    """The regular expression that finds a text itself."""
    return f"concat({spark_string(chr(92) + 'Q')}, {text}, {spark_string(chr(92) + 'E')})"


def _split_index(call: Call) -> str:
    text, delimiter, index = call.sqls
    at = _unless_empty(call.arguments[1], spark_string(SPACE), _literally(delimiter))
    return f"CASE WHEN {index} >= 0 AND {text} <> '' THEN get(split({text}, {at}, -1), {index}) END"


def _split(call: Call) -> str:
    text, delimiter = call.sqls
    return f"split({text}, {_literally(delimiter)}, -1)"


def _hex(call: Call) -> str:
    if call.types[0].kind not in (*STRINGS, *NUMERIC, Kind.NULL):
        call.refuse(f"type clash: HEX takes an integer or a STRING, not {call.types[0]}")
    return f"hex({call.sqls[0]})"


def _sha2(call: Call) -> str:
    if call.arguments[1].constant not in (224, 256, 384, 512):
        call.refuse("SHA2's second argument is 224, 256, 384 or 512", None, 1)
    return f"sha2({call.sqls[0]}, {call.sqls[1]})"


def _json(call: Call) -> str:
    """What is at a path of a JSON text, as text; NULL for a path that is not there and for JSON's own null."""
    path = call.arguments[1].constant
    if not isinstance(path, str) or not path.removeprefix("lax ").startswith("$"):
        call.refuse("a JSON path is a constant that begins with `$`", "JSON_VALUE(message, '$.user.id')", 1)
    return f"get_json_object({call.sqls[0]}, {spark_string(path.removeprefix('lax '))})"


def _to_map(call: Call) -> str:
    """As Flink's strToMap: Java's String.split, which leaves empty parts at the end out; of two equal keys the last one
    counts, and a part without the second delimiter is a key with NULL."""
    delimiters = [spark_string(","), spark_string("=")]
    for place, argument in enumerate(call.arguments[1:]):
        if not isinstance(argument.constant, str) or not argument.constant:
            call.refuse("a delimiter of STR_TO_MAP is a constant, and not empty", "STR_TO_MAP(s, ',', '=')", place + 1)
        delimiters[place] = argument.sql
    parts = f"split({call.sqls[0]}, {delimiters[0]}, -1)"
    parts = f"slice({parts}, 1, array_max(transform({parts}, (_p, _i) -> IF(_p = '', 0, _i + 1))))"
    pairs = f"transform({parts}, _p -> split(_p, {delimiters[1]}, 2))"
    added = "map_concat(map_filter(_m, (_k, _v) -> _k <> _p[0]), map(_p[0], get(_p, 1)))"
    return f"aggregate({pairs}, CAST(map() AS MAP<STRING, STRING>), (_m, _p) -> {added})"


_OVERLAY = "OVERLAY(STRING PLACING STRING FROM integer [FOR integer])"

FUNCTIONS = (
    *alike((TEXT,), STRING, "UPPER LOWER LTRIM RTRIM REVERSE MD5 SHA1 URL_ENCODE"),
    *alike((TEXT,), INT, "ASCII"),
    *alike((TEXT,), BYTES, "UNHEX"),
    *alike((WHOLE,), STRING, "CHR"),
    *alike((TEXT, WHOLE), STRING, "LEFT RIGHT REPEAT"),
    *alike((TEXT, TEXT), BOOLEAN, "STARTSWITH ENDSWITH"),
    *alike((TEXT, TEXT), INT, "INSTR REGEXP_COUNT REGEXP_INSTR"),
    *alike((TEXT, TEXT), STRING, "REGEXP_SUBSTR"),
    *alike((TEXT, TEXT), BYTES, "ENCODE"),
    *alike((OCTETS, TEXT), STRING, "DECODE"),
    *alike((TEXT, TEXT, TEXT), STRING, "TRANSLATE"),
    *alike((TEXT, TEXT, WHOLE), STRING, "SUBSTRING_INDEX"),
    Function(("CHAR_LENGTH", "CHARACTER_LENGTH"), (TEXT,), INT, "char_length({0})"),
    Function(("OCTET_LENGTH",), (TEXT_OR_OCTETS,), INT, "octet_length({0})"),
    Function(("CONCAT",), (TEXT,), STRING, "concat({all})", variadic=True),
    Function(("CONCAT_WS",), (TEXT, TEXT), STRING, "concat_ws({all})", variadic=True),
    Function(("SUBSTRING", "SUBSTR"), (TEXT, WHOLE, WHOLE), STRING, _substring, least=2),
    Function(("TRIM",), (TEXT, TEXT), STRING, _trim, usage="TRIM([BOTH | LEADING | TRAILING] [STRING] FROM STRING)"),
    *(
        Function((name,), (TEXT, WHOLE, TEXT), STRING, f"CASE WHEN {{1}} >= 0 AND {{2}} <> '' THEN {name}({{all}}) END")
        for name in ("LPAD", "RPAD")
    ),
    Function(("REPLACE",), (TEXT, TEXT, TEXT), STRING, _replace),
    Function(("OVERLAY",), (TEXT, TEXT, WHOLE, WHOLE), STRING, _overlay, least=3, usage=_OVERLAY),
    Function(("POSITION",), (TEXT, TEXT), INT, "locate({0}, {1})", usage="POSITION(STRING IN STRING)"),
    Function(("LOCATE",), (TEXT, TEXT, WHOLE), INT, _locate, least=2),
    Function(("REGEXP",), (TEXT, TEXT), BOOLEAN, _regexp),
    Function(("REGEXP_REPLACE",), (TEXT, TEXT, TEXT), STRING, _regexp_replace),
    Function(("REGEXP_EXTRACT",), (TEXT, TEXT, WHOLE), STRING, _regexp_extract, least=2),
    Function(("SPLIT_INDEX",), (TEXT, TEXT, WHOLE), STRING, _split_index),
    Function(("SPLIT",), (TEXT, TEXT), array_of(STRING), _split),
    Function(("STR_TO_MAP",), (TEXT, TEXT, TEXT), FlinkType(Kind.MAP, arguments=(STRING, STRING)), _to_map, least=1),
    Function(("HEX",), (ANY,), STRING, _hex, usage="HEX(integer) or HEX(STRING)"),
    Function(("TO_BASE64",), (TEXT,), STRING, "base64(CAST({0} AS BINARY))"),
    Function(("FROM_BASE64",), (TEXT,), STRING, "validate_utf8(CAST(unbase64({0}) AS STRING))"),
    Function(("URL_DECODE",), (TEXT,), STRING, "try_url_decode({0})"),
    Function(("PARSE_URL",), (TEXT, TEXT, TEXT), STRING, "try_parse_url({all})", least=2),
    Function(("JSON_VALUE",), (TEXT, TEXT), STRING, _json, usage="JSON_VALUE(STRING, '$.path' [RETURNING type])"),
    Function(("GET_JSON_OBJECT",), (TEXT, TEXT), STRING, _json),
    Function(("BTRIM",), (TEXT, TEXT), STRING, "btrim({all})", least=1),
    Function(("CRC32",), (TEXT_OR_OCTETS,), BIGINT, "crc32(CAST({0} AS BINARY))"),
    *(Function((f"SHA{bits}",), (TEXT,), STRING, f"sha2({{0}}, {bits})") for bits in (224, 256, 384, 512)),
    Function(("SHA2",), (TEXT, NUMBER), STRING, _sha2),
)
