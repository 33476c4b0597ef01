"""What Dagster knows of each asset before anything runs: keys, texts, schema, lineage, kinds."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import dagster as dg
import sqlglot
from sqlglot import exp

from tidegate.assets.jobs import PIPELINE_TAG
from tidegate.assets.names import Names
from tidegate.assets.presentation import Kind, OnLake, PipelineAsset, Presentation
from tidegate.assets.text import markdown_table
from tidegate.pipelines.connectors.options import on_unmatched
from tidegate.pipelines.connectors.table import Column, Table
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.location import Address
from tidegate.pipelines.process.windows.windowed import WINDOW_END
from tidegate.pipelines.sql.canonical import computes, digest_of, table_form
from tidegate.pipelines.sql.compile import Pipeline, keyed_joins
from tidegate.pipelines.sql.model import Insert
from tidegate.pipelines.syntax.errors import Location

LAKE = "tidegate/lake"
TABLE = "tidegate/table"
INSERT = "tidegate/insert"
SCRIPT = "tidegate/script"
PIPELINE = PIPELINE_TAG
JOINS = "tidegate/joins"
"""Definition metadata by which sensors find the lake and the INSERT of an asset, without compiling the script. A
person's changes to a spec do not change it."""

_KINDS = {"mysql-cdc": "mysql", "upsert-kafka": "kafka", "delta": "deltalake", "filesystem": "parquet"}


def connector_kind(connector: str) -> str:
    """What Dagster calls the system behind a connector."""
    return _KINDS.get(connector, connector)


def source_spec(on: OnLake, table: Table) -> dg.AssetSpec:
    """A source table: a build's changelog, or a probe's landed rows."""
    what = (
        "Build side: every change of the table, as an append-only changelog. Rows of the probe are held back until "
        "its snapshot is proved complete (the flip)."
        if table.role == "build"
        else "Probe side: rows land as they come; each INSERT releases them when its build sides have flipped."
    )
    return _spec(
        on,
        on.names.source(table.name),
        of=table,
        kind="source",
        deps=(),
        text=[table.comment, what, _facts(table)],
        shape=table,
        path=on.lake.table_path(table.name),
        kinds={connector_kind(table.connector), "spark", "deltalake"},
        condition=by_cron(on.look),
        metadata={
            LAKE: str(on.lake.root),
            TABLE: table.name,
            "options": dg.MetadataValue.json(table.options.redacted()),
        },
        fresh_within=on.look.build_fresh_within if table.role == "build" else on.look.probe_fresh_within,
    )


def staged_spec(on: OnLake, insert: Insert) -> dg.AssetSpec:
    """The joined rows of an epoch, which no commit names yet."""
    target = on.pipeline.table(insert.target)
    return _spec(
        on,
        on.names.staged(insert),
        of=insert,
        kind="staged",
        deps=read_by(on.pipeline, insert, on.names).values(),
        text=[
            f"The next epoch of `{insert.id}`: probe rows joined at pinned epochs of "
            f"{' and '.join(insert.builds) or 'no build side'}, written beside the target and not visible in it. "
            "The gate judges it; waiting for a build side to flip is no failure.",
            f"```sql\n{insert.with_views}\n```",
        ],
        shape=target,
        path=on.lake.staged_paths(target, insert)["publish"],
        kinds={"spark", "parquet"},
        condition=_downstream(),
        metadata={
            **_of_insert(on, insert, staged_lineage(on.pipeline, insert, on.names)),
            "on unmatched": on_unmatched(target),
        },
        table_name=False,
    )


def published_spec(on: OnLake, insert: Insert) -> dg.AssetSpec:
    """The rows of an INSERT in its target."""
    target = on.pipeline.table(insert.target)
    return _spec(
        on,
        on.names.published(insert),
        of=insert,
        kind="published",
        deps=[on.names.staged(insert)],
        text=[
            target.comment,
            f"What `{insert.id}` has published. An epoch enters by one commit, and only with the gate's stored verdict "
            "on that very epoch; rows that the gate quarantines are in the quarantine beside it.",
            _facts(target),
        ],
        shape=target,
        path=on.lake.target_path(target),
        kinds={"deltalake", connector_kind(target.connector)},
        condition=_downstream(),
        metadata={
            **_of_insert(on, insert, published_lineage(insert, on.names)),
            "quarantine": dg.MetadataValue.path(str(on.lake.quarantine_path(target, insert))),
            "options": dg.MetadataValue.json(target.options.redacted()),
        },
        fresh_within=on.look.fresh_within,
    )


def by_time_spec(on: OnLake, insert: Insert, partitions: dg.PartitionsDefinition | None = None) -> dg.AssetSpec:
    """The rows of an event-time INSERT by spans of their time: the same rows in the same target."""
    target = on.pipeline.table(insert.target)
    return _spec(
        on,
        on.names.by_time(insert),
        of=insert,
        kind="by_time",
        deps=read_by(on.pipeline, insert, on.names).values(),
        text=[
            f"`{insert.id}` by time. Materialising a partition releases the rows of `{insert.probe}` that have landed "
            "and lie in its span, through the gate, and replaces what was released of them before. History can be "
            "released ahead of the stream, in any order. A span that is released again is joined to late versions "
            "too, by the script as it is now. The stream goes on from its position, and releases nothing twice.",
        ],
        shape=target,
        path=on.lake.target_path(target),
        kinds={"spark", "deltalake"},
        condition=None,
        metadata=_of_insert(on, insert, staged_lineage(on.pipeline, insert, on.names)),
        partitions=partitions,
    )


def upkeep_spec(
    on: OnLake,
    kind: Literal["maintenance", "reconcile"],
    *,
    deps: Iterable[dg.AssetKey],
    description: str,
    kinds: set[str],
) -> dg.AssetSpec:
    """What a job of the code location does to all tables of a pipeline, and records as this asset."""
    spec = dg.AssetSpec(
        dg.AssetKey([on.names.pipeline, kind]),
        deps=list(deps),
        description=description,
        metadata={PIPELINE: on.names.pipeline},
        group_name=on.look.group or on.names.group,
        owners=list(on.look.owners),
        tags=dict(on.look.tags),
        kinds=kinds,
    )
    chosen = _as_chosen(on, PipelineAsset(kind, kind, on.names.pipeline, spec))
    return chosen.replace_attributes(automation_condition=None)  # no run of assets makes it


def read_by(pipeline: Pipeline, insert: Insert, names: Names) -> dict[str, dg.AssetKey]:
    """What an INSERT reads, by the table's name: source tables, and what others publish."""
    tables = {name: pipeline.writer_of(name) for name in insert.inputs}
    return {name: names.published(writer) if writer else names.source(name) for name, writer in tables.items()}


def table_schema(columns: Iterable[Column]) -> dg.TableSchema:
    """The columns as Dagster shows them, in the script's own types."""
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                column.name,
                column.type,
                description=column.comment or (f"AS {column.sql}" if column.sql else None),
                constraints=dg.TableColumnConstraints(nullable=column.nullable),
            )
            for column in columns
        ]
    )


def by_cron(look: Presentation) -> dg.AutomationCondition[Any]:
    """By cron, and not while a run that is to land the table is queued or under way: ticks are not stored up."""
    return dg.AutomationCondition.on_cron(look.cron, look.timezone) & ~dg.AutomationCondition.in_progress()


def _downstream() -> dg.AutomationCondition[Any]:
    """Eager, and never past a failed gate: `eager` alone ignores checks."""
    return dg.AutomationCondition.eager() & dg.AutomationCondition.all_deps_blocking_checks_passed()


def _of_insert(on: OnLake, insert: Insert, lineage: dg.TableColumnLineage) -> dict[str, Any]:
    return {
        LAKE: str(on.lake.root),
        INSERT: insert.id,
        JOINS: dg.MetadataValue.json([asdict(join) for join in keyed_joins(on.pipeline, insert, on.lake.target_path)]),
        "dagster/column_lineage": lineage,
    }


def _facts(table: Table) -> str:
    """What the CREATE TABLE says, for people."""
    facts = [("connector", table.connector), ("primary key", ", ".join(table.primary_key) or None)]
    if table.watermark is not None:
        facts.append(("watermark", f"{table.watermark.column} AS {table.watermark.sql or table.watermark.expression}"))
    return markdown_table(("table", table.name), [fact for fact in facts if fact[1]])


def _spec(
    on: OnLake,
    key: dg.AssetKey,
    *,
    of: Table | Insert,
    kind: Kind,
    deps: Iterable[dg.AssetKey],
    text: Iterable[str | None],
    shape: Table,
    path: Address,
    kinds: set[str],
    condition: dg.AutomationCondition[Any] | None,
    metadata: dict[str, Any],
    table_name: bool = True,
    fresh_within: timedelta | None = None,
    partitions: dg.PartitionsDefinition | None = None,
) -> dg.AssetSpec:
    shown: dict[str, Any] = {
        PIPELINE: on.names.pipeline,
        "dagster/column_schema": table_schema(shape.stored_columns),
        "path": dg.MetadataValue.path(str(path)),
        **metadata,
    }
    if table_name:
        shown["dagster/table_name"] = f"delta.`{path}`"
    if on.look.script is not None:
        shown[SCRIPT] = str(on.look.script.absolute())
        shown["dagster/code_references"] = _link(on.look.script, (shape if kind == "published" else of).location)
    asked: dict[str, Any]
    if isinstance(of, Table):
        # Variables stay as they are written: the code server may have other values than a run.
        version, asked = digest_of(table_form(on.pipeline, of, {})), {"name": of.name, "table": of}
    else:
        version, asked = computes(on.pipeline, of), {"name": of.id, "insert": of}
    spec = dg.AssetSpec(
        on.names.own(key),
        deps=list(deps),
        description="\n\n".join(part for part in text if part),
        metadata=shown,
        group_name=on.look.group or on.names.group,
        code_version=version,
        owners=list(on.look.owners),
        tags=dict(on.look.tags),
        kinds=kinds,
        automation_condition=condition if on.look.automation else None,
        freshness_policy=None if fresh_within is None else dg.FreshnessPolicy.time_window(fail_window=fresh_within),
        partitions_def=partitions,
    )
    return _as_chosen(on, PipelineAsset(kind, pipeline=on.names.pipeline, spec=spec, **asked))


def _as_chosen(on: OnLake, asset: PipelineAsset) -> dg.AssetSpec:
    """The spec with a person's changes. Its dependencies by the script, and the metadata for sensors, stay.

    Raises PlanningError for a change that the asset cannot have.
    """
    spec = asset.spec
    if on.look.translate is None:
        return spec
    chosen = on.look.translate(asset)
    wrong = None
    if not isinstance(chosen, dg.AssetSpec):
        wrong = f"{type(chosen).__name__} is no AssetSpec"
    elif chosen.partitions_def not in (None, spec.partitions_def):
        wrong = "the partitions of an output are those of `partitions_from`"
    elif on.names.translated and on.names.translated.get(spec.key) != chosen.key:
        wrong = f"its key is {chosen.key.to_user_string()} now, and was another one at the first call"
    if wrong is not None:
        raise PlanningError(
            wrong,
            where=f"translation, or get_asset_spec, of {spec.key.to_user_string()}",
            state="nothing was loaded",
            next_command="return `asset.spec.replace_attributes(…)`, which depends on nothing but the asset",
        )
    own = {name: value for name, value in spec.metadata.items() if name.startswith("tidegate/") or name == "path"}
    there = {dep.asset_key for dep in spec.deps}
    deps = [dep if (key := _parted(dep.asset_key)) == dep.asset_key else dg.AssetDep(key) for dep in chosen.deps]
    more = [dep for dep in deps if dep.asset_key not in there]
    return chosen.replace_attributes(
        deps=[*spec.deps, *more], metadata={**chosen.metadata, **own}, partitions_def=spec.partitions_def
    )


def _parted(key: dg.AssetKey) -> dg.AssetKey:
    """A key that a template has given as one text with slashes."""
    return dg.AssetKey.from_user_string(key.path[0]) if len(key.path) == 1 else key


def _link(script: Path, location: Location) -> dg.CodeReferencesMetadataValue:
    """A link to the line of the script; Dagster calls the two classes beta, and says so at every use."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        place = dg.LocalFileCodeReference(
            file_path=str(script.absolute()), line_number=max(location.line, 1), label=script.name
        )
        return dg.CodeReferencesMetadataValue(code_references=[place])


def references(expression: str) -> list[tuple[str, str]]:
    """The (alias, column) pairs that a Spark SQL expression names, in order, each once.

    A field of a nested column (`alias`.`column`.`field`) counts as its column.
    """
    tree = sqlglot.parse_one(expression, dialect="spark")
    found = []
    for column in tree.find_all(exp.Column, bfs=False):
        parts = [part.name for part in column.parts]
        if len(parts) >= 2:
            found.append((parts[0], parts[1]))
    return list(dict.fromkeys(found))


def _parts_of(insert: Insert) -> dict[str, list[tuple[str, str]]]:
    """Of SQL's windows: what the function emits, by the (alias, column) pairs that it is made of."""
    query = insert.windowed
    if query is None:
        return {}
    made = {item.name: references(item.expression) for item in (*query.groups, *query.parts)}
    return {**made, WINDOW_END: [(query.alias, query.time_column.partition(".")[0])]}


def _made_of(insert: Insert, expression: str) -> list[tuple[str, str]]:
    """The (alias, column) pairs that a projection is made of."""
    parts_of = _parts_of(insert)
    if not parts_of:
        return references(expression)
    tree = sqlglot.parse_one(expression, dialect="spark")
    found = [pair for column in tree.find_all(exp.Column, bfs=False) for pair in parts_of.get(column.name, [])]
    return list(dict.fromkeys(found))


def staged_lineage(pipeline: Pipeline, insert: Insert, names: Names) -> dg.TableColumnLineage:
    """The staged columns, by the columns of what is read."""
    keys = read_by(pipeline, insert, names)
    return dg.TableColumnLineage(
        deps_by_column={
            projection.name: [
                dg.TableColumnDep(asset_key=keys[table], column_name=column)
                for table, column in dict.fromkeys(_sources_of(insert, projection.expression))
            ]
            for projection in insert.projections
        }
    )


def _sources_of(insert: Insert, expression: str) -> Iterator[tuple[str, str]]:
    """The (table, column) pairs that a projection is made of; of a UNION ALL those of every branch."""
    tables = {join.alias: join.build for join in insert.joins}
    entered = {(entry.alias, entry.column): (insert.probe_alias, entry.stored) for entry in insert.entries}
    if not insert.branches:
        tables[insert.probe_alias] = insert.probe
    for alias, column in (entered.get(pair, pair) for pair in _made_of(insert, expression)):
        if alias in tables:
            yield tables[alias], column
        for branch in insert.branches if alias == insert.probe_alias else ():
            found = [(alias, column)]
            for step in reversed(branch.steps):
                made = dict(step.columns)
                texts = [made.get(name, "''") for _, name in found]
                if (of := step.elements) is not None:
                    texts = [of.sql if text.startswith(of.names) else text for text in texts]
                found = [pair for text in texts for pair in references(text)]
            yield from ((branch.table, name) for _, name in found)


def published_lineage(insert: Insert, names: Names) -> dg.TableColumnLineage:
    """The published columns: each is the staged one."""
    return dg.TableColumnLineage(
        deps_by_column={
            projection.name: [dg.TableColumnDep(asset_key=names.staged(insert), column_name=projection.name)]
            for projection in insert.projections
        }
    )
