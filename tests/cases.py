"""Cases of a parametrised test, most of which run in `make test-all` alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def at_length(cases: Iterable[Any], fast: int = 1) -> list[Any]:
    """`cases` as parameters; `make test` runs the first `fast` of them, `make test-all` all.

    A case is one value, or a tuple of them. The first ones are those that show the promise.
    """

    def thorough(case: Any) -> Any:
        values = case if isinstance(case, tuple) else (case,)
        return pytest.param(*values, marks=pytest.mark.thorough)

    return [case if number < fast else thorough(case) for number, case in enumerate(cases)]
