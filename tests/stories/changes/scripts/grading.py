"""What `grades.sql` calls."""

LIMIT = 10


def grade(price: int) -> str:
    """How dear something is."""
    return "dear" if price > LIMIT else "cheap"


def shouted(word: str) -> str:
    return word + "!"


def whispered(word: str) -> str:
    return word + "."
