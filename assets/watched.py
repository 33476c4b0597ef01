"""The INSERTs and source tables of a code location, by the metadata of asset definitions (tidegate.assets.specs): what
alerts watch, and what other processes may publish into. Any code location with Tidegate's assets can be watched,
without compiling a script."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from tidegate.assets.jobs import PIPELINE_TAG
from tidegate.assets.names import GATE
from tidegate.assets.specs import INSERT, JOINS, LAKE, PIPELINE, SCRIPT, TABLE
from tidegate.assets.text import values_of
from tidegate.pipelines.commands import AS_WRITTEN, Commands
from tidegate.pipelines.lake.layout import Places
from tidegate.pipelines.location import Location
from tidegate.pipelines.runtime.epochs import insert_owner
from tidegate.pipelines.sql.compile import KeyedJoin


@dataclass(frozen=True)
class WatchedInsert:
    """An INSERT. `script` is empty if it is not known, and `published` None if the code location has only what is
    staged."""

    pipeline: str
    insert: str
    lake: str
    script: str
    staged: dg.AssetKey
    places: Places
    joins: tuple[KeyedJoin, ...]
    published: dg.AssetKey | None = None

    @property
    def commands(self) -> Commands:
        """The script and the lake, for commands that a person pastes."""
        return Commands.at(self.script, self.lake)

    @property
    def key(self) -> dg.AssetKey:
        """The asset of what it has published, else of what is staged."""
        return self.published or self.staged

    @property
    def owner(self) -> str:
        return insert_owner(self.insert)

    @property
    def name(self) -> str:
        return f"{self.pipeline}/{self.insert}"

    @property
    def subject(self) -> str:
        """Prefix of the keys of its incidents, after their kind."""
        return f"{self.lake} {self.insert}"


@dataclass(frozen=True)
class WatchedTable:
    """A source table. `waits`: (INSERT, probe) of the INSERTs that wait for its flip. `asset`: its key, if it differs
    from Tidegate's. `step`: the name of the step that makes it; empty where no run does. `schedules`: (name, whether it
    is on by default) of those that start a run which makes it. `readers`: the INSERTs that read it, by id."""

    pipeline: str
    table: str
    lake: str
    script: str
    waits: tuple[tuple[str, str], ...] = ()
    asset: dg.AssetKey | None = None
    step: str = ""
    schedules: tuple[tuple[str, bool], ...] = ()
    readers: tuple[str, ...] = ()

    @property
    def commands(self) -> Commands:
        """The script and the lake, for commands that a person pastes."""
        return Commands.at(self.script, self.lake)

    @property
    def key(self) -> dg.AssetKey:
        return self.asset or dg.AssetKey([self.pipeline, self.table])

    @property
    def build(self) -> bool:
        return bool(self.waits)

    @property
    def name(self) -> str:
        return f"{self.pipeline}/{self.table}"

    @property
    def subject(self) -> str:
        """Prefix of the keys of its incidents, after their kind; also the key of its source's stored answer."""
        return f"{self.lake} {self.table}"


@dataclass(frozen=True)
class Watched:
    """Everything watched in a code location."""

    inserts: tuple[WatchedInsert, ...]
    tables: tuple[WatchedTable, ...]
    keys: Mapping[dg.AssetKey, str] = field(default_factory=dict)
    """The pipeline of every asset, also of one whose key does not begin with it."""

    @property
    def pipelines(self) -> set[str]:
        return {item.pipeline for item in (*self.inserts, *self.tables)}

    def commands_of(self, pipeline: str) -> Commands:
        """The script and the lake of a pipeline."""
        found = (item.commands for item in (*self.tables, *self.inserts) if item.pipeline == pipeline)
        return next(found, AS_WRITTEN)

    def tables_of(self, pipeline: str) -> list[WatchedTable]:
        return [table for table in self.tables if table.pipeline == pipeline]


def watched(repository: dg.RepositoryDefinition) -> Watched:
    """Every INSERT (by its staged asset) and every source table of a code location."""
    definitions = repository.assets_defs_by_key
    specs = {key: definitions[key].get_asset_spec(key) for key in sorted(definitions)}
    own = {key: values_of(spec.metadata) for key, spec in specs.items()}
    children: dict[dg.AssetKey, list[dg.AssetKey]] = {}
    for key, spec in specs.items():
        for dep in spec.deps:
            children.setdefault(dep.asset_key, []).append(key)
    gates = {check.asset_key for check in repository.asset_checks_defs_by_key if check.name in GATE}
    inserts = [_insert(key, own, children) for key in own if key in gates and INSERT in own[key] and LAKE in own[key]]
    waits: dict[tuple[str, str], dict[tuple[str, str], None]] = {}
    for item in inserts:
        for join in item.joins:
            waits.setdefault((item.pipeline, join.build), {})[item.insert, join.probe] = None
    tables, starting = [], _schedules(repository)
    for key, values in own.items():
        if TABLE in values and LAKE in values:
            pipeline, table, made = str(values[PIPELINE]), str(values[TABLE]), definitions[key]
            read = [own[child] for child in children.get(key, ())]
            readers = {str(item[INSERT]) for item in read if INSERT in item and item.get(LAKE) == values[LAKE]}
            tables.append(
                WatchedTable(
                    pipeline,
                    table,
                    str(values[LAKE]),
                    str(values.get(SCRIPT, "")),
                    waits=tuple(waits.get((pipeline, table), ())),
                    asset=key,
                    step=made.op.name if made.is_executable else "",
                    schedules=tuple(starting.get(key, ())),
                    readers=tuple(sorted(readers)),
                )
            )
    pipelines = {key: str(values[PIPELINE]) for key, values in own.items() if PIPELINE in values}
    return Watched(tuple(_in_order(inserts, children)), tuple(tables), pipelines)


def _in_order(
    inserts: Iterable[WatchedInsert], children: Mapping[dg.AssetKey, Sequence[dg.AssetKey]]
) -> Iterator[WatchedInsert]:
    """INSERTs after those that they read."""
    left = {item.staged: item for item in inserts}
    while left:
        read = {child for item in left.values() if item.published for child in children.get(item.published, ())}
        first = next((key for key in left if key not in read), next(iter(left)))
        yield left.pop(first)


def _schedules(repository: dg.RepositoryDefinition) -> dict[dg.AssetKey, list[tuple[str, bool]]]:
    """(name, whether it is on by default) of the schedules that start a run of a job which makes the asset."""
    found: dict[dg.AssetKey, list[tuple[str, bool]]] = {}
    for schedule in repository.schedule_defs:
        on = schedule.default_status == dg.DefaultScheduleStatus.RUNNING
        for key in repository.get_job(schedule.job_name).asset_layer.executable_asset_keys:
            found.setdefault(key, []).append((schedule.name, on))
    return found


def _insert(
    key: dg.AssetKey,
    own: Mapping[dg.AssetKey, Mapping[str, Any]],
    children: Mapping[dg.AssetKey, Sequence[dg.AssetKey]],
) -> WatchedInsert:
    """The INSERT of a staged asset: its published asset reads it."""
    values, of = own[key], (own[key][LAKE], own[key][INSERT])
    read_by = children.get(key, ())
    return WatchedInsert(
        str(values[PIPELINE]),
        str(values[INSERT]),
        str(values[LAKE]),
        str(values.get(SCRIPT, "")),
        key,
        Places.of_published(Location(str(values["path"]))),
        tuple(KeyedJoin(**join) for join in values.get(JOINS, ())),
        next((child for child in read_by if (own[child].get(LAKE), own[child].get(INSERT)) == of), None),
    )


def last_run(instance: dg.DagsterInstance, pipeline: str, url: str, *keys: dg.AssetKey) -> str:
    """The address of the newest run of the pipeline's jobs, or of one that made one of these assets: runs started from
    the asset graph, and by automation, belong to no job. Empty if Dagster never ran any."""
    records = instance.get_run_records(dg.RunsFilter(tags={PIPELINE_TAG: pipeline}), limit=1)
    found = [(record.create_timestamp.timestamp(), record.dagster_run.run_id) for record in records]
    made = [instance.get_latest_materialization_event(key) for key in keys]
    found += [(event.timestamp, event.run_id) for event in made if event is not None and event.run_id]
    return run_link(url, max(found)[1]) if found else ""


def run_link(url: str, run_id: str) -> str:
    """The address of a run; empty without one, such as for what is published outside of Dagster."""
    return f"{url}/runs/{run_id}" if run_id else ""
