"""What a person sees of the `tidegate` command: bars and messages on stderr, results on stdout."""

from orchestration.console.bars import Bars
from orchestration.console.failures import reported
from orchestration.console.screen import Screen

__all__ = ["Bars", "Screen", "reported"]
