"""What to do next: commands as records, and advice on causes outside of Tidegate, found by the text of an error.

Each surface (terminal, Dagster, alerts, report) shows commands with its own script and its own lake, so that they can
be pasted as they are.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Self

OR_ELSE, THEN, AND, OR = ", or: ", ", then: ", " and ", "   or   "
"""Joins a manual step to a command, and one way to another."""
_LEADS = re.compile(r"(, or: |, then: |; then |; if [^;]*: | and |   or   )$")


@dataclass(frozen=True)
class NextCommand:
    """A command of Tidegate that a person may run next.

    Args:
        verb: "run", "quarantine list".
        arguments: What follows the script, one word each; capitals (TABLE, TIME) are for the reader to fill in.
        does: What it does, shown behind it in brackets.
        script: Whether it takes a script.
    """

    verb: str
    arguments: tuple[str, ...] = ()
    does: str = ""
    script: bool = True

    def __add__(self, other: Advised) -> Advice:
        return advice(self, other)

    def __radd__(self, other: str) -> Advice:
        return advice(other, self)

    def __str__(self) -> str:
        return AS_WRITTEN.shown(self)


@dataclass(frozen=True)
class UnlessLanded:
    """What to do with a table as long as no row of it has landed: `words`; and afterwards, when its lake keeps it as it
    was declared: `landed`."""

    words: str
    landed: Advice

    def __add__(self, other: Advised) -> Advice:
        return advice(self, other)

    def __radd__(self, other: str) -> Advice:
        return advice(other, self)

    def __str__(self) -> str:
        return self.words


@dataclass(frozen=True)
class Advice:
    """What to do next: plain text, and commands in it."""

    parts: tuple[str | NextCommand | UnlessLanded, ...] = ()

    def __add__(self, other: Advised) -> Advice:
        return advice(self, other)

    def __radd__(self, other: str) -> Advice:
        return advice(other, self)

    def __bool__(self) -> bool:
        return bool(self.parts)

    def __str__(self) -> str:
        return AS_WRITTEN.shown(self)

    def before(self, chosen: Callable[[NextCommand], bool]) -> Advice | None:
        """The advice up to the first command that `chosen` accepts, without the words that join it; None if there is no
        such command."""
        for place, part in enumerate(self.parts):
            if isinstance(part, NextCommand) and chosen(part):
                *others, last = self.parts[:place] or ("",)
                return advice(*others, _LEADS.sub("", last) if isinstance(last, str) else last)
        return None

    def of_table(self, name: str, has_landed: Callable[[], bool]) -> Advice:
        """The same as advice on the script's table `name`, of which rows have landed or not: who reads a part of it, or
        its log, need not know its name."""
        found: list[Advised] = []
        for part in self.parts:
            if isinstance(part, UnlessLanded):
                found.append(part.landed if has_landed() else part.words)
            elif isinstance(part, NextCommand) and RESNAPSHOT in part.arguments:
                found.append(replace(part, arguments=(RESNAPSHOT, name)))
            else:
                found.append(part)
        return advice(*found)

    def reworded(self, change: Callable[[str], str]) -> Advice:
        """The same, with every text in it changed."""
        return Advice(tuple(_reworded(part, change) for part in self.parts))

    def stored(self) -> str:
        """As JSON, for a column of a control table."""
        parts = [part.words if isinstance(part, UnlessLanded) else part for part in self.parts]
        return json.dumps([part if isinstance(part, str) else asdict(part) for part in parts], ensure_ascii=False)

    @classmethod
    def of_stored(cls, text: str) -> Advice:
        """What `stored` wrote; nothing of an empty text."""
        parts = json.loads(text) if text else ()
        return cls(
            tuple(
                part if isinstance(part, str) else NextCommand(**{**part, "arguments": tuple(part["arguments"])})
                for part in parts
            )
        )


def _reworded(part: str | NextCommand | UnlessLanded, change: Callable[[str], str]) -> str | NextCommand | UnlessLanded:
    if isinstance(part, str):
        return change(part)
    if isinstance(part, UnlessLanded):
        return UnlessLanded(change(part.words), part.landed.reworded(change))
    return replace(part, arguments=tuple(map(change, part.arguments)), does=change(part.does))


Advised = str | NextCommand | UnlessLanded | Advice
"""Anything that says what to do next."""


def advice(*parts: Advised) -> Advice:
    """All parts, one after the other."""
    found: list[str | NextCommand | UnlessLanded] = []
    for part in parts:
        found += part.parts if isinstance(part, Advice) else [part] if part else []
    return Advice(tuple(found))


def either(*ways: Advised) -> Advice:
    """Alternatives, of which one is enough."""
    first, *others = ways
    return advice(first, *(part for way in others for part in (OR, way)))


def or_else(by_hand: Advised, command: Advised) -> Advice:
    """`put it back, or: tidegate …`."""
    return advice(by_hand, OR_ELSE, command)


def then(by_hand: Advised, command: Advised) -> Advice:
    """`correct the rows, then: tidegate …`."""
    return advice(by_hand, THEN, command)


def both(by_hand: Advised, command: Advised) -> Advice:
    """`bring it back and tidegate …`."""
    return advice(by_hand, AND, command)


STATUS = NextCommand("status", script=False)
RUN = NextCommand("run")
VERIFY = NextCommand("verify")


RESNAPSHOT = "--resnapshot"


def resnapshot(table: str, does: str = "") -> NextCommand:
    """The command that reads a source table anew, as a new generation."""
    return NextCommand("run", (RESNAPSHOT, table), does)


def in_another_lake(words: str) -> Advice:
    """What only another lake can do: this one keeps what its rows were declared as."""
    return then(words, NextCommand("run", ("--lake", "DIR"), "another lake: this one has rows of the table as it was"))


def redeclare(words: str) -> UnlessLanded:
    """A change of a table's declaration in the script, which the lake takes as long as no row of it has landed."""
    return UnlessLanded(words, in_another_lake(words))


def resolving(insert: str, released: str = "", discarded: str = "") -> tuple[NextCommand, NextCommand]:
    """The two ways out of a held epoch; `released` and `discarded` say what each does."""
    return NextCommand("release", (insert,), released), NextCommand("discard", (insert,), discarded)


_NO_LAKE = ("explain", "demo")

DEFAULT_LAKE = Path(".tidegate/lake")
"""The lake of a command that is given neither a lake nor a script."""


def default_lake(script: PathLike[str] | None) -> Path:
    """The lake of a command that is given none: beside its script, wherever the command is typed."""
    return DEFAULT_LAKE if script is None else Path(script).parent / DEFAULT_LAKE


def common_lake(scripts: Iterable[PathLike[str] | None]) -> Path | None:
    """The lake of some scripts that are given none; None where they lie in several folders, and it has to be named."""
    found = {default_lake(script) for script in scripts}
    return found.pop() if len(found) == 1 else None


@dataclass(frozen=True)
class Commands:
    """How a surface shows commands: with the script and the lake that it is about. None: not known, or not needed."""

    script: PathLike[str] | None = None
    lake: PathLike[str] | None = None

    @classmethod
    def at(cls, script: str, lake: str) -> Self:
        """Of a script and a lake by their paths; an empty `script` is not known."""
        return cls(Path(script) if script else None, Path(lake))

    def shown(self, what: Advised) -> str:
        """As a line to read, its commands as they are to be typed."""
        if isinstance(what, Advice):
            return "".join(map(self.shown, what.parts))
        if isinstance(what, UnlessLanded):
            return what.words
        return what if isinstance(what, str) else self._line(what)

    def _line(self, command: NextCommand) -> str:
        line = f"tidegate {command.verb}"
        if command.script:
            line += " SCRIPT" if self.script is None else f" {shlex.quote(str(self.script))}"
        line = " ".join([line, *map(shlex.quote, command.arguments)])
        if self._names_lake(command):
            line += f" --lake {shlex.quote(str(self.lake))}"
        return f"{line}   ({command.does})" if command.does else line

    def _names_lake(self, command: NextCommand) -> bool:
        """Whether the command has to name the lake: without, it would take another one."""
        if self.lake is None or command.verb in _NO_LAKE or "--lake" in command.arguments:
            return False
        return Path(self.lake) != default_lake(self.script if command.script else None)

    def all(self, commands: Iterable[Advised]) -> tuple[str, ...]:
        """Each on a line of its own."""
        return tuple(map(self.shown, commands))


def commands_of(script: Path | None, lake: Path) -> Commands:
    """How suggested commands are shown: with this command's script, and its lake where they would take another one."""
    return Commands(script, lake)


AS_WRITTEN = Commands()
"""Neither the script nor the lake is known."""


MEND = "mend the cause"

_REMEDIES: tuple[tuple[str, Advised], ...] = (
    (
        r"No space left|\b(?:errno|os error):? 28\b|Disk quota exceeded|disk is full",
        "make room on the disk of the lake or of its temporary folder (df -h shows which is full; what retention lets "
        "go is removed by: " + NextCommand("maintain") + ")",
    ),
    (r"Too many open files", "allow more open files where it runs (ulimit -n 65536), and start it again"),
    (
        r"OutOfMemoryError|Cannot allocate memory|\bMemoryError\b|bad_alloc|[Oo]ut of memory|beyond .*memory limits",
        "give it more memory (TIDEGATE_DRIVER_MEMORY=4g, in Dagster also spark_config: spark.driver.memory), or run "
        "fewer at once",
    ),
    (r"Read-only file system", "make the disk writable (dmesg says why it is not)"),
    (
        r"Input/output error|Stale file handle",
        "check the disk, or the network share, of the path (dmesg says what is wrong with it)",
    ),
    (
        r"Permission denied|Operation not permitted|AccessDeniedException",
        "give the user that it runs as read and write access (ls -ld shows the path's owner)",
    ),
    (
        r"Java server|Java side",
        "find out why Spark's process ended (_scratch/spark.log in the lake; dmesg says whether memory ran out)",
    ),
    (
        r"Name or service not known|name resolution|No address associated|UnknownHost|resolve host|dns error",
        "correct the host's name, or this machine's DNS",
    ),
    (
        r"Connection refused|Connection reset|Connection timed out|No route to host|Network is unreachable",
        "check that the server is up and can be reached from here (host, port, firewall)",
    ),
)


def remedy(text: str, otherwise: str = MEND) -> Advice:
    """Advice on the first known cause that `text` names, written as the beginning of a sentence: `…, then run it
    again`. `otherwise` if it names none."""
    return advice(next((do for pattern, do in _REMEDIES if re.search(pattern, text)), otherwise))


def unsaid(text: str, *shown: str) -> tuple[Advice, ...]:
    """Advice on the known cause that `text` names, unless one of the texts `shown` gives it already."""
    found = remedy(text, "")
    begun = str(found).partition(" (")[0]  # what follows may name a script and a lake
    return (found,) if found and not any(begun in each for each in shown) else ()
