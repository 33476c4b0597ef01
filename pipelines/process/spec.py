"""A process as a pipeline declares it: which function reads which inputs by which key, and its outputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tidegate.pipelines.process.engine.binding import Shape, shape_of
from tidegate.pipelines.process.generator import WatermarkGeneratorBuilder
from tidegate.pipelines.process.watermarks.combining import BUILT_IN, by_identifier
from tidegate.pipelines.process.watermarks.declarations import WatermarkDeclaration
from tidegate.pipelines.process.windows.windowed import WindowedQuery

BUCKETS = 64
"""How many buckets the keys of a process are put into by default; the state of one must fit into a task's memory."""


@dataclass(frozen=True)
class ProcessInput:
    """A table that a process reads. `key`: its columns that make the key; none where it is not keyed. `broadcast`:
    every task sees it whole. `time`: how its generator finds event time."""

    table: str
    key: tuple[str, ...]
    broadcast: bool = False
    time: WatermarkGeneratorBuilder | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class ProcessSpec:
    """A process function over tables.

    Attributes:
        outputs: The tables that it writes, one or two.
        declarations: Of the watermarks that its inputs bring beside event time, as the processes before it declare
            them.
        windowed: Of SQL's windows: what is evaluated before and after the function.
    """

    function: Any = field(compare=False, repr=False)
    inputs: tuple[ProcessInput, ...]
    outputs: tuple[str, ...]
    buckets: int = BUCKETS
    declarations: tuple[WatermarkDeclaration, ...] = ()
    windowed: WindowedQuery | None = None

    @property
    def sends(self) -> tuple[WatermarkDeclaration, ...]:
        """The declarations of all watermarks that its outputs may carry."""
        found = by_identifier([*self.declarations, *self.shape.watermarks])
        return tuple(item for name, item in found.items() if name not in BUILT_IN)

    @property
    def definition(self) -> str | None:
        """Identifies what the state of SQL's windows means; None for any other function."""
        return self.windowed.definition if self.windowed else None

    @property
    def shape(self) -> Shape:
        return shape_of(self.function)

    @property
    def keyed(self) -> tuple[ProcessInput, ...]:
        """The inputs whose records go to the task of their key."""
        return tuple(item for item in self.inputs if not item.broadcast)
