"""A picture in a page that has a style for it (`STYLE`), or by itself in Markdown."""

from __future__ import annotations

from base64 import b64encode
from importlib.resources import files

STYLE = files("pipelines.pictures").joinpath("style.css").read_text(encoding="utf-8")
"""The style of everything that `svg` draws."""


def markdown(picture: str, said: str, key: str = "") -> str:
    """`picture` (an SVG element) as an image of a Markdown text, with its style inside; `key` is a line below it."""
    alone = picture.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    alone = alone.replace(">", f"><style>{STYLE}</style>", 1)
    image = f"![{said}](data:image/svg+xml;base64,{b64encode(alone.encode()).decode()})"
    return f"{image}\n\n{key}" if key else image
