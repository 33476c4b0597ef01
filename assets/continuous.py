"""Shows in Dagster what other processes publish: one look of the sensor `tidegate_continuous`.

A published epoch becomes a materialisation, and its verdict the results of the staged asset's checks: the first at
once, then at most one a minute and target, with all epochs since. A verdict that holds its epoch is shown at once.

Dagster's own runs report what they publish. So nothing is reported that its history has already, from a run or from
another code location, nor while a run of Dagster holds the INSERT's lease, as it is about to report. The cursor only
saves reading the history when there is nothing new.

A held epoch is shown as failed in Dagster whatever runs are queued, and no longer once somebody has decided about it:
while an epoch is held, and until Dagster has shown its successor, each look compares the newest record of the check
with the lake.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, replace
from itertools import islice, takewhile
from typing import Any, Self

import dagster as dg

from tidegate.assets.checks import is_awaited, names_of_gate, reported, results, unshown
from tidegate.assets.metadata import of_epochs
from tidegate.assets.names import GATE
from tidegate.assets.resources import OF_DAGSTER
from tidegate.assets.specs import INSERT, LAKE, PIPELINE, SCRIPT, gated
from tidegate.assets.text import facts_of, values_of
from tidegate.pipelines.commands import VERIFY, Commands
from tidegate.pipelines.errors import LakeError, TidegateError
from tidegate.pipelines.lake import Lake, VerdictRow
from tidegate.pipelines.lake.control import ControlTable
from tidegate.pipelines.lake.delta_log import committed
from tidegate.pipelines.lake.layout import Places
from tidegate.pipelines.lake.leases import read_leases
from tidegate.pipelines.location import Location
from tidegate.pipelines.runtime.epochs import ReleasePlan, insert_owner, stored_plan
from tidegate.pipelines.runtime.epochs.position import waiting_rows
from tidegate.pipelines.runtime.gate import GateVerdict

PACE_S = 60.0
"""The shortest time between two materialisations of a target."""
UNKNOWN = "?"
"""The value for what was last shown as held, if the cursor does not have it."""
AT_ONCE = 1_000
"""How many epochs are added up for one materialisation; of more than that only the last one is described."""

Event = dg.AssetMaterialization | dg.AssetCheckEvaluation
Place = tuple[int, int]
"""Generation and epoch."""


@dataclass(frozen=True)
class Target:
    """The assets of an INSERT, and the `places` of its rows. `checks`: those of the staged asset; `script` is empty if
    it is not known."""

    insert: str
    lake: str
    script: str
    staged: dg.AssetKey
    published: dg.AssetKey
    checks: tuple[dg.AssetCheckSpec, ...]
    places: Places

    @property
    def owner(self) -> str:
        return insert_owner(self.insert)

    @property
    def commands(self) -> Commands:
        """The script and the lake, for commands that a person pastes."""
        return Commands.at(self.script, self.lake)


@dataclass(frozen=True)
class Reported:
    """What Dagster shows of one INSERT: the newest published epoch, since when (s, UTC), and the digest of the plan
    that was last shown as held."""

    generation: int = 0
    epoch: int = 0
    at: float = 0.0
    held: str = ""

    @property
    def place(self) -> Place:
        return self.generation, self.epoch


@dataclass(frozen=True)
class Cursor:
    """What is reported, by the key of the published asset."""

    reported: Mapping[str, Reported] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str | None) -> Self:
        """Read back; empty for a cursor that cannot be read: Dagster's history has what was reported."""
        try:
            return cls({key: Reported(**item) for key, item in json.loads(text or "{}").items()})
        except (ValueError, TypeError, AttributeError):
            return cls()

    def __str__(self) -> str:
        return json.dumps({key: asdict(item) for key, item in self.reported.items()})


def targets(repository: dg.RepositoryDefinition, pipelines: Set[str]) -> list[Target]:
    """Every INSERT of these pipelines: a staged asset with the gate's check, and the published asset that reads it."""
    graph = repository.asset_graph
    found, of_gate = [], names_of_gate()
    for staged, values in gated(repository):
        for child in sorted(graph.get(staged).child_keys) if values[PIPELINE] in pipelines else ():
            own = values_of(graph.get(child).metadata)
            if (own.get(LAKE), own.get(INSERT)) == (values[LAKE], values[INSERT]):
                on_staged = {key.name for key in graph.asset_check_keys if key.asset_key == staged}
                names = sorted(on_staged & of_gate)
                checks = tuple(dg.AssetCheckSpec(name, asset=staged) for name in names)
                lake, script, insert = str(values[LAKE]), str(values.get(SCRIPT, "")), str(values[INSERT])
                places = Places(Location(str(own["path"])), insert)
                found.append(Target(insert, lake, script, staged, child, checks, places))
    return found


def look(
    context: dg.SensorEvaluationContext, pipelines: Set[str], now: float, failures: Sequence[str] = ()
) -> dg.SensorResult:
    """What to report of these pipelines at `now` (s, UTC), and the cursor after it. A lake that cannot be read does not
    stop the others. `failures`: sentences that the tick reports beside it."""
    assert context.repository_def is not None
    before, after = Cursor.of(context.cursor).reported, dict[str, Reported]()
    lakes: dict[str, Lake | None] = {}
    events: list[Event] = []
    for target in targets(context.repository_def, pipelines):
        key = target.published.to_user_string()
        known = before.get(key, Reported(held=UNKNOWN))
        try:
            if target.lake not in lakes:
                lakes[target.lake] = Lake.found(target.lake)
            lake = lakes[target.lake]
            news, known = ([], known) if lake is None else _Look(target, lake, context.instance, now).news(known)
            events += news
        except TidegateError as error:
            context.log.warning("%s is not looked at: %s", key, error.what)
            failures = [*failures, f"{key} is not looked at: {error.what}"]
        after[key] = known
    summary = f"{len(events)} events reported" if events else "nothing new was published outside of Dagster"
    return dg.SensorResult(asset_events=events, skip_reason="\n".join([summary, *failures]), cursor=str(Cursor(after)))


@dataclass(frozen=True)
class _Look:
    """One look at one INSERT. `now`: s, UTC."""

    target: Target
    lake: Lake
    instance: dg.DagsterInstance
    now: float

    def news(self, known: Reported) -> tuple[list[Event], Reported]:
        """What to report beyond what is `known`, and what is known then."""
        row = self.lake.epochs.last(self.target.owner)
        if row is None:
            return [], known
        newest = stored_plan(row)
        application = self.lake.application(self.target.owner, "publish", newest.generation)
        published = newest.generation, committed(self.target.places.target, application)
        events: list[Event] = []
        if published[1] > 0 and published > known.place and self._may_be_reported(known):
            if self._run_of_dagster():
                return [], known
            known = self._by_history(known, newest.generation)
            if published > known.place and self._may_be_reported(known):
                events += self._published(known.place, self._plan(newest, published[1]))
                known = replace(known, generation=published[0], epoch=published[1], at=self.now)
        if newest.epoch <= published[1] and (events or not known.held):
            return events, known
        verdict = self._of(self.lake.verdicts, newest)
        if verdict is None or (newest.digest != known.held and self._run_of_dagster()):
            return events, known
        if not verdict.passed:
            kept = [event for event in events if isinstance(event, dg.AssetMaterialization)]
            again = newest.digest == known.held
            hidden = unshown(self.instance, self._results(verdict, "held"), again=again)
            return [*kept, *hidden], replace(known, held=newest.digest)
        return (events, known) if events or not known.held else self._decided(verdict, known)

    def _decided(self, verdict: VerdictRow, known: Reported) -> tuple[list[Event], Reported]:
        """Report that an epoch is no longer held, whoever has decided about it."""
        found = unshown(self.instance, self._results(verdict, "passed"))
        waits = is_awaited(self.instance, dg.AssetCheckKey(self.target.staged, GATE))
        return [*found], known if found or waits else replace(known, held="")

    def _may_be_reported(self, known: Reported) -> bool:
        """Whether the last materialisation is long enough ago."""
        return self.now - known.at >= PACE_S

    def _run_of_dagster(self) -> bool:
        """Whether a run of Dagster works on the INSERT, and reports the result itself."""
        leases = read_leases(self.lake.control, self.target.owner)
        return any(lease.label.startswith(OF_DAGSTER) and not lease.over(round(self.now * 1000)) for lease in leases)

    def _by_history(self, known: Reported, generation: int) -> Reported:
        """The same, with the last materialisation that Dagster has, whoever reported it."""
        event = self.instance.get_latest_materialization_event(self.target.published)
        if event is None or event.asset_materialization is None:
            return known
        facts = facts_of(event.asset_materialization.metadata)
        place = int(facts.get("generation", generation)), int(facts.get("epoch", 0))
        newer = replace(known, generation=place[0], epoch=place[1], at=event.timestamp)
        return known if place <= known.place else newer

    def _plan(self, newest: ReleasePlan, epoch: int) -> ReleasePlan:
        if epoch >= newest.epoch:
            return newest
        rows = self.lake.epochs.rows(self.target.owner, generation=newest.generation, epoch=epoch)
        return stored_plan(rows[0])

    def _published(self, since: Place, plan: ReleasePlan) -> list[Event]:
        """The materialisation of the epochs after `since` up to that of `plan`, with the gate's last verdict or its
        warnings."""
        first = since[1] + 1 if since[0] == plan.generation else plan.epoch
        verdicts = [row for row in self._epochs(self.lake.verdicts, plan, first) if row.passed]
        passed = {(row.epoch, row.plan_digest) for row in verdicts}
        staged = [row for row in self._epochs(self.lake.staged, plan, first) if (row.epoch, row.plan_digest) in passed]
        if not staged or not verdicts:
            raise LakeError(
                f"epoch {plan.epoch} of {self.target.insert} is published, and what it staged is not there",
                where=str(self.lake.control),
                state="nothing was changed",
                next_command=VERIFY,
            )
        whole = plan.epoch - first < AT_ONCE
        waiting = waiting_rows(self.lake, plan.probe, plan, published=True)
        found = of_epochs(plan, staged if whole else staged[:1], verdicts[0], waiting, self.target.places)
        warned = next((row for row in verdicts if GateVerdict.of(row).warnings), verdicts[0])
        checks = reported(self.instance, self._results(warned, "passed"))
        return [dg.AssetMaterialization(self.target.published, metadata=found), *checks]

    def _epochs(self, table: ControlTable[Any], plan: ReleasePlan, first: int) -> list[Any]:
        """The rows of the epochs from `first` on up to that of `plan`, the newest first, AT_ONCE epochs at most."""
        rows = table.newest_first(self.target.owner, generation=plan.generation, upto=plan.epoch)
        return list(islice(takewhile(lambda row: row.epoch >= first, rows), AT_ONCE))

    def _of(self, table: ControlTable[VerdictRow], plan: ReleasePlan) -> VerdictRow | None:
        rows = table.rows(self.target.owner, generation=plan.generation, epoch=plan.epoch)
        return next((row for row in rows if row.plan_digest == plan.digest), None)

    def _results(self, verdict: VerdictRow, state: str) -> Iterator[dg.AssetCheckResult]:
        """The results of the staged asset's checks, as a run has them."""
        return results(self.target.checks, GateVerdict.of(verdict), state, self.target.commands)
