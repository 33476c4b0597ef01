"""What `grades.sql` calls."""

LIMIT = 10


def grade(price: int) -> str:
    """How dear something is."""
    return "dear" if price > LIMIT else "cheap"
