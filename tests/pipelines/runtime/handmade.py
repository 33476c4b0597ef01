"""A lake whose control rows are written by hand, as runs would have left them; no Spark.

`store` and `mark` write rows and transactions; `HandmadeLake` is a whole lake of one INSERT.
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction
from pyspark.sql import SparkSession

from tests.pipelines.runtime.plans import asked_for, release, taken
from tidegate.pipelines.connectors.options import OnUnmatched
from tidegate.pipelines.connectors.protocol import Step
from tidegate.pipelines.connectors.table import Column, Options, Table
from tidegate.pipelines.joins.outcome import outcomes
from tidegate.pipelines.lake import DefinitionRow, EpochRow, Lake, SplitRow, StagedRow, VerdictRow, WatermarkRow
from tidegate.pipelines.lake.adopt import adopt, survey
from tidegate.pipelines.lake.lake import CommitRole
from tidegate.pipelines.lake.stream import Stream
from tidegate.pipelines.location import Location
from tidegate.pipelines.runtime.differences import read_back
from tidegate.pipelines.runtime.epochs import Asked, Lot, Pin, ReleaseKind, ReleasePlan, insert_owner, source_row
from tidegate.pipelines.sources.arrow_types import arrow_schema
from tidegate.pipelines.sql.canonical import computes, digest_of, insert_form, table_form
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.sql.model import Insert, Join, Key, Projection
from tidegate.pipelines.watermarks import MIN_TIMESTAMP

FREE: Any = SimpleNamespace(holds=lambda owner: True, acquire=lambda owner: None, named=nullcontext)
"""Leases that nobody else asks for."""


def no_spark() -> SparkSession:
    """In the place of what starts Spark, for what has to do without."""
    raise AssertionError("it asked for Spark")


SCRIPTED = Options({"connector": "scripted"})


def pipeline() -> Pipeline:
    """clicks (id, n) joined to users (id, name), into enriched (id, n, name) with the key id."""
    identity = Column("id", "BIGINT", "BIGINT", nullable=False)
    number, name = Column("n", "INT", "INT"), Column("name", "STRING", "STRING")
    users = Table("users", (identity, name), SCRIPTED, ("id",), role="build")
    clicks = Table("clicks", (replace(identity, nullable=True), number), SCRIPTED, role="probe")
    enriched = Table("enriched", (identity, number, name), SCRIPTED, ("id",), role="sink")
    insert = Insert(
        id="enriched",
        target="enriched",
        probe="clicks",
        probe_alias="c",
        joins=(Join("users", "u", "LEFT", (Key("`c`.`id`", "id"),), None, "processing", "proctime"),),
        where=None,
        projections=(
            Projection("id", "`c`.`id`", "BIGINT"),
            Projection("n", "`c`.`n`", "INT"),
            Projection("name", "`u`.`name`", "STRING"),
        ),
        sql="INSERT INTO enriched SELECT c.id, c.n, u.name FROM clicks c LEFT JOIN users u …",
    )
    return Pipeline("handmade", {table.name: table for table in (users, clicks, enriched)}, (insert,), "")


@dataclass
class HandmadeLake:
    """Writes what a run would have written, one commit at a time. `watermark` (ms): of tables that say nothing else;
    None is (MIN, true), of a table without time."""

    root: Path
    pipeline: Pipeline = field(default_factory=pipeline)
    watermark: int | None = 0

    def __post_init__(self) -> None:
        self.lake = Lake(self.root)
        self.insert = self.pipeline.inserts[0]
        self.owner = insert_owner(self.insert.id)
        self.target = self.pipeline.table(self.insert.target)
        self.probe, self.build = self.insert.probe, next((join.build for join in self.insert.joins), "")

    def defined(self, owner: str) -> None:
        """The definition of a table or an INSERT, which its first plan finds there."""
        define(self.lake, self.pipeline, owner)

    def begun(self, table: str, epoch: int, at: int | None = None, step: Step | None = None) -> None:
        """An epoch of a source table that is planned, at second `epoch` or at `at` (ms), and has not landed."""
        step = step or Step({"from": epoch - 1, "to": epoch}, "unbounded", summary=f"step {epoch}")
        self.defined(table)
        store(self.lake, source_row(table, 1, epoch, epoch * 1000 if at is None else at, step))

    def landed(
        self,
        table: str,
        epoch: int,
        rows: int = 0,
        *,
        at: int | None = None,
        flip: int | None = None,
        generation: int = 1,
        phase: str = "unbounded",
        lag_ms: int | None = 5,
        kept: int | None = None,
        **changed: Any,
    ) -> None:
        """An epoch of a source table: its plan, where it is not begun, and its row in the watermark log. It landed at
        second `epoch`, or at `at` (ms). `kept`: until when its log lasts, of which a day is kept."""
        at = epoch * 1000 if at is None else at
        step = Step({"from": epoch - 1, "to": epoch}, phase, flips=flip == epoch, summary=f"step {epoch}")  # type: ignore[arg-type]
        self.defined(table)
        store(self.lake, source_row(table, generation, epoch, at, step))
        without_time = self.watermark is None or (phase == "bounded" and flip is None)
        row = WatermarkRow(
            table, generation, epoch, at, rows, MIN_TIMESTAMP if without_time else self.watermark or 0,
            self.watermark is None or flip is not None,
            flip_epoch=flip, flipped_at=None if flip is None else at if flip == epoch else flip * 1000,
        )  # fmt: skip
        until = None if kept is None else {"until": kept, "for_ms": 86_400_000}
        store(self.lake, replace(row, lag_ms=lag_ms, kept=until, position=f"log:{epoch}", **changed))

    def chunks(self, table: str, cuts: list[Mapping[str, object] | None]) -> None:
        """The chunks of a snapshot and the cuts of those that are read."""
        rows = [SplitRow(table, 1, 0, f"chunk-{n}", n, {}) for n in range(len(cuts))]
        rows += [SplitRow(table, 1, 1, f"chunk-{n}", n, None, cut) for n, cut in enumerate(cuts) if cut is not None]
        self.lake.splits.append(rows, application=self.lake.application(table, "splits", 1), version=1)

    def planned(self, epoch: int, after: int, upto: int, **given: Any) -> ReleasePlan:
        """The plan of an epoch of the INSERT; `given` as of `planned_row`."""
        plan = self.planned_row(epoch, after, upto, **given)
        self.defined(self.owner)
        store(self.lake, plan.row())
        return plan

    def planned_row(
        self,
        epoch: int,
        after: int,
        upto: int,
        *,
        pin: int = 1,
        flip: int = 1,
        kind: ReleaseKind = "release",
        on_unmatched: OnUnmatched = "quarantine",
        supersedes: int | None = None,
        rows: int | None = None,
        earlier: int | None = None,
    ) -> ReleasePlan:
        """The same, not stored. `rows` and `earlier`: by what has landed, where they are not given."""
        landed = Stream(self.lake, self.insert.probe).generation(1).landed
        return release(
            self.insert.id,
            epoch,
            taken(
                self.insert.probe,
                after,
                upto,
                landed(after, upto) if rows is None else rows,
                landed(0, after) if earlier is None else earlier,
            ),
            kind=kind,
            instant=epoch * 1000,
            pins=(Pin(self.build, 1, pin, flip),),
            on_unmatched=on_unmatched,
            computes=computes(self.pipeline, self.insert),
            definition=1,
            supersedes=supersedes,
        )

    def staged(self, plan: ReleasePlan, **found: int) -> StagedRow:
        """What an epoch staged; `found` names outcomes with `_` for every other sign (matched, unmatched_deleted_u)."""
        row = self.staged_row(plan, **found)
        store(self.lake, row)
        return row

    def staged_row(self, plan: ReleasePlan, **found: int) -> StagedRow:
        """The same, not stored."""
        counts = all_counts(self.insert, plan, found)
        return StagedRow(
            self.owner, plan.generation, plan.epoch, plan.digest, plan.instant, f"g1-e{plan.epoch}-0", [], counts,
            {"matches@u": counts["matched"], "outside-pin@u": 0, "greatest-epoch@u": 1},
        )  # fmt: skip

    def judged(self, plan: ReleasePlan, *reasons: str) -> None:
        """A verdict: no when there are reasons."""
        store(self.lake, verdict_of(plan, *reasons, at=plan.instant))

    def published(self, plan: ReleasePlan) -> None:
        """The target's commit of an epoch, without rows."""
        application = self.lake.application(self.owner, "publish", plan.generation)
        mark(Path(self.lake.target_path(self.target)), {application: plan.epoch})

    def released(
        self, epoch: int, after: int, upto: int, *reasons: str, publish: bool = True, **given: Any
    ) -> ReleasePlan:
        """An epoch that is planned, staged, judged and, unless there are reasons, published. `given`: of `planned_row`
        what that takes, all else of `staged`."""
        planned = {name: given.pop(name) for name in PLANNED & given.keys()}
        plan = self.planned(epoch, after, upto, **planned)
        self.staged(plan, **given)
        self.judged(plan, *reasons)
        if publish and not reasons:
            self.published(plan)
        return plan

    def epoch(
        self,
        number: int,
        counts: Mapping[str, int],
        *reasons: str,
        at: int = 0,
        publish: bool = False,
        supersedes: int | None = None,
        again: int = 0,
    ) -> ReleasePlan:
        """An epoch of the INSERT with a verdict, no when there are reasons, staged at `at` (ms) with these `counts` by
        their own names. `again` rows of the first two epochs' quarantine are released in it."""
        kind = "release" if supersedes is None else "re-release"
        plan = self.planned_row(number, 0, 1, kind=kind, on_unmatched="block", supersedes=supersedes)
        if again:
            lots = (Lot(f"unmatched:key-absent@{self.build}", 1, 2, again, 0, 1),)
            plan = asked_for(plan, Asked(), lots=lots)
        self.defined(self.owner)
        store(self.lake, plan.row(), StagedRow(self.owner, 1, number, plan.digest, at, "folder", [], counts, {}))
        store(self.lake, verdict_of(plan, *reasons, at=at))
        if publish:
            self.published(plan)
        return plan

    def one_epoch(self, **found: int) -> None:
        """Both tables have landed, and an epoch of the INSERT is published that `found` this (see `staged`)."""
        self.landed("users", 1, 500, flip=1)
        self.landed("clicks", 1, 10)
        self.released(1, 0, 1, **found)

    def appended(self, table: str, epoch: int) -> None:
        """A source table's commit of an epoch, without rows."""
        schema = arrow_schema(self.pipeline.table(table).stored_columns)
        mark(Path(self.lake.table_path(table)), {self.lake.application(table, "data", 1): epoch}, schema)


PLANNED = {"pin", "flip", "kind", "on_unmatched", "supersedes"}
Stored = EpochRow | WatermarkRow | StagedRow | VerdictRow
ROLES: Mapping[type[Stored], CommitRole] = {
    EpochRow: "plan",
    WatermarkRow: "watermark",
    StagedRow: "stage",
    VerdictRow: "verdict",
}


def define(lake: Lake, pipeline: Pipeline, owner: str, number: int = 1) -> None:
    """The definition with a number of an owner of the script, unless there is one."""
    insert = next((item for item in pipeline.inserts if insert_owner(item.id) == owner), None)
    last = lake.definitions.last(owner)
    if (last is None or last.epoch < number) and (insert or owner in pipeline.tables):
        form = insert_form(pipeline, insert) if insert else table_form(pipeline, pipeline.table(owner), {})
        row = DefinitionRow(owner, 1, number, 1, 0, digest_of(read_back(form)), read_back(form), pipeline=pipeline.name)
        lake.definitions.append([row], application=lake.application(owner, "definition", 1), version=number)


def store(lake: Lake, *rows: Stored) -> None:
    """Control rows, each in a commit of its own, as who writes it names it. A plan that is stored already stays."""
    for row in rows:
        if isinstance(row, WatermarkRow):
            Stream(lake, row.owner).generation(row.generation).log_epoch(row)
        else:
            store_together(lake, [row])


def store_together(lake: Lake, *lists: Sequence[Stored]) -> None:
    """Control rows, each list (of one kind and owner) in one commit, as upkeep leaves them."""
    for rows in lists:
        last = rows[-1]
        application = lake.application(last.owner, ROLES[type(last)], last.generation)
        getattr(lake, last.table).append(rows, application=application, version=last.epoch)


def verdict_of(plan: ReleasePlan, *reasons: str, at: int = 0) -> VerdictRow:
    """The gate's answer about an epoch at `at` (ms): no when there are reasons."""
    owner = insert_owner(plan.insert)
    return VerdictRow(owner, plan.generation, plan.epoch, plan.digest, at, not reasons, list(reasons), [])


ID = pa.schema([pa.field("id", pa.int64())])


def mark(path: Path, versions: Mapping[str, int], schema: pa.Schema = ID) -> None:
    """A commit of these transactions without rows; the table is made where there is none."""
    path.mkdir(parents=True, exist_ok=True)
    table = DeltaTable.create(str(path), schema, mode="ignore")
    table.create_write_transaction(
        [], "append", table.schema(),
        commit_properties=CommitProperties(app_transactions=[Transaction(*each) for each in versions.items()]),
    )  # fmt: skip


def adopted(table: Location, folder: str, rows: pa.Table, application: str, epoch: int) -> None:
    """A commit of rows, as runs adopt the files that they have staged; the table is made where there is none."""
    place = table / folder
    Path(place).mkdir(parents=True)
    DeltaTable.create(str(table), rows.schema, mode="ignore")
    pq.write_table(rows, place / "0.parquet")
    adopt(table, place, survey(place), application=application, epoch=epoch)


def all_counts(insert: Insert, plan: ReleasePlan, found: Mapping[str, int]) -> dict[str, int]:
    """Every count of a staged epoch, from the outcomes that are not 0; places as the plan's policy has them."""
    names = {"".join(sign if sign.isalnum() else "_" for sign in name): name for name in outcomes(insert)}
    counts = dict.fromkeys(outcomes(insert), 0) | {names[name]: number for name, number in found.items()}
    dropped = sum(number for name, number in counts.items() if name.startswith("dropped:"))
    unmatched = sum(number for name, number in counts.items() if name.startswith("unmatched:"))
    shown = counts["matched"] + (unmatched if plan.on_unmatched == "publish" else 0)
    rows = sum(counts.values())
    return {
        **counts,
        "rows": rows,
        "to:publish": shown,
        "to:quarantine": rows - dropped - shown,
        "to:drop": dropped,
    }


def made_once(fill: Callable[..., None]) -> Callable[..., HandmadeLake]:
    """`fill(made, *arguments)` writes a lake, once a process; the function that is returned copies it: (root,
    *arguments) -> HandmadeLake."""

    @functools.cache
    def first(*arguments: Any) -> TemporaryDirectory[str]:
        folder = TemporaryDirectory()
        fill(HandmadeLake(Path(folder.name)), *arguments)
        return folder

    @functools.wraps(fill)
    def copied(root: Path, *arguments: Any) -> HandmadeLake:
        return HandmadeLake(Path(shutil.copytree(first(*arguments).name, root, dirs_exist_ok=True)))

    return copied
