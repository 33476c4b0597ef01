"""What is new in a lake: what has landed of a source table, what an INSERT has published since an epoch, and the state
of its newest one. Read from control tables, without Spark."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Any, Literal, TypeVar

from tidegate.pipelines.commands import VERIFY
from tidegate.pipelines.errors import LakeError
from tidegate.pipelines.lake import Lake, StagedRow, VerdictRow, WatermarkRow
from tidegate.pipelines.lake.control import Records
from tidegate.pipelines.lake.delta_log import committed
from tidegate.pipelines.lake.leases import read_leases
from tidegate.pipelines.lake.stream import Stream
from tidegate.pipelines.location import Location
from tidegate.pipelines.runtime.epochs import ReleasePlan, insert_owner, stored_plan
from tidegate.pipelines.runtime.epochs.position import waiting_rows
from tidegate.pipelines.runtime.gate import GateVerdict

AT_ONCE = 1_000
"""How many epochs are added up; of more than that only the last one is described."""

Row = TypeVar("Row", StagedRow, VerdictRow)
Place = tuple[int, int]
"""Generation and epoch."""


@dataclass(frozen=True)
class Landed:
    """The newest epoch of a source table.

    Attributes:
        row: of the watermark log; None where nothing has landed though an INSERT looked for it.
    """

    stream: Stream
    row: WatermarkRow | None

    @property
    def place(self) -> Place:
        return (self.row.generation, self.row.epoch) if self.row else (0, 0)


def landed(lake: Lake, table: str, readers: Collection[str]) -> Landed | None:
    """The newest epoch of a table that INSERTs (`readers`, by id) read; None if nothing has landed and none of them has
    begun."""
    stream = Stream(lake, table)
    row = stream.newest
    if row is None and not any(lake.epochs.last(insert_owner(reader)) is not None for reader in readers):
        return None
    return Landed(stream, row)


@dataclass(frozen=True)
class Epoch:
    """The newest epoch of an INSERT, and how far it is.

    Attributes:
        plan: what it releases; `staged` and `verdict` are of this very plan.
        published: the newest published epoch.
    """

    lake: Lake
    owner: str
    plan: ReleasePlan
    staged: StagedRow | None
    verdict: VerdictRow | None
    published: Place

    @property
    def place(self) -> Place:
        return self.plan.generation, self.plan.epoch

    @property
    def judged(self) -> GateVerdict | None:
        return None if self.verdict is None else GateVerdict.of(self.verdict)

    @property
    def gate(self) -> Literal["open", "held", "passed"]:
        """What its gate says."""
        return "open" if self.verdict is None else "passed" if self.verdict.passed else "held"


def newest_epoch(lake: Lake, insert: str, target: Location) -> Epoch | None:
    """The newest epoch of an INSERT whose target lies there; None before the first."""
    owner = insert_owner(insert)
    row = lake.epochs.last(owner)
    if row is None:
        return None
    plan = stored_plan(row)
    published = committed(target, lake.application(owner, "publish", plan.generation))
    staged, verdict = _of(lake.staged, owner, plan), _of(lake.verdicts, owner, plan)
    return Epoch(lake, owner, plan, staged, verdict, (plan.generation, published))


@dataclass(frozen=True)
class Published:
    """What an INSERT has published since an epoch.

    Attributes:
        newest: the newest epoch of it.
        staged: what the epochs had staged, the newest first; only the newest of more than AT_ONCE.
        warned: the verdict on the newest that the gate warned of; on the newest of all if it warned of none.
        waiting: landed rows that are in no commit yet.
    """

    newest: Epoch
    staged: tuple[StagedRow, ...]
    warned: GateVerdict
    waiting: int


def published_since(newest: Epoch, since: Place) -> Published:
    """The epochs after `since` up to the newest published one. Raises LakeError where the lake does not say what they
    staged."""
    lake, owner, (generation, epoch), plan = newest.lake, newest.owner, newest.published, newest.plan
    if epoch < plan.epoch:
        plan = stored_plan(lake.epochs.rows(owner, generation=generation, epoch=epoch)[0])
    since = min(since, (plan.generation, plan.epoch - 1))
    first = since[1] + 1 if since[0] == plan.generation else plan.epoch
    verdicts = [row for row in _epochs(lake.verdicts, owner, plan, first) if row.passed]
    passed = {(row.epoch, row.plan_digest) for row in verdicts}
    staged = [row for row in _epochs(lake.staged, owner, plan, first) if (row.epoch, row.plan_digest) in passed]
    if not staged or not verdicts:
        raise LakeError(
            f"epoch {plan.epoch} of {plan.insert} is published, and nothing is recorded of what it staged",
            where=str(lake.control),
            state="nothing was changed",
            next_command=VERIFY,
        )
    whole = plan.epoch - first < AT_ONCE
    judged = [GateVerdict.of(row) for row in verdicts]
    warned = next((verdict for verdict in judged if verdict.warnings), judged[0])
    waiting = sum(waiting_rows([Stream(lake, item.table).newest for item in plan.branches], plan))
    last = Epoch(lake, owner, plan, staged[0], verdicts[0], newest.published)
    return Published(last, tuple(staged if whole else staged[:1]), warned, waiting)


def is_worked_on(lake: Lake, owner: str, label: str, now: int) -> bool:
    """Whether a runner whose label begins so holds the lease of a table or an INSERT at `now` (ms, UTC)."""
    leases = read_leases(lake.logs, owner)
    return any(lease.row.label.startswith(label) and not lease.over(now) for lease in leases)


def _epochs(table: Records[Any], owner: str, plan: ReleasePlan, first: int) -> list[Any]:
    """The rows of the epochs from `first` on up to that of `plan`, the newest first, AT_ONCE epochs at most."""
    rows = table.newest_first(owner, generation=plan.generation, upto=plan.epoch)
    return list(islice(takewhile(lambda row: row.epoch >= first, rows), AT_ONCE))


def _of(table: Records[Row], owner: str, plan: ReleasePlan) -> Row | None:
    rows = table.rows(owner, generation=plan.generation, epoch=plan.epoch)
    return next((row for row in rows if row.plan_digest == plan.digest), None)
