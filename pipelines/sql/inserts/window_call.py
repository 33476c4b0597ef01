"""TUMBLE, HOP and CUMULATE as table functions: their arguments, and the time attribute that DESCRIPTOR names.

Source: Flink SQL's windowing table-valued functions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from sqlglot import exp

from tidegate.pipelines.process.windows.windowed import WindowTable
from tidegate.pipelines.sql.inserts.statement import InsertStatement
from tidegate.pipelines.sql.scope import InsertScope, Relation
from tidegate.pipelines.sql.tree import Scan
from tidegate.pipelines.sql.values import length
from tidegate.pipelines.syntax.errors import one_of, suggest
from tidegate.pipelines.syntax.statements import Argument, WindowFunctionCall
from tidegate.pipelines.syntax.types import TIMESTAMPS, FlinkType, Kind

LENGTHS = {"TUMBLE": ("SIZE",), "HOP": ("SLIDE", "SIZE"), "CUMULATE": ("STEP", "SIZE")}
"""The arguments that are lengths, in their order."""

LONGEST = timedelta(days=36_500)
MOST_WINDOWS = 10_000
"""The most windows of one row: before aggregation there is a row for each."""


@dataclass(frozen=True)
class WindowTime:
    """The table's time attribute: its column's path, and whether it is the rowtime; `type` as `window_time` has it."""

    column: str
    event_time: bool
    type: FlinkType


class WindowCallCompiler:
    """Compiles the table function of one FROM."""

    def __init__(self, insert: InsertStatement, call: WindowFunctionCall, relation: Relation, scan: Scan) -> None:
        self.insert, self.call, self.relation, self.scan = insert, call, relation, scan
        self._error = insert.source.error
        self.function = call.function.text.upper()
        self.arguments = self._named()

    def table(self) -> WindowTable:
        """The windows. Raises SqlError for lengths that are none, or do not go together."""
        size, narrow = self._length("SIZE"), LENGTHS[self.function][0]
        step = self._length(narrow)
        if size % step:
            what = f"the size of {self.function} is a multiple of its {narrow.lower()}"
            given = f"{timedelta(milliseconds=size)} is none of {timedelta(milliseconds=step)}"
            raise self._error(self.arguments["SIZE"].span, what, given)
        if size // step > MOST_WINDOWS:
            what = f"a row would be in {size // step:,} windows; {MOST_WINDOWS:,} are the most"
            raise self._error(self.arguments["SIZE"].span, what, f"write a longer {narrow.lower()}")
        offset = self._length("OFFSET", signed=True) if "OFFSET" in self.arguments else 0
        return WindowTable(self.function, size, step, offset)  # type: ignore[arg-type]

    def time(self) -> WindowTime:
        """What DESCRIPTOR names. Raises SqlError where that is no time attribute of the table or view."""
        given, table = self.arguments["TIMECOL"], self.relation.table
        if given.descriptor is None:
            raise self._error(given.span, "the second argument is DESCRIPTOR(…)", self._hint_for_time())
        named = replace(self.relation, alias=self.relation.name)
        scope = InsertScope(self.insert.source, [named], self.insert.binder.functions)
        value, (_, names) = scope.resolve(given.descriptor), scope.owner(given.descriptor)
        path, span = ".".join(name.text for name in names), given.descriptor[0].span.to(given.descriptor[-1].span)
        kind = self.scan.times_among({path: value}).get(path)
        if kind == "event" and table.watermark is not None:
            return WindowTime(table.watermark.column, True, FlinkType(value.type.kind, 3))
        if kind == "processing" and table.watermark is None:
            return WindowTime(value.column[1] if value.column else path, False, FlinkType(Kind.TIMESTAMP_LTZ, 3))
        if kind == "processing":
            what = f"{table.name} has WATERMARK FOR, so its windows are in event time"
            hint = f"{self._hint_for_time()}; or declare the table once more, without WATERMARK FOR"
            raise self._error(span, what, hint, self.relation.defined)
        hint = self._hint_for_time()
        if table.watermark is None and value.type.kind in TIMESTAMPS and self.relation.defined is None:
            hint = f"declare WATERMARK FOR {path} AS {path} - INTERVAL '5' SECOND in {table.name}"
        raise self._error(span, f"`{path}` is no time attribute of {named.name}", hint, self.relation.defined)

    def _named(self) -> dict[str, Argument]:
        """The arguments by their names. Raises SqlError: too few, too many, unknown, twice."""
        names, lengths = ("DATA", "TIMECOL", *LENGTHS[self.function], "OFFSET"), LENGTHS[self.function]
        usage = f"call it as {self.function}(TABLE t, DESCRIPTOR(time), {', '.join(lengths).lower()} [, offset])"
        found: dict[str, Argument] = {}
        for place, argument in enumerate(self.call.arguments):
            if argument.name is None:
                if any(earlier.name is not None for earlier in self.call.arguments[:place]):
                    raise self._error(argument.span, "an argument without a name behind one that has a name", usage)
                if place >= len(names):
                    raise self._error(argument.span, f"{self.function} takes {len(names)} arguments at most", usage)
                name = names[place]
            else:
                name = argument.name.text.upper()
                if name not in names:
                    hint = suggest(name, names, "its arguments")
                    raise self._error(argument.name.span, f"{self.function} has no argument {name}", hint)
            if name in found:
                raise self._error(argument.span, f"the argument {name} is given twice", usage)
            found[name] = argument
        missing = [name for name in names if name not in found and name != "OFFSET"]
        if missing:
            raise self._error(self.call.span, f"{self.function} lacks {one_of(missing)}", usage)
        if found["DATA"].table is None:
            raise self._error(found["DATA"].span, "the first argument is TABLE t", usage)
        return found

    def _length(self, name: str, signed: bool = False) -> int:
        """An INTERVAL in ms. Raises SqlError."""
        argument = self.arguments[name]
        tree = argument.scalar.tree if argument.scalar is not None else None
        micros = length(tree) if isinstance(tree, exp.Interval) else None
        word = name.lower()
        if micros is None:
            what = f"the {word} of {self.function} is an INTERVAL of days, hours, minutes or seconds"
            raise self._error(argument.span, what, "for example INTERVAL '5' MINUTES")
        if micros % 1000:
            raise self._error(argument.span, f"the {word} of {self.function} is a whole number of milliseconds")
        if abs(micros) > LONGEST // timedelta(microseconds=1):
            what = f"the {word} of {self.function} is longer than {LONGEST.days} days"
            raise self._error(argument.span, what, "write a shorter one")
        if micros <= 0 and not signed:
            raise self._error(argument.span, f"the {word} of {self.function} must be positive", "write a longer one")
        return micros // 1000

    def _hint_for_time(self) -> str:
        table, times = self.relation.table, self.scan.times_among(self.relation.columns)
        event = [name for name, kind in times.items() if kind == "event"]
        if event:
            return f"its time attribute: DESCRIPTOR({event[0]})"
        if table.watermark is not None:
            return f"add {table.watermark.column} of {table.name} to the SELECT of {self.relation.name}"
        if times:
            return f"its time attributes: {one_of(times)}"
        return f"declare WATERMARK FOR, or proctime AS PROCTIME(), in {table.name}"
