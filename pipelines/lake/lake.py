"""An opened lake: its control tables, and the names under which commits are made. `layout` says where everything
lies."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from typing import Any, Literal, Self

from tidegate.pipelines.clock import Clock, system_clock
from tidegate.pipelines.commands import NextCommand
from tidegate.pipelines.errors import LakeError
from tidegate.pipelines.lake.control import ControlTable
from tidegate.pipelines.lake.generations import GenerationRow
from tidegate.pipelines.lake.layout import Layout
from tidegate.pipelines.lake.leases import Leases, Reservation
from tidegate.pipelines.lake.records import (
    DefinitionRow,
    EpochRow,
    LedgerRow,
    SplitRow,
    StagedRow,
    StuckRow,
    VerdictRow,
    WatermarkRow,
)
from tidegate.pipelines.location import Address, Location

OWN_FOLDERS, PRIVATE = ("tables", "state", "_scratch", "_quality"), 0o700
"""Folders beside `_control` that belong to Tidegate alone: they hold rows of the sources, and only their owner may read
them. Targets are made with the umask."""

KEEP = "DO_NOT_REMOVE.txt"
"""The file that explains what lies in a target's `_quarantine`."""

_WHY = """The rows that were quarantined of the published table lie in here, each with the reason.
In a lake that an older Tidegate began, files of the published table lie in here too: to remove them destroys it.
So remove nothing in here by hand.

Rows that nobody wants any more are given up by:  tidegate quarantine discard SCRIPT INSERT --because TEXT
Files that nobody reads any more are removed by:  tidegate maintain SCRIPT
"""


def mark(quarantine: Location) -> None:
    """Write that file beside a target's quarantine. Raises OSError."""
    note = quarantine.parent / KEEP
    if not note.is_there():
        note.put(_WHY.encode())


def _made(control: Location) -> bool:
    try:
        return any((control / table / "_delta_log").is_there() for table in ("epochs", "leases"))
    except OSError as error:
        raise LakeError(
            f"the lake's folder cannot be read: {error.strerror}",
            where=str(control),
            state="nothing was changed",
            next_command="give a lake that you may read: --lake DIR",
        ) from error


CommitRole = Literal[
    "plan",
    "data",
    "watermark",
    "splits",
    "stage",
    "verdict",
    "quarantine",
    "publish",
    "notified",
    "rejected",
    "state",
    "retention-time",
    "retention-epoch",
    "definition",
    "retention-rows",
    "stuck",
    "ledger",
    "generation",
    "swap",
]

FORMAT = 4
"""What a lake of this version holds. Others are refused, as none is released yet: 1 had no definitions, 2 staged a
target's files in its quarantine's folder, 3 had a kind of plan for each kind of epoch."""

_FORMAT_OWNER = "lake format"
"""The owner of the row with the lake's format; no table can have this name."""


class Lake(Layout):
    """A folder of Delta tables. Opening an existing one reads nothing; `create` makes it where it is missing.

    Raises LakeError when the folder is not writable or not there, or the lake was made by another version of Tidegate.
    """

    def __init__(self, root: Address, *, create: bool = True) -> None:
        super().__init__(root)
        self.control = self.root / "_control"
        if not self.exists() and not create:
            raise LakeError(
                "there is no lake here",
                where=str(self.root),
                state="nothing was changed",
                next_command=NextCommand("run", does="makes one; or give the right --lake"),
            )
        try:
            self.root.make()
            self.control.make(PRIVATE)
        except OSError as error:
            raise LakeError(
                f"the lake's folder cannot be made: {error.strerror}",
                where=str(self.root),
                state="nothing was changed",
                next_command="give a folder that you may write to: --lake DIR",
            ) from error
        for name in OWN_FOLDERS:
            with suppress(OSError):  # of a lake that is only read: whoever writes there gets the error
                (self.root / name).make(PRIVATE)
        self.epochs = ControlTable(self.control, EpochRow)
        self.watermarks = ControlTable(self.control, WatermarkRow)
        self.splits = ControlTable(self.control, SplitRow)
        self.staged = ControlTable(self.control, StagedRow)
        self.verdicts = ControlTable(self.control, VerdictRow)
        self.stuck = ControlTable(self.control, StuckRow)
        self.definitions = ControlTable(self.control, DefinitionRow)
        self.ledger = ControlTable(self.control, LedgerRow)
        self.generations = ControlTable(self.control, GenerationRow)
        self._refuse_other_format()

    @classmethod
    def found(cls, root: Address) -> Self | None:
        """The lake in a folder; None where none was ever made. Raises LakeError as opening does."""
        return cls(root, create=False) if _made(Layout(root).root / "_control") else None

    def exists(self) -> bool:
        """Whether a lake was ever made here. A first run takes a lease before it plans anything."""
        return _made(self.control)

    @property
    def format(self) -> int:
        """The number of the lake's format; this version's where none is stored yet."""
        row = self.definitions.last(_FORMAT_OWNER)
        if row is not None:
            return row.epoch
        # A lake that was made before there were numbers is told by its plans.
        plans = (self.epochs.last(owner) for owner in self.epochs.owners() if owner.startswith("insert "))
        return FORMAT if all(plan is None or "takes" in plan.plan for plan in plans) else 1

    def set_format(self, at: int) -> None:
        """Store that the lake has this version's format. `at`: ms, UTC."""
        if self.definitions.last(_FORMAT_OWNER) is None:
            row = DefinitionRow(_FORMAT_OWNER, 1, FORMAT, 0, at, "", {})
            application = self.application(_FORMAT_OWNER, "definition", 1)
            self.definitions.append([row], application=application, version=FORMAT)

    def _refuse_other_format(self) -> None:
        found = self.format
        if found != FORMAT:
            made = "a newer" if found > FORMAT else "an older"
            raise LakeError(
                f"the lake has format {found}, of {made} Tidegate; this one reads and writes format {FORMAT}",
                where=str(self.root),
                state="nothing was changed",
                next_command="use the Tidegate that made it; or begin another lake: --lake DIR",
            )

    @cached_property
    def id(self) -> str:
        """The lake's identity: it is part of every transaction's name."""
        return str((self.epochs.refresh() or self.epochs.create()).metadata().id)

    def application(self, owner: str, role: CommitRole, generation: int) -> str:
        """The transaction name (txnAppId) of one kind of commit of one owner."""
        return f"{self.id}/{owner}/{role}/{generation}"

    @staticmethod
    def application_parts(name: str) -> tuple[str, str, str] | None:
        """(lake's id, owner, role) of a name that a lake's `application` has made; None for another writer's."""
        lake, _, rest = name.partition("/")
        owner, *role_and_generation = rest.rsplit("/", 2)
        return (lake, owner, role_and_generation[0]) if len(role_and_generation) == 2 else None

    @property
    def control_tables(self) -> tuple[ControlTable[Any], ...]:
        """All of them but the leases."""
        return tuple(table for table in vars(self).values() if isinstance(table, ControlTable))

    def leases(self, label: str, clock: Clock = system_clock, reservation: Reservation | None = None) -> Leases:
        """The leases of one runner."""
        return Leases(self.control, label=label, clock=clock, reservation=reservation)
