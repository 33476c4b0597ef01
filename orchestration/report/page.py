"""The page: one file of HTML, with its style and its pictures inside. Everything that is data is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files

from tidegate.orchestration.report.facts import Facts, InsertFacts, SourceFacts
from tidegate.orchestration.report.flow import flow
from tidegate.pipelines.commands import AS_WRITTEN, RUN, Commands, NextCommand
from tidegate.pipelines.facts.problem import Problem, roots
from tidegate.pipelines.pictures import OUTCOMES_KEY, STYLE, outcomes
from tidegate.pipelines.pictures.svg import COLOURS, Line, Span, legend, length, lying, step_chart, timeline
from tidegate.pipelines.runtime.epochs.history import ReleasedEpoch
from tidegate.pipelines.text import counted, moment, why
from tidegate.pipelines.watermarks import MAX_TIMESTAMP, MIN_TIMESTAMP
from tidegate.pipelines.watermarks.watermark import instant

LISTED = 12
_PLACES = (("published", "good"), ("quarantined", "warn"), ("dropped", "mute"), ("waiting", "wait"))


def render(facts: Facts, commands: Commands = AS_WRITTEN) -> str:
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


def _head(facts: Facts, commands: Commands) -> str:
    status, totals = facts.status, facts.status.totals
    problems = roots(facts.problems)
    if failing := [problem for problem in problems if problem.fails]:
        css, verdict = "bad", _first_of(failing)
    elif waits := _awaited(facts):
        css, verdict = "wait", f"Waiting for {' and '.join(waits)}: no row is released before its flip."
    elif problems:
        css, verdict = "wait", _first_of(problems)
    elif not any(item.state for item in status.inserts):
        css, verdict = "wait", "Nothing is published yet."
    else:
        css, verdict = "good", "Everything that may be released is published. Nothing is held."
    tiles = [
        ("landed, all sources", totals.landed, ""),
        ("published", totals.published, "good"),
        ("quarantined", totals.quarantined, "warn" if totals.quarantined else ""),
        ("dropped", totals.dropped, ""),
        ("waiting", totals.waiting, "wait" if totals.waiting else ""),
    ]
    shown = "".join(f'<div class="tile {css}"><b>{count:,}</b><span>{name}</span></div>' for name, count, css in tiles)
    return (
        f"<header><h1>{escape(facts.pipeline.name)}</h1><p class=when>Tidegate report, {moment(status.at)} UTC</p>"
        f'<p class="verdict {css}">{escape(verdict)}</p>{_to_do(facts, commands)}'
        f"<div class=tiles>{shown}</div></header>"
    )


def _first_of(problems: Sequence[Problem]) -> str:
    title = problems[0].title
    if problems[0].kind == "gate-held":  # others begin with a name
        title = f"{title[:1].upper()}{title[1:]}"
    more = f" And {counted(len(problems) - 1, 'problem')} more." if len(problems) > 1 else ""
    return title + more


def _awaited(facts: Facts) -> list[str]:
    return sorted({build for item in facts.status.inserts for build in item.waits_for})


def _to_do(facts: Facts, commands: Commands) -> str:
    """What a person can do now, after the reasons: enough to go on without reading the rest of the page."""
    status, parts = facts.status, list[str]()
    for problem in roots(facts.problems):
        parts.append(f"<h3>{escape(problem.title)}</h3>")
        parts += [f"<p>{escape(text)}</p>" for text in problem.text]
        parts += [f"<p class=next><code>{escape(line)}</code></p>" for line in commands.all(problem.next)]
    sources = {source.table.name: source.status for source in facts.sources}
    for build in _awaited(facts):
        holder = sources[build].holder if build in sources else None
        if holder:
            parts.append(f"<h3>{escape(build)} is being loaded by {escape(holder)}</h3>")
        else:
            parts.append(f"<h3>Nobody loads {escape(build)}</h3>")
            parts.append(_next(commands, RUN, "goes on where the last run stopped"))
    if not parts and not any(item.state for item in status.inserts):
        parts.append(_next(commands, RUN, "lands what the sources have, and releases what may be released"))
    return f"<section class=todo>{''.join(parts)}</section>" if parts else ""


def _next(commands: Commands, command: NextCommand, what: str) -> str:
    """A command that can be pasted, and what it does."""
    return f"<p class=next><code>{escape(commands.shown(command))}</code> {escape(what)}</p>"


# --- tables -------------------------------------------------------------------------------------------------------


def table(headers: Sequence[str], rows: Sequence[Sequence[object]], numbers: Sequence[int] = ()) -> str:
    """A table; `numbers` are columns that stand at the right. Cells are escaped, but for `Raw`."""
    heads = "".join(f"<th{_right(n, numbers)}>{escape(name)}</th>" for n, name in enumerate(headers))
    lines = "".join(
        "<tr>" + "".join(f"<td{_right(n, numbers)}>{_cell(value)}</td>" for n, value in enumerate(row)) + "</tr>"
        for row in rows
    )
    return f"<div class=wide><table><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table></div>"


class Raw(str):
    """HTML that this module made."""


def _right(number: int, numbers: Sequence[int]) -> str:
    return " class=n" if number in numbers else ""


def _cell(value: object) -> str:
    if isinstance(value, Raw):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return escape(str(value))


def badge(text: str, css: str) -> Raw:
    return Raw(f'<span class="badge {css}">{escape(text)}</span>')


# --- sections -----------------------------------------------------------------------------------------------------


def _balance(facts: Facts) -> str:
    rows = []
    for item in facts.status.inserts:
        if item.rows is None:
            continue
        found = item.rows
        counts = (found.published, found.rows_quarantined, sum(found.dropped.values()), found.waiting)
        wrong = badge("does not add up", "bad") if item in facts.status.imbalanced else badge("worked on", "wait")
        bars = "".join(
            f'<i class="{css}" style="width:{count / found.landed * 100:.2f}%"></i>'
            for (_, css), count in zip(_PLACES, counts, strict=True)
            if found.landed and count
        )
        # A process gives other rows than those that landed.
        share = "" if item.process else f'<div class="share">{bars}</div>'
        proved = badge("exactly", "good") if found.balanced else wrong
        rows.append((item.insert, found.landed, *counts, proved, Raw(share)))
    headers = ("INSERT", "landed", "published", "quarantined", "dropped", "waiting", "adds up", "")
    key = legend([(css, name) for name, css in _PLACES])
    return table(headers, rows, (1, 2, 3, 4, 5)) + key if rows else ""


def _phases(facts: Facts) -> str:
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
    flips = [
        (
            source.table.name,
            f"{source.status.generation}/{source.status.flip.epoch}",
            moment(source.status.flip.at),
            source.status.flip.position or "",
        )
        for source in facts.sources
        if source.status.flip is not None
    ]
    key = legend([("wait", "bounded phase"), ("good", "after the flip")])
    listed = table(("table", "flip in epoch", "at", "read up to"), flips) if flips else ""
    return timeline(rows, "When each source was loading, and since when it is followed") + key + listed


def _watermarks(facts: Facts) -> str:
    lines = [Line(source.table.name, _colour(n), _over_time(source)) for n, source in enumerate(facts.sources)]
    drawn = [line for line in lines if line.points]
    rows = [
        (
            source.table.name,
            _watermark(source),
            "yes" if source.status.use_processing_time else "no",
            ", ".join(source.status.idle_splits) or "none",
            source.status.late,
        )
        for source in facts.sources
    ]
    headers = ("table", "watermark", "use processing time", "idle splits", "late rows")
    chart = step_chart(drawn, "The watermark of each source, by when it was emitted", facts.status.at) if drawn else ""
    return chart + table(headers, rows, (4,))


def _over_time(source: SourceFacts) -> list[tuple[float, float]]:
    return [
        (row.landed_at, row.timestamp)
        for row in source.log
        if not row.use_processing_time and MIN_TIMESTAMP < row.timestamp < MAX_TIMESTAMP
    ]


def _colour(number: int) -> str:
    """A source has one colour in all pictures."""
    return COLOURS[number % len(COLOURS)]


def _watermark(source: SourceFacts) -> str:
    at = source.status.watermark
    if at is None:
        return "none yet"
    if at == MIN_TIMESTAMP and source.status.use_processing_time:
        return "none of its own: (MIN, true), processing time from the flip on"
    return {MIN_TIMESTAMP: "the least", MAX_TIMESTAMP: "the end of input"}.get(at) or instant(at)


def _lag(facts: Facts) -> str:
    lines = [
        Line(
            source.table.name, _colour(n), [(row.landed_at, row.lag_ms) for row in source.log if row.lag_ms is not None]
        )
        for n, source in enumerate(facts.sources)
    ]
    drawn = [line for line in lines if len(line.points) > 1]
    return step_chart(drawn, "How far behind each source was", facts.status.at, y_times=False) if drawn else ""


def _cuts(facts: Facts) -> str:
    found = []
    for source in facts.sources:
        if not source.cuts:
            continue
        done = sum(bool(cut.position) for cut in source.cuts)
        heading = f"{source.table.name}: {done:,} of {len(source.cuts):,} chunks read"
        if source.status.flip is not None and source.status.flip.cut:
            heading += f"; flip once the log was read past the greatest cut, up to {source.status.flip.position}"
        shown = source.cuts if len(source.cuts) <= LISTED else (*source.cuts[: LISTED - 1], source.cuts[-1])
        rows = [(cut.chunk, cut.bounds, cut.position or "not read yet") for cut in shown]
        if len(source.cuts) > len(shown):
            rows.insert(-1, ("…", f"{len(source.cuts) - len(shown):,} more", ""))
        found.append(f"<h3>{escape(heading)}</h3>" + table(("chunk", "keys", "cut"), rows))
    return "".join(found)


def _of_insert(item: InsertFacts) -> str:
    shown = item.epochs
    rows = [_verdict(epoch) for epoch in reversed(shown[-LISTED:])]
    headers = ("epoch", "released at", "verdict", "state", "rows", "matched", "quarantined", "dropped", "pins", "why")
    key = legend(OUTCOMES_KEY)
    many, last = item.planned, f", the last {len(shown)}" if item.planned > len(shown) else ""
    title = f"{item.insert.id}: {counted(many, 'epoch')}{last}"
    drawn = outcomes(shown, item.left, item.waiting)
    return f"<h3>{escape(title)}</h3>{drawn}{key}" + table(headers, rows, (4, 5, 6, 7))


def _verdict(epoch: ReleasedEpoch) -> tuple[object, ...]:
    counts = epoch.staged.counts if epoch.staged else {}
    verdict = epoch.verdict
    mark = (
        badge("none yet", "mute")
        if verdict is None
        else badge(*(("passed", "good") if verdict.passed else ("held", "bad")))
    )
    pins = ", ".join(map(str, epoch.plan.pins))
    return (
        f"{epoch.plan.generation}/{epoch.plan.epoch}",
        moment(epoch.plan.instant),
        mark,
        epoch.state,
        counts.get("rows", 0),
        counts.get("matched", 0),
        counts.get("to:quarantine", 0),
        counts.get("to:drop", 0),
        pins,
        " ".join(verdict.reasons) if verdict else "",
    )


def _quarantine(facts: Facts, commands: Commands) -> str:
    found = []
    for item in facts.status.inserts:
        reasons = dict(item.rows.quarantined) if item.rows else {}
        if reasons:
            bars = [(why(name), count, "warn") for name, count in sorted(reasons.items(), key=lambda pair: -pair[1])]
            found.append(
                f"<h3>{escape(item.insert)}</h3>"
                + lying(bars, f"Quarantined rows of {item.insert} by reason")
                + _next(
                    commands,
                    NextCommand("quarantine show", (item.insert,)),
                    "shows the rows, and the nearest versions",
                )
            )
    rejected = [(s.table.name, s.status.rejected, "warn") for s in facts.sources if s.status.rejected]
    if rejected:
        found.append("<h3>Messages that could not be read</h3>" + lying(rejected, "Rejected messages by source"))
    return "".join(found) or "<p>No row is in quarantine.</p>"


def _problems(facts: Facts, commands: Commands) -> str:
    if not facts.problems:
        return "<p>There is none.</p>"
    titles = {problem.key: problem.title for problem in facts.problems}
    rows = [
        (
            moment(problem.since),
            badge(problem.kind, "bad" if problem.fails else "warn"),
            problem.title,
            f"follows from: {titles.get(problem.explained_by, problem.explained_by)}"
            if problem.explained_by
            else "; ".join(commands.all(problem.next)),
        )
        for problem in facts.problems
    ]
    return table(("since", "kind", "what", "next"), rows)
