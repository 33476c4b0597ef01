"""The names of a pipeline's parts in Dagster."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

import dagster as dg

from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.lake import Layout
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.sql.model import Insert

GATE = ("proof", "rows", "constraints", "expectations")
"""The blocking checks on a staged epoch. Together they are the gate's verdict on it."""


VERDICT = "verdict"
"""The check on a partition of time: the verdict on the epoch that released it."""

ADDS_UP = "adds_up"
"""The check on a published asset: every landed row is in exactly one place."""


BACKFILL_TAG = "dagster/backfill"
RETRIES = "dagster/max_retries"
RETRY_ON_FAILURE = "dagster/retry_on_asset_or_op_failure"
RETRIED_BY = "dagster/auto_retry_run_id"
WILL_RETRY = "dagster/will_retry"
"""Tags of Dagster's own runs: the backfill that a run is of, how often a failed one is started again and whether a
failed step counts, the run that was started in its place, whether one will be."""


_OF_DAGSTER = re.compile(r"(?!__ASSET_JOB)[A-Za-z0-9_.-]+")
"""What a part of a key can be. The job of Dagster's own that makes any asset is called __ASSET_JOB."""


def identifier(text: str) -> str:
    """`text` with everything that Dagster's names may not hold replaced by `_`."""
    return "".join(char if char.isascii() and (char.isalnum() or char == "_") else "_" for char in text)


def pool(lake: Layout, *owners: str) -> str:
    """The pool of the steps that work on a table or an INSERT: `tidegate/<lake>/<name>`, the same in every code
    location. The lake is 8 hex digits of its folder's path; nothing in it is read, as it may not exist yet."""
    folder = hashlib.sha256(str(lake.root).encode()).hexdigest()[:8]
    return "/".join(("tidegate", folder, quote("+".join(owners), safe="+$")))


@dataclass(frozen=True)
class Names:
    """The keys and names of one pipeline.

    click_event        [pipeline, click_event]
    enriched (staged)  [pipeline, enriched_staged]
    enriched           [pipeline, enriched]

    Attributes:
        steps: what the names of steps begin with; the pipeline's name when empty.
        translated: keys that a person has chosen, by those above.
    """

    pipeline: str
    steps: str = ""
    translated: Mapping[dg.AssetKey, dg.AssetKey] = field(default_factory=dict)

    def with_keys(self, translated: Mapping[dg.AssetKey, dg.AssetKey]) -> Names:
        """The names of the pipeline whose assets have these keys. Raises PlanningError where two would have one."""
        twice = _first_repeated(key.to_user_string() for key in translated.values())
        if twice is not None:
            own = [key.to_user_string() for key, other in translated.items() if other.to_user_string() == twice]
            raise PlanningError(
                f"{' and '.join(own)} would have the same key, {twice}",
                where="translation, or get_asset_spec",
                state="nothing was loaded",
                next_command="write a key that differs by `name` and `kind`, such as "
                '`key: "mart/{{ name }}_{{ kind }}"`, or a `key_prefix`',
            )
        return replace(self, translated=translated)

    def own(self, key: dg.AssetKey) -> dg.AssetKey:
        """The key as Tidegate makes it, of an asset that may have another one."""
        return next((own for own, other in self.translated.items() if other == key), key)

    def _key(self, name: str) -> dg.AssetKey:
        own = dg.AssetKey([self.pipeline, name])
        return self.translated.get(own, own)

    @property
    def job(self) -> str:
        return identifier(self.pipeline)

    @property
    def group(self) -> str:
        return identifier(self.pipeline)

    @property
    def schedule(self) -> str:
        return f"{self.job}_schedule"

    @property
    def resource(self) -> str:
        """Pipelines of one code location may lie on different lakes, so each has a resource of its own."""
        return f"tidegate_{self.job}"

    def source(self, table: str) -> dg.AssetKey:
        """A source table: a build's changelog or a probe's landed rows."""
        return self._key(table)

    def staged(self, insert: Insert) -> dg.AssetKey:
        """The joined rows of an epoch that is not published yet."""
        return self._key(f"{insert.id}_staged")

    def published(self, insert: Insert) -> dg.AssetKey:
        """The rows of an INSERT in its target."""
        return self._key(insert.id)

    def by_time(self, insert: Insert) -> dg.AssetKey:
        """The rows of an event-time INSERT, by spans of their time."""
        return self._key(f"{insert.id}_by_time")

    @property
    def aligned(self) -> str:
        """The step that lands the source tables of alignment groups."""
        return f"{identifier(self.steps or self.pipeline)}__aligned__sources"

    @property
    def maintenance(self) -> dg.AssetKey:
        """The upkeep of all of its tables."""
        return self._key("maintenance")

    @property
    def reconcile(self) -> dg.AssetKey:
        """The comparison of its build tables with their sources."""
        return self._key("reconcile")

    def op(self, key: dg.AssetKey, suffix: str = "") -> str:
        """The name of the step that makes `key`; another key of the asset does not change it."""
        path = self.own(key).path
        return identifier("__".join([self.steps or path[0], *path[1:]])) + suffix

    def keys(self, pipeline: Pipeline) -> list[dg.AssetKey]:
        """Every key of the pipeline. Raises PlanningError where two parts would share one, or Dagster takes none of its
        name."""
        found = [self.source(table.name) for table in pipeline.sources]
        for insert in pipeline.inserts:
            found += [self.staged(insert), self.published(insert)]
        by_time = [self.by_time(insert) for insert in pipeline.inserts if insert.by_spans]
        odd = next((part for key in found for part in self.own(key).path if not _OF_DAGSTER.fullmatch(part)), None)
        if odd is not None:
            raise PlanningError(
                f"{odd!r} cannot be a part of names in Dagster, which have letters from A to Z, digits, `_`, `-` and "
                "`.`, and do not begin with `__ASSET_JOB`",
                where=f"the pipeline {self.pipeline}",
                state="nothing was loaded",
                next_command="give the pipeline a `name` of these, or its script such a file name; a table such a name",
            )
        twice = _first_repeated(self.op(key) for key in [*found, *by_time, self.maintenance, self.reconcile])
        if twice is not None:
            raise PlanningError(
                f"two parts of {self.pipeline} would be the same asset, {twice}",
                state="nothing was loaded",
                next_command="give the INSERT another 'insert.id', or the table another name",
            )
        return found


def refuse_equal_names(pipelines: Iterable[tuple[str, str]]) -> None:
    """Raises PlanningError where two pipelines of a code location (name, where it is declared) would have the same
    assets, job and schedule, for example one script on two lakes."""
    places: dict[str, str] = {}
    for name, place in pipelines:
        own = identifier(name)
        if own in places:
            raise PlanningError(
                f"two pipelines of this code location are called {name}: {places[own]} and {place}",
                state="nothing was loaded",
                next_command=f"give one of them another `name`, such as {name}_2: its assets, job and schedule have it",
            )
        places[own] = place


def refuse_equal_jobs(declared: dict[Any, tuple[str, list[str]]], at: Any, jobs: list[str], place: str) -> None:
    """Note in `declared` which jobs are declared `at` a location, whatever was declared there before; `place` names it.
    Raises PlanningError where one of them is declared elsewhere, for example a pipeline that has the name of another
    one's operation."""
    for other, (where, taken) in declared.items():
        name = next((name for name in jobs if other != at and name in taken), None)
        if name is not None:
            raise PlanningError(
                f"two jobs of this code location are called {name}: one of {where}, and one of {place}",
                state="nothing was loaded",
                next_command="give one of the two pipelines another `name`: its job, and the operations of a component "
                "that Python makes, begin with it",
            )
    declared[at] = place, jobs


def _first_repeated(names: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None
