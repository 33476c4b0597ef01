"""What Dagster knows of each asset before anything runs: keys, texts, schema, lineage, kinds."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg

from tidegate.assets.lineage import published_lineage, staged_lineage
from tidegate.assets.names import Names
from tidegate.assets.presentation import Presentation
from tidegate.assets.text import markdown_table
from tidegate.pipelines.lake import Layout
from tidegate.pipelines.runtime.nearest import keyed_joins
from tidegate.pipelines.sql.canonical import computes, digest_of, table_form
from tidegate.pipelines.sql.model import Column, Insert, Location, Table
from tidegate.pipelines.sql.options import on_unmatched
from tidegate.pipelines.sql.pipeline import Pipeline

LAKE = "tidegate/lake"
TABLE = "tidegate/table"
INSERT = "tidegate/insert"
SCRIPT = "tidegate/script"
JOINS = "tidegate/joins"
"""Definition metadata by which sensors find the lake and the INSERT of an asset, without compiling the script."""

_KINDS = {"mysql-cdc": "mysql", "upsert-kafka": "kafka", "delta": "deltalake", "filesystem": "parquet"}


def connector_kind(connector: str) -> str:
    """What Dagster calls the system behind a connector."""
    return _KINDS.get(connector, connector)


def source_spec(pipeline: Pipeline, table: Table, lake: Layout, names: Names, look: Presentation) -> dg.AssetSpec:
    """A source table: a build's changelog, or a probe's landed rows."""
    what = (
        "Build side: every change of the table, as an append-only changelog. Rows of the probe are held back until "
        "its snapshot is proved complete (the flip)."
        if table.role == "build"
        else "Probe side: rows land as they come; each INSERT releases them when its build sides have flipped."
    )
    return _spec(
        names.source(table.name),
        deps=(),
        text=[table.comment, what, _facts(table)],
        columns=table.stored_columns,
        path=lake.table_path(table.name),
        kinds={connector_kind(table.connector), "spark", "deltalake"},
        location=table.location,
        look=look,
        names=names,
        # Variables stay as they are written: the code server may have other values than a run.
        version=digest_of(table_form(pipeline, table, {})),
        condition=dg.AutomationCondition.on_cron(look.cron),
        metadata={LAKE: str(lake.root), TABLE: table.name, "options": dg.MetadataValue.json(table.options.redacted())},
        fresh_within=look.build_fresh_within if table.role == "build" else look.probe_fresh_within,
    )


def staged_spec(pipeline: Pipeline, insert: Insert, lake: Layout, names: Names, look: Presentation) -> dg.AssetSpec:
    """The joined rows of an epoch, which no commit names yet."""
    target = pipeline.table(insert.target)
    return _spec(
        names.staged(insert),
        deps=_read(pipeline, insert, names),
        text=[
            f"The next epoch of `{insert.id}`: probe rows joined at pinned epochs of "
            f"{' and '.join(insert.builds) or 'no build side'}, written beside the target and not visible in it. "
            "The gate judges it; waiting for a build side to flip is no failure.",
            f"```sql\n{insert.sql}\n```",
        ],
        columns=target.stored_columns,
        path=lake.staged_path(target, insert),
        kinds={"spark", "parquet"},
        location=insert.location,
        look=look,
        names=names,
        version=computes(pipeline, insert),
        condition=_downstream(),
        metadata={
            **_of_insert(pipeline, lake, insert, staged_lineage(insert, names)),
            "on unmatched": on_unmatched(target),
        },
        table_name=False,
    )


def published_spec(pipeline: Pipeline, insert: Insert, lake: Layout, names: Names, look: Presentation) -> dg.AssetSpec:
    """The rows of an INSERT in its target."""
    target = pipeline.table(insert.target)
    return _spec(
        names.published(insert),
        deps=[names.staged(insert)],
        text=[
            target.comment,
            f"What `{insert.id}` has published. An epoch enters by one commit, and only with the gate's stored verdict "
            "on that very epoch; rows that the gate keeps out are in the quarantine beside it.",
            _facts(target),
        ],
        columns=target.stored_columns,
        path=lake.target_path(target),
        kinds={"deltalake", connector_kind(target.connector)},
        location=target.location,
        look=look,
        names=names,
        version=computes(pipeline, insert),
        condition=_downstream(),
        metadata={
            **_of_insert(pipeline, lake, insert, published_lineage(insert, names)),
            "quarantine": dg.MetadataValue.path(str(lake.quarantine_path(target, insert))),
            "options": dg.MetadataValue.json(target.options.redacted()),
        },
        fresh_within=look.fresh_within,
    )


def by_time_spec(pipeline: Pipeline, insert: Insert, lake: Layout, names: Names, look: Presentation) -> dg.AssetSpec:
    """The rows of an event-time INSERT by spans of their time: the same rows in the same target."""
    target = pipeline.table(insert.target)
    return _spec(
        names.by_time(insert),
        deps=_read(pipeline, insert, names),
        text=[
            f"`{insert.id}` by time. Materialising a partition releases the rows of `{insert.probe}` that have landed "
            "and lie in its span, through the gate, in the place of what was released of them before. History can be "
            "made ahead of the stream, in any order; a span that is made again takes up late versions and a changed "
            "script. The stream goes on where it stands, and releases nothing twice.",
        ],
        columns=target.stored_columns,
        path=lake.target_path(target),
        kinds={"spark", "deltalake"},
        location=insert.location,
        look=look,
        names=names,
        version=computes(pipeline, insert),
        condition=None,
        metadata=_of_insert(pipeline, lake, insert, staged_lineage(insert, names)),
    )


def _read(pipeline: Pipeline, insert: Insert, names: Names) -> list[dg.AssetKey]:
    """What an INSERT reads: source tables, and what processes publish."""
    given = {name: item for item in pipeline.inserts if item.process for name in item.process.outputs}
    return [names.published(given[name]) if name in given else names.source(name) for name in insert.inputs]


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


def _downstream() -> dg.AutomationCondition[Any]:
    """Eager, and never past a failed gate: `eager` alone does not look at checks."""
    return dg.AutomationCondition.eager() & dg.AutomationCondition.all_deps_blocking_checks_passed()


def _of_insert(pipeline: Pipeline, lake: Layout, insert: Insert, lineage: dg.TableColumnLineage) -> dict[str, Any]:
    return {
        LAKE: str(lake.root),
        INSERT: insert.id,
        JOINS: dg.MetadataValue.json([asdict(join) for join in keyed_joins(pipeline, insert)]),
        "dagster/column_lineage": lineage,
    }


def _facts(table: Table) -> str:
    """What the CREATE TABLE says, for people."""
    facts = [("connector", table.connector), ("primary key", ", ".join(table.primary_key) or None)]
    if table.watermark is not None:
        facts.append(("watermark", f"{table.watermark.column} AS {table.watermark.sql or table.watermark.expression}"))
    return markdown_table(("table", table.name), [fact for fact in facts if fact[1]])


def _spec(
    key: dg.AssetKey,
    *,
    deps: Iterable[dg.AssetKey],
    text: Iterable[str | None],
    columns: Iterable[Column],
    path: Path,
    kinds: set[str],
    location: Location,
    look: Presentation,
    names: Names,
    version: str,
    condition: dg.AutomationCondition[Any] | None,
    metadata: dict[str, Any],
    table_name: bool = True,
    fresh_within: timedelta | None = None,
) -> dg.AssetSpec:
    shown: dict[str, Any] = {
        "dagster/column_schema": table_schema(columns),
        "path": dg.MetadataValue.path(str(path)),
        **metadata,
    }
    if table_name:
        shown["dagster/table_name"] = f"delta.`{path}`"
    if look.script is not None:
        shown[SCRIPT] = str(look.script.absolute())
        shown["dagster/code_references"] = _link(look.script, location)
    return dg.AssetSpec(
        key,
        deps=list(deps),
        description="\n\n".join(part for part in text if part),
        metadata=shown,
        group_name=look.group or names.group,
        code_version=version,
        owners=list(look.owners),
        tags=dict(look.tags),
        kinds=kinds,
        automation_condition=condition if look.automation else None,
        freshness_policy=None if fresh_within is None else dg.FreshnessPolicy.time_window(fail_window=fresh_within),
    )


def _link(script: Path, location: Location) -> dg.CodeReferencesMetadataValue:
    """A link to the line of the script; Dagster calls the two classes beta, and says so at every use."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        place = dg.LocalFileCodeReference(
            file_path=str(script.absolute()), line_number=max(location.line, 1), label=script.name
        )
        return dg.CodeReferencesMetadataValue(code_references=[place])
