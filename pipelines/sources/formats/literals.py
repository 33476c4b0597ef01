"""Python values as Spark SQL literals."""

from __future__ import annotations


def text(value: str) -> str:
    r"""A string literal.

    >>> print(text("it's a \\d"))
    'it\'s a \\d'
    """
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def options(given: dict[str, str]) -> str:
    """The MAP literal that from_json and from_csv take."""
    return f"map({', '.join(text(word) for pair in given.items() for word in pair)})"
