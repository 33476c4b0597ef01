"""Numbers that count how often they are compared: what a record costs, without a clock."""

from __future__ import annotations

from typing import Any, ClassVar


class Counted(int):
    """What is reckoned with one is one, too."""

    comparisons: ClassVar[int] = 0

    def __add__(self, other: Any) -> Counted:
        return Counted(int(self) + int(other))

    def __sub__(self, other: Any) -> Counted:
        return Counted(int(self) - int(other))

    def __lt__(self, other: Any) -> bool:
        Counted.comparisons += 1
        return int(self) < int(other)

    def __le__(self, other: Any) -> bool:
        Counted.comparisons += 1
        return int(self) <= int(other)

    def __gt__(self, other: Any) -> bool:
        Counted.comparisons += 1
        return int(self) > int(other)

    def __ge__(self, other: Any) -> bool:
        Counted.comparisons += 1
        return int(self) >= int(other)
