"""A pipeline from a file."""

from __future__ import annotations

from pathlib import Path

from pipelines.errors import PlanningError
from pipelines.sql import compile_script
from pipelines.sql.model import Pipeline


def pipeline_name(script: Path) -> str:
    """What a script's pipeline is called: its file's name, or its folder's where the file is just `pipeline.sql`."""
    return script.absolute().parent.name if script.stem == "pipeline" else script.stem


def load_script(script: Path, name: str | None = None) -> Pipeline:
    """Compile the script at `script`. Raises SqlError, and PlanningError when the file can not be read."""
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
