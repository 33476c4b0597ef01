"""A picture in a page that has a style for it (`STYLE`), or by itself in Markdown."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from importlib.resources import files

from tidegate.pipelines.pictures.svg import LEFT, text

STYLE = files("tidegate.pipelines.pictures").joinpath("style.css").read_text(encoding="utf-8")
"""The style of everything that `svg` draws."""

_SHOWN = 820
"""Pixels across, where a page does not say how wide."""
_KEY_HEIGHT, _LETTER = 30, 7.5


def markdown(picture: str, said: str, key: Sequence[tuple[str, str]]) -> str:
    """`picture` (an SVG element) as an image of a Markdown text, with its style and its key (class, what it means)
    inside; `said` stands where no image can be seen."""
    found = re.match(r'<svg viewBox="0 0 (\d+) (\d+)"(.*)</svg>$', picture, re.DOTALL)
    assert found is not None, "not drawn by svg.picture"
    width, height, rest = int(found.group(1)), int(found.group(2)), found.group(3)
    whole = height + _KEY_HEIGHT
    head, _, drawn = rest.partition(">")
    alone = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {whole}" width="{_SHOWN}" '
        f'height="{whole * _SHOWN // width}"{head}><style>{STYLE}</style>{drawn}{_key(key, height + 18)}</svg>'
    )
    return f"![{said}](data:image/svg+xml;base64,{b64encode(alone.encode()).decode()})"


def _key(entries: Sequence[tuple[str, str]], y: float) -> str:
    parts, x = [], float(LEFT)
    for css, name in entries:
        parts.append(f'<rect x="{x:.0f}" y="{y - 10:.0f}" width="11" height="11" rx="3" class="{css}"/>')
        parts.append(text(x + 17, y, name, "tick"))
        x += 17 + _LETTER * len(name) + 18
    return "".join(parts)
