"""Output records: as they are collected, and as columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from tidegate.pipelines.process.errors import WrongValue
from tidegate.pipelines.process.values import by_place, can_change, exact
from tidegate.pipelines.syntax.types import FlinkType, Kind

if TYPE_CHECKING:
    import pyarrow as pa

_AS_THEY_ARE: dict[Kind, frozenset[type]] = {
    Kind.BOOLEAN: frozenset({bool}),
    **{kind: frozenset({int}) for kind in (Kind.TINYINT, Kind.SMALLINT, Kind.INT, Kind.BIGINT)},
    Kind.DOUBLE: frozenset({float}),
    Kind.STRING: frozenset({str}),
    Kind.DECIMAL: frozenset({int, Decimal}),
}
"""Python types that Arrow converts exactly or refuses: their values need no check one by one."""


class ListCollector:
    """Stores what is collected, in order. `taken`: makes a record the engine's own; None if nobody changes records
    afterwards."""

    __slots__ = ("collect", "records")

    def __init__(self, taken: Callable[[Any], Any] | None = None) -> None:
        self.records: list[Any] = []
        self.collect = self.records.append
        if taken is not None:
            append = self.records.append

            def collect(record: Any) -> None:
                append(taken(record))

            self.collect = collect


class OutputColumns:
    """The columns of one output. `types`: as declared; None if the function is the engine's own, whose values have
    their types already and do not change once collected."""

    def __init__(self, schema: pa.Schema, types: Sequence[FlinkType] | None) -> None:
        self.schema, self._names, self._types = schema, schema.names, types
        self._own = [place for place, kind in enumerate(types or ()) if can_change(kind)]

    @property
    def taken(self) -> Callable[[Any], Any] | None:
        """See `ListCollector`."""
        return None if self._types is None else self._taken

    def _taken(self, record: Any) -> tuple[Any, ...]:
        row = as_tuple(record, self._names)
        if not self._own or self._types is None:
            return row
        values = list(row)
        for place in self._own:
            values[place] = self._converted(self._types[place], place, values[place])
        return tuple(values)

    def arrays(self, records: Sequence[Any]) -> list[pa.Array]:
        """The records as columns. Raises WrongValue that names the column."""
        rows = records if self._types is not None else [as_tuple(record, self._names) for record in records]
        return [self._array(place, values) for place, values in enumerate(zip(*rows, strict=True))]

    def _array(self, place: int, values: Sequence[Any]) -> pa.Array:
        import pyarrow as pa

        if self._types is not None and place not in self._own:
            known = _AS_THEY_ARE.get(self._types[place].kind, frozenset())
            if not {*map(type, values)} <= {*known, type(None)}:
                values = [self._converted(self._types[place], place, value) for value in values]
        try:
            return pa.array(values, self.schema.field(place).type)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            if self._types is not None:
                for value in values:
                    self._converted(self._types[place], place, value)
            raise WrongValue(f"column {self._names[place]}: {error}") from error

    def _converted(self, kind: FlinkType, place: int, value: Any) -> Any:
        try:
            # NULL in a column that is NOT NULL is a matter of the gate.
            return exact(kind.null())(value)
        except WrongValue as error:
            raise WrongValue(f"column {self._names[place]}: {error.what}") from error


def as_tuple(record: Any, names: Sequence[str]) -> tuple[Any, ...]:
    """An output record in the order of its schema's columns; a record with field names is read by name. Raises
    WrongValue."""
    if type(record) is tuple and len(record) == len(names):
        return record
    if isinstance(record, tuple):
        return by_place(record, names, "an output record")
    if isinstance(record, dict):
        if record.keys() != set(names):
            odd = sorted(record.keys() ^ set(names), key=str)
            raise WrongValue(f"an output record and the schema differ in {', '.join(map(str, odd))}")
        return tuple(record[name] for name in names)
    try:
        return tuple(getattr(record, name) for name in names)
    except AttributeError:
        raise WrongValue(
            f"an output record is a tuple, a dict or an object with {', '.join(names)}, not {type(record).__name__}"
        ) from None
