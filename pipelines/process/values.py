"""Values that a process function returns or stores: converted to their declared type exactly, or refused.

Each type has one form, the one in which a later epoch reads it back: a ROW is a dict of all its fields, an ARRAY a
list, a MAP a dict, a FLOAT the nearest number of 32 bits, a DECIMAL has its type's scale, a TIMESTAMP is naive and a
TIMESTAMP_LTZ in UTC. The converted value shares nothing mutable with the original.
"""

from __future__ import annotations

import decimal
import math
import operator
import struct
from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AnySet
from datetime import date, datetime
from functools import lru_cache
from numbers import Number
from typing import Any
from zoneinfo import ZoneInfo

from tidegate.pipelines.process.errors import WrongValue, shown
from tidegate.pipelines.syntax.types import BINARIES, INTEGERS, NESTED, STRINGS, TIMESTAMPS, FlinkType, Kind


@lru_cache(maxsize=256)
def record_type(columns: tuple[str, ...]) -> type:
    """The class of records with these columns. A column whose name is no Python identifier is read by place
    (`record[2]`)."""
    return namedtuple("Record", columns, rename=True)


def record_of(element: Mapping[str, Any]) -> Any:
    """A row that is a mapping, as a record."""
    return record_type(tuple(element))(*element.values())


Convert = Callable[[Any], Any]
"""value -> the same one in the form of its type. Raises WrongValue."""

_UTC = ZoneInfo("UTC")
_DIGITS = decimal.Context(prec=38, traps=[decimal.Inexact, decimal.InvalidOperation, decimal.FloatOperation])
_BITS = {Kind.TINYINT: 8, Kind.SMALLINT: 16, Kind.INT: 32, Kind.BIGINT: 64}
_FLOAT = struct.Struct("<f")


def can_change(kind: FlinkType) -> bool:
    """Whether a value of this type is mutable."""
    return kind.kind in NESTED or kind.kind in BINARIES


@lru_cache(maxsize=1024)
def exact(kind: FlinkType) -> Convert:
    """The function that converts values to `kind`. It raises WrongValue for a value that `kind` cannot hold exactly; a
    float given to a FLOAT or DOUBLE is rounded, which is what these types mean."""
    convert = _not_null(kind)

    def converted(value: Any) -> Any:
        if value is None:
            if kind.nullable:
                return None
            raise WrongValue(f"NULL is no {kind}")
        try:
            return convert(value)
        except (ArithmeticError, TypeError, ValueError, struct.error, AttributeError) as error:
            raise WrongValue(f"{shown(value)} ({type(value).__name__}) is no {kind}") from error

    return converted


@lru_cache(maxsize=1024)
def copied(kind: FlinkType) -> Convert | None:
    """The function that copies a value made by `exact`, so that the copy may be changed; None if it is immutable."""
    if kind.kind is Kind.ROW:
        inner = [(field.name, copy) for field in kind.fields if (copy := copied(field.type))]
        return lambda value: None if value is None else {**value, **{name: copy(value[name]) for name, copy in inner}}
    if kind.kind not in NESTED:
        return None
    element = copied(kind.element)
    if kind.kind is Kind.MAP:
        return lambda value: None if value is None else _copied_map(value, element)
    return lambda value: None if value is None else list(value if element is None else map(element, value))


def _copied_map(value: Mapping[Any, Any], element: Convert | None) -> dict[Any, Any]:
    return dict(value) if element is None else {key: element(item) for key, item in value.items()}


def _not_null(kind: FlinkType) -> Convert:
    """The rule of a type, for values that are not None. `exact` reports what it raises."""
    if kind.kind in INTEGERS:
        return _integer(_BITS[kind.kind])
    if kind.kind in STRINGS:
        return _text(None if kind.kind is Kind.STRING else kind.precision)
    if kind.kind in BINARIES:
        return _binary(None if kind.kind is Kind.BYTES else kind.precision)
    if kind.kind in TIMESTAMPS:
        return _timestamp(kind.kind is Kind.TIMESTAMP_LTZ, 6 if kind.precision is None else kind.precision)
    rules = {
        Kind.BOOLEAN: _boolean,
        Kind.FLOAT: _float,
        Kind.DOUBLE: _double,
        Kind.DATE: _date,
    }
    if kind.kind in rules:
        return rules[kind.kind]
    if kind.kind is Kind.DECIMAL:
        return _decimal(kind.precision or 10, kind.scale or 0)
    if kind.kind is Kind.ROW:
        return _row({field.name: exact(field.type) for field in kind.fields})
    if kind.kind is Kind.MAP:
        return _map(_key(kind.arguments[0]), exact(kind.element))
    return _list(exact(kind.element))


# --- plain types -----------------------------------------------------------------------------------------------------


def _boolean(value: Any) -> bool:
    if isinstance(value, bool) or type(value).__name__ == "bool_" or type(value).__name__ == "bool":  # NumPy's
        return bool(value)
    raise TypeError


def _number(value: Any) -> Any:
    """A number as Python has it: int, float or Decimal."""
    if isinstance(value, bool) or not isinstance(value, Number):
        raise TypeError
    if isinstance(value, float | decimal.Decimal):
        return value
    return operator.index(value)  # type: ignore[arg-type]


def _integer(bits: int) -> Convert:
    low, high = -(1 << bits - 1), 1 << bits - 1

    def convert(value: Any) -> int:
        if type(value) is not int:
            number = _number(value)
            value = int(number)
            if value != number:
                raise ValueError
        if not low <= value < high:
            raise OverflowError
        return value

    return convert


def _double(value: Any) -> float:
    if type(value) is float:
        return value
    number = _number(value)
    found = float(number)
    if not isinstance(number, float) and found != number:
        raise ValueError
    return found


def _float(value: Any) -> float:
    number = _double(value)
    (found,) = _FLOAT.unpack(_FLOAT.pack(number))  # raises OverflowError
    if not isinstance(value, float) and found != number:
        raise ValueError
    return found


def _decimal(precision: int, scale: int) -> Convert:
    unit = decimal.Decimal(1).scaleb(-scale)
    bound = decimal.Decimal(10) ** (precision - scale)

    def convert(value: Any) -> decimal.Decimal:
        if not isinstance(value, decimal.Decimal):
            if isinstance(value, bool | float):
                raise TypeError
            value = decimal.Decimal(operator.index(value))
        found = value.quantize(unit, context=_DIGITS)
        if not -bound < found < bound:
            raise OverflowError
        return found

    return convert


def _text(longest: int | None) -> Convert:
    def convert(value: Any) -> str:
        if type(value) is not str:
            value = str.__str__(value)
        if not value.isascii():
            value.encode()  # half of a surrogate pair is no character
        if longest is not None and len(value) > longest:
            raise ValueError
        return value

    return convert


def _binary(longest: int | None) -> Convert:
    def convert(value: Any) -> bytes:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise TypeError
        found = bytes(value)
        if longest is not None and len(found) > longest:
            raise ValueError
        return found

    return convert


def _date(value: Any) -> date:
    if isinstance(value, datetime):
        if value.tzinfo is not None or value != datetime(value.year, value.month, value.day):
            raise ValueError
        return value.date()
    if not isinstance(value, date):
        raise TypeError
    return value


def _timestamp(zoned: bool, digits: int) -> Convert:
    unit = 10 ** (6 - min(digits, 6))

    def convert(value: Any) -> datetime:
        if not isinstance(value, datetime):
            raise TypeError
        if type(value) is not datetime:  # pandas' has nanoseconds
            if getattr(value, "nanosecond", 0):
                raise ValueError
            time = value.timetz()
            value = datetime.combine(value.date(), time)
        if value.microsecond % unit:
            raise ValueError
        if value.tzinfo is None:
            return value.replace(tzinfo=_UTC) if zoned else value
        in_utc = value.astimezone(_UTC)
        return in_utc if zoned else in_utc.replace(tzinfo=None)

    return convert


# --- nested types ----------------------------------------------------------------------------------------------------


def field_names(value: tuple[Any, ...]) -> Sequence[str] | None:
    """The names of a named tuple's fields, or of a Spark Row's; None for a tuple whose fields have only places."""
    return getattr(value, "_fields", None) or getattr(value, "__fields__", None)


def by_place(value: tuple[Any, ...], names: Sequence[str], what: str) -> tuple[Any, ...]:
    """The values of a tuple in the order of `names`; a named tuple is read by names. Raises WrongValue."""
    own = field_names(value)
    if own is None or tuple(own) in (tuple(names), record_type(tuple(names))._fields):
        if len(value) != len(names):
            raise WrongValue(f"{what} has the fields {', '.join(names)}, and {len(value)} values are given")
        return tuple(value)
    if sorted(own) != sorted(names):
        raise WrongValue(
            f"{what} has the fields {', '.join(names)}, and a named tuple of {', '.join(own)} is given: name them "
            "alike, or hand over a plain tuple"
        )
    return tuple(value[own.index(name)] for name in names)


def _row(fields: Mapping[str, Convert]) -> Convert:
    names = tuple(fields)

    def convert(value: Any) -> dict[str, Any]:
        if isinstance(value, Mapping):
            if not value.keys() <= fields.keys():
                odd = ", ".join(sorted(map(str, value.keys() - fields.keys())))
                raise WrongValue(f"a ROW has the fields {', '.join(names)}, and not {odd}")
            given = [value.get(name) for name in names]
        elif isinstance(value, tuple):
            given = by_place(value, names, "a ROW")
        else:
            raise WrongValue(f"a ROW is a dict, or a tuple of all its fields, not {type(value).__name__}")
        found, name = {}, ""
        try:
            for (name, inner), item in zip(fields.items(), given, strict=True):
                found[name] = inner(item)
        except WrongValue as error:
            raise WrongValue(f"field {name}: {error.what}") from error
        return found

    return convert


def _key(kind: FlinkType) -> Convert:
    convert = exact(kind.not_null())

    def converted(value: Any) -> Any:
        found = convert(value)
        if isinstance(found, float) and math.isnan(found):
            raise WrongValue("NaN is no key: no other NaN is equal to it")
        return found

    return converted


def map_key(kind: FlinkType) -> Convert:
    """The function that converts the keys of a MAP of `kind`, for writing and for looking up."""
    return _key(kind.arguments[0])


def _map(key: Convert, element: Convert) -> Convert:
    def convert(value: Any) -> dict[Any, Any]:
        try:
            pairs = list(value.items()) if isinstance(value, Mapping) else [(one, item) for one, item in value]
        except (TypeError, ValueError):
            raise WrongValue(f"a MAP is a dict, not {type(value).__name__}") from None
        found, one = {}, None
        try:
            for one, item in pairs:
                found[key(one)] = element(item)
        except WrongValue as error:
            raise WrongValue(f"at key {shown(one)}: {error.what}") from error
        if len(found) < len(pairs):
            raise WrongValue("a MAP has each key once")
        return found

    return convert


def _list(element: Convert) -> Convert:
    def convert(value: Any) -> list[Any]:
        if isinstance(value, str | bytes | bytearray | Mapping) or not isinstance(value, Iterable):
            raise WrongValue(f"an ARRAY is a list, not {type(value).__name__}")
        if isinstance(value, AnySet):
            raise WrongValue("an ARRAY has an order, a set has none: hand over sorted(…)")
        found: list[Any] = []
        try:
            for item in value:
                found.append(element(item))
        except WrongValue as error:
            raise WrongValue(f"element {len(found)}: {error.what}") from error
        return found

    return convert
