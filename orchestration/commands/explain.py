"""`tidegate explain`: what a script means, without running any of it."""

from __future__ import annotations

from orchestration.commands.options import AsJson, Debug, Script, examples
from orchestration.console import Screen, reported

EPILOG = examples("tidegate explain pipeline.sql", "tidegate explain pipeline.sql --json")


def explain(script: Script, as_json: AsJson = False, debug: Debug = False) -> None:
    """Check a script and show its tables, watermarks, functions, joins and what its gate does; then every statement.

    The statements are DESCRIBE and SHOW CREATE of each table and function. It connects to nothing and runs nothing;
    modules that CREATE FUNCTION names are imported.

    Whatever can be known before running is found here, with its line and column.
    """
    from rich.text import Text

    from orchestration.console.explained import of_pipeline
    from pipelines.runtime.scripts import load_script
    from pipelines.sql import explain as in_words
    from pipelines.sql import show_statements

    screen = Screen(as_json, debug)
    with reported(screen):
        pipeline = load_script(script)
        screen.result(of_pipeline(pipeline), Text(in_words(pipeline)), Text(show_statements(pipeline)))
