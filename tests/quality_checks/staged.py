"""Staged epochs made by hand: real Parquet files, real Delta tables, and whatever counts a case says; no Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from tests.pipelines.runtime.handmade import HandmadeLake, all_counts, pipeline
from tidegate.pipelines.connectors.table import Constraint, severest_first
from tidegate.pipelines.lake import WatermarkRow
from tidegate.pipelines.lake.adopt import survey
from tidegate.pipelines.runtime.epochs import Pin
from tidegate.pipelines.runtime.gate import StagedEpoch
from tidegate.pipelines.sql.compile import Pipeline

TARGET = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("n", pa.int32()),
        pa.field("name", pa.string()),
        pa.field("_op", pa.string()),
        pa.field("_generation", pa.int32()),
        pa.field("_epoch", pa.int64()),
    ]
)
QUARANTINE = pa.schema(
    [
        *TARGET,
        pa.field("_probe_epoch", pa.int64()),
        pa.field("_split", pa.string()),
        pa.field("_offset", pa.int64()),
        pa.field("_reason", pa.string()),
    ]
)


@dataclass(frozen=True)
class Given:
    """What a case says of a staged epoch. What it leaves out is as a good epoch has it.

    Attributes:
        counts: outcomes that are not 0, under their own names.
        places: to:publish, to:quarantine, to:drop where they are not what the outcomes give.
        files: rows in the files of a place where they are not what the counts say.
        released: rows by the watermark log.
        facts, pin, log: values that replace those of a good epoch; a pin or log of None is left out.
        drop: names of counts and facts that are missing.
        nulls: null keys among the rows to publish. `nameless`: rows of each file without a name.
        columns: types that replace those of a staged column.
        constraints: of the target, which no row violates.
        pipeline: what takes the place of the handmade one.
    """

    counts: Mapping[str, int]
    policy: str = "quarantine"
    kind: str = "release"
    places: Mapping[str, int] = field(default_factory=dict)
    files: Mapping[str, int] = field(default_factory=dict)
    released: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    pin: Mapping[str, Any] = field(default_factory=dict)
    log: Mapping[str, Any] = field(default_factory=dict)
    drop: tuple[str, ...] = ()
    extra: Mapping[str, int] = field(default_factory=dict)
    nulls: int = 0
    nameless: int = 0
    columns: Mapping[str, str] = field(default_factory=dict)
    constraints: tuple[Constraint, ...] = ()
    pipeline: Pipeline | None = None


def stage(root: Path, given: Given) -> StagedEpoch:
    """The staged epoch of a case, in a lake of its own at `root`."""
    made = HandmadeLake(root / "lake", constrained(given.pipeline or pipeline(), given.constraints))
    lake, insert, target = made.lake, made.insert, made.target
    kind, policy = given.kind, given.policy
    plan = made.planned(2, 1, 3, pin=5, flip=4, kind=kind, on_unmatched=policy)
    pins = () if given.pin.get("absent") else (Pin(**{**vars(plan.pins[0]), **given.pin}),)
    plan = replace(plan, pins=pins)
    for path, schema in (
        (lake.target_path(target), TARGET),
        (lake.quarantine_path(target, insert), QUARANTINE),
    ):
        Path(path).mkdir(parents=True, exist_ok=True)
        DeltaTable.create(str(path), schema=schema, mode="ignore")
    words = {"".join(sign if sign.isalnum() else "_" for sign in name): number for name, number in given.counts.items()}
    counts = {**all_counts(insert, plan, words), **given.places, **given.extra}
    facts = {"matches@u": counts["matched"], "outside-pin@u": 0, "greatest-epoch@u": 5, **given.facts}
    folders = lake.new_attempt(target, insert, "g1-e2-0")
    for place, folder in folders.items():
        rows = given.files.get(place, counts[f"to:{place}"])
        if rows:
            write(Path(folder / f"_disposition={place}" / "part-0.parquet"), place, rows, given)
    facts = {**{f"violations@{each.name}": 0 for each in given.constraints}, **facts}
    staged = replace(
        made.staged_row(plan),
        folder="g1-e2-0",
        files=[vars(file) for folder in folders.values() for file in survey(folder)],
        counts={name: number for name, number in counts.items() if name not in given.drop},
        facts={name: value for name, value in facts.items() if name not in given.drop},
    )
    log = WatermarkRow(**{
        **{"owner": "users", "generation": 1, "epoch": 5, "landed_at": 0, "rows": 9, "timestamp": 0},
        **{"use_processing_time": True, "flip_epoch": 4},
        **{name: value for name, value in given.log.items() if name != "absent"},
    })  # fmt: skip
    return StagedEpoch(
        pipeline=made.pipeline,
        insert=insert,
        target=target,
        plan=plan,
        staged=staged,
        released=counts["rows"] if given.released is None else given.released,
        landed={} if given.log.get("absent") else {"users": log},
        lake=lake,
    )


def constrained(given: Pipeline, constraints: tuple[Constraint, ...]) -> Pipeline:
    """The same pipeline, its target with constraints."""
    (insert,) = given.inserts
    target = replace(given.table(insert.target), constraints=constraints)
    inserts = (replace(insert, constraints=severest_first(constraints)),)
    return replace(given, tables={**given.tables, target.name: target}, inserts=inserts)


def write(path: Path, place: str, rows: int, given: Given) -> None:
    """A staged file: ids count up, `given.nulls` of them are null."""
    schema = pa.schema(
        [pa.field(item.name, pa.type_for_alias(given.columns.get(item.name, str(item.type)))) for item in QUARANTINE]
    )
    values: dict[str, list[Any]] = {
        "id": [None if number < given.nulls else number for number in range(rows)],
        "n": list(range(rows)),
        "name": [None if number < given.nameless else "ann" for number in range(rows)],
        "_op": ["+I"] * rows,
        "_generation": [1] * rows,
        "_epoch": [2] * rows,
        "_probe_epoch": [2] * rows,
        "_split": ["0"] * rows,
        "_offset": list(range(rows)),
        "_reason": ["unmatched:key-absent@u" if place == "quarantine" else None] * rows,
    }
    if given.constraints:
        schema, values["_violated"] = schema.append(pa.field("_violated", pa.int64())), [0] * rows
    arrays = [pa.array(values[item.name]).cast(item.type) for item in schema]
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), path)
