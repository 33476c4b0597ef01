"""What a person sees of the `tidegate` command: bars and messages on stderr, results on stdout."""

from tidegate.orchestration.console.bars import Bars
from tidegate.orchestration.console.failures import reported
from tidegate.orchestration.console.screen import Screen

__all__ = ["Bars", "Screen", "reported"]
