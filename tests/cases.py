"""Which cases a test looks at: what runs in `make test-all` alone, and the seed of what is made at random."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

SEED = int(os.environ.get("TIDEGATE_SEED") or random.SystemRandom().randrange(10**9))
"""Of the stories that are made at random; a test prints it, and $TIDEGATE_SEED repeats it."""
AT_LENGTH = True
"""False in a run without thorough tests (tests/conftest.py says so before tests are read)."""


def at_length(cases: Iterable[Any], fast: int = 1) -> list[Any]:
    """`cases` as parameters; `make test` runs the first `fast` of them, `make test-all` all.

    A case is one value, or a tuple of them. The first ones are those that show the promise.
    """

    def thorough(case: Any) -> Any:
        values = case if isinstance(case, tuple) else (case,)
        return pytest.param(*values, marks=pytest.mark.thorough)

    return [case if number < fast else thorough(case) for number, case in enumerate(cases)]


def searched(examples: int) -> settings:
    """For a property whose examples take long: `make test` looks at a third of them, `make test-all` at all."""
    return settings(max_examples=examples if AT_LENGTH else examples // 3, deadline=None)
