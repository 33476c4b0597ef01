"""An opened lake: the logs of its owners, and the names under which commits are made. `layout` says where everything
lies."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from typing import Literal, Self

from tidegate.pipelines.clock import Clock, system_clock
from tidegate.pipelines.commands import NextCommand
from tidegate.pipelines.errors import LakeError
from tidegate.pipelines.lake.control import Records
from tidegate.pipelines.lake.layout import Layout
from tidegate.pipelines.lake.leases import Leases, Reservation
from tidegate.pipelines.lake.owner_log import FORMAT, FORMAT_IS, LAKE, OwnerLogs, folder_of
from tidegate.pipelines.lake.records import (
    DefinitionRow,
    EpochRow,
    GenerationRow,
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
A run may be refused without them. So remove nothing in here by hand.

Rows that nobody wants any more are given up by:  tidegate quarantine discard SCRIPT INSERT --because TEXT
Files that nobody reads any more are removed by:  tidegate maintain SCRIPT
"""


def mark(quarantine: Location) -> None:
    """Write that file beside a target's quarantine. Raises OSError."""
    note = quarantine.parent / KEEP
    if not note.is_there():
        note.put(_WHY.encode())


_OF_FORMAT_4 = ("epochs", "leases")
"""Control tables of older lakes, which had one for each kind of record."""


def _made(control: Location, *logs: str) -> bool:
    try:
        return any((control / log / "_delta_log").is_there() for log in logs)
    except OSError as error:
        raise LakeError(
            f"the lake's folder cannot be read: {error.strerror}",
            where=str(control),
            state="nothing was changed",
            next_command="give a lake that you may read: --lake DIR",
        ) from error


CommitRole = Literal[
    "plan", "data", "watermark", "splits", "stage", "verdict", "quarantine", "publish", "notified", "rejected", "state",
    "retention-time", "retention-epoch", "retention-rows", "definition", "stuck", "ledger", "generation", "swap",
]  # fmt: skip


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
        self.logs = OwnerLogs(self.control)
        self._refuse_other_format()
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
        self.epochs = Records(self.logs, EpochRow)
        self.watermarks = Records(self.logs, WatermarkRow)
        self.splits = Records(self.logs, SplitRow)
        self.staged = Records(self.logs, StagedRow)
        self.verdicts = Records(self.logs, VerdictRow)
        self.stuck = Records(self.logs, StuckRow)
        self.definitions = Records(self.logs, DefinitionRow)
        self.ledger = Records(self.logs, LedgerRow)
        self.generations = Records(self.logs, GenerationRow)

    @classmethod
    def found(cls, root: Address) -> Self | None:
        """The lake in a folder; None where none was ever made. Raises LakeError as opening does."""
        control = Layout(root).root / "_control"
        return cls(root, create=False) if _made(control, folder_of(LAKE), *_OF_FORMAT_4) else None

    def exists(self) -> bool:
        """Whether a lake was ever made here. A first run takes a lease before it plans anything."""
        return _made(self.control, folder_of(LAKE), *_OF_FORMAT_4)

    def _refuse_other_format(self) -> None:
        own = self.logs.lake.refresh()
        if own is None and not _made(self.control, *_OF_FORMAT_4):
            if self.logs.unnamed():
                raise LakeError(
                    "the lake's own log is gone, and the logs of its owners are there",
                    where=str(self.logs.lake.path),
                    state="nothing was changed",
                    next_command=f"bring {self.control} back from a backup, then run the same command again",
                )
            return  # its log is made by the first commit
        found = 0 if own is None else int((own.metadata.description or "").removeprefix(FORMAT_IS) or 0)
        if found != FORMAT:
            made = f"format {found}, of a newer" if found > FORMAT else f"format {FORMAT - 1} or older, of an older"
            raise LakeError(
                f"the lake has {made} Tidegate; this one reads and writes format {FORMAT}",
                where=str(self.root),
                state="nothing was changed",
                next_command="use the Tidegate that made it; or begin another lake: --lake DIR",
            )

    @cached_property
    def id(self) -> str:
        """The lake's identity: it is part of every transaction's name."""
        return str(self.logs.lake.create().metadata.id)

    def application(self, owner: str, role: CommitRole, generation: int) -> str:
        """The transaction name (txnAppId) of one kind of commit of one owner."""
        return f"{self.id}/{owner}/{role}/{generation}"

    @staticmethod
    def application_parts(name: str) -> tuple[str, str, str] | None:
        """(lake's id, owner, role) of a name that a lake's `application` has made; None for another writer's."""
        lake, _, rest = name.partition("/")
        owner, *role_and_generation = rest.rsplit("/", 2)
        return (lake, owner, role_and_generation[0]) if len(role_and_generation) == 2 else None

    def leases(self, label: str, clock: Clock = system_clock, reservation: Reservation | None = None) -> Leases:
        """The leases of one runner."""
        return Leases(self.logs, label=label, clock=clock, reservation=reservation)
