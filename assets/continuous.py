"""Shows in Dagster what other processes publish: one look of the sensor `tidegate_continuous`.

A published epoch becomes a materialisation of the staged and of the published asset, and its verdict the results of the
staged asset's checks: the first epoch at once, then at most one report a minute and target, with all epochs since. A
verdict that holds its epoch is shown at once, with the staged asset. A source table is materialised when something has
landed, at most once a minute. Each materialisation has the version of the code that made it, which is that of the other
process's script, and not always that which Dagster has loaded.

Dagster's own runs report what they publish. So nothing is reported that Dagster's history has already, from a run or
from another code location; nor while a run of Dagster holds the INSERT's lease, as it will report it. The cursor only
saves reading the history when there is nothing new.

A held epoch is shown as failed in Dagster whatever runs are queued, and no longer once somebody has decided about it.
So while an epoch is held, and until Dagster has shown its successor, each look compares the newest record of the check
with the lake.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice, takewhile
from typing import Any, Self, TypeVar

import dagster as dg
from dagster._core.definitions.assets.graph.base_asset_graph import BaseAssetGraph
from dagster._core.definitions.data_version import (
    CODE_VERSION_TAG,
    DATA_VERSION_TAG,
    DEFAULT_DATA_VERSION,
    NULL_EVENT_POINTER,
    compute_logical_data_version,
    extract_data_version_from_entry,
    get_input_data_version_tag,
    get_input_event_pointer_tag,
)

from tidegate.assets.checks import is_awaited, names_of_gate, not_judged, reported, results, unshown
from tidegate.assets.metadata import of_epochs, of_landed, of_staged_epoch
from tidegate.assets.names import GATE
from tidegate.assets.resources import OF_DAGSTER
from tidegate.assets.text import facts_of
from tidegate.assets.watched import WatchedInsert, WatchedTable, watched
from tidegate.pipelines.commands import VERIFY
from tidegate.pipelines.errors import LakeError, TidegateError
from tidegate.pipelines.lake import Lake, StagedRow, VerdictRow
from tidegate.pipelines.lake.control import ControlTable
from tidegate.pipelines.lake.delta_log import committed
from tidegate.pipelines.lake.leases import read_leases
from tidegate.pipelines.lake.stream import Stream
from tidegate.pipelines.runtime.epochs import ReleasePlan, stored_plan
from tidegate.pipelines.runtime.epochs.position import waiting_rows
from tidegate.pipelines.runtime.gate import GateVerdict
from tidegate.pipelines.runtime.stored_definitions import declares, defined_at
from tidegate.pipelines.sql.canonical import computed
from tidegate.pipelines.sql.compile import Pipeline

PACE_S = 60.0
"""The shortest time between two materialisations of an asset."""
UNKNOWN = "?"
"""The value for what was last shown as held, if the cursor does not have it."""
AT_ONCE = 1_000
"""How many epochs are added up for one materialisation; of more than that only the last one is described."""

Event = dg.AssetMaterialization | dg.AssetCheckEvaluation
Row = TypeVar("Row", StagedRow, VerdictRow)
Place = tuple[int, int]
"""Generation and epoch."""


@dataclass(frozen=True)
class Reported:
    """What Dagster shows of one INSERT or source table: the newest epoch that is published or has landed, since when
    (s, UTC), and the version of the code that made it; of an INSERT the digest of the plan that was last shown as held.

    `code` is empty where it is not known: the cursor is new, or an older Tidegate has reported the epoch without it.
    """

    generation: int = 0
    epoch: int = 0
    at: float = 0.0
    held: str = ""
    code: str = ""

    @property
    def place(self) -> Place:
        return self.generation, self.epoch

    def lacks(self, place: Place) -> bool:
        """Whether this epoch is to be reported, or again, with its version."""
        return place > self.place or not self.code


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


@dataclass(frozen=True)
class Versions:
    """Makes the materialisations of one look, with the versions by which Dagster knows what is out of date; each asset
    after those that it reads, as they are stored in this order.

    A run tags each materialisation with the version of the code that made it and with the data versions of what it
    read; the data version of the asset itself is a hash of both. Dagster compares these tags with the definitions that
    are loaded and with the newest materialisations. An asset without them counts as out of date for as long as one that
    it reads has none or a newer one.
    """

    instance: dg.DagsterInstance
    graph: BaseAssetGraph[Any]
    _made: dict[dg.AssetKey, dg.DataVersion] = field(default_factory=dict)

    def materialization(self, key: dg.AssetKey, code: str, metadata: Mapping[str, Any]) -> dg.AssetMaterialization:
        """The materialisation of an asset by code of this version, tagged as a run of Dagster tags its own."""
        tags, read = {CODE_VERSION_TAG: code}, dict[dg.AssetKey, dg.DataVersion]()
        for parent in sorted(self.graph.get(key).parent_keys):
            read[parent], event = self._newest(parent)
            tags[get_input_data_version_tag(parent)] = read[parent].value
            tags[get_input_event_pointer_tag(parent)] = event
        self._made[key] = compute_logical_data_version(code, read)
        tags[DATA_VERSION_TAG] = self._made[key].value
        return dg.AssetMaterialization(key, metadata=metadata, tags=tags)

    def _newest(self, key: dg.AssetKey) -> tuple[dg.DataVersion, str]:
        """The data version of an asset, and the id of the event that says so: none yet for an event of this look."""
        if key in self._made:
            return self._made[key], NULL_EVENT_POINTER
        record = self.instance.get_latest_data_version_record(key)
        if record is None:
            return DEFAULT_DATA_VERSION, NULL_EVENT_POINTER
        found = extract_data_version_from_entry(record.event_log_entry)
        return found or DEFAULT_DATA_VERSION, str(record.storage_id)


def look(
    context: dg.SensorEvaluationContext,
    pipelines: Mapping[str, Pipeline],
    now: float,
    failures: Sequence[str] = (),
) -> dg.SensorResult:
    """What to report of these pipelines, by name, at `now` (s, UTC), and the cursor after it. A lake that cannot be
    read does not stop the others. `failures`: sentences that the tick reports beside it."""
    repository = context.repository_def
    assert repository is not None
    before, after = Cursor.of(context.cursor).reported, dict[str, Reported]()
    versions = Versions(context.instance, repository.asset_graph)
    lakes: dict[str, Lake | None] = {}
    events: list[Event] = []
    found = watched(repository)
    tables = [table for table in found.tables if table.step]
    # An INSERT comes after those that it reads.
    order = {key: number for number, key in enumerate(repository.asset_graph.toposorted_asset_keys)}
    inserts = sorted((item for item in found.inserts if item.published), key=lambda item: order[item.staged])
    for item in (*tables, *inserts):
        pipeline = pipelines.get(item.pipeline)
        if pipeline is None:
            continue
        key = item.key.to_user_string()
        known = before.get(key, Reported(held=UNKNOWN if isinstance(item, WatchedInsert) else ""))
        try:
            if item.lake not in lakes:
                lakes[item.lake] = Lake.found(item.lake)
            lake = lakes[item.lake]
            if lake is not None:
                if isinstance(item, WatchedTable):
                    fresh, known = _SourceReporter(lake, versions, now, pipeline, item).unreported(known)
                else:
                    fresh, known = _InsertReporter(lake, versions, now, pipeline, item).unreported(known)
                events += fresh
        except TidegateError as error:
            context.log.warning("%s could not be checked: %s", key, error.what)
            failures = [*failures, f"{key} could not be checked: {error.what}"]
        after[key] = known
    summary = f"{len(events)} events reported" if events else "nothing new was published outside of Dagster"
    return dg.SensorResult(asset_events=events, skip_reason="\n".join([summary, *failures]), cursor=str(Cursor(after)))


@dataclass(frozen=True)
class _Reporter:
    """Reports what is new of one table or INSERT of a pipeline. `now`: s, UTC."""

    lake: Lake
    versions: Versions
    now: float
    pipeline: Pipeline

    @property
    def instance(self) -> dg.DagsterInstance:
        return self.versions.instance

    def _may_be_reported(self, known: Reported) -> bool:
        """Whether the last materialisation is long enough ago."""
        return self.now - known.at >= PACE_S

    def _run_of_dagster(self, owner: str) -> bool:
        """Whether a run of Dagster works on the table or INSERT, and reports the result itself."""
        leases = read_leases(self.lake.control, owner)
        return any(lease.label.startswith(OF_DAGSTER) and not lease.over(round(self.now * 1000)) for lease in leases)

    def _by_history(self, key: dg.AssetKey, known: Reported, last: Place, at: float = math.inf) -> Reported:
        """`known`, brought up to date with Dagster's newest materialisation, whoever reported it. One without an epoch
        counts as the epoch `last` if it is not older than `at` (s, UTC)."""
        event = self.instance.get_latest_materialization_event(key)
        if event is None or event.asset_materialization is None:
            return known
        facts = facts_of(event.asset_materialization.metadata)
        place = int(facts.get("generation", last[0])), int(facts.get("epoch", 0))
        if "epoch" not in facts and event.timestamp >= at:
            place = last
        known = replace(known, code=(event.tags or {}).get(CODE_VERSION_TAG, ""))
        newer = replace(known, generation=place[0], epoch=place[1], at=event.timestamp)
        return known if place <= known.place else newer

    def _code(self, key: dg.AssetKey, own: bool, other: str, place: Place) -> str:
        """The version of the code that made an epoch: the loaded definition's where it is its `own`, else the `other`.
        As in a run of Dagster, each epoch has its own where the definition has none."""
        version = self.versions.graph.get(key).code_version if own else other
        return version or f"{place[0]}/{place[1]}"


@dataclass(frozen=True)
class _SourceReporter(_Reporter):
    source: WatchedTable

    def unreported(self, known: Reported) -> tuple[list[Event], Reported]:
        """The events that are not reported yet, given those that are (`known`), and what is reported with them."""
        if not self._may_be_reported(known):
            return [], known
        stream, key = Stream(self.lake, self.source.table), self.source.key
        row = stream.newest
        place = (row.generation, row.epoch) if row else (0, 0)
        if not known.lacks(place) or (row is None and not self._is_read()) or self._run_of_dagster(stream.name):
            return [], known
        known = self._by_history(key, known, place, row.landed_at / 1000 if row else math.inf)
        if not known.lacks(place) or not self._may_be_reported(known):
            return [], known
        stored = defined_at(self.lake, stream.name, *place)
        own = stored is None or declares(self.pipeline, stored)
        code = self._code(key, own, stored.digest if stored else "", place)
        found = of_landed(stream, row, known.epoch if known.generation == place[0] else 0)
        event = self.versions.materialization(key, code, found)
        return [event], Reported(*place, at=self.now, code=code)

    def _is_read(self) -> bool:
        """Whether an INSERT that reads the table has begun: then it was looked for rows of it, and there are none."""
        return any(self.lake.epochs.last(owner) is not None for owner in self.source.readers)


@dataclass(frozen=True)
class _InsertReporter(_Reporter):
    target: WatchedInsert

    def unreported(self, known: Reported) -> tuple[list[Event], Reported]:
        """The same of an INSERT: its epochs, and what its gate holds."""
        row = self.lake.epochs.last(self.target.owner)
        if row is None:
            return [], known
        newest = stored_plan(row)
        application = self.lake.application(self.target.owner, "publish", newest.generation)
        published = newest.generation, committed(self.target.places.target, application)
        events: list[Event] = []
        if published[1] > 0 and known.lacks(published) and self._may_be_reported(known):
            if self._run_of_dagster(self.target.owner):
                return [], known
            known = self._by_history(self.target.key, known, published)
            if known.lacks(published) and self._may_be_reported(known):
                plan = self._plan(newest, published[1])
                since = min(known.place, (plan.generation, plan.epoch - 1))
                events += self._published(since, plan)
                code = self._code_of(self.target.key, plan)
                known = replace(known, generation=published[0], epoch=published[1], at=self.now, code=code)
        if newest.epoch <= published[1] and (events or not known.held):
            return events, known
        verdict = self._of(self.lake.verdicts, newest)
        if newest.digest != known.held and self._run_of_dagster(self.target.owner):
            return events, known
        made: list[Event] = [event for event in events if isinstance(event, dg.AssetMaterialization)]
        if verdict is None:
            open_ = newest.supersedes is not None and known.held not in ("", UNKNOWN)
            return [*made, *self._not_judged(newest)] if open_ else events, known
        if not verdict.passed:
            again, found = newest.digest == known.held, self._results(verdict, "held")
            staged = [] if again else self._staged(newest, self._of(self.lake.staged, newest))
            hidden = reported(found) if staged else unshown(self.instance, found, again=again)
            return [*made, *staged, *hidden], replace(known, held=newest.digest)
        return (events, known) if events or not known.held else self._decided(verdict, known)

    def _not_judged(self, plan: ReleasePlan) -> list[dg.AssetCheckEvaluation]:
        """Report that a person has decided about what was held, unless a run is queued that will give the verdict."""
        staged = self.target.staged
        if is_awaited(self.instance, dg.AssetCheckKey(staged, GATE)):
            return []
        return unshown(self.instance, [not_judged(staged, plan.insert, plan.epoch, plan.supersedes or 0)])

    def _decided(self, verdict: VerdictRow, known: Reported) -> tuple[list[Event], Reported]:
        """Report that an epoch is no longer held, whoever has decided about it."""
        found = unshown(self.instance, self._results(verdict, "passed"))
        waits = is_awaited(self.instance, dg.AssetCheckKey(self.target.staged, GATE))
        return [*found], known if found or waits else replace(known, held="")

    def _plan(self, newest: ReleasePlan, epoch: int) -> ReleasePlan:
        if epoch >= newest.epoch:
            return newest
        rows = self.lake.epochs.rows(self.target.owner, generation=newest.generation, epoch=epoch)
        return stored_plan(rows[0])

    def _published(self, since: Place, plan: ReleasePlan) -> list[Event]:
        """The materialisations of the epochs after `since` up to that of `plan`, with the gate's last verdict or its
        warnings."""
        first = since[1] + 1 if since[0] == plan.generation else plan.epoch
        verdicts = [row for row in self._epochs(self.lake.verdicts, plan, first) if row.passed]
        passed = {(row.epoch, row.plan_digest) for row in verdicts}
        staged = [row for row in self._epochs(self.lake.staged, plan, first) if (row.epoch, row.plan_digest) in passed]
        if not staged or not verdicts:
            raise LakeError(
                f"epoch {plan.epoch} of {self.target.insert} is published, and nothing is recorded of what it staged",
                where=str(self.lake.control),
                state="nothing was changed",
                next_command=VERIFY,
            )
        whole = plan.epoch - first < AT_ONCE
        waiting = waiting_rows(self.lake, plan.probe, plan, published=True)
        found = of_epochs(plan, staged if whole else staged[:1], verdicts[0], waiting, self.target.places)
        warned = next((row for row in verdicts if GateVerdict.of(row).warnings), verdicts[0])
        before = self._staged(plan, staged[0])
        results = self._results(warned, "passed")
        checks = reported(results) if before else reported(results, self.instance)
        made = self.versions.materialization(self.target.key, self._code_of(self.target.key, plan), found)
        return [*before, made, *checks]

    def _staged(self, plan: ReleasePlan, row: StagedRow | None) -> list[Event]:
        """The materialisation of the staged asset; none if Dagster has one of this epoch or a later one."""
        key, place = self.target.staged, (plan.generation, plan.epoch)
        if row is None or not self._by_history(key, Reported(), place).lacks(place):
            return []
        return [self.versions.materialization(key, self._code_of(key, plan), of_staged_epoch(plan, row))]

    def _code_of(self, key: dg.AssetKey, plan: ReleasePlan) -> str:
        """The version of the INSERT as it was when this epoch was planned."""
        own = computed(plan.computes, self.pipeline, self.pipeline.insert(self.target.insert))
        return self._code(key, own, plan.computes, (plan.generation, plan.epoch))

    def _epochs(self, table: ControlTable[Any], plan: ReleasePlan, first: int) -> list[Any]:
        """The rows of the epochs from `first` on up to that of `plan`, the newest first, AT_ONCE epochs at most."""
        rows = table.newest_first(self.target.owner, generation=plan.generation, upto=plan.epoch)
        return list(islice(takewhile(lambda row: row.epoch >= first, rows), AT_ONCE))

    def _of(self, table: ControlTable[Row], plan: ReleasePlan) -> Row | None:
        rows = table.rows(self.target.owner, generation=plan.generation, epoch=plan.epoch)
        return next((row for row in rows if row.plan_digest == plan.digest), None)

    def _results(self, verdict: VerdictRow, state: str) -> Iterator[dg.AssetCheckResult]:
        """The results of the staged asset's checks, as a run has them."""
        staged = self.target.staged
        names = {key.name for key in self.versions.graph.asset_check_keys if key.asset_key == staged}
        specs = [dg.AssetCheckSpec(name, asset=staged) for name in sorted(names & names_of_gate())]
        return results(specs, GateVerdict.of(verdict), state, self.target.commands)
