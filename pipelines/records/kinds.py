"""What a fact is: a field of a frozen dataclass, or a property that is marked with `fact`.

    @dataclass(frozen=True)
    class Stock:
        shop: Annotated[str, Column("shop")]
        boxes: Annotated[Count, Column("boxes")]
        counted_at: Moment | None = None

        @property
        @fact()
        def empty(self) -> bool: ...

Its annotation tells its type, and `Column` its heading: renderers need no more to show it in a table, in JSON and in
Dagster. What a record says in sentences is `notes`, of itself, and `head`, which stands above its tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Literal, Protocol, TypeVar, get_args, get_origin, get_type_hints, runtime_checkable

from tidegate.pipelines.commands import Advised
from tidegate.pipelines.text import moment, on_one_line, seconds, value

Kind = Literal["plain", "count", "bytes", "moment", "duration", "age", "values"]

Count = Annotated[int, "count"]
"""How many there are; tables show it flush right, and Dagster may plot it."""
Bytes = Annotated[int, "bytes"]
Moment = Annotated[int, "moment"]
"""An instant: ms, UTC."""
Duration = Annotated[int, "duration"]
"""A length of time in ms."""
Age = Annotated[int, "age"]
"""An instant (ms, UTC) that people see as how long ago it was."""
Values = Annotated[Mapping[str, Any], "values"]
"""A row of somebody's own table: a table of records has a column for each of its values, under the fact's heading and
the value's name."""


@dataclass(frozen=True)
class Column:
    """The fact is a column of tables of such records.

    Args:
        title: its heading.
        right: whether its values stand flush right, as numbers always do.
    """

    title: str
    right: bool = False


@dataclass(frozen=True)
class Hidden:
    """The field is for the record's own sentences; no renderer shows it."""


@dataclass(frozen=True)
class Fact:
    """One fact of a kind of record. `column`: None where tables leave it out. `said`: it is for people, and not in
    JSON."""

    name: str
    kind: Kind
    column: Column | None = None
    said: bool = False

    @property
    def right(self) -> bool:
        """Whether its values stand flush right."""
        numbers = self.kind in ("count", "bytes", "duration", "age")
        return numbers or (self.column is not None and self.column.right)

    def value(self, record: Any) -> Any:
        return getattr(record, self.name)

    def text(self, record: Any, now: int = 0) -> str:
        """Its value for people; `now`: ms, UTC."""
        return written(self.value(record), self.kind, now)


Tone = Literal["plain", "good", "bad", "warn"]


@dataclass(frozen=True)
class Note:
    """A sentence that a record says of itself.

    Args:
        text: it; its first `marked` characters have the tone, all of them when None.
        next: what a person can do, as commands.
        details: more of it, one line each.
        apart: whether it stands apart from what is above it.
    """

    text: str
    tone: Tone = "plain"
    marked: int | None = None
    next: Advised = ""
    details: tuple[str, ...] = ()
    apart: bool = False


@runtime_checkable
class Drawn(Protocol):
    """A picture."""

    def markdown(self) -> str:
        """As an image of a Markdown text."""
        ...


_Function = TypeVar("_Function", bound=Callable[..., Any])


def fact(column: str = "", *, said: bool = False) -> Callable[[_Function], _Function]:
    """Mark the function of a property as a fact. `column`: its heading in tables; `said`: for people alone."""

    def mark(function: _Function) -> _Function:
        vars(function)["shown"] = (Column(column) if column else None, said)
        return function

    return mark


@cache
def facts_of(record: type) -> tuple[Fact, ...]:
    """The facts of a kind of record: its fields, then its marked properties. Columns come in the order of the class's
    `ORDER` where it has one, those that are not in it last."""
    hints = get_type_hints(record, include_extras=True)
    found = []
    for each in fields(record):
        kind, column, hidden = _told(hints[each.name])
        if not hidden:
            found.append(Fact(each.name, kind, column))
    marked: dict[str, Fact] = {}
    for name in (name for base in reversed(record.__mro__) for name in vars(base)):
        getter = getattr(getattr(record, name, None), "fget", None)
        if getter is not None and hasattr(getter, "shown"):
            column, said = getter.shown
            kind, _, _ = _told(get_type_hints(getter, include_extras=True).get("return"))
            marked[name] = Fact(name, kind, column, said)
    return (*found, *marked.values())


def _told(hint: Any) -> tuple[Kind, Column | None, bool]:
    """The kind, the column and whether it is hidden, by an annotation."""
    kind, column, hidden = "plain", None, False
    if get_origin(hint) is Annotated:
        inner, *said = get_args(hint)
        kind, column, hidden = _told(inner)
        for each in said:
            kind = each if isinstance(each, str) else kind
            column = each if isinstance(each, Column) else column
            hidden = hidden or isinstance(each, Hidden)
    elif get_args(hint) and type(None) in get_args(hint):
        kind, column, hidden = _told(next(each for each in get_args(hint) if each is not type(None)))
    return kind, column, hidden  # type: ignore[return-value]


@cache
def columns_of(record: type) -> tuple[tuple[Fact, str], ...]:
    """The facts that are columns of tables of such records, each with its heading."""
    shown = [each for each in facts_of(record) if each.column is not None]
    order = getattr(record, "ORDER", ())
    shown.sort(key=lambda each: order.index(each.name) if each.name in order else len(order))
    return tuple((each, each.column.title) for each in shown if each.column is not None)


def tables_of(record: Any) -> Iterable[tuple[Any, ...]]:
    """The facts of a record that are lists of records with columns."""
    for each in facts_of(type(record)):
        value = each.value(record)
        if isinstance(value, tuple) and value and is_dataclass(value[0]) and columns_of(type(value[0])):
            yield value


def cells_of(fact: Fact, title: str, rows: Sequence[Any], now: int = 0) -> list[tuple[str, list[str]]]:
    """Headings, each with the cells of these rows below it: one column for a fact, but for `Values`."""
    if fact.kind != "values":
        return [(title, [fact.text(row, now) for row in rows])]
    own = [fact.value(row) for row in rows]
    names = dict.fromkeys(name for values in own for name in values)
    return [
        (f"{title} {name}".strip(), [on_one_line(value(values[name])) if name in values else "" for values in own])
        for name in names
    ]


def head_of(record: Any) -> tuple[Note, ...]:
    return getattr(record, "head", ())


def notes_of(record: Any) -> tuple[Note, ...]:
    return getattr(record, "notes", ())


def written(value: Any, kind: Kind = "plain", now: int = 0) -> str:
    """A value for people."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (tuple, list)):
        return ", ".join(written(each, kind, now) for each in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{written(each, kind, now)} {name}" for name, each in value.items())
    match kind:
        case "count":
            return f"{value:,}"
        case "bytes":
            return f"{value / 1e6:,.1f} MB"
        case "moment":
            return moment(value)
        case "duration":
            return seconds(value)
        case "age":
            return f"{seconds(max(now - value, 0))} ago"
        case _:
            return str(value)
