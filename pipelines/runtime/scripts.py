"""A pipeline from a file: a SQL script, or a Python file that has made one of it."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path

from pipelines.errors import PlanningError, TidegateError
from pipelines.sql import compile_script
from pipelines.sql.model import Pipeline

PYTHON = ".py"
NAME = "pipeline"
"""What a Python file calls its Pipeline."""


def pipeline_name(script: Path) -> str:
    """What a script's pipeline is called: its file's name, or its folder's where the file is just `pipeline.sql`."""
    return script.absolute().parent.name if script.stem == "pipeline" else script.stem


def load_script(script: Path, name: str | None = None) -> Pipeline:
    """Compile the SQL script at `script`, or run the Python file there and take its `pipeline`, whose strategies in
    Python no SQL can say; it has the name that it was made with.

    Raises SqlError, and PlanningError when the file can not be read or run, or has no `pipeline`.
    """
    if script.suffix == PYTHON:
        made = _made(script)
        return made if name is None else replace(made, name=name)
    try:
        text = script.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise PlanningError(
            f"the script can not be read: {reason}",
            where=str(script),
            state="nothing was run",
            next_command="give the path of a SQL script",
        ) from error
    return compile_script(text, name=name or pipeline_name(script), path=str(script))


def _made(script: Path) -> Pipeline:
    try:
        found = runpy.run_path(str(script)).get(NAME)
    except TidegateError:
        raise
    except Exception as error:
        raise _problem(script, f"the script failed: {type(error).__name__}: {error}") from error
    if not isinstance(found, Pipeline):
        raise _problem(script, f"the script has no `{NAME}`" if found is None else f"`{NAME}` is no Pipeline")
    return found


def _problem(script: Path, what: str) -> PlanningError:
    return PlanningError(
        what,
        where=str(script),
        state="nothing was run",
        next_command=f'correct it: {NAME} = load_script(Path(__file__).with_name("clicks.sql")).with_strategy(…)',
    )
