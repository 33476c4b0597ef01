"""When a row is due: the first `at_start` rows at the first plan, then `rate` a second, until `limit`."""

from __future__ import annotations

from dataclasses import dataclass

SECOND_US = 1_000_000


@dataclass(frozen=True)
class Schedule:
    """Row i is due at base + max(i - at_start, 0) / rate seconds, where base is the instant of the first plan.

    `limit` is how many rows there are at all; None for no end.
    """

    rate: int
    at_start: int = 0
    limit: int | None = None

    def count(self, elapsed_ms: int) -> int:
        """How many rows are due `elapsed_ms` after the first plan: rows 0 to count - 1."""
        due = self.at_start + self.rate * max(elapsed_ms, 0) // 1000
        return due if self.limit is None else min(due, self.limit)

    def due_us(self, row: int) -> int:
        """When `row` is due, in microseconds after the first plan."""
        return max(row - self.at_start, 0) * SECOND_US // self.rate

    def due_us_sql(self, base_ms: int, row: str) -> str:
        """The same in Spark SQL, as microseconds since the epoch. `row` is SQL, BIGINT."""
        after_start = f"greatest({row} - {self.at_start}L, 0L)"
        # Whole seconds apart, since rows * 1,000,000 would overflow in a table that has run for long.
        whole = f"({after_start} DIV {self.rate}L) * {SECOND_US}L"
        rest = f"(({after_start} % {self.rate}L) * {SECOND_US}L) DIV {self.rate}L"
        return f"({base_ms * 1000}L + {whole} + {rest})"
