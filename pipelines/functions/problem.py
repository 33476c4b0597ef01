"""What is wrong with a function that a script names."""

from __future__ import annotations


class FunctionProblem(ValueError):
    """A function that can not be had, or that has no signature in SQL. The compiler adds line and column.

    Attributes:
        what: One sentence.
        hint: What to do about it.
    """

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint
