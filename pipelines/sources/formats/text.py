"""Text as values of one type, exactly: what does not fit gives NULL, and no digit is ever rounded away.

Every function takes SQL that gives the text (STRING) and returns SQL that gives the value.
"""

from __future__ import annotations

from typing import Literal

from tidegate.pipelines.syntax.types import (
    APPROXIMATE,
    BINARIES,
    INTEGERS,
    MAX_FRACTION,
    STRINGS,
    FlinkType,
    Kind,
    spark_string,
)

Standard = Literal["SQL", "ISO-8601"]
STANDARDS = ("SQL", "ISO-8601")
DEFAULT_STANDARD: Standard = "SQL"

_DAY = r"\d{4}-\d{2}-\d{2}"
_NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"
_PARTS = r"^\s*[+-]?(\d*)\.?(\d*)[eE]([+-]?\d+)\s*$"
_WORDS = "('NaN', 'Infinity', '-Infinity')"


def value(sql: str, of: FlinkType, standard: Standard = DEFAULT_STANDARD) -> str:
    """A scalar of type `of`. `standard`: how timestamps are written."""
    kind = of.kind
    if kind in STRINGS:
        return within(sql, of)
    if kind in INTEGERS:
        return f"try_cast({sql} AS {of.spark})"
    if kind is Kind.DECIMAL:
        return decimal(sql, of)
    if kind in APPROXIMATE:
        return approximate(sql, of)
    if kind is Kind.BOOLEAN:
        return f"CASE lower(trim({sql})) WHEN 'true' THEN true WHEN 'false' THEN false END"
    if kind in BINARIES:
        return within(f"try_to_binary({sql}, 'base64')", of)
    if kind is Kind.DATE:
        return matched(sql, f"^{_DAY}$", f"try_cast({sql} AS DATE)")
    return timestamp(sql, of, standard)


def within(sql: str, of: FlinkType) -> str:
    """SQL of text or bytes that has its type already; NULL where it is longer than the type."""
    longer = too_long(sql, of)
    return f"IF({longer}, NULL, {sql})" if longer else sql


def too_long(sql: str, of: FlinkType) -> str:
    """SQL of whether text or bytes are longer than their type; empty where the type has no length."""
    if of.precision is None or of.kind not in (*STRINGS, *BINARIES):
        return ""
    return f"({'char_length' if of.kind in STRINGS else 'octet_length'}({sql}) > {of.precision})"


def decimal(sql: str, of: FlinkType) -> str:
    """A DECIMAL, in plain or scientific notation; NULL where it has more digits than the type."""
    scale = of.scale or 0
    number = f"try_cast({sql} AS {of.spark})"
    plain = matched(sql, rf"^\s*[+-]?\d*\.?\d{{0,{scale}}}0*\s*$", number)
    # How many digits after the point remain once the exponent has moved it and zeros at the end are left out.
    whole, fraction, exponent = (f"regexp_extract({sql}, {spark_string(_PARTS)}, {group})" for group in (1, 2, 3))
    digits = f"concat({whole}, {fraction})"
    significant = f"length(trim(TRAILING '0' FROM {digits}))"
    rest = f"length({fraction}) - (length({digits}) - {significant}) - try_cast({exponent} AS BIGINT)"
    zero = f"WHEN {digits} = '' THEN NULL WHEN {significant} = 0 THEN CAST(0 AS {of.spark})"
    exact = f"CASE {zero} WHEN {rest} <= {scale} THEN {number} END"
    return f"coalesce({plain}, {matched(sql, _PARTS, exact)})"


def approximate(sql: str, of: FlinkType) -> str:
    """A FLOAT or DOUBLE; NULL where the number is too great for it."""
    number = f"try_cast({sql} AS {of.spark})"
    finite = f"IF(abs({number}) < CAST('Infinity' AS {of.spark}), {number}, NULL)"
    return f"CASE WHEN trim({sql}) IN {_WORDS} THEN {number} WHEN {matches(sql, _NUMBER)} THEN {finite} END"


def timestamp(sql: str, of: FlinkType, standard: Standard) -> str:
    """A timestamp; one with local time zone has an offset (Z, +01:00) at its end. NULL where it is finer than its
    type."""
    separator, seconds = (" ", r":\d{2}") if standard == "SQL" else ("T", r"(:\d{2}")
    fraction = rf"(\.(?=\d)\d{{0,{precision(of)}}}0*)?"
    zone = r"(Z|[+-]\d{2}:\d{2})" if of.kind is Kind.TIMESTAMP_LTZ else ""
    closing = "" if standard == "SQL" else ")?"
    pattern = rf"^{_DAY}{separator}\d{{2}}:\d{{2}}{seconds}{fraction}{closing}{zone}$"
    return matched(sql, pattern, f"try_cast({sql} AS {of.spark})")


def since_epoch(sql: str, of: FlinkType, digits: int) -> str:
    """A timestamp of a whole number since 1970, of seconds with `digits` more digits: 3 (ms), 6 (us) or 9 (ns). NULL
    where it is finer than its type."""
    number = f"try_cast({sql} AS BIGINT)"
    moment = {3: f"timestamp_millis({number})", 6: f"timestamp_micros({number})"}.get(
        digits, f"timestamp_micros({number} DIV 1000L)"
    )
    finer = 10 ** max(digits - precision(of), 0)
    fits = f"IF({number} % {finer}L = 0, CAST({moment} AS {of.spark}), NULL)"
    # More digits of ms would be more us than a BIGINT holds.
    return matched(sql, rf"^-?\d{{1,{15 if digits == 3 else 18 if digits == 6 else 19}}}$", fits)


def precision(of: FlinkType) -> int:
    """Digits after the second."""
    return MAX_FRACTION if of.precision is None else of.precision


def matches(sql: str, pattern: str) -> str:
    """Whether the text matches a regular expression."""
    return f"{sql} RLIKE {spark_string(pattern)}"


def matched(sql: str, pattern: str, then: str) -> str:
    """`then` where the text matches, else NULL."""
    return f"CASE WHEN {matches(sql, pattern)} THEN {then} END"


def standard(name: str) -> Standard:
    """The option's value as a Standard. It has been checked; a value of the environment's is checked when resolved."""
    return "ISO-8601" if name == "ISO-8601" else "SQL"
