"""The generations of a statement on a lake: which one is current, and which publish beside it.

What is decided lies in the statement's own log (`GenerationRow`); where a swap was interrupted, the mark in the
target's log says whether it was made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.pipelines.commands import STATUS
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.generations import FIRST, generation_of, insert_owner, name_of, statement_name
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.lake.delta_log import committed
from tidegate.pipelines.lake.publishers import swap_mark
from tidegate.pipelines.lake.records import GenerationRow
from tidegate.pipelines.location import Location, folders_in

if TYPE_CHECKING:
    from tidegate.pipelines.sql.compile import Pipeline
    from tidegate.pipelines.sql.model import Insert


@dataclass(frozen=True)
class Generations:
    """The generations of one statement. `target`: where its target's table lies, None to look among the lake's own."""

    lake: Lake
    statement: str
    target: Location | None = None

    @property
    def decisions(self) -> Sequence[GenerationRow]:
        """What was decided, the oldest first."""
        return sorted(self.lake.generations.rows(insert_owner(self.statement)), key=lambda row: row.epoch)

    @property
    def current(self) -> int:
        """The generation that readers of the target see."""
        return self._current(self.decisions)

    @property
    def pending(self) -> int | None:
        """The generation whose swap was begun, and of which it is not stored whether it was made."""
        last = next((row for row in reversed(self.decisions) if row.decided != "begun"), None)
        return last.of if last is not None and last.decided == "swapping" else None

    @property
    def beside(self) -> tuple[int, ...]:
        """The generations that publish beside the current one."""
        rows = self.decisions
        current, ended = self._current(rows), self._ended(rows)
        begun = dict.fromkeys(row.of for row in rows if row.decided == "begun")
        return tuple(number for number in begun if number != current and number not in ended)

    def require_beside(self, generation: int) -> None:
        """Raise PlanningError where a generation has not begun beside the current one, or is over."""
        if generation not in self.beside:
            raise PlanningError(
                f"{self.statement} has no generation {generation} beside its current one",
                where=f"INSERT {self.statement}",
                state="nothing was changed",
                next_command=STATUS,
            )

    def is_over(self, generation: int) -> bool:
        """Whether it was given up, or another one has taken its place."""
        rows = self.decisions
        return bool(rows) and generation in self._ended(rows)

    def _current(self, rows: Sequence[GenerationRow]) -> int:
        found = FIRST
        for row in rows:
            if row.decided == "current" or (row.decided == "swapping" and row is rows[-1] and self.swapped(row.of)):
                found = row.of
        return found

    def _ended(self, rows: Sequence[GenerationRow]) -> set[int]:
        was_current = {FIRST, *(row.of for row in rows if row.decided == "current")}
        return {row.of for row in rows if row.decided == "over"} | (was_current - {self._current(rows)})

    def swapped(self, generation: int) -> bool:
        """Whether the target's log says that it is this generation's."""
        mark = swap_mark(self.lake.id, self.statement)
        places = folders_in(self.lake.root / "targets") if self.target is None else [self.target]
        return any(committed(place, mark) == generation for place in places)


def generations_of(lake: Lake, pipeline: Pipeline, insert: Insert) -> Generations:
    """The generations of an INSERT of a script."""
    return Generations(lake, insert.statement, lake.readers_path(pipeline.table(insert.target)))


def is_over(lake: Lake, insert: str) -> bool:
    """Whether the generation with this name was given up or replaced: nothing of it is to be done any more."""
    return Generations(lake, statement_name(insert)).is_over(generation_of(insert))


def on_lake(lake: Lake, pipeline: Pipeline) -> Pipeline:
    """A script with each INSERT in the generation that is current on a lake; one that is beside it stays so until it is
    swapped in. Raises PlanningError for one that is over."""
    for insert in pipeline.inserts:
        found = generations_of(lake, pipeline, insert)
        current, beside = found.current, pipeline.table(insert.target).beside is not None
        if beside and insert.generation != current:
            if found.is_over(insert.generation):
                raise PlanningError(
                    f"generation {insert.generation} of {insert.statement} is over",
                    where=f"INSERT {insert.id}",
                    state="nothing was changed",
                    next_command=STATUS,
                )
        elif insert.id != name_of(insert.statement, current) or beside:
            pipeline = pipeline.in_generation(insert, current)
    return pipeline


def at_current(lake: Lake, pipeline: Pipeline, insert: Insert) -> tuple[Pipeline, Insert]:
    """The same, and one of its INSERTs in it."""
    found = on_lake(lake, pipeline)
    return found, found.insert(insert.statement)


def all_beside(lake: Lake, pipeline: Pipeline) -> dict[str, Pipeline]:
    """By the name of each generation that is beside a script's current one: the script in which it is."""
    return {
        name_of(insert.statement, number): pipeline.in_generation(insert, number, beside=True)
        for insert in pipeline.inserts
        for number in generations_of(lake, pipeline, insert).beside
        if number != insert.generation
    }


def beside(lake: Lake, pipeline: Pipeline, insert: str, generation: int) -> Pipeline:
    """A script in which one INSERT is a generation beside the current one; the others are current. Raises PlanningError
    where that generation has not begun, or is over."""
    found = pipeline.insert(insert)
    generations_of(lake, pipeline, found).require_beside(generation)
    return on_lake(lake, pipeline.in_generation(found, generation, beside=True))


def like(made: Pipeline, pipeline: Pipeline, insert: Insert) -> Pipeline:
    """`made`, another text of a script, in which an INSERT is the same generation at the same place."""
    return made.in_generation(
        made.insert(insert.statement), insert.generation, beside=pipeline.table(insert.target).beside is not None
    )


def in_its_place(lake: Lake, made: Pipeline, insert: str) -> Pipeline:
    """A script as a lake has stored it, in which the INSERT is the generation with this name, current or beside."""
    own, number = made.insert(statement_name(insert)), generation_of(insert)
    return made.in_generation(own, number, beside=number != generations_of(lake, made, own).current)
