"""Which landed epochs the next epoch of a process takes, and how far its time goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tidegate.pipelines.connectors.options import OnUnmatched
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.lake import WatermarkRow
from tidegate.pipelines.lake.stream import Stream
from tidegate.pipelines.process.spec import ProcessInput, ProcessSpec
from tidegate.pipelines.runtime.epochs import ReleasePlan, StateSpan, Taken, all_of
from tidegate.pipelines.runtime.epochs.position import Position, Waiting
from tidegate.pipelines.runtime.epochs.target_log import hides
from tidegate.pipelines.runtime.landed_retention import refuse_removed
from tidegate.pipelines.runtime.processes.columns import key_columns, state_columns
from tidegate.pipelines.runtime.processes.inputs import EpochSteps, epoch_steps
from tidegate.pipelines.runtime.processes.state import StateBefore, check_unchanged, state_before
from tidegate.pipelines.runtime.releasing.planner import ReleasePlanner
from tidegate.pipelines.sql.processes import has_phases, waits_for_flip
from tidegate.pipelines.watermarks import BEGINNING
from tidegate.pipelines.watermarks.watermark import instant


@dataclass(frozen=True)
class ProcessPlanner(ReleasePlanner):
    """Plans epochs that take all that has landed of every input. There is one as soon as there is a row, the time has
    moved, a timer is reached, or an input has emitted another watermark (that it is idle, or active again).

    A process with several inputs waits for the flip of its broadcast input, and of inputs with phases: every record of
    the others sees what these have landed until then. One with a single input never waits.

    `until`: the moment (ms, UTC) up to which a run follows the clock. Later timers are the next run's: otherwise a
    processing-time timer that is always set again would keep a run going for ever.
    """

    until: int | None = None

    @property
    def spec(self) -> ProcessSpec:
        return self.on_lake.process

    def next(self, last: ReleasePlan | None) -> ReleasePlan | Waiting:
        spans = self._spans(last)
        if spans is None:
            return Waiting(f"no rows of {' or '.join(item.table for item in self.spec.inputs)} have landed", 0)
        loading = tuple(item.table for item in self.spec.inputs if self._flip(item) is None)
        if loading:
            waiting = sum(span.rows for span in spans)
            return Waiting(f"{' and '.join(loading)} is still loading: it has not flipped yet", waiting, loading)
        held = [item.table for item in self.spec.inputs if len(spans) > 1 and self._hides(item)]
        if held:
            reason = f"{' and '.join(held)} has an epoch that is not published, and is idle until then"
            return Waiting(reason, sum(span.rows for span in spans))
        now, then, base = self.clock(), None, 0
        if last is not None and last.state is not None:
            then, base = last.state, last.epoch if last.state.rewrite else last.state.base
        state = state_before(self.on_lake, last.epoch + 1 if last else 1, base)
        self._check_unchanged(state)
        watermark = then.watermark if then else (BEGINNING.timestamp, False)
        before = then.end if then else BEGINNING.timestamp
        upto = now if self.until is None else min(now, self.until)
        found = epoch_steps(self.on_lake.lake, self.spec, spans, last=watermark, before=before, now=upto)
        reason = self._nothing_to_do(found, spans, state)
        if reason is not None:
            return Waiting(reason, 0)
        span = StateSpan(
            before=before,
            end=found.steps.end,
            last=watermark,
            watermark=(found.watermark.timestamp, found.watermark.use_processing_time),
            base=base,
            rewrite=state.worn,
        )
        plan = ReleasePlan(
            insert=self.on_lake.insert.id,
            epoch=last.epoch + 1 if last else 1,
            kind="release",
            instant=now,
            takes=spans,
            pins=(),
            on_unmatched=self.on_lake.on_unmatched,
            computes=self.on_lake.computes,
            state=span,
        )
        refuse_removed(self.on_lake.lake, plan)
        return plan

    def instead_of(
        self, position: Position, kind: Literal["re-release", "discard"], on_unmatched: OnUnmatched | None
    ) -> ReleasePlan:
        """See `ReleasePlanner.instead_of`. Also raises PlanningError if keys have moved to other buckets."""
        planned, held = super().instead_of(position, kind, on_unmatched), position.plan
        if held is not None and held.state is not None:
            self._check_unchanged(state_before(self.on_lake, held.epoch, held.state.base))
        return planned

    def anew(self, planned: ReleasePlan) -> ReleasePlan:
        """See `ReleasePlanner.anew`: so a function that fails at a record can be corrected. Also raises PlanningError
        if keys have moved to other buckets."""
        if planned.state is None or self.reads_otherwise(planned):
            tables = ", ".join(item.table for item in planned.takes)
            raise self._changed(f"epoch {planned.epoch} is planned over {tables}")
        self._check_unchanged(state_before(self.on_lake, planned.epoch, planned.state.base))
        return self._in_the_place_of(planned)

    def reads_otherwise(self, planned: ReleasePlan) -> bool:
        """See `ReleasePlanner.reads_otherwise`."""
        return [item.table for item in planned.takes] != [item.table for item in self.spec.inputs]

    def _check_unchanged(self, state: StateBefore) -> None:
        """Checked before a plan is stored: a plan that cannot be staged would keep the script with the old key from
        running."""
        key = key_columns(state_columns(self.on_lake.pipeline, self.spec))
        check_unchanged(self.on_lake.insert.id, state, self.spec.buckets, key, self.spec.definition)

    def _spans(self, last: ReleasePlan | None) -> tuple[Taken, ...] | None:
        """What each input has landed since `last`; None if nothing has ever landed of any.

        Raises PlanningError if an input was started again, or is another one than before.
        """
        then = {span.table: span for span in last.takes} if last is not None and last.state is not None else {}
        found = []
        for item in self.spec.inputs:
            landed, before = self.on_lake.takable(Stream(self.on_lake.lake, item.table)), then.get(item.table)
            if last is not None and before is None:
                raise self._changed(f"it did not read {item.table} before")
            if landed is not None and before is not None and before.upto and landed.generation != before.generation:
                raise self._changed(f"{item.table} was started again (generation {landed.generation})")
            found.append(self._span(item, landed, before))
        if len(then) not in (0, len(found)):
            raise self._changed("it read more inputs before")
        return tuple(found) if any(span.upto for span in found) else None

    def _span(self, item: ProcessInput, landed: WatermarkRow | None, before: Taken | None) -> Taken:
        after = before.upto if before else 0
        if landed is None:
            return Taken(item.table, 1, after, after)
        rows = Stream(self.on_lake.lake, item.table).generation(landed.generation).landed(after, landed.epoch)
        flip = self._flip(item) or 0
        earlier, parts = (before.taken if before else 0), all_of(after, landed.epoch)
        loaded = flip if flip > after else 0
        return Taken(item.table, landed.generation, after, landed.epoch, rows, earlier, parts, loaded=loaded)

    def _hides(self, item: ProcessInput) -> bool:
        """Whether the other inputs' time would pass over what the gate holds of this one."""
        landed = self.on_lake.takable(Stream(self.on_lake.lake, item.table))
        return landed is not None and hides(self.on_lake, item.table, landed)

    def _flip(self, item: ProcessInput) -> int | None:
        """The epoch of the flip that the process waits for; 0 if it does not wait for this input; None before the
        flip."""
        pipeline = self.on_lake.pipeline
        if not waits_for_flip(pipeline, self.spec, item):
            return 0
        landed = self.on_lake.takable(Stream(self.on_lake.lake, item.table))
        if landed is None:
            return None
        past_its_end = pipeline.table(item.table).connector == "scripted" and not has_phases(pipeline, item.table)
        if landed.flip_epoch is None and past_its_end:
            return 1  # it has flipped past its end as of its first plan, whoever emits its watermarks
        return landed.flip_epoch

    def _changed(self, what: str) -> PlanningError:
        insert = self.on_lake.insert
        return PlanningError(
            f"the state of {insert.id} does not fit what it reads now: {what}",
            where=f"process {insert.id}",
            state="nothing was run; what is published stays",
            next_command="put the old inputs back, or give the process a new name: it then begins at the first row",
        )

    def _nothing_to_do(self, found: EpochSteps, spans: tuple[Taken, ...], state: StateBefore) -> str | None:
        """Why there is no epoch to plan; None if there is one."""
        steps, least = found.steps, state.least_timer
        if any(span.rows for span in spans) or (least is not None and least <= steps.end and steps.moves):
            return None
        if steps.handed_on or (steps.moves and not found.watermark.use_processing_time):
            return None
        names = " or ".join(span.table for span in spans)
        if least is None:
            return f"no rows of {names} have landed since the last epoch"
        return f"no rows of {names} have landed, and the first timer is set to {instant(least)}"
