"""The `tidegate` command."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typer import Typer


def main() -> None:
    """The entry point. Leaves with 0, 1 (failed, or the gate holds) or 2 (usage)."""
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


if __name__ == "__main__":
    main()
