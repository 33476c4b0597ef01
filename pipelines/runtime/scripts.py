"""A pipeline from a file: a SQL script, or a Python file that defines `pipeline`."""

from __future__ import annotations

import runpy
import sys
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path

from tidegate.names import new_spelling
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import PlanningError, TidegateError
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.sql.compile import Pipeline

PYTHON = ".py"
NAME = "pipeline"
"""The name of the Pipeline in a Python file."""


def pipeline_name(script: Path) -> str:
    """The name of a script's pipeline: its file's name, or its folder's if the file is just `pipeline.sql`."""
    return script.absolute().parent.name if script.stem == "pipeline" else script.stem


def load_script(script: Path, name: str | None = None) -> Pipeline:
    """Compile the script at `script`; a file called *.py is run, and its `pipeline` is taken.

    Raises SqlError, and PlanningError if the file cannot be read, or run.
    """
    if script.suffix == PYTHON:
        return _of_python(script, name)
    try:
        text = script.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise PlanningError(
            f"the script cannot be read: {reason}",
            where=str(script),
            state="nothing was run",
            next_command="give the path of a SQL script",
        ) from error
    return compile_script(text, name=name or pipeline_name(script), path=str(script))


def _of_python(script: Path, name: str | None) -> Pipeline:
    """What a Python file calls `pipeline`: a script's, to which processes were added (`Pipeline.process`)."""
    try:
        with redirect_stdout(sys.stderr):  # stdout belongs to the command's result
            found = runpy.run_path(str(script.absolute()), run_name="tidegate_pipeline").get(NAME)
    except TidegateError:
        raise
    except (Exception, SystemExit) as error:  # a file of the user's own may raise anything while it is run
        message = (str(error).splitlines() or [""])[0]
        raise PlanningError(
            f"the file cannot be run: {type(error).__name__}{f': {message}' if message else ''}",
            where=str(script),
            state="nothing was run",
            next_command=new_spelling(error) or f"python {script}   (shows where)",
        ) from error
    if not isinstance(found, Pipeline):
        raise PlanningError(
            "the file leaves no `pipeline` behind",
            where=str(script),
            state="nothing was run",
            next_command="pipeline = load_script(Path('tables.sql')).process(…)",
        )
    return replace(at_home(found, script), name=name or pipeline_name(script))


def at_home(pipeline: Pipeline, script: Path) -> Pipeline:
    """The same pipeline; relative paths of tables that come from no file begin beside `script`."""
    home = str(script.absolute().parent)
    return replace(pipeline, tables={name: _home(table, home) for name, table in pipeline.tables.items()})


def _home(table: Table, home: str) -> Table:
    return table if table.home else replace(table, home=home, parts=tuple(_home(part, home) for part in table.parts))
