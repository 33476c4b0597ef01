"""What a user function said when it failed, out of what Spark throws."""

from __future__ import annotations

import re

_TOLD = re.compile(r"^\S*\bFunctionFailed: (?P<told>.+)$", re.MULTILINE)


def failure(error: BaseException) -> str | None:
    """The sentence of a FunctionFailed that was raised on a worker: function, split, offset and reason.

    None for an error that no user function caused.
    """
    found = _TOLD.search(str(error))
    return found["told"].strip() if found else None
