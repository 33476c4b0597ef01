"""What a function is: its names, its parameters, its result, and its Spark SQL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from tidegate.pipelines.sql.values import Value, derived
from tidegate.pipelines.syntax.source import Source, Span
from tidegate.pipelines.syntax.types import (
    BINARIES,
    INTEGERS,
    INTERVALS,
    MOMENTS,
    NESTED,
    NUMERIC,
    STRINGS,
    TIMESTAMPS,
    FlinkType,
    Kind,
)


@dataclass(frozen=True)
class Family:
    """The types that a parameter takes; without kinds, any type."""

    name: str
    kinds: frozenset[Kind] = frozenset()

    def takes(self, found: FlinkType) -> bool:
        """Whether an argument of this type may be passed; a bare NULL is no collection of anything."""
        return not self.kinds or found.kind in self.kinds or (found.kind is Kind.NULL and not self.kinds & NESTED)


ANY = Family("any")
TEXT = Family("STRING", STRINGS)
NUMBER = Family("number", NUMERIC)
WHOLE = Family("integer", frozenset(INTEGERS))
TRUTH = Family("BOOLEAN", frozenset({Kind.BOOLEAN}))
OCTETS = Family("BYTES", BINARIES)
TEXT_OR_OCTETS = Family("STRING or BYTES", STRINGS | BINARIES)
MOMENT = Family("TIMESTAMP", TIMESTAMPS)
DAY = Family("DATE or TIMESTAMP", MOMENTS)
LIST = Family("ARRAY", frozenset({Kind.ARRAY}))
DICTIONARY = Family("MAP", frozenset({Kind.MAP}))
COLLECTION = Family("ARRAY or MAP", frozenset({Kind.ARRAY, Kind.MAP}))


@dataclass(frozen=True)
class Call:
    """A call in a script. `units` are words such as DAY that are among the arguments."""

    name: str
    arguments: tuple[Value, ...]
    spans: tuple[Span, ...]
    span: Span
    source: Source
    units: tuple[str, ...] = ()

    @property
    def types(self) -> list[FlinkType]:
        return [argument.type for argument in self.arguments]

    @property
    def sqls(self) -> list[str]:
        return [argument.sql for argument in self.arguments]

    def refuse(self, what: str, hint: str | None = None, argument: int | None = None) -> NoReturn:
        """Raise SqlError at the call, or at one of its arguments."""
        raise self.source.error(self.span if argument is None else self.spans[argument], what, hint)


@dataclass(frozen=True)
class Function:
    """A built-in function.

    Attributes:
        takes: A family for each parameter; the last one repeats when `variadic`.
        least: The least number of arguments.
        gives: The result's type, or a function that finds it.
        spark: Spark SQL with `{0}`, `{1}` … and `{all}`, or a function that writes it.
    """

    names: tuple[str, ...]
    takes: tuple[Family, ...]
    gives: FlinkType | Callable[[Call], FlinkType]
    spark: str | Callable[[Call], str]
    least: int | None = None
    variadic: bool = False
    units: tuple[str, ...] = ()
    usage: str | None = None

    @property
    def signature(self) -> str:
        """How it is called, for people."""
        if self.usage:
            return self.usage
        least = len(self.takes) if self.least is None else self.least
        parts = [family.name if place < least else f"[{family.name}]" for place, family in enumerate(self.takes)]
        return f"{self.names[0]}({', '.join([*parts, *(['…'] if self.variadic else [])])})"

    def check(self, call: Call) -> None:
        """Raise SqlError when the arguments' number or types are wrong."""
        count = len(call.arguments)
        least = len(self.takes) if self.least is None else self.least
        if count < least or (count > len(self.takes) and not self.variadic):
            what = f"{call.name} does not take {count} argument{'' if count == 1 else 's'}"
            call.refuse(what, f"call it as {self.signature}")
        for place, argument in enumerate(call.arguments):
            family = self.takes[min(place, len(self.takes) - 1)]
            if not family.takes(argument.type):
                given, hint = argument.type.kind, f"call it as {self.signature}"
                if given is Kind.NULL or not (given in NESTED | INTERVALS or family.kinds <= NESTED | INTERVALS):
                    hint += "; CAST(… AS type) changes a type"
                what = f"type clash: argument {place + 1} of {call.name} is {family.name}, not {argument.type}"
                call.refuse(what, hint, place)

    def translate(self, call: Call) -> Value:
        """The call as Spark SQL. Raises SqlError."""
        self.check(call)
        gives = self.gives if isinstance(self.gives, FlinkType) else self.gives(call)
        if gives.kind is Kind.NULL:
            sql = "NULL"
        elif isinstance(self.spark, str):
            sql = self.spark.format(*call.sqls, all=", ".join(call.sqls))
        else:
            sql = self.spark(call)
        return derived(sql, gives, *call.arguments)


def alike(takes: tuple[Family, ...], gives: FlinkType, names: str) -> list[Function]:
    """Functions that Spark has under the same names, with the same meaning."""
    return [Function((name,), takes, gives, f"{name.lower()}({{all}})") for name in names.split()]


def same(place: int) -> Callable[[Call], FlinkType]:
    """The result has the type of an argument."""
    return lambda call: call.arguments[place].type.null()
