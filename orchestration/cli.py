"""The `tidegate` command.

`tidegate status` with at most a lake and a script is called again and again, by scripts and by people: it is
answered here, without importing what the other commands need. Everything else, and what fails, goes to the app of
all commands.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typer import Typer


def main() -> None:
    """The entry point. Leaves with 0, 1 (failed, or the gate holds) or 2 (usage)."""
    code = plain_status(sys.argv[1:])
    if code is not None:
        sys.exit(code)
    from tidegate.orchestration.commands.app import app

    if "--json" in sys.argv:
        sys.exit(_in_json(app))
    app()


def _in_json(app: Typer) -> int | None:
    """Run a command; what is wrong with its line is one JSON document, as its result would be. The exit status."""
    from typer.exceptions import Abort, TyperException

    from tidegate.orchestration.console.screen import FAILED, USAGE, wrong_usage

    try:
        return app(prog_name="tidegate", standalone_mode=False)
    except TyperException as error:
        sys.stdout.write(wrong_usage(error))
        return USAGE
    except Abort:
        return FAILED


def plain_status(arguments: Sequence[str]) -> int | None:
    """Run `tidegate status [SCRIPT] [--json] [--lake DIR]` and return its exit status; None, with nothing printed, if
    the command is another one, or if it fails."""
    asked = _asked(arguments)
    if asked is None:
        return None
    collects = gc.isenabled()
    gc.disable()  # little of what is loaded is garbage, and to look for it takes a tenth of the time
    try:
        return _answered(*asked)
    finally:
        if collects:
            gc.enable()


def _answered(as_json: bool, named: str | None, script: Path | None) -> int | None:
    from tidegate.pipelines.commands import commands_of, default_lake
    from tidegate.pipelines.errors import TidegateError
    from tidegate.pipelines.paths import plain, problem

    if named is not None and problem(named):
        return None
    lake = default_lake(script) if named is None else Path(plain(named))
    pipeline = None
    try:
        if script is not None:  # before Arrow: a script's own modules may need it with NumPy
            from tidegate.pipelines.runtime.scripts import load_script

            pipeline = load_script(script)
        with _without("numpy"):
            import pyarrow.parquet  # noqa: F401
        from tidegate.orchestration.console.shown import plainly
        from tidegate.pipelines.facts.problems import looked
        from tidegate.pipelines.lake import Lake

        folder = Lake(lake, create=False)
        if pipeline is not None:
            from tidegate.pipelines.runtime.definitions import as_stored

            pipeline, differing = as_stored(folder, pipeline)
            if differing:
                return None
        found, commands = looked(folder, pipeline), commands_of(script, lake)
        styled = sys.stdout.isatty() or os.environ.get("FORCE_COLOR") or os.environ.get("TTY_COMPATIBLE")
        text = None if styled and not as_json else plainly(found, commands, as_document=as_json)
        if text is None:
            from tidegate.orchestration.console.screen import Screen

            Screen(as_json, commands=commands).result(found)
        else:
            sys.stdout.write(text)
        code = 1 if any(problem.kind == "imbalanced" for problem in found.problems) else 0
        sys.stdout.flush()
    except (TidegateError, OSError, ValueError):
        return None
    gc.freeze()  # the process ends: to look through all that it has loaded for garbage takes a seventh of its time
    return code


def _asked(arguments: Sequence[str]) -> tuple[bool, str | None, Path | None] | None:
    """Whether a plain status is wanted as JSON, and of which lake and script; None where another command is meant."""
    if arguments[:1] != ["status"]:
        return None
    as_json, lake, script = False, os.environ.get("TIDEGATE_LAKE") or None, None
    rest = iter(arguments[1:])
    for argument in rest:
        if argument == "--json":
            as_json = True
        elif argument == "--lake":
            lake = next(rest, "")
        elif script is None and argument.endswith(".sql") and Path(argument).is_file():
            script = Path(argument)
        else:
            return None
    return None if lake == "" else (as_json, lake, script)


@contextmanager
def _without(name: str) -> Iterator[None]:
    """Make a module impossible to import in the block. Arrow works without NumPy, whose import takes longer than a
    status."""
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
