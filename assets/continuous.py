"""Shows in Dagster what other processes publish: one look of the sensor `tidegate_continuous`.

A published epoch becomes a materialisation of the staged and of the published asset, and its verdict the results of the
staged asset's checks: the first epoch at once, then at most one report a minute and target, with all epochs since. A
verdict that holds its epoch is shown at once, with the staged asset. A source table is materialised when something has
landed, at most once a minute.

Dagster's own runs report what they publish. So nothing is materialised that Dagster's history has already, from a run
or from another code location; nor while a run of Dagster holds the INSERT's lease, as it will report it. The cursor
says what was reported, and what was shown of the gate.

What is reported has no versions: of such an asset Dagster says that it is out of date where one that it reads was
reported later.

Dagster shows the newest record of a check, and makes one with every run. So a verdict that holds its epoch is reported
again whenever a run was made since that asks the gate, or the staged asset was made again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Self

import dagster as dg

from tidegate.assets.checks import evaluation, not_judged, results
from tidegate.assets.jobs import PIPELINE_TAG
from tidegate.assets.metadata import of_epochs, of_landed, of_staged_epoch
from tidegate.assets.names import GATE
from tidegate.assets.resources import OF_DAGSTER
from tidegate.assets.text import facts_of
from tidegate.assets.watched import WatchedInsert, WatchedTable, watched
from tidegate.pipelines.errors import TidegateError
from tidegate.pipelines.facts import news
from tidegate.pipelines.facts.news import Place
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.runtime.gate import GateVerdict

PACE_S = 60.0
"""The shortest time between two materialisations of an asset."""
UNKNOWN = "?"
"""The value for what was last shown of the gate, if the cursor does not have it."""
NEWEST_RUNS = 50
"""How many runs are looked through for those that ask a gate."""
AFTER_S = 2.0
"""Dagster takes the result of a check for one of the newest materialisation if it was reported in a later second."""

Event = dg.AssetMaterialization | dg.AssetCheckEvaluation


@dataclass(frozen=True)
class Reported:
    """What Dagster shows of one INSERT or source table.

    Attributes:
        generation, epoch, at: the newest epoch that is published or has landed, and when the asset was reported last
            (s, UTC); 0 where it never was.
        gate: what was last shown of an INSERT's gate, by plan, where it is not that it passed.
        hides: the runs by whose time that was.
    """

    generation: int = 0
    epoch: int = 0
    at: float = 0.0
    gate: str = ""
    hides: list[str] = field(default_factory=list)

    def lacks(self, place: Place) -> bool:
        """Whether this epoch is to be reported; (0, 0) stands for a table to which nothing came."""
        return place > (self.generation, self.epoch) or not self.at


@dataclass(frozen=True)
class Cursor:
    """What is reported, by the key of the asset: the published one of an INSERT, that of a source table."""

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


def look(context: dg.SensorEvaluationContext, pipelines: Collection[str], now: float) -> dg.SensorResult:
    """What to report of these pipelines, by name, at `now` (s, UTC), and the cursor after it. A lake that cannot be
    read does not stop the others."""
    repository = context.repository_def
    assert repository is not None
    before, after = Cursor.of(context.cursor).reported, dict[str, Reported]()
    found, dagster = watched(repository), _Dagster(context.instance, repository)
    lakes: dict[str, Lake | None] = {}
    events: list[Event] = []
    failures: list[str] = []
    # An asset comes after those that it reads, or Dagster would say that it is out of date.
    for item in (*(table for table in found.tables if table.step), *(item for item in found.inserts if item.published)):
        key = item.key.to_user_string()
        if item.pipeline not in pipelines:
            continue
        known = before.get(key, Reported(gate=UNKNOWN))
        try:
            if item.lake not in lakes:
                lakes[item.lake] = Lake.found(item.lake)
            if (lake := lakes[item.lake]) is not None:
                reporter = _Reporter(lake, dagster, now)
                unreported = reporter.of_table if isinstance(item, WatchedTable) else reporter.of_insert
                fresh, known = unreported(item, known)  # type: ignore[arg-type]
                events += fresh
        except TidegateError as error:
            context.log.warning("%s could not be checked: %s", key, error.what)
            failures.append(f"{key} could not be checked: {error.what}")
        after[key] = known
    summary = f"{len(events)} events reported" if events else "nothing new was published outside of Dagster"
    return dg.SensorResult(asset_events=events, skip_reason="\n".join([summary, *failures]), cursor=str(Cursor(after)))


@dataclass(frozen=True)
class _Dagster:
    """Dagster's history and definitions."""

    instance: dg.DagsterInstance
    repository: dg.RepositoryDefinition

    def known(self, key: dg.AssetKey, known: Reported, last: Place, at: float = math.inf) -> Reported:
        """`known`, brought up to date with Dagster's newest materialisation, whoever reported it. One without an epoch
        counts as the epoch `last` if it is not older than `at` (s, UTC)."""
        event = self.instance.get_latest_materialization_event(key)
        if event is None or event.asset_materialization is None:
            return known
        facts = facts_of(event.asset_materialization.metadata)
        place = int(facts.get("generation", last[0])), int(facts.get("epoch", 0))
        if "epoch" not in facts and event.timestamp >= at:
            place = last
        generation, epoch = max(place, (known.generation, known.epoch))
        return replace(known, generation=generation, epoch=epoch, at=max(known.at, event.timestamp))

    def hiding(self, target: WatchedInsert, now: float) -> list[str] | None:
        """The newest run that asks the gate of an INSERT, and the one that has made its staged asset: results that were
        reported before them are not shown. None if that was just now: nor are those of this moment."""
        made = self.instance.get_latest_materialization_event(target.staged)
        if made is not None and made.run_id and 0 <= now - made.timestamp < AFTER_S:
            return None
        records = self.instance.get_run_records(limit=NEWEST_RUNS)
        asking = (run.dagster_run.run_id for run in records if _asks(run.dagster_run, target))
        return [next(asking, ""), made.run_id if made else ""]


def _asks(run: dg.DagsterRun, target: WatchedInsert) -> bool:
    """Whether a run makes the staged asset of an INSERT, or asks its gate."""
    if run.asset_selection is None and run.asset_check_selection is None:
        return run.tags.get(PIPELINE_TAG) == target.pipeline
    keys = {*(run.asset_selection or ()), *(check.asset_key for check in run.asset_check_selection or ())}
    return target.staged in keys


@dataclass(frozen=True)
class _Reporter:
    """Reports what is new of tables and INSERTs on a lake. `now`: s, UTC."""

    lake: Lake
    dagster: _Dagster
    now: float

    def of_table(self, source: WatchedTable, known: Reported) -> tuple[list[Event], Reported]:
        """The events that are not reported yet, given those that are (`known`), and what is reported with them."""
        if not self._is_due(known):
            return [], known
        found = news.landed(self.lake, source.table, source.readers)
        if found is None or not known.lacks(found.place) or self._is_dagsters(source.table):
            return [], known
        place, row = found.place, found.row
        known = self.dagster.known(source.key, known, place, row.landed_at / 1000 if row else math.inf)
        if not known.lacks(place) or not self._is_due(known):
            return [], known
        metadata = of_landed(found.stream, row, known.epoch if known.generation == place[0] else 0)
        return [dg.AssetMaterialization(source.key, metadata=metadata)], Reported(*place, at=self.now)

    def of_insert(self, target: WatchedInsert, known: Reported) -> tuple[list[Event], Reported]:
        """The same of an INSERT: its epochs, and what its gate holds."""
        newest = news.newest_epoch(self.lake, target.insert, target.places.target)
        if newest is None:
            return [], known
        is_new = newest.published[1] > 0 and known.lacks(newest.published) and self._is_due(known)
        if not (is_new or newest.gate == "held" or known.gate) or self._is_dagsters(target.owner):
            return [], known
        events: list[Event] = []
        if is_new:
            known = self.dagster.known(target.key, known, newest.published)
        if is_new and known.lacks(newest.published) and self._is_due(known):
            assert target.published is not None
            found = news.published_since(newest, (known.generation, known.epoch))
            last = found.newest
            assert last.verdict is not None
            metadata = of_epochs(last.plan, found.staged, last.verdict, found.waiting, target.places)
            events = [*self._staged(target, last), dg.AssetMaterialization(target.published, metadata=metadata)]
            known = replace(known, generation=last.place[0], epoch=last.place[1], at=self.now)
            if newest.gate == "passed" or not known.gate:
                events += self._results(target, found.warned)
        return self._judged(target, newest, events, known)

    def _judged(
        self, target: WatchedInsert, newest: news.Epoch, events: list[Event], known: Reported
    ) -> tuple[list[Event], Reported]:
        """The same events, and what the gate says of the newest epoch, if Dagster does not show it."""
        plan, shown = newest.plan, f"{newest.plan.digest} {newest.gate}"
        if newest.gate == "held":
            hides = self.dagster.hiding(target, self.now)
            assert newest.judged is not None
            if hides is None or (shown == known.gate and hides == known.hides):
                return events, known
            published = [event for event in events if isinstance(event, dg.AssetMaterialization)]
            staged = self._staged(target, newest)
            made = [*published, *staged]
            hides = [hides[0], "" if made else hides[1]]  # what is reported here belongs to no run
            return [*made, *self._results(target, newest.judged)], replace(known, gate=shown, hides=hides)
        if newest.gate == "open":
            if plan.supersedes is None or not known.gate.endswith("held"):
                return events, known
            return [*events, *not_judged(target.staged, plan.insert, plan.epoch, plan.supersedes)], replace(
                known, gate=shown
            )
        is_shown = bool(events) or not known.gate
        if known.gate == UNKNOWN and not is_shown:
            is_shown = not self.dagster.known(target.key, Reported(), newest.place).lacks(newest.place)
        if not is_shown and newest.judged is not None:
            if self.dagster.hiding(target, self.now) is None:
                return events, known
            events = [*self._results(target, newest.judged)]
        return events, replace(known, gate="", hides=[])

    def _is_due(self, known: Reported) -> bool:
        """Whether the last materialisation is long enough ago."""
        return self.now - known.at >= PACE_S

    def _is_dagsters(self, owner: str) -> bool:
        """Whether a run of Dagster works on the table or INSERT, and reports the result itself."""
        return news.is_worked_on(self.lake, owner, OF_DAGSTER, round(self.now * 1000))

    def _staged(self, target: WatchedInsert, epoch: news.Epoch) -> list[dg.AssetMaterialization]:
        """The materialisation of the staged asset; none if Dagster has one of this epoch or a later one."""
        known = self.dagster.known(target.staged, Reported(), epoch.place)
        if epoch.staged is None or not known.lacks(epoch.place):
            return []
        return [dg.AssetMaterialization(target.staged, metadata=of_staged_epoch(epoch.plan, epoch.staged))]

    def _results(self, target: WatchedInsert, verdict: GateVerdict) -> list[dg.AssetCheckEvaluation]:
        """The results of the staged asset's checks, as a run has them."""
        checks = self.dagster.repository.asset_checks_defs_by_key
        names = {key.name for key in checks if key.asset_key == target.staged}
        specs = [dg.AssetCheckSpec(name, asset=target.staged) for name in GATE if name in names]
        return [*map(evaluation, results(specs, verdict, commands=target.commands))]
