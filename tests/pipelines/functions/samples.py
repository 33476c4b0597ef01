"""Functions as a user might write them, right ones and wrong ones."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Optional

NUMBER = 7


def watermark_on_flag(rowtime: int, is_end_of_sequence: bool) -> int | None:
    """FLIP-66's example, "Complex watermark strategies": a watermark at the end of each sequence."""
    return rowtime if is_end_of_sequence else None


def watermark_on_moment(log_ts: datetime, flag: bool | None) -> datetime | None:
    return log_ts if flag else None


def half_an_hour_before(at: datetime) -> datetime:
    return at - timedelta(minutes=30)


def parsed(text: str, default: int = -1) -> int:
    return int(text) if text.isdecimal() else default


def inverse(number: float) -> float:
    return 1 / number


def never_mind(text: Optional[str], other: Optional[str] = None) -> str:  # noqa: UP045
    return text or other or "nothing"


def doubled(price: Decimal) -> Decimal:
    return price * 2


def day_before(day: date) -> date:
    return day - timedelta(days=1)


def reversed_bytes(octets: bytes) -> bytes:
    return octets[::-1]


@lru_cache
def cached(text: str) -> int:
    return len(text)


def answer() -> int:
    return 42


def exits_on_13(number: int) -> int:
    if number == 13:
        sys.exit("13 is unlucky")
    return number


def fails_on_13(number: int) -> int:
    if number == 13:
        raise ValueError(f"{number} is\nunlucky")
    return number


def fails_while(path: str, number: int) -> int:
    """Fails as long as there is a file: a function that is mended between two runs."""
    if os.path.exists(path) and number == 3:
        raise RuntimeError("not yet")
    return number * 10


def lies(number: int) -> int:
    return str(number)  # type: ignore[return-value]


def forgets(number: int) -> int:
    if number % 2:
        return number
    return None  # type: ignore[return-value]


def too_great(number: int) -> int:
    return number * 2**62


def too_many_digits(number: int) -> Decimal:
    return Decimal(10) ** number


# --- without a signature in SQL --------------------------------------------------------------------------------------


def no_annotation(number) -> int:
    return number


def no_result(number: int):
    return number


def any_number(*numbers: int) -> int:
    return sum(numbers)


def by_name(*, number: int) -> int:
    return number


def of_a_list(numbers: list[int]) -> int:
    return sum(numbers)


def gives_nothing(number: int) -> None:
    del number


def one_of_two(number: int | str) -> int:
    return int(number)


def unknown_word(number: "Nowhere") -> int:  # type: ignore[name-defined]  # noqa: F821, UP037
    return number


async def later(number: int) -> int:
    return number


def several(number: int) -> Iterator[int]:
    yield number


class Kind:
    """No function."""

    def __call__(self, number: int) -> int:
        return number + 1


plus_one = Kind()
