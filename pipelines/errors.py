"""What every Tidegate error says: what happened, where, what state is kept, and the next command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tidegate.pipelines.commands import AS_WRITTEN, STATUS, Advised, Commands, advice


class TidegateError(Exception):
    """Base of all typed errors.

    Args:
        what: One sentence: what happened.
        where: The table, position or file it happened at.
        state: What is kept, so that a reader knows nothing is half done.
        next_command: What to do next: text, a command, or both.
    """

    def __init__(self, what: str, *, where: str = "", state: str = "", next_command: Advised = "") -> None:
        self.what = what
        self.where = where
        self.state = state
        self.advice = advice(next_command)
        super().__init__(self.text())

    @property
    def next_command(self) -> str:
        """What to do next, where neither the script nor the lake is known."""
        return str(self.advice)

    def reword(
        self, change: Callable[[str], str] = str, *, state: str | None = None, next_command: Advised | None = None
    ) -> None:
        """Change the texts of the error in place: each by `change`, or `state` and `next_command` as a whole."""
        self.what, self.where = change(self.what), change(self.where)
        self.state = change(self.state) if state is None else state
        self.advice = self.advice.reworded(change) if next_command is None else advice(next_command)
        self.args = (self.text(),)

    def text(self, commands: Commands = AS_WRITTEN) -> str:
        """The whole error in lines, its commands as `commands` shows them."""
        lines = [self.what]
        if self.where:
            lines.append(f"  where: {self.where}")
        if self.state:
            lines.append(f"  state: {self.state}")
        if self.advice:
            lines.append(f"  next:  {commands.shown(self.advice)}")
        return "\n".join(lines)


class PlanningError(TidegateError):
    """A pipeline that can be read but must not be run as it is."""


class DefinitionChanged(PlanningError):
    """A script defines a table or an INSERT otherwise than the lake has it. `differences`: both versions."""

    def __init__(
        self, what: str, *, where: str, state: str, next_command: Advised, differences: Sequence[object] = ()
    ) -> None:
        self.differences = differences
        super().__init__(what, where=where, state=state, next_command=next_command)


class BeyondRetention(PlanningError):
    """The rows that are needed have been removed by retention: landed rows of `table` up to its epoch `upto`, or rows
    that the INSERT of that name had quarantined, the last of them in that epoch."""

    def __init__(self, what: str, *, where: str, state: str, next_command: Advised, table: str, upto: int) -> None:
        self.table, self.upto = table, upto
        super().__init__(what, where=where, state=state, next_command=next_command)


class SourceError(TidegateError):
    """A source that refuses, or is unable, to deliver what a plan needs."""


class SourceUnreachable(SourceError):
    """A source whose server does not answer, or whose connection was lost: the same step may succeed later."""


class LakeError(TidegateError):
    """The lake is not what this pipeline left there."""


class LeaseHeld(TidegateError):
    """Another runner works on the same table or INSERT."""

    def __init__(self, owner: str, holder: str) -> None:
        self.owner = owner
        self.holder = holder
        super().__init__(
            f"{owner} is being worked on by another runner",
            where=holder,
            state="nothing was changed by this run",
            next_command=replace(STATUS, does="wait for it to end, or stop it, and run again"),
        )


class ConcurrentRun(TidegateError):
    """Another runner committed the same epoch first: its commit counts, this one's was dropped."""


class GateHeld(TidegateError):
    """The gate holds an epoch: it stays staged until a person decides."""


class SourceDiffers(TidegateError):
    """The changelog of a build table and the source's own table do not say the same."""
