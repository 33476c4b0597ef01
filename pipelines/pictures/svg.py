"""Pictures as inline SVG: no scripts, no fonts, nothing from elsewhere. Colours are classes of the page's style."""

from __future__ import annotations

import datetime as dt
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files

from tidegate.pipelines.text import seconds
from tidegate.pipelines.watermarks.watermark import instant

WIDTH = 1040
LEFT, RIGHT, TOP, BOTTOM = 150, 24, 16, 34
COLOURS = ("c0", "c1", "c2", "c3", "c4", "c5")
STYLE = files("tidegate.pipelines.pictures").joinpath("style.css").read_text(encoding="utf-8")
"""The style of everything that is drawn here."""
_SHOWN = 820
"""Pixels across, where a page does not say how wide."""
_KEY_HEIGHT, _LETTER = 30, 7.5


@dataclass(frozen=True)
class Line:
    """A line of (x, y) in ms or numbers; drawn in steps, since a watermark holds until the next."""

    name: str
    css: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Bar:
    """A stacked bar: (class, length) from the bottom; `title` is shown under the pointer."""

    label: str
    parts: Sequence[tuple[str, float]]
    title: str


@dataclass(frozen=True)
class Span:
    """A stretch of a row in a time line."""

    css: str
    begin: float
    end: float
    text: str


def text(x: float, y: float, content: str, css: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{css}" text-anchor="{anchor}">{escape(content)}</text>'


@dataclass(frozen=True)
class Picture:
    """What is drawn, with its key (class, what it means) below it; `label` is read where no image can be seen."""

    height: float
    label: str
    parts: Sequence[str]
    key: Sequence[tuple[str, str]] = ()

    @property
    def svg(self) -> str:
        """For a page that has STYLE."""
        return self._element()

    def markdown(self) -> str:
        """As an image of a Markdown text, with the style inside."""
        alone = self._element(f'xmlns="http://www.w3.org/2000/svg" width="{_SHOWN}" ', f"<style>{STYLE}</style>")
        return f"![{self.label}](data:image/svg+xml;base64,{b64encode(alone.encode()).decode()})"

    def _element(self, alone: str = "", style: str = "") -> str:
        key, lines = _key(self.key, self.height)
        whole = self.height + lines * _KEY_HEIGHT
        size = f'height="{whole * _SHOWN // WIDTH:.0f}" ' if alone else ""
        return (
            f'<svg {alone}{size}viewBox="0 0 {WIDTH} {whole:.0f}" role="img" '
            f'aria-label="{escape(self.label, quote=True)}">{style}{"".join(self.parts)}{"".join(key)}</svg>'
        )


def _key(entries: Sequence[tuple[str, str]], y: float) -> tuple[list[str], int]:
    """It below `y`, and how many lines it has."""
    parts, x, line = [], float(LEFT), 0
    for css, name in entries:
        wide = 17 + _LETTER * len(name) + 18
        if x + wide > WIDTH and x > LEFT:
            x, line = float(LEFT), line + 1
        at = y + 18 + line * _KEY_HEIGHT
        parts.append(f'<rect x="{x:.0f}" y="{at - 10:.0f}" width="11" height="11" rx="3" class="{css}"/>')
        parts.append(text(x + 17, at, name, "tick"))
        x += wide
    return parts, line + 1 if entries else 0


class Scale:
    """From values to places. A scale without any width shows all in its middle."""

    def __init__(self, low: float, high: float, begin: float, end: float) -> None:
        self.low, self.high, self.begin, self.end = low, high, begin, end

    def __call__(self, value: float) -> float:
        if self.high <= self.low:
            return (self.begin + self.end) / 2
        return self.begin + (value - self.low) / (self.high - self.low) * (self.end - self.begin)


def time_axis(scale: Scale, y: float) -> list[str]:
    """Marks at round times (ms, UTC)."""
    found = []
    for at in round_times(scale.low, scale.high):
        x = scale(at)
        found.append(f'<line x1="{x:.1f}" y1="{TOP:.1f}" x2="{x:.1f}" y2="{y:.1f}" class="grid"/>')
        found.append(text(min(x, WIDTH - 40), y + 18, moment(at, scale.high - scale.low), "tick", "middle"))
    return found


_HOUR, _DAY = 3600, 86400
_STEPS_S = (
    1,
    2,
    5,
    10,
    30,
    60,
    120,
    300,
    600,
    1800,
    *(_HOUR * n for n in (1, 2, 6, 12)),
    *(_DAY * n for n in (1, 2, 7, 30, 365)),
)


def round_times(low: float, high: float, most: int = 7) -> list[float]:
    """Round instants between two (ms), at most `most`."""
    if high <= low:
        return [low]
    step = next((s * 1000 for s in _STEPS_S if (high - low) / (s * 1000) <= most), _STEPS_S[-1] * 1000)
    first = -(-low // step) * step
    return [first + step * number for number in range(int((high - first) // step) + 1)] or [low]


def moment(at: float, span: float) -> str:
    """A time (ms, UTC), as exact as a span of time asks for."""
    try:
        when = dt.datetime.fromtimestamp(at / 1000, dt.UTC)
    except (OverflowError, ValueError):  # outside of the years 1 to 9999
        return instant(round(at))
    if span < 120_000:
        return when.strftime("%H:%M:%S")
    if span < 86_400_000:
        return when.strftime("%H:%M")
    return when.strftime("%d %b %H:%M" if span < 864_000_000 else "%d %b %Y")


def step_chart(lines: Sequence[Line], label: str, now: float, y_times: bool = True) -> Picture:
    """Lines over time; the y axis is time as well, or a number."""
    drawn = [line for line in lines if line.points]
    height = 300
    xs = [x for line in drawn for x, _ in line.points]
    ys = [y for line in drawn for _, y in line.points]
    across = Scale(min(xs), max([*xs, now]), LEFT, WIDTH - RIGHT)
    low, high = (min(ys), max(ys)) if y_times else (0.0, max([*ys, 1.0]))
    up = Scale(low, high, height - BOTTOM, TOP + 8)
    parts = time_axis(across, height - BOTTOM)
    marks = round_times(low, high, 5) if y_times else [low, (low + high) / 2, high]
    for mark in marks:
        y = up(mark)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" class="grid"/>')
        parts.append(text(LEFT - 10, y + 4, moment(mark, high - low) if y_times else length(mark), "tick", "end"))
    for line in drawn:
        css = line.css
        path = [f"M{across(line.points[0][0]):.1f} {up(line.points[0][1]):.1f}"]
        path += [f"H{across(x):.1f}V{up(y):.1f}" for x, y in line.points[1:]]
        path.append(f"H{across(now):.1f}")
        parts.append(f'<path d="{"".join(path)}" class="line {css}"/>')
        for x, y in line.points if len(line.points) <= 60 else ():
            parts.append(f'<circle cx="{across(x):.1f}" cy="{up(y):.1f}" r="3" class="dot {css}"/>')
    return Picture(height, label, parts, [(line.css, line.name) for line in drawn])


def length(value_ms: float) -> str:
    """A length of time (ms)."""
    return f"{value_ms:.0f} ms" if value_ms < 1000 else seconds(value_ms)


def timeline(rows: Sequence[tuple[str, Sequence[Span]]], label: str, key: Sequence[tuple[str, str]] = ()) -> Picture:
    """A row of stretches each, over one axis of time."""
    ends = [at for _, spans in rows for span in spans for at in (span.begin, span.end)]
    across = Scale(min(ends), max(ends), LEFT, WIDTH - RIGHT)
    height = TOP + len(rows) * 40 + BOTTOM
    parts = time_axis(across, height - BOTTOM)
    for number, (name, spans) in enumerate(rows):
        y = TOP + number * 40 + 8
        parts.append(text(LEFT - 12, y + 17, shortened(name, 20), "name", "end"))
        for span in spans:
            x, width = across(span.begin), max(across(span.end) - across(span.begin), 3.0)
            title = f"<title>{escape(span.text)}</title>"
            parts.append(
                f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="24" rx="4" class="{span.css}">{title}</rect>'
            )
            if len(span.text) * 6.6 < width:
                parts.append(text(x + 8, y + 16, span.text, "on"))
    return Picture(height, label, parts, key)


def stacked(bars: Sequence[Bar], label: str, key: Sequence[tuple[str, str]] = ()) -> Picture:
    """Upright stacked bars, the newest at the right."""
    height = 250
    highest = max((sum(size for _, size in bar.parts) for bar in bars), default=1) or 1
    up = Scale(0, highest, height - BOTTOM, TOP + 8)
    slot = (WIDTH - LEFT - RIGHT) / max(len(bars), 8)
    parts = []
    for mark in (0, highest / 2, highest):
        y = up(mark)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" class="grid"/>')
        parts.append(text(LEFT - 10, y + 4, f"{mark:,.0f}", "tick", "end"))
    every = -(-len(bars) // 16)
    for number, bar in enumerate(bars):
        x, y = LEFT + number * slot + slot * 0.15, up(0)
        parts.append(f"<g><title>{escape(bar.title)}</title>")
        for css, size in bar.parts:
            tall = up(0) - up(size)
            if size:
                y -= tall
                size_of = f'width="{slot * 0.7:.1f}" height="{max(tall, 1.0):.1f}"'
                parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" {size_of} class="{css}"/>')
        parts.append("</g>")
        if number % every == 0:
            parts.append(text(x + slot * 0.35, height - BOTTOM + 18, bar.label, "tick", "middle"))
    return Picture(height, label, parts, key)


def lying(bars: Sequence[tuple[str, int, str]], label: str) -> Picture:
    """Lying bars: (name, count, class)."""
    highest = max(count for _, count, _ in bars)
    across = Scale(0, highest, 0, WIDTH - 330 - 120)
    parts = []
    for number, (name, count, css) in enumerate(bars):
        y = number * 32 + 4
        parts.append(text(318, y + 17, shortened(name, 46), "name", "end"))
        parts.append(f'<rect x="330" y="{y}" width="{max(across(count), 2):.1f}" height="24" rx="3" class="{css}"/>')
        parts.append(text(330 + max(across(count), 2) + 8, y + 17, f"{count:,}", "count"))
    return Picture(len(bars) * 32 + 8, label, parts)


def shortened(name: str, most: int) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"
