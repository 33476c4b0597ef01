"""Commands as people are shown them: to be pasted as they are, with this script and this lake."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

_ON_A_LAKE = "run|status|verify|report|maintain|release|discard|reconcile|quarantine"
_COMMAND = re.compile(rf"tidegate (?:{_ON_A_LAKE})\b.*?(?=   |[;)\n]|$)")
_SCRIPT = re.compile(r"(?<= )(SCRIPT|…)(?= |$)")


@dataclass(frozen=True)
class Commands:
    """Fills in what a text of the runtime leaves open. None leaves it open here, too."""

    script: Path | None = None
    lake: Path | None = None

    def filled(self, text: str) -> str:
        """`text` with the script in the place of SCRIPT, and with the lake at the end of every command that takes one.

        A command ends with the text, its line, three blanks, a semicolon or a bracket.
        """
        return _COMMAND.sub(lambda found: self._whole(found[0]), text)

    def _whole(self, command: str) -> str:
        if self.script is not None:
            script = shlex.quote(str(self.script))
            command = _SCRIPT.sub(lambda _: script, command)
        if self.lake is None or " --lake " in command:
            return command
        return f"{command} --lake {shlex.quote(str(self.lake))}"

    def resolving(self, insert: str) -> str:
        """The two commands that resolve a held epoch."""
        return self.filled(f"tidegate release SCRIPT {insert}   or   tidegate discard SCRIPT {insert}")


DEFAULT_LAKE = Path(".tidegate/lake")
"""The lake of a command that is given none."""


def commands_of(script: Path | None, lake: Path) -> Commands:
    """What the commands that are shown go on with: this one's script, and its lake where that is not the usual one."""
    return Commands(script, None if lake == DEFAULT_LAKE else lake)


AS_WRITTEN = Commands()
"""Neither the script nor the lake is known."""
