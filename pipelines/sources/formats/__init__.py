"""Formats: how the bytes of a message become rows of a table."""

from tidegate.pipelines.sources.formats.format import (
    DECODED,
    VALUE,
    Format,
    FormatSpec,
    Wanted,
    metadata_column,
    wanted,
)
from tidegate.pipelines.sources.formats.registry import format_named, format_options, metadata_of, problems

__all__ = [
    "DECODED",
    "VALUE",
    "Format",
    "FormatSpec",
    "Wanted",
    "format_named",
    "format_options",
    "metadata_column",
    "metadata_of",
    "problems",
    "wanted",
]
