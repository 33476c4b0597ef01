"""The rules of a connector (`tidegate.pipelines.connectors.protocol`), each a check of what was seen of one at work.

A rule gets a `Trace` and yields what breaks it: (where, what). Seeing nothing is no proof: a run that stopped breaks
every rule that is not broken otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

from tidegate.pipelines.connectors.protocol import Landed, Step
from tidegate.pipelines.connectors.spec import REJECTED, SEQ_PARTS, SOURCE_COLUMNS
from tidegate.pipelines.errors import TidegateError
from tidegate.pipelines.testing.trace import Rows, StepSeen, Trace
from tidegate.pipelines.text import counted

OPS = {"build": ("r", "c", "u", "d", "t"), "probe": ("+I", "-U", "+U", "-D")}
SHOWN = 3
"""Findings, and rows of each, that an error shows."""

Found = Iterator[tuple[str, str]]


class RuleBroken(TidegateError, AssertionError):
    """A connector breaks a rule that the runtime builds on. `rule` is that rule."""

    def __init__(self, rule: str, what: str, *, where: str, next_command: str) -> None:
        self.rule = rule
        super().__init__(what, where=where, state=f"broken rule: {rule}", next_command=next_command)


@dataclass(frozen=True)
class Rule:
    """`sentence` is the rule in words, `remedy` what its author should change."""

    name: str
    sentence: str
    remedy: str
    broken: Callable[[Trace], Found]

    def check(self, traces: Sequence[Trace]) -> None:
        """Raises RuleBroken, with all that breaks it."""
        found = list(chain.from_iterable(self.broken(trace) for trace in traces))
        connector = traces[0].spec.name
        if found:
            shown = [what for _, what in found[:SHOWN]]
            more = [f"and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
            what = f"{connector}: {'; '.join([*shown, *more])}"
            failure = next((trace.failure for trace in traces if trace.failure is not None), None)
            raise RuleBroken(self.sentence, what, where=found[0][0], next_command=self.remedy) from failure
        for trace in traces:
            if trace.failure is not None:
                what = f"{connector}: it could not be seen, since the run stopped: {_cause(trace.failure)}"
                remedy = "mend what stopped it; the test `test_a_run_ends` has its traceback"
                raise RuleBroken(self.sentence, what, where=trace.doing, next_command=remedy) from trace.failure


# --- runs ------------------------------------------------------------------------------------------------------------


def run_that_does_not_end(trace: Trace) -> Found:
    """`plan` ends with no step: within a run, and at once where nothing has arrived since."""
    if trace.failure is not None:
        yield trace.doing, f"it stopped: {_cause(trace.failure)}"
    if trace.endless:
        yield _last(trace), "`plan` gave step after step up to the same ends, and would give more"
    elif trace.overdue is not None:
        yield _last(trace), f"everything has landed, and `plan` gives another step: {_shown(trace.overdue)}"


def unlike_json(trace: Trace) -> Found:
    for what, why in trace.unlike.items():
        yield trace.doing, f"{what} is not the same once it was stored as JSON: {why}"


def shown_secrets(trace: Trace) -> Found:
    """Everything that the lake keeps, or a person sees, without a value of a secret option."""
    for seen in trace.steps:
        texts = {"`ranges`": seen.stored.step.ranges, "`summary`": seen.stored.step.summary}
        for landing in seen.landings:
            texts |= {"`Landed.position`": landing.landed.position, "the `splits` table": landing.splits}
        for what, text in texts.items():
            for option, value in trace.secrets.items():
                if value in str(text):
                    yield where(seen), f"{what} holds the value of '{option}'"


def ranges_that_cannot_be_stored(trace: Trace) -> Found:
    yield from unlike_json(trace)
    yield from shown_secrets(trace)


# --- plans -----------------------------------------------------------------------------------------------------------


def plan_of_what_is_lost(trace: Trace) -> Found:
    for seen in trace.steps:
        step, drafted = seen.stored.step, seen.drafted
        if drafted is None:
            yield where(seen), f"a source made anew plans nothing, the one that went on {_shown(step)}"
        elif (drafted.ranges, drafted.phase, drafted.flips) != (step.ranges, step.phase, step.flips):
            yield where(seen), f"a source made anew plans {_shown(drafted)}, the one that went on {_shown(step)}"


# --- rows ------------------------------------------------------------------------------------------------------------


def columns_missing_or_wrong(trace: Trace) -> Found:
    ops = OPS.get(trace.table.role, ())
    if trace.table.role == "probe" and trace.spec.only_grows(trace.table.options):
        ops = ops[:1]
    for seen in trace.steps:
        for name, kind in trace.columns.items():
            given = (seen.schema or {}).get(name)
            if seen.schema is not None and given != kind:
                yield where(seen), f"{name} is {given or 'missing'}, not {kind}"
        for row in _fine(seen.rows):
            empty = [name for name in SOURCE_COLUMNS if name != "_rowtime" and row.get(name, "") is None]
            seq = row.get("_seq") or {}
            empty += [f"_seq.{part}" for part in SEQ_PARTS if part in seq and seq[part] is None]
            if empty:
                yield where(seen), f"{', '.join(empty)} of a row is NULL: {_row(row)}"
            elif ops and "_op" in row and row["_op"] not in ops:
                yield where(seen), f"_op is {row['_op']!r}, and may be {', '.join(map(repr, ops))}: {_row(row)}"


def rows_that_change(trace: Trace) -> Found:
    columns = [column.name for column in trace.table.physical_columns if column.delivered is None]
    for seen in trace.steps:
        live = trace.live_snapshot and seen.stored.step.phase == "bounded"
        timeless = partial(_without, ["_rowtime"] if live else [])  # it is the time of reading there
        for how, other in (("at once", seen.reread), ("after all others have landed", seen.later)):
            if seen.rows is None or other is None:
                continue
            if difference := _difference(timeless(seen.rows), timeless(other)):
                yield where(seen), f"read again {how}, {difference}"
        if seen.rows is not None and seen.committed is not None:
            names = [name for name in (*SOURCE_COLUMNS, *columns) if name not in ("_rowtime", "_op")]
            # What only grows is stored alike, whichever its role.
            ops = {"c": "+I", "r": "+I"} if trace.spec.only_grows(trace.table.options) else {}
            both = [
                [
                    {"_op": ops.get(row["_op"], row["_op"]), **{name: row.get(name) for name in names}}
                    for row in _fine(rows)
                ]
                for rows in (seen.rows, seen.committed)
            ]
            if difference := _difference(*both):
                yield where(seen), f"committed (by `write`, where the source has it), {difference}"


def order_lost(trace: Trace) -> Found:
    last: dict[str, tuple[int, tuple[Any, ...]]] = {}
    for seen in trace.steps:
        rows = [row for row in _fine(seen.rows) if row.get("_split") is not None and row.get("_offset") is not None]
        for row in sorted(rows, key=lambda row: (row["_split"], row["_offset"])):
            split, offset = row["_split"], row["_offset"]
            seq = tuple((row.get("_seq") or {}).get(part) or 0 for part in SEQ_PARTS)
            before = last.get(split)
            if before is not None and offset <= before[0]:
                yield where(seen), f"split {split} has offset {offset} after {before[0]}"
            elif before is not None and seq < before[1]:
                yield where(seen), f"split {split}, offset {offset}: _seq goes back from {before[1]} to {seq}"
            last[split] = (offset, seq) if before is None else max(before, (offset, seq))


# --- landing ---------------------------------------------------------------------------------------------------------


def landing_that_a_crash_changes(trace: Trace) -> Found:
    for seen in trace.steps:
        if len(seen.landings) < 2:
            continue
        once, again = seen.landings[0], seen.landings[1]
        for name in Landed.__dataclass_fields__:
            before, after = getattr(once.landed, name), getattr(again.landed, name)
            if name not in ("lag_ms", "kept") and before != after:
                yield where(seen), f"`Landed.{name}` was {before!r}, and is {after!r} after a crash"
        if list(once.splits) != list(again.splits):
            yield where(seen), "the `splits` table is another one after a crash"
        if once.emits != again.emits:
            yield (
                where(seen),
                f"the watermark was emitted {counted(once.emits, 'time')}, and {again.emits} after a crash",
            )


def flip_out_of_place(trace: Trace) -> Found:
    options, spec = trace.table.options, trace.spec
    phases, flipped = spec.phases(options), False
    for seen in trace.steps:
        step = seen.stored.step
        if step.flips and flipped:
            yield where(seen), "it flips a second time"
        if step.phase == "bounded" and not phases:
            yield where(seen), "it is of a bounded phase, and `ConnectorSpec.phases` says that there is none"
        if step.phase == "bounded" and flipped:
            yield where(seen), "it is of the bounded phase, which an earlier step has said to be over"
        flipped = flipped or step.flips
        for landing in seen.landings[:1] if seen.owned and not spec.tells_time else ():
            if landing.emits and not flipped:
                yield where(seen), "`landed` let the watermark be emitted before the flip"
            if step.flips and not landing.emits:
                yield where(seen), "the source owns the emit of the watermark, and does not emit at its flip"
    ended = trace.failure is None and bool(trace.steps)
    if ended and not flipped and phases and spec.signals(options):
        yield _last(trace), "everything has landed and no step flips: whoever joins to the table waits for ever"
    if ended and not flipped and not phases and trace.fed:
        yield _last(trace), "it is past its ends as of the first plan and no step flips (see sources/planning.py)"


def step_without_rows(trace: Trace) -> Found:
    """Before anything has arrived, and wherever a step has none."""
    empty = bool(trace.steps) and trace.steps[-1].rows in ([], None)
    if trace.failure is not None and (empty or not trace.fed):
        what = "a step without rows" if empty else "a source to which nothing has come"
        yield trace.doing, f"{what} stopped the run: {_cause(trace.failure)}"


RULES: Mapping[str, Rule] = {
    rule.name: rule
    for rule in (
        Rule(
            "a_run_ends",
            "a run comes to its ends, and where nothing has arrived there is no step",
            "let `plan` return `Planned()` once `request.previous` has reached `request.ends`",
            run_that_does_not_end,
        ),
        Rule(
            "a_source_without_rows_works",
            "a source that has nothing yet, and a step without rows, land like any other",
            "let `read` give a frame of all columns and no rows, and `landed` take None for rows",
            step_without_rows,
        ),
        Rule(
            "a_restart_plans_the_same_step",
            "a plan depends on what is stored, and on nothing that a restart loses",
            "plan from the request, and what the splits store; keep no cursor in the object",
            plan_of_what_is_lost,
        ),
        Rule(
            "ranges_are_json_without_secrets",
            "what a step stores is JSON, and holds no secret",
            "store numbers, texts, lists and objects with text keys; look passwords up in `options` when reading",
            ranges_that_cannot_be_stored,
        ),
        Rule(
            "rows_have_their_columns",
            "every row has SOURCE_COLUMNS and the table's physical columns, in their types",
            "select and cast in `read`; tidegate.pipelines.connectors.spec.SOURCE_COLUMNS has names and types",
            columns_missing_or_wrong,
        ),
        Rule(
            "a_step_read_again_gives_equal_rows",
            "a stored step gives the same rows, whoever reads it and however often",
            "let `ranges` alone decide the rows: closed ends, no clock, no random numbers. Where a step of the bounded "
            "phase reads a table as it is now, and `_seq` says as of when, pass live_snapshot=True",
            rows_that_change,
        ),
        Rule(
            "a_crash_before_the_cursor_changes_nothing",
            "`landed` may be called again, by another object, and finds the same",
            "take all from the step, the committed rows and the context; store splits and cuts by name",
            landing_that_a_crash_changes,
        ),
        Rule(
            "the_flip_comes_once_and_last",
            "the step that flips is the last of the bounded phase, and there is one of them",
            "set Step.flips in the step that proves the end of the bounded phase, and Step.phase by `flipped`",
            flip_out_of_place,
        ),
        Rule(
            "order_is_kept",
            "in a split `_offset` ascends strictly, within a step and from step to step, and `_seq` never goes back",
            "count `_offset` on from where the step before ended, and make `_seq` of it or of the source's own order",
            order_lost,
        ),
    )
}


# --- texts -----------------------------------------------------------------------------------------------------------


def where(seen: StepSeen) -> str:
    """A step, for people."""
    return f"step {seen.stored.epoch} {seen.stored.step.summary}".rstrip()


def _last(trace: Trace) -> str:
    return f"after {where(trace.steps[-1])}" if trace.steps else "before the first step"


def _shown(step: Step) -> str:
    return f"{step.phase}{' flip' if step.flips else ''} {dict(step.ranges)}"


def _row(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in row.items())


def _fine(rows: Rows | None) -> Rows:
    """The rows that were not rejected."""
    return [row for row in rows or () if row.get(REJECTED) is None]


def _without(names: Sequence[str], rows: Rows) -> Rows:
    return [{name: value for name, value in row.items() if name not in names} for row in rows]


def _cause(error: BaseException) -> str:
    """An error in a sentence."""
    text = error.what if isinstance(error, TidegateError) else str(error).partition("\n")[0]
    return f"{type(error).__name__}: {text}"


def _difference(one: Rows, other: Rows) -> str:
    """The rows in only one of both, as text; empty if they are the same rows, in any order."""
    first, second = sorted(map(_row, one)), sorted(map(_row, other))
    if first == second:
        return ""
    gone = [row for row in first if row not in second][:1]
    came = [row for row in second if row not in first][:1]
    texts = [f"{len(first)} rows are {len(second)}"] if len(first) != len(second) else []
    texts += [f"a row is gone ({row})" for row in gone] + [f"one is there that was not ({row})" for row in came]
    return "; ".join(texts or ["a row is there another number of times"])
