"""Where files may lie: in folders of this machine; for a script's sources, only in folders that its owner allows.

$TIDEGATE_FILES_ROOT names them (several with the system's path separator between them). Without it they are the folder
of the script, where a relative path begins, and the one in which the process was started.
"""

from __future__ import annotations

import os
import re
from os import PathLike
from pathlib import Path

from tidegate.pipelines.errors import PlanningError, SourceError

VARIABLE = "TIDEGATE_FILES_ROOT"
_FILE = re.compile(r"(?i)\s*file:/+")
_ADDRESS = re.compile(r"(?i)\s*(?!file:)[a-z][a-z0-9+.-]+:/")
"""What begins with a scheme other than this machine's, such as s3:// (of which a Path has dropped a slash)."""


def problem(given: str | PathLike[str]) -> str:
    """Why a path that a person wrote is no folder of this machine; empty if it is one."""
    text = str(given)
    if found := _ADDRESS.match(text):
        return f"{found.group().rstrip('/')}// is not a folder of this machine, and other places are not supported yet"
    if re.match(r"(?i)\s*file:(?!/(?!/)|/{3})", text):
        return f"{text} names another machine: write file:///FOLDER, or the folder alone"
    return ""


_NO_DELTA = re.compile(r"%[0-9A-Fa-f]{2}|[]|^[\\]")
"""Characters that delta-rs misreads in a path: it decodes the first, and fails on the others."""


def delta_problem(path: Path) -> str:
    """Why no Delta table can lie at `path`; empty where one can."""
    found = _NO_DELTA.search(str(path))
    return (
        f"{path} has {found.group()} in it, which the reader of Delta tables takes for something else" if found else ""
    )


def local(given: str | PathLike[str], where: str, base: Path | None = None) -> Path:
    """The folder for Delta tables that a person wrote, as an absolute path; `file:` may stand before it, and a relative
    one begins at `base`, or in the working directory. Raises PlanningError that names `where` it was written."""
    found = ((base or Path()) / plain(str(given))).absolute()
    if why := problem(given) or delta_problem(found):
        raise PlanningError(
            why,
            where=where,
            state="nothing was changed",
            next_command="write the path of a folder that this machine has, without such characters",
        )
    return found


def plain(given: str) -> str:
    """A path without `file:` before it."""
    return _FILE.sub("/", given, count=1) if _FILE.match(given) else given


def as_written(given: str) -> str:
    """A path as its script has it, the same however it is spelled: `in`, `./in/` and `x/../in`. Where it begins is not
    in it, so it stays the same when the script is moved with its folder."""
    return os.path.normpath(plain(given))


def roots(home: str | None = None) -> tuple[Path, ...]:
    """The allowed folders, with symbolic links followed. `home`: the script's."""
    named = [part for part in os.environ.get(VARIABLE, "").split(os.pathsep) if part]
    return tuple(Path(part).resolve() for part in named or [home or ".", "."])


def placed(path: str, home: str | None) -> Path:
    """What 'path' of a table means: a relative one begins at the first allowed folder, wherever the process runs."""
    return roots(home)[0] / plain(path)


def restricted() -> bool:
    """Whether the variable is set."""
    return bool(os.environ.get(VARIABLE))


def allowed(path: str, table: str, home: str | None = None) -> Path:
    """The file or folder that 'path' of a table means, with `..` and symbolic links followed; it need not exist.

    A relative one begins at the first allowed folder. Raises PlanningError for one of another file system, and
    SourceError, naming both, for one outside of the allowed folders.
    """
    if not path or path == "file://" or problem(path):
        raise PlanningError(
            f"'path' of {table} is a folder that this machine can read, not {path!r}",
            where=f"WITH options of {table}",
            state="nothing was read",
            next_command="write the folder into 'path', and run again",
        )
    found = placed(path, home).resolve()
    check(found, path, table, home)
    return found


def check(found: Path, given: str, table: str, home: str | None = None) -> None:
    """Raise SourceError unless `found` (resolved) lies in an allowed folder; `given` is what named it."""
    inside = tuple(dict.fromkeys(roots(home)))
    if not any(found.is_relative_to(root) for root in inside):
        named = ", ".join(map(str, inside))
        what = f"{table}: {given} is {found}, outside of {named}"
        raise SourceError(
            what,
            where=f"${VARIABLE}"
            if restricted()
            else f"the folders of the script and of this process; ${VARIABLE} is not set",
            state="nothing was read",
            next_command=f"move the files, or let {VARIABLE} name a folder that they lie in, and run again",
        )
