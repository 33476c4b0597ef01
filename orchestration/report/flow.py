"""The flow as a picture: sources, the join of each INSERT, its gate, and where the rows went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.pipelines.facts.report import InsertFacts, Report
from tidegate.pipelines.pictures.svg import WIDTH, Picture, shortened, text
from tidegate.pipelines.runtime.epochs.processed import Given
from tidegate.pipelines.runtime.status import InsertStatus, SourceStatus
from tidegate.pipelines.sql.model import ProcessInsert
from tidegate.pipelines.text import counted

_WIDE, _TALL, _GAP = 240, 72, 20
_COLUMNS = (2, 304, 560, WIDTH - _WIDE - 2)
_GATE_WIDE = 176


@dataclass(frozen=True)
class _Box:
    x: float
    y: float
    wide: float
    lines: Sequence[str]
    css: str

    def drawn(self) -> str:
        middle = self.y + _TALL / 2 - (len(self.lines) - 1) * 9
        notes = [
            text(
                self.x + 14,
                middle + 4 + number * 19,
                shortened(line, int(self.wide / 7)),
                "strong" if not number else "soft",
            )
            for number, line in enumerate(self.lines)
        ]
        card = (
            f'<rect x="{self.x}" y="{self.y:.1f}" width="{self.wide}" height="{_TALL}" rx="8" class="card {self.css}"/>'
        )
        return card + "".join(notes)


def flow(facts: Report) -> str:
    """A lane for each INSERT, from left to right; of a chain, one below the other."""
    parts: list[str] = [_ARROW]
    top = 8.0
    sources = {source.status.table: source.status for source in facts.sources}
    states = {item.insert: item for item in facts.status.inserts}
    writers = {name: found.insert.id for found in facts.inserts for name in found.insert.outputs}
    for found in facts.inserts:
        insert = found.insert
        names = [name for name in insert.inputs if name in sources or name in writers]
        rows = max(len(names), 2)
        tall = rows * (_TALL + _GAP) - _GAP
        middle = top + (tall - _TALL) / 2
        join = _Box(_COLUMNS[1], middle, 216, _join_lines(found), "")
        gate = _Box(_COLUMNS[2], middle, _GATE_WIDE, *_gate(states[insert.id]))
        ends = _ends(states[insert.id], insert.target, top + (tall - 2 * _TALL - _GAP) / 2)
        boxes = [join, gate, *ends]
        for number, name in enumerate(names):
            offset = (tall - len(names) * (_TALL + _GAP) + _GAP) / 2
            if name in writers:
                shown = _target_lines(name, states[writers[name]], states[insert.id])
            else:
                shown = _source_lines(sources[name], not number), ""
            box = _Box(_COLUMNS[0], top + offset + number * (_TALL + _GAP), _WIDE, *shown)
            boxes.append(box)
            parts.append(_arrow(box, join, "" if not number else "dashed"))
        parts.append(_arrow(join, gate))
        parts += [_arrow(gate, end) for end in ends]
        parts += [box.drawn() for box in boxes]
        top += tall + 36
    return Picture(top - 20, "From the sources through join and gate to the target", parts).svg


_ARROW = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0L8 4L0 8z" class="tip"/></marker></defs>'
)


def _arrow(start: _Box, end: _Box, css: str = "") -> str:
    x1, y1 = start.x + start.wide, start.y + _TALL / 2
    x2, y2 = end.x - 2, end.y + _TALL / 2
    bend = (x2 - x1) / 2
    path = f"M{x1:.1f} {y1:.1f}C{x1 + bend:.1f} {y1:.1f} {x2 - bend:.1f} {y2:.1f} {x2:.1f} {y2:.1f}"
    return f'<path d="{path}" class="arrow {css}" marker-end="url(#tip)"/>'


def _target_lines(name: str, writer: InsertStatus, reader: InsertStatus) -> tuple[list[str], str]:
    """A target that a statement reads, as the statement above it has left it: its lines and its colour."""
    waits = writer.insert in reader.waits_for_inserts
    lines = [name, f"target of {writer.insert}", f"{counted(writer.published or 0, 'row')} published"]
    return lines, ("bad" if writer.held else "wait") if waits else ""


def _source_lines(source: SourceStatus, probe: bool) -> list[str]:
    rows = f"{counted(source.rows, 'row')} landed"
    if probe:
        return [source.table, "probe", rows]
    if source.flip is not None:
        return [source.table, "build, complete", rows]
    if source.chunks is not None:
        return [source.table, f"build, loading: {source.chunks}", rows]
    return [source.table, "build, loading" if source.planned else "build, not started", rows]


def _join_lines(found: InsertFacts) -> list[str]:
    insert = found.insert
    if isinstance(insert, ProcessInsert):
        shown = insert.windowed.table.kind if insert.windowed else insert.process.shape.name
        return [insert.id, shown, f"{counted(found.planned, 'epoch')} planned"]
    if not insert.joins:
        return [insert.id, "no join"]
    kinds = " and ".join(dict.fromkeys(join.kind for join in insert.joins))
    times = " and ".join(sorted({join.time for join in insert.joins}))
    return [insert.id, f"{kinds} join by {times} time", f"{counted(found.planned, 'epoch')} planned"]


def _gate(status: InsertStatus) -> tuple[list[str], str]:
    """Its lines and its colour."""
    if status.held:
        return ["Gate: held", f"epoch {status.epoch}"], "bad"
    awaited = [f"waits for {', '.join(names)}" for names in (status.waits_for, status.waits_for_inserts) if names]
    if awaited:
        return ["Gate: closed", *awaited], "wait"
    return ["Gate", f"last epoch {status.state}" if status.state else "nothing staged yet"], "good"


def _ends(status: InsertStatus, target: str, top: float) -> list[_Box]:
    rows = status.rows
    given = rows.into(0) if rows else Given()
    return [
        _Box(_COLUMNS[3], top, _WIDE, [target, f"{counted(given.published, 'row')} published"], "good"),
        _Box(
            _COLUMNS[3],
            top + _TALL + _GAP,
            _WIDE,
            ["quarantine", counted(given.quarantined, "row")],
            "warn" if given.quarantined else "",
        ),
    ]
