"""The `tidegate` command.

A `tidegate status` that names a lake at most is asked again and again, by scripts and by people: it is answered here,
without what the other commands are made with. Everything else, and what fails, goes to the app of all commands.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


def main() -> None:
    """The entry point. Leaves with 0, 1 (failed, or the gate holds) or 2 (usage)."""
    code = plain_status(sys.argv[1:])
    if code is not None:
        sys.exit(code)
    from tidegate.orchestration.commands.app import app

    app()


def plain_status(arguments: Sequence[str]) -> int | None:
    """Answer `tidegate status [--json] [--lake DIR]`, and say with which exit status; None, and nothing printed, where
    something else is asked, or it fails."""
    asked = _asked(arguments)
    if asked is None:
        return None
    as_json, named = asked
    with _without("numpy"):
        import pyarrow.parquet  # noqa: F401
    from tidegate.orchestration.console.lake_state import show
    from tidegate.orchestration.console.screen import Screen
    from tidegate.pipelines.commands import DEFAULT_LAKE, commands_of
    from tidegate.pipelines.errors import TidegateError
    from tidegate.pipelines.lake import Lake
    from tidegate.pipelines.paths import plain, problem
    from tidegate.pipelines.runtime.status import settled_status

    if named is not None and problem(named):
        return None
    lake = DEFAULT_LAKE if named is None else Path(plain(named))
    try:
        code = show(Screen(as_json, commands=commands_of(None, lake)), settled_status(Lake(lake, create=False)))
        sys.stdout.flush()
    except (TidegateError, OSError, ValueError):
        return None
    gc.freeze()  # the process ends: to look through all that it has loaded for garbage takes a seventh of its time
    return code


def _asked(arguments: Sequence[str]) -> tuple[bool, str | None] | None:
    """Whether a plain status is wanted as JSON, and of which lake; None where another command is meant."""
    if arguments[:1] != ["status"]:
        return None
    as_json, lake = False, os.environ.get("TIDEGATE_LAKE") or None
    rest = iter(arguments[1:])
    for argument in rest:
        if argument == "--json":
            as_json = True
        elif argument == "--lake":
            lake = next(rest, "")
        else:
            return None
    return None if lake == "" else (as_json, lake)


@contextmanager
def _without(name: str) -> Iterator[None]:
    """A module that nothing can import meanwhile. Arrow does without NumPy, whose import takes longer than a status."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[name]


if __name__ == "__main__":
    main()
