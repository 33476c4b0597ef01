"""The options of one field, parsed, and what is wrong with them.

Field names of nested types follow Flink: `address.street`, `tags.element`, `scores.key`, `scores.value`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Context, Decimal, InvalidOperation

from tidegate.pipelines.syntax.durations import parse_duration
from tidegate.pipelines.syntax.types import (
    APPROXIMATE,
    BINARIES,
    INTEGERS,
    MAX_PRECISION,
    NUMERIC,
    STRINGS,
    TIMESTAMPS,
    FlinkType,
    Kind,
)

DEFAULT_LENGTH = 100
"""Of a STRING, BYTES, or a longer VARCHAR or VARBINARY; a CHAR or BINARY has its own."""

DEFAULT_ELEMENTS = 3
"""Of an ARRAY or MAP."""

MAX_LENGTH = 65_536
MAX_ELEMENTS = 100

BITS = {Kind.TINYINT: 8, Kind.SMALLINT: 16, Kind.INT: 32, Kind.BIGINT: 64}
LARGEST = {Kind.FLOAT: 3.4028234663852886e38, Kind.DOUBLE: 1.7976931348623157e308}
_EXACT = Context(prec=2 * MAX_PRECISION)
"""Python's own context rounds to 28 digits."""

_SIZED = STRINGS | BINARIES | {Kind.ARRAY, Kind.MAP}
_SEQUENCES = NUMERIC | STRINGS | BINARIES


@dataclass(frozen=True)
class FieldSpec:
    """How a field's values are made.

    `low` and `high` bound random numbers: int for integers, unscaled int for DECIMAL, float for FLOAT and DOUBLE.
    `first` and `last` bound a sequence. `length` is characters, bytes or elements. `max_past_us` is in microseconds.
    """

    path: str
    type: FlinkType
    low: int | float = 0
    high: int | float = 0
    first: int | None = None
    last: int | None = None
    length: int = 0
    variable_length: bool = False
    null_rate: float = 0.0
    max_past_us: int = 0
    children: tuple[FieldSpec, ...] = field(default=())

    @property
    def rows(self) -> int | None:
        """How many rows its sequences last, inner ones too; None if all is random."""
        own = [] if self.first is None or self.last is None else [self.last - self.first + 1]
        return min([*own, *(child.rows for child in self.children if child.rows is not None)], default=None)


def nested(path: str, of: FlinkType) -> Iterator[tuple[str, FlinkType]]:
    """The fields directly inside a nested type."""
    if of.kind is Kind.ROW:
        yield from ((f"{path}.{inner.name}", inner.type) for inner in of.fields)
    elif of.kind is Kind.ARRAY:
        yield f"{path}.element", of.element
    elif of.kind is Kind.MAP:
        yield from zip((f"{path}.key", f"{path}.value"), of.arguments, strict=True)


def allowed(of: FlinkType, *, sequence: bool) -> list[str]:
    """The option names that a field of this type takes."""
    if sequence:
        return ["kind", "start", "end"]
    names = ["kind"] if of.kind in _SEQUENCES else []
    names += ["min", "max"] if of.kind in NUMERIC else []
    names += ["length"] if of.kind in _SIZED else []
    names += ["var-len"] if of.kind in (STRINGS | BINARIES) - {Kind.CHAR, Kind.BINARY} else []
    names += ["max-past"] if of.kind in TIMESTAMPS else []
    return [*names, "null-rate"]


def field_spec(path: str, of: FlinkType, options: Mapping[str, str]) -> FieldSpec:
    """The spec of the field called `path`. `options` are the whole table's. Raises ValueError for a wrong one."""
    own = _own(path, of, options)
    kind = own.get("kind", "random")
    if kind not in ("random", "sequence"):
        raise ValueError(f"'fields.{path}.kind' is random or sequence, not {kind!r}")
    if kind == "sequence" and of.kind not in _SEQUENCES:
        raise ValueError(f"'fields.{path}.kind': there is no sequence of {of}")
    names = allowed(of, sequence=kind == "sequence")
    if wrong := sorted(set(own) - set(names)):
        raise ValueError(f"'fields.{path}.{wrong[0]}' does not go with {kind} {of}; what goes is {', '.join(names)}")
    if kind == "sequence":
        return _sequence(path, of, own)
    low, high = _bounds(path, of, own)
    return FieldSpec(
        path,
        of,
        low=low,
        high=high,
        length=_length(path, of, own),
        variable_length=_boolean(path, own),
        null_rate=_null_rate(path, own),
        max_past_us=_max_past_us(path, own),
        children=tuple(field_spec(name, inner, options) for name, inner in nested(path, of)),
    )


def _own(path: str, of: FlinkType, options: Mapping[str, str]) -> dict[str, str]:
    prefix = f"fields.{path}."
    inner = tuple(f"fields.{name}." for name, _ in nested(path, of))
    return {
        name[len(prefix) :]: value
        for name, value in options.items()
        if name.startswith(prefix) and not name.startswith(inner)
    }


def _sequence(path: str, of: FlinkType, own: Mapping[str, str]) -> FieldSpec:
    for name in ("start", "end"):
        if name not in own:
            raise ValueError(f"'fields.{path}.{name}' is needed: a sequence goes from start to end")
    first, last = _integer(path, "start", own["start"]), _integer(path, "end", own["end"])
    if first > last:
        raise ValueError(f"'fields.{path}.end' is before its start: {last} < {first}")
    low, high = _range(of) if of.kind in INTEGERS else _range(FlinkType(Kind.BIGINT))
    if of.kind is Kind.DECIMAL:
        digits = 10 ** ((of.precision or 10) - (of.scale or 0)) - 1
        low, high = max(low, -digits), min(high, digits)
    for name, value in (("start", first), ("end", last)):
        if not low <= value <= high:
            raise ValueError(f"'fields.{path}.{name}' does not fit into {of}: {value}")
    return FieldSpec(path, of, first=first, last=last)


def _bounds(path: str, of: FlinkType, own: Mapping[str, str]) -> tuple[int | float, int | float]:
    if of.kind not in NUMERIC:
        return 0, 0
    least, most = _range(of)
    low = _number(path, "min", own["min"], of) if "min" in own else least
    high = _number(path, "max", own["max"], of) if "max" in own else most
    for name, value in (("min", low), ("max", high)):
        if not least <= value <= most:
            raise ValueError(f"'fields.{path}.{name}' does not fit into {of}: {own[name]}")
    if low > high:
        raise ValueError(f"'fields.{path}.min' is greater than its max ({own['min']} > {own['max']})")
    if high - low >= 10**38 and own.keys() & {"min", "max"} and of.kind is Kind.DECIMAL:
        raise ValueError(
            f"'fields.{path}.min' and its max are more than 38 digits apart; leave both out, or narrow them"
        )
    return low, high


def _range(of: FlinkType) -> tuple[int | float, int | float]:
    if of.kind in INTEGERS:
        half = 2 ** (BITS[of.kind] - 1)
        return -half, half - 1
    if of.kind is Kind.DECIMAL:
        return -(10 ** (of.precision or 10)) + 1, 10 ** (of.precision or 10) - 1
    return -LARGEST[of.kind], LARGEST[of.kind]


def _number(path: str, name: str, text: str, of: FlinkType) -> int | float:
    try:
        value = Decimal(text.strip())
        if not value.is_finite():
            raise InvalidOperation
    except InvalidOperation as error:
        raise ValueError(f"'fields.{path}.{name}' is no number: {text!r}") from error
    if of.kind in APPROXIMATE:
        return float(value)
    scaled = value.scaleb(of.scale or 0, _EXACT) if of.kind is Kind.DECIMAL else value
    if scaled != scaled.to_integral_value():
        raise ValueError(f"'fields.{path}.{name}' does not fit into {of}: {text}")
    return int(scaled)


def _integer(path: str, name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise ValueError(f"'fields.{path}.{name}' is no whole number: {text!r}") from error


def _length(path: str, of: FlinkType, own: Mapping[str, str]) -> int:
    if of.kind not in _SIZED:
        return 0
    default, most = DEFAULT_LENGTH, MAX_LENGTH
    if of.kind in (Kind.ARRAY, Kind.MAP):
        default, most = DEFAULT_ELEMENTS, MAX_ELEMENTS
    elif of.precision is not None:
        most = min(of.precision, MAX_LENGTH)
        default = most if of.kind in (Kind.CHAR, Kind.BINARY) else min(most, DEFAULT_LENGTH)
    length = _integer(path, "length", own["length"]) if "length" in own else default
    if not 0 <= length <= most:
        raise ValueError(f"'fields.{path}.length' is from 0 to {most} for {of}, not {length}")
    return length


def _boolean(path: str, own: Mapping[str, str]) -> bool:
    text = own.get("var-len", "false").lower()
    if text not in ("true", "false"):
        raise ValueError(f"'fields.{path}.var-len' is true or false, not {text!r}")
    return text == "true"


def _null_rate(path: str, own: Mapping[str, str]) -> float:
    text = own.get("null-rate", "0")
    try:
        rate = float(text)
    except ValueError as error:
        raise ValueError(f"'fields.{path}.null-rate' is no number: {text!r}") from error
    if not 0 <= rate <= 1:
        raise ValueError(f"'fields.{path}.null-rate' is from 0 to 1, not {text}")
    return rate


def _max_past_us(path: str, own: Mapping[str, str]) -> int:
    try:
        past = parse_duration(own.get("max-past", "0"))
    except ValueError as error:
        raise ValueError(f"'fields.{path}.max-past': {error}") from error
    return past.days * 86_400_000_000 + past.seconds * 1_000_000 + past.microseconds
