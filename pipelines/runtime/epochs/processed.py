"""What the epochs of a process have done with rows, added up, as a checkpoint stores it; and where the rows are,
counted from control tables alone:

    of each input     landed = taken + waiting
    of all inputs     taken  = handled + left out
    of each output    given  = published + quarantined + not having

What a function does with the rows that it has handled is not counted: how many of them are in its state, and which of
its output rows they became. For SQL's windows, `left out` is WHERE, rows without a time, and late rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field
from itertools import zip_longest
from operator import add
from typing import TYPE_CHECKING

from tidegate.pipelines.lake import Lake
from tidegate.pipelines.lake.stream import Stream
from tidegate.pipelines.runtime.epochs.history import ReleasedEpoch

if TYPE_CHECKING:
    from tidegate.pipelines.process.spec import ProcessSpec

_LEFT_OUT = "dropped:"
NOT_HAVING = "not-having"
"""The count of a staged epoch for emitted windows that HAVING leaves out."""


@dataclass(frozen=True)
class TakenSoFar:
    """What published epochs have taken of one input: `rows` rows, up to epoch `upto` of `generation`; all 0 before the
    first."""

    rows: int = 0
    upto: int = 0
    generation: int = 0

    def __add__(self, other: TakenSoFar) -> TakenSoFar:
        return TakenSoFar(self.rows + other.rows, max(self.upto, other.upto), max(self.generation, other.generation))

    def of(self, lake: Lake, table: str) -> InputRows:
        """Where the rows of the input are. Those that land meanwhile count as waiting."""
        return input_rows(lake, table, self.generation, self.rows, self.upto)


@dataclass(frozen=True)
class Given:
    """What published epochs have given to one output, as in `OutputRows`."""

    given: int = 0
    published: int = 0
    quarantined: int = 0
    not_having: int = 0

    def __add__(self, other: Given) -> Given:
        return Given(*map(add, astuple(self), astuple(other)))


@dataclass(frozen=True)
class Processed:
    """What published epochs of a process have done with rows (see `ProcessRows`): `taken` by input, `given` by output
    in the function's order. Empty for any other INSERT."""

    read: int = 0
    handled: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)
    taken: Mapping[str, TakenSoFar] = field(default_factory=dict)
    given: tuple[Given, ...] = ()

    def __add__(self, other: Processed) -> Processed:
        tables = dict.fromkeys([*self.taken, *other.taken])
        return Processed(
            self.read + other.read,
            self.handled + other.handled,
            dict(Counter(self.left_out) + Counter(other.left_out)),
            {table: self.taken.get(table, TakenSoFar()) + other.taken.get(table, TakenSoFar()) for table in tables},
            tuple(mine + more for mine, more in zip_longest(self.given, other.given, fillvalue=Given())),
        )


def processed_by(epochs: Iterable[ReleasedEpoch]) -> Processed:
    """What epochs of a process have done with rows."""
    read, handled, left_out = 0, 0, Counter[str]()
    taken: dict[str, TakenSoFar] = {}
    given = [Given(), Given()]
    for item in epochs:
        if not item.published or item.staged is None or item.plan.state is None:
            continue
        counts, facts = item.staged.counts, item.staged.facts
        read, handled = read + counts.get("rows", 0), handled + counts.get("processed", 0)
        left_out.update({n.removeprefix(_LEFT_OUT): rows for n, rows in counts.items() if n.startswith(_LEFT_OUT)})
        for span in item.plan.takes:
            more = TakenSoFar(span.rows, span.upto, span.generation if span.upto else 0)
            taken[span.table] = taken.get(span.table, TakenSoFar()) + more
        given[0] += _given(counts, facts.get("emitted"), facts.get(NOT_HAVING, 0))
        if "second" in facts:
            given[1] += _given(facts["second"], facts["second"].get("emitted"), 0)
    return Processed(read, handled, {reason: rows for reason, rows in left_out.items() if rows}, taken, tuple(given))


def _given(counted: Mapping[str, int], emitted: int | None, not_having: int) -> Given:
    places = counted["to:publish"], counted["to:quarantine"]
    # Epochs of before the second output's rows were counted by the tasks have no number of what was given.
    return Given(sum(places) if emitted is None else emitted, *places, not_having)


@dataclass(frozen=True)
class InputRows:
    """The rows of one input: those of a generation that have `landed`, up to its epoch `upto`, by the watermark log;
    and those that published epochs have `taken`, by their plans."""

    table: str
    generation: int
    upto: int
    landed: int
    taken: int
    waiting: int


@dataclass(frozen=True)
class ProcessRows:
    """All rows of a process. `outputs`: what each has been given; `read`: rows that its published epochs saw, by their
    own count; `handled` were passed to the function or aggregated, `left_out` were not, by reason."""

    insert: str
    inputs: tuple[InputRows, ...]
    outputs: Mapping[str, Given]
    read: int
    handled: int
    left_out: Mapping[str, int]

    @property
    def taken(self) -> int:
        return sum(item.taken for item in self.inputs)


def process_rows(lake: Lake, insert: str, spec: ProcessSpec, done: Processed) -> ProcessRows:
    """Count the rows of a process, whose epochs have `done` so much."""
    inputs = tuple(done.taken.get(item.table, TakenSoFar()).of(lake, item.table) for item in spec.inputs)
    outputs = dict(zip(spec.outputs, [*done.given, *[Given()] * len(spec.outputs)], strict=False))
    handled = done.handled if spec.windowed else done.read
    return ProcessRows(insert, inputs, outputs, done.read, handled, done.left_out)


def input_rows(lake: Lake, table: str, generation: int = 0, taken: int = 0, taken_upto: int | None = None) -> InputRows:
    """Count the rows of one input, of which published epochs have taken so many; all up to an epoch, if it is given.
    `generation`: 0 for the newest."""
    newest = None if generation else Stream(lake, table).newest
    own = Stream(lake, table).generation(generation or (newest.generation if newest else 1))
    upto = last.epoch if (last := own.last) else 0
    landed = own.landed(0, upto)
    waiting = landed - taken if taken_upto is None else own.landed(taken_upto, upto)
    return InputRows(table, own.number, upto, landed, taken, waiting)
