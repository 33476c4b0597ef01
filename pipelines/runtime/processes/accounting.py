"""Where the rows of a process are, counted from control tables alone:

    of each input     landed = taken + waiting
    of all inputs     taken  = handled + left out
    of each output    given  = published + quarantined + not having

What a function makes of the rows that it has handled is its own affair: how many of them stand in its state, and which
row that it gave holds them, is not counted. Of SQL's windows, `left out` is WHERE, rows without a time, and late rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.pipelines.lake import Lake
from tidegate.pipelines.lake.stream import Stream
from tidegate.pipelines.runtime.epochs.processed import Given, Processed, Taken

if TYPE_CHECKING:
    from tidegate.pipelines.process.spec import ProcessSpec


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


def process_rows(lake: Lake, insert: str, spec: ProcessSpec, done: Processed) -> ProcessRows:
    """Count the rows of a process, whose epochs have `done` so much. What lands meanwhile is waiting."""
    given = [*done.given, *[Given()] * len(spec.outputs)][: len(spec.outputs)]
    return ProcessRows(
        insert=insert,
        inputs=tuple(_input(lake, item.table, done.taken.get(item.table, Taken())) for item in spec.inputs),
        outputs=tuple(OutputRows(name, **vars(each)) for name, each in zip(spec.outputs, given, strict=True)),
        read=done.read,
        handled=done.handled if spec.windowed else done.read,
        left_out=done.left_out,
    )


def _input(lake: Lake, table: str, taken: Taken) -> InputRows:
    newest = Stream(lake, table).newest
    generation = taken.generation or (newest.generation if newest else 1)
    own = Stream(lake, table).generation(generation)
    last = own.last
    upto = last.epoch if last else 0
    return InputRows(
        table=table,
        generation=generation,
        upto=upto,
        landed=own.landed(0, upto),
        taken=taken.rows,
        waiting=own.landed(taken.upto, upto),
    )
