"""Control rows as the runtime stores them, written by hand: states that a test would wait for too long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from tidegate.pipelines.connectors.protocol import Step
from tidegate.pipelines.lake import EpochRow, Lake, StagedRow, VerdictRow, WatermarkRow
from tidegate.pipelines.runtime.epochs import (
    FromQuarantine,
    Lot,
    Pin,
    ReleasePlan,
    StreamPlan,
    StreamRequeue,
    insert_owner,
    source_row,
)
from tidegate.pipelines.watermarks import MIN_TIMESTAMP


class ControlRows:
    """One pipeline of tests.assets.clicks on a lake; `prefix` is put before its tables' names. Times in ms, UTC."""

    def __init__(self, lake: Path, prefix: str = "") -> None:
        self.lake = Lake(lake)
        self.build, self.probe = f"{prefix}user_info", f"{prefix}click_event"
        self.insert = f"{prefix}enriched_click"
        self.owner = insert_owner(self.insert)

    def _add(self, table: str, row: EpochRow | StagedRow | VerdictRow | WatermarkRow) -> None:
        getattr(self.lake, table).append([row], application=f"{table} {row.owner}", version=row.epoch)

    def planned(self, table: str, epoch: int, at: int, step: Step | None = None) -> None:
        """A source's plan."""
        self._add("epochs", source_row(table, 1, epoch, at, step or Step({}, "bounded")))

    def landed(
        self,
        table: str,
        epoch: int,
        at: int,
        *,
        rows: int = 0,
        lag_ms: int | None = None,
        flip: bool = False,
        kept: int | None = None,
        watermark: int | None = None,
    ) -> None:
        """A source's landed epoch. `kept`: until when its log lasts, of which a day is kept. Without a `watermark` the
        table has told (MIN, true)."""
        flipped = {"flip_epoch": epoch, "flipped_at": at} if flip else {}
        told = MIN_TIMESTAMP if watermark is None else watermark
        row = WatermarkRow(table, 1, epoch, at, rows, told, watermark is None, lag_ms=lag_ms, position="binlog.1:4")
        row = replace(row, kept=None if kept is None else {"until": kept, "for_ms": 86_400_000}, **flipped)
        self._add("watermarks", row)

    def plan(self, epoch: int, supersedes: int | None = None, again: int = 0) -> ReleasePlan:
        """The plan of an INSERT's epoch; `again` rows of the first two epochs' quarantine are released in it."""
        kind = "release" if supersedes is None else "re-release"
        pins = (Pin(self.build, 1, 1, 1),)
        plan = StreamPlan(self.insert, 1, epoch, kind, 0, self.probe, 1, 0, 1, pins, "block", "-", supersedes)
        lots = (Lot(f"unmatched:key-absent@{self.build}", 1, 2, again, 0, 1),)
        return plan.as_kind(StreamRequeue, from_quarantine=FromQuarantine(False, lots=lots)) if again else plan

    def judged(
        self,
        epoch: int,
        passed: bool,
        counts: Mapping[str, int],
        at: int = 0,
        reason: str = "2 rows have no match.",
        **plan: int,
    ) -> None:
        """An INSERT's epoch with its verdict."""
        planned = self.plan(epoch, **plan)
        self._add("epochs", planned.row())
        self._add("staged", StagedRow(self.owner, 1, epoch, planned.digest, at, "folder", [], counts, {}))
        reasons = [] if passed else [reason]
        self._add("verdicts", VerdictRow(self.owner, 1, epoch, planned.digest, at, passed, reasons, []))

    def published(self, epoch: int) -> None:
        """The target's commit of an epoch, without rows."""
        path = self.lake.root / "targets" / self.insert
        if not DeltaTable.is_deltatable(str(path)):
            path.mkdir(parents=True, exist_ok=True)
            DeltaTable.create(str(path), schema=pa.schema([("user_id", pa.int32())]))
        application = self.lake.application(self.owner, "publish", 1)
        write_deltalake(
            str(path),
            pa.table({"user_id": pa.array([], pa.int32())}),
            mode="append",
            commit_properties=CommitProperties(app_transactions=[Transaction(application, epoch)]),
        )
