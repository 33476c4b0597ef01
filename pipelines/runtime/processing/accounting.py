"""Where the rows of a process are, counted from control tables alone:

    of each input     landed = taken + waiting
    of all inputs     taken  = handled + left out
    of each output    given  = published + quarantined + not having

What a function makes of the rows that it has handled is its own affair: how many of them stand in its state, and which
row that it gave holds them, is not counted. Of SQL's windows, `left out` is WHERE, rows without a time, and late rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidegate.pipelines.lake import Lake
from tidegate.pipelines.lake.stream import Stream
from tidegate.pipelines.process.spec import ProcessSpec
from tidegate.pipelines.process.windows.windowed import NOT_HAVING
from tidegate.pipelines.runtime.epochs import ProcessPlan
from tidegate.pipelines.runtime.epochs.history import ReleasedEpoch

_LEFT_OUT = "dropped:"


@dataclass(frozen=True)
class InputRows:
    """The rows of one input: those of a generation that have `landed`, up to epoch `upto` of it, by the watermark log;
    and those that published epochs have `taken`, by their plans."""

    table: str
    generation: int
    upto: int
    landed: int
    taken: int
    waiting: int


@dataclass(frozen=True)
class OutputRows:
    """The rows that published epochs have given to one output, as the tasks have counted them, and where they went."""

    table: str
    given: int
    published: int
    quarantined: int
    not_having: int = 0


@dataclass(frozen=True)
class ProcessRows:
    """All of a process. `read`: rows that its published epochs saw, by their own count; `handled` were handed to the
    function or aggregated, `left_out` were not, by reason."""

    insert: str
    inputs: tuple[InputRows, ...]
    outputs: tuple[OutputRows, ...]
    read: int
    handled: int
    left_out: Mapping[str, int]

    @property
    def taken(self) -> int:
        return sum(item.taken for item in self.inputs)


def process_rows(lake: Lake, insert: str, spec: ProcessSpec, epochs: Sequence[ReleasedEpoch]) -> ProcessRows:
    """Count the rows of a process, whose epochs are `epochs`. What lands meanwhile is waiting."""
    done = [item for item in epochs if item.published and item.staged is not None]
    counts = [item.staged.counts for item in done if item.staged]
    left_out = Counter[str]()
    for counted in counts:
        left_out.update({n.removeprefix(_LEFT_OUT): rows for n, rows in counted.items() if n.startswith(_LEFT_OUT)})
    read = sum(counted["rows"] for counted in counts)
    return ProcessRows(
        insert=insert,
        inputs=tuple(_input(lake, item.table, done) for item in spec.inputs),
        outputs=tuple(_output(name, place, done) for place, name in enumerate(spec.outputs)),
        read=read,
        handled=sum(counted["processed"] for counted in counts) if spec.windowed else read,
        left_out={reason: rows for reason, rows in left_out.items() if rows},
    )


def _input(lake: Lake, table: str, done: Sequence[ReleasedEpoch]) -> InputRows:
    spans = [span for item in done if isinstance(item.plan, ProcessPlan) for span in item.plan.process.inputs]
    spans = [span for span in spans if span.table == table]
    newest = Stream(lake, table).newest
    generation = max((span.generation for span in spans if span.upto), default=newest.generation if newest else 1)
    own = Stream(lake, table).generation(generation)
    last, reached = own.last, max((span.upto for span in spans), default=0)
    upto = last.epoch if last else 0
    return InputRows(
        table=table,
        generation=generation,
        upto=upto,
        landed=own.landed(0, upto),
        taken=sum(span.rows for span in spans),
        waiting=own.landed(reached, upto),
    )


def _output(name: str, place: int, done: Sequence[ReleasedEpoch]) -> OutputRows:
    given = published = quarantined = not_having = 0
    for item in done:
        assert item.staged is not None
        facts = item.staged.facts
        counted = facts["second"] if place else item.staged.counts
        places = counted["to:publish"], counted["to:quarantine"]
        published, quarantined = published + places[0], quarantined + places[1]
        # Epochs of before the second output's rows were counted by the tasks have no such number.
        given += (counted if place else facts).get("emitted", sum(places))
        not_having += 0 if place else facts.get(NOT_HAVING, 0)
    return OutputRows(name, given, published, quarantined, not_having)
