"""What is wrong with a script, and where: `SqlError`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

from tidegate.pipelines.commands import AS_WRITTEN, Commands, NextCommand, then
from tidegate.pipelines.errors import TidegateError


@dataclass(frozen=True)
class Location:
    """A place in the script; line and column count from 1."""

    line: int
    column: int


class SqlError(TidegateError):
    """A script that cannot be compiled. Nothing has run, nothing has been touched.

    Attributes:
        what: One sentence.
        line, column: Where, counted from 1, in characters.
        hint: What to write instead; None when there is nothing to suggest.
        excerpt: The source line with the place underlined; values of secret options are shown as `***`.
        path: The script's file, when it has one.
        also: A second place to look at, the definition of a view; None when there is none.
    """

    def __init__(
        self,
        what: str,
        *,
        line: int,
        column: int,
        excerpt: str,
        hint: str | None = None,
        path: str | None = None,
        also: SqlError | None = None,
    ) -> None:
        self.line = line
        self.column = column
        self.hint = hint
        self.excerpt = excerpt
        self.path = path
        self.also = also
        explain = NextCommand("explain", (path,), script=False) if path else NextCommand("explain")
        super().__init__(
            what,
            where=f"{path or 'script'}:{line}:{column}",
            state="nothing was run",
            next_command=then("correct the script", explain),
        )

    def text(self, commands: Commands = AS_WRITTEN) -> str:
        """The whole error in lines, with the excerpt; its command as `commands` shows it."""
        lines = [f"{self.where}: {self.what}", self.excerpt]
        if self.also:
            lines += [f"{self.also.where}: {self.also.what}", self.also.excerpt]
        if self.hint:
            lines.append(f"  hint:  {self.hint}")
        return "\n".join([*lines, f"  state: {self.state}", f"  next:  {commands.shown(self.advice)}"])


def did_you_mean(name: str, candidates: Iterable[str]) -> str | None:
    """ "did you mean `x`?" for the candidates that look like `name`, whatever their case; None when none does."""
    known = sorted(set(candidates))
    folded: dict[str, str] = {}
    for candidate in known:
        folded.setdefault(candidate.casefold(), candidate)
    close = get_close_matches(name.casefold(), folded, n=2, cutoff=0.6)
    if not close:
        return None
    return f"did you mean {' or '.join(f'`{folded[match]}`' for match in close)}?"


def one_of(candidates: Iterable[str], limit: int = 12) -> str:
    """The candidates as a list for a reader, shortened if there are many."""
    known = sorted(set(candidates))
    shown = ", ".join(f"`{name}`" for name in known[:limit])
    return f"{shown} and {len(known) - limit} more" if len(known) > limit else shown


def suggest(name: str, candidates: Iterable[str], what: str) -> str | None:
    """A hint for a name that is not among `candidates`: the close ones, else all of them ("`what`: a, b, c")."""
    known = set(candidates)
    return did_you_mean(name, known) or (f"{what}: {one_of(known)}" if known else None)
