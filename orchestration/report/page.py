"""The page: one file of HTML, with its style and its pictures inside. Everything that is data is escaped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from html import escape
from importlib.resources import files
from typing import Any

from tidegate.orchestration.report.flow import flow
from tidegate.pipelines.commands import AS_WRITTEN, Advised, Commands, NextCommand, advice
from tidegate.pipelines.facts.report import LISTED, InsertFacts, Report, SourceFacts
from tidegate.pipelines.pictures import STYLE, outcomes
from tidegate.pipelines.pictures.svg import COLOURS, Line, Picture, Span, length, lying, step_chart, timeline
from tidegate.pipelines.records.kinds import Note, cells_of, columns_of
from tidegate.pipelines.runtime.status import InsertStatus
from tidegate.pipelines.text import moment, why
from tidegate.pipelines.watermarks import MAX_TIMESTAMP, MIN_TIMESTAMP

_PLACES = (("published", "good"), ("quarantined", "warn"), ("dropped", "mute"), ("waiting", "wait"))
_BADGES = {
    "passed": "good", "held": "bad", "none yet": "mute", "exactly": "good", "does not add up": "bad",
    "worked on": "wait",
}  # fmt: skip
"""Texts of cells that have a colour."""


def render(facts: Report, commands: Commands = AS_WRITTEN) -> str:
    """The whole document; `commands` fills in the script and the lake."""
    sections = [
        ("Flow", flow(facts), "Rows travel from left to right; a dashed line is a build side, which is joined to."),
        ("Where the rows are", _balance(facts), "Of every landed probe row, the one place that it is in."),
        ("Phases", _phases(facts), "A build side is loading until its flip is proved; from then on it is followed."),
        (
            "Watermarks",
            _watermarks(facts),
            "The last watermark of each source: no row at or before this time is still to come.",
        ),
        ("Lag", _lag(facts), "How far behind its source an epoch was when it landed."),
        ("Cuts", _cuts(facts), "The position in the source's log that the read view of each snapshot chunk equals."),
        (
            "Verdicts",
            "".join(_of_insert(item) for item in facts.inserts if item.epochs),
            "The gate's verdict on each staged epoch; the first one is final. Waiting: rows that had landed "
            "when an epoch was planned, and that it left for a later one.",
        ),
        ("Quarantine by reason", _quarantine(facts, commands), "Rows that the gate has quarantined, and why."),
        ("Problems", _problems(facts, commands), "What a person must know now, and what follows from what."),
    ]
    body = "".join(
        f"<section><h2>{escape(title)}</h2><p class=said>{escape(note)}</p>{content}</section>"
        for title, content, note in sections
        if content
    )
    style = files("tidegate.orchestration.report").joinpath("style.css").read_text(encoding="utf-8")
    name = escape(facts.pipeline.name)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{name}: Tidegate report</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}{style}</style></head><body><main>{_head(facts, commands)}{body}"
        f"<footer>Tidegate. Read from {escape(facts.status.lake)} at {moment(facts.status.at)} UTC. "
        "All times are UTC.</footer></main></body></html>\n"
    )


def _head(facts: Report, commands: Commands) -> str:
    status, totals = facts.status, facts.status.totals
    css, verdict = facts.verdict
    tiles = [
        ("landed, all sources", totals.landed, ""),
        ("published", totals.published, "good"),
        ("quarantined", totals.quarantined, "warn" if totals.quarantined else ""),
        ("dropped", totals.dropped, ""),
        ("waiting", totals.waiting, "wait" if totals.waiting else ""),
    ]
    shown = "".join(f'<div class="tile {css}"><b>{count:,}</b><span>{name}</span></div>' for name, count, css in tiles)
    to_do = said(facts.to_do, commands)
    return (
        f"<header><h1>{escape(facts.pipeline.name)}</h1><p class=when>Tidegate report, {moment(status.at)} UTC</p>"
        f'<p class="verdict {css}">{escape(verdict)}</p>{f"<section class=todo>{to_do}</section>" if to_do else ""}'
        f"<div class=tiles>{shown}</div></header>"
    )


def said(notes: Iterable[Note], commands: Commands) -> str:
    """What records say: a heading, its details, and commands that can be pasted."""
    found = []
    for note in notes:
        found.append(f"<h3>{escape(note.text)}</h3>" if note.text else "")
        found += [f"<p>{escape(line)}</p>" for line in note.details]
        found.append(f"<p class=next>{_typed(note.next, commands)}</p>" if note.next else "")
    return "".join(found)


def _typed(what: Advised, commands: Commands) -> str:
    """Each command as it is typed, what it does beside it."""
    found = []
    for part in advice(what).parts:
        if isinstance(part, NextCommand):
            does = f" ({escape(part.does)})" if part.does else ""
            found.append(f"<code>{escape(commands.shown(replace(part, does='')))}</code>{does}")
        else:
            found.append(escape(commands.shown(advice(part))))
    return "".join(found)


def table(rows: Sequence[Any], now: int = 0, more: Callable[[Any], dict[str, str]] = lambda row: {}) -> str:
    """Records of one kind, a column for each fact that is one; `more`: columns of this page alone, as HTML."""
    if not rows:
        return ""
    heads, columns = [], []
    for fact, name in columns_of(type(rows[0])):
        css = " class=n" if fact.right else ""
        for title, cells in cells_of(fact, name, rows, now):
            heads.append(f"<th{css}>{escape(title)}</th>")
            columns.append([f"<td{css}>{_cell(cell)}</td>" for cell in cells])
    heads += [f"<th>{escape(title)}</th>" for title in more(rows[0])]
    columns.append(["".join(f"<td>{html}</td>" for html in more(row).values()) for row in rows])
    lines = "".join(f"<tr>{''.join(cells)}</tr>" for cells in zip(*columns, strict=True))
    return f"<div class=wide><table><thead><tr>{''.join(heads)}</tr></thead><tbody>{lines}</tbody></table></div>"


def _cell(text: str) -> str:
    css = _BADGES.get(text)
    return escape(text) if css is None else f'<span class="badge {css}">{escape(text)}</span>'


# --- sections -----------------------------------------------------------------------------------------------------


def _balance(facts: Report) -> str:
    rows = [item for item in facts.status.inserts if item.rows is not None]
    key = Picture(0, "Where rows are", (), [(css, name) for name, css in _PLACES]).svg
    return table(rows, facts.status.at, _shares) + key if rows else ""


def _shares(item: InsertStatus) -> dict[str, str]:
    """Whether its rows add up, and their shares as a bar."""
    found = item.rows
    assert found is not None
    bars = "".join(
        f'<i class="{css}" style="width:{getattr(item, name) / found.landed * 100:.2f}%"></i>'
        for name, css in _PLACES
        if found.landed and getattr(item, name)
    )
    proved = "exactly" if found.balanced else "does not add up" if item.imbalanced else "worked on"
    # A process gives other rows than those that landed.
    return {"adds up": _cell(proved), "": "" if item.process else f'<div class="share">{bars}</div>'}


def _phases(facts: Report) -> str:
    rows: list[tuple[str, list[Span]]] = []
    for source in facts.sources:
        spans = []
        for phase in source.phases:
            again = f", generation {phase.generation}" if len(source.phases) > 1 else ""
            until = phase.flipped or phase.until
            what = "loading" if source.status.chunks or source.table.role == "build" else "landing"
            if phase.flipped is None:
                spans.append(Span("wait", phase.began, max(until, phase.began + 1), f"{what}{again}"))
                continue
            spans.append(Span("wait", phase.began, until, f"{what} {length(until - phase.began)}{again}"))
            spans.append(Span("good", until, max(phase.until, until + 1), f"followed from {moment(until)}{again}"))
        if spans:
            rows.append((source.table.name, spans))
    if not rows:
        return ""
    key = (("wait", "bounded phase"), ("good", "after the flip"))
    drawn = timeline(rows, "When each source was loading, and since when it is followed", key)
    return drawn.svg + table([source.flip for source in facts.sources if source.flip is not None])


def _watermarks(facts: Report) -> str:
    lines = [Line(source.table.name, _colour(n), _over_time(source)) for n, source in enumerate(facts.sources)]
    drawn = [line for line in lines if line.points]
    label = "The watermark of each source, by when it was emitted"
    chart = step_chart(drawn, label, facts.status.at).svg if drawn else ""
    return chart + table([source.watermark for source in facts.sources])


def _over_time(source: SourceFacts) -> list[tuple[float, float]]:
    return [
        (row.landed_at, row.timestamp)
        for row in source.log
        if not row.use_processing_time and MIN_TIMESTAMP < row.timestamp < MAX_TIMESTAMP
    ]


def _colour(number: int) -> str:
    """A source has one colour in all pictures."""
    return COLOURS[number % len(COLOURS)]


def _lag(facts: Report) -> str:
    lines = [
        Line(
            source.table.name, _colour(n), [(row.landed_at, row.lag_ms) for row in source.log if row.lag_ms is not None]
        )
        for n, source in enumerate(facts.sources)
    ]
    drawn = [line for line in lines if len(line.points) > 1]
    return step_chart(drawn, "How far behind each source was", facts.status.at, y_times=False).svg if drawn else ""


def _cuts(facts: Report) -> str:
    found = []
    for source in facts.sources:
        if source.cuts:
            cuts = source.cuts
            shown = cuts if len(cuts) <= LISTED else (*cuts[: LISTED - 1], cuts[-1])
            more = f"<p>… and {len(cuts) - len(shown):,} more.</p>" if len(cuts) > len(shown) else ""
            found.append(f"<h3>{escape(source.chunks)}</h3>{table(shown)}{more}")
    return "".join(found)


def _of_insert(item: InsertFacts) -> str:
    drawn = outcomes(item.epochs, item.left, item.waiting)
    return f"<h3>{escape(item.title)}</h3>{drawn.svg}{table(item.verdicts)}"


def _quarantine(facts: Report, commands: Commands) -> str:
    found = []
    for item in facts.status.inserts:
        reasons = dict(item.rows.quarantined) if item.rows else {}
        if reasons:
            bars = [(why(name), count, "warn") for name, count in sorted(reasons.items(), key=lambda pair: -pair[1])]
            look = NextCommand("quarantine show", (item.insert,), "the rows, and the nearest versions")
            drawn = lying(bars, f"Quarantined rows of {item.insert} by reason")
            found.append(f"<h3>{escape(item.insert)}</h3>{drawn.svg}{said([Note('', next=look)], commands)}")
    rejected = [(s.table.name, s.status.rejected, "warn") for s in facts.sources if s.status.rejected]
    if rejected:
        found.append("<h3>Messages that could not be read</h3>" + lying(rejected, "Rejected messages by source").svg)
    return "".join(found) or "<p>No row is in quarantine.</p>"


def _problems(facts: Report, commands: Commands) -> str:
    return table(facts.listed(commands)) or "<p>There is none.</p>"
