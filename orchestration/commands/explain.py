"""`tidegate explain`: what a script means, without running any of it."""

from __future__ import annotations

from orchestration.commands.options import AsJson, Debug, Script, examples
from orchestration.console import Screen, reported

EPILOG = examples("tidegate explain pipeline.sql", "tidegate explain pipeline.sql --json")


def explain(script: Script, as_json: AsJson = False, debug: Debug = False) -> None:
    """Check a script and show its tables, joins and what its gate does. Connects to nothing, starts nothing.

    Whatever can be known before running is found here, with its line and column.
    """
    from rich.text import Text

    from orchestration.console.explained import of_pipeline
    from pipelines.runtime.scripts import load_script
    from pipelines.sql import explain as in_words

    screen = Screen(as_json, debug)
    with reported(screen):
        pipeline = load_script(script)
        screen.result(of_pipeline(pipeline), Text(in_words(pipeline)))
