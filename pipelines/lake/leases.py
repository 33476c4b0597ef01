"""Only one runner works on a table or an INSERT at a time: the CLI, the continuous mode or Dagster.

A lease is one row of a Delta table, replaced by compare-and-swap: two runners that replace it at once conflict, and one
of them loses. A lease ends when it is released, when its time is past, or (on the same machine) when its process is
dead.

Runners that continue one another's work, the steps of a Dagster run, share a `Reservation`: one hands its lease on, and
only another one of them can take it before the reservation ends.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import uuid
import weakref
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from time import monotonic, sleep

import pyarrow as pa

from tidegate.pipelines.clock import Clock, system_clock
from tidegate.pipelines.commands import remedy
from tidegate.pipelines.errors import LakeError, LeaseHeld
from tidegate.pipelines.lake import delta_log
from tidegate.pipelines.lake.records import file_schema_of, restored, schema_of
from tidegate.pipelines.location import Address, Location
from tidegate.pipelines.progress import Progress, Task

TIME_TO_LIVE_MS = 120_000
RENEW_EVERY_S = 30.0
LOOK_EVERY_S = 1.0
"""How often a waiting runner checks whether a lease is free."""

log = logging.getLogger(__name__)

_live: weakref.WeakValueDictionary[str, Leases | Reservation] = weakref.WeakValueDictionary()


@dataclass(frozen=True)
class Lease:
    """Who holds what. `label` says what the holder is doing ("tidegate run", "dagster run 1234")."""

    owner: str
    holder: str
    machine: str
    pid: int
    started: float
    label: str
    acquired_at: int
    expires_at: int
    released: bool = False

    def describe(self) -> str:
        """For people."""
        host = self.machine.split("/")[0]
        return f"{self.label}, process {self.pid} on {host}" if host else self.label

    @property
    def held_at(self) -> int:
        """When it was last taken or renewed (ms, UTC), so surely held; it is renewed every RENEW_EVERY_S."""
        return self.expires_at - TIME_TO_LIVE_MS

    def over(self, now: int) -> bool:
        """Whether anyone may take it."""
        if self.released:
            return True
        if self.machine != machine():
            return self.expires_at < now
        if self.pid == os.getpid() and _same(self.started, _started(self.pid)):
            return self.holder not in _live
        return not _same(self.started, _started(self.pid))


class Reservation:
    """The leases that the runners of one run hand on to each other. They end with the run's process.

    Args:
        holder: Names the run; the same for each of its runners, in whichever process.
        label: The run's name for other runners.
        pid: The run's process, where it is another one of this machine, which outlives the runner's own. 0: not known;
            what is handed on then ends TIME_TO_LIVE_MS later. None: this process, until `end`.

    Attributes:
        handed_on: What was handed on in this process, and not taken up since.
    """

    def __init__(self, holder: str, label: str, pid: int | None = None) -> None:
        self.holder = holder
        self.label = label
        self.pid = os.getpid() if pid is None else pid
        self.machine = machine() if self.pid else ""
        self.started = (_started(self.pid) if self.pid else None) or 0.0
        self.handed_on: set[str] = set()
        if pid is None:
            _live[holder] = self

    def end(self, root: Address) -> None:
        """Release what nobody has taken up, at the end of a run whose process goes on."""
        leases = Leases(root, label=self.label, reservation=self)
        for owner in sorted(self.handed_on):
            try:
                leases.acquire(owner)
            except LeaseHeld:  # it had come to its end before
                continue
            except LakeError as error:
                log.warning("%s: the end of its lease was not written (%s)", owner, error.what)
        leases.close()
        _live.pop(self.holder, None)


class Leases:
    """The leases that one runner holds; close() releases them all. A thread renews them while they are held. What
    another runner of the same `reservation` has handed on can be taken."""

    def __init__(
        self, root: Address, *, label: str, clock: Clock = system_clock, reservation: Reservation | None = None
    ) -> None:
        self._path = Location(root) / "leases"
        self._clock = clock
        self._label = label
        self._reservation = reservation
        self._held: dict[str, Lease] = {}
        self._lost: dict[str, LeaseHeld] = {}
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._renewer: threading.Thread | None = None
        self.holder = uuid.uuid4().hex
        _live[self.holder] = self

    def acquire(self, owner: str) -> Lease:
        """Take (or keep) the lease of `owner`. Raises LeaseHeld, which names the holder, and LakeError where it cannot
        be written."""
        with self._lock:
            if owner in self._lost:
                raise self._lost[owner]
            if owner in self._held:
                return self._held[owner]
            now = self._clock()
            lease = Lease(
                owner, self.holder, machine(), os.getpid(), _started(os.getpid()) or 0.0, self._label, now,
                now + TIME_TO_LIVE_MS,
            )  # fmt: skip
            try:
                self._swap(owner, lease, self._reservation)
            except delta_log.unreadable() as error:
                raise LakeError(
                    f"{owner}: its lease cannot be written: {error}",
                    where=str(self._path),
                    state="nothing was changed by this run",
                    next_command=remedy(str(error)) + ", then run the same command again",
                ) from error
            self._held[owner] = lease
            if self._reservation is not None:
                self._reservation.handed_on.discard(owner)
            self._renew()
            return lease

    def wait_for(self, owners: Iterable[str], seconds: float, progress: Progress) -> None:
        """Take the leases of `owners`, one after another in the order of their names, and wait for those that others
        hold: `seconds` in all. Raises LeaseHeld once they are over, and as `acquire` does."""
        end = monotonic() + seconds
        for owner in sorted(owners):
            shown: Task | None = None
            while True:
                try:
                    self.acquire(owner)
                    break
                except LeaseHeld as error:
                    left = end - monotonic()
                    if left <= 0 or owner in self._lost:
                        raise
                    shown = shown or progress.task(f"waiting for {owner}", 1)
                    shown.note(f"{error.holder}; {left:,.0f} s left")
                    sleep(min(LOOK_EVERY_S, left))
            if shown is not None:
                shown.advance(1)

    def hand_on(self, owner: str) -> None:
        """Release one lease to the runners of the same reservation only; to everybody if there is none."""
        run = self._reservation
        if run is None:
            self.release(owner)
            return
        with self._lock:
            lease = self._held.pop(owner, None)
            if lease is None:
                return
            theirs = replace(
                lease, holder=run.holder, machine=run.machine, pid=run.pid, started=run.started, label=run.label,
                expires_at=self._clock() + TIME_TO_LIVE_MS,
            )  # fmt: skip
            with suppress(LeaseHeld):  # another runner has taken it meanwhile
                self._swap(owner, theirs)
                run.handed_on.add(owner)

    def release(self, owner: str) -> None:
        """Let one lease go."""
        with self._lock:
            lease = self._held.pop(owner, None)
            if lease is not None:
                with suppress(LeaseHeld):  # another runner has taken it meanwhile: it is theirs to end
                    self._swap(owner, replace(lease, released=True))

    def holds(self, owner: str) -> bool:
        """Whether this runner has it already."""
        return owner in self._held

    def close(self) -> None:
        """Release every lease. One whose end cannot be written (the disk is full, for example) is logged; it ends all
        the same: at once for runners on this machine, when its time is past for others. Closing often happens while an
        error is raised, and must not replace that error."""
        self._stop.set()
        for owner in list(self._held):
            try:
                self.release(owner)
            except (*delta_log.unreadable(), LakeError) as error:
                log.warning(
                    "%s: the end of its lease was not written (%s); runners on this machine may take it now, others"
                    " in %d s at most",
                    owner, error, TIME_TO_LIVE_MS // 1000,
                )  # fmt: skip
        _live.pop(self.holder, None)

    def abandon(self) -> None:
        """Behave like a killed process: nothing is released, the leases are dead."""
        self._stop.set()
        self._held.clear()
        _live.pop(self.holder, None)

    def _swap(self, owner: str, lease: Lease, reservation: Reservation | None = None) -> None:
        from tidegate.pipelines.lake.commits import until_committed

        until_committed(self._swap_once, owner, lease, reservation, attempts=10, wait=0.02, most=0.5)

    def _swap_once(self, owner: str, lease: Lease, reservation: Reservation | None = None) -> None:
        """Replace the current row by `lease`. Raises LeaseHeld if another runner holds it and has not handed it on to
        `reservation`."""
        own = {self.holder, reservation.holder if reservation else self.holder}
        table = _open(self._path)
        found = _rows(table, owner)
        if not found:
            # Two first rows of an owner would not conflict. Two that replace one row do, so one is put there.
            self._write(table, replace(lease, holder="", released=True))
            found = _rows(table, owner)
        for held in found:
            if held.holder not in own and not held.over(self._clock()):
                raise LeaseHeld(owner, held.describe())
        self._write(table, lease)

    def _write(self, table: delta_log.Table, lease: Lease) -> None:
        """Replace the row of an owner as `table` has it. Raises CommitFailedError if anything was written since."""
        from deltalake.transaction import AddAction

        from tidegate.pipelines.lake.commits import Removal, commit

        name, of_owner = f"{uuid.uuid4().hex}.parquet", {"owner": lease.owner}
        size = (self._path / name).write_parquet(pa.Table.from_pylist([asdict(lease)], schema=file_schema_of(Lease)))
        old = [
            Removal(file["path"], file["size_bytes"], of_owner)
            for file in delta_log.files_of(table, "path", "size_bytes", "partition.owner")
            if file["partition.owner"] == lease.owner
        ]
        added = AddAction(name, size, of_owner, system_clock(), True, json.dumps({"numRecords": 1}))
        commit(table, self._path, [added, *old])

    def _renew(self) -> None:
        if self._renewer is None:
            self._renewer = threading.Thread(
                target=_renew_loop, args=(weakref.ref(self), self._stop), name="tidegate-leases", daemon=True
            )
            self._renewer.start()

    def renew(self) -> None:
        """Write a later end of time for every lease that is held. One that another runner has taken meanwhile (this
        one was stopped for longer than a lease lives) is lost: the next `acquire` says so."""
        with self._lock:
            for owner, lease in list(self._held.items()):
                later = replace(lease, expires_at=self._clock() + TIME_TO_LIVE_MS)
                try:
                    self._swap(owner, later)
                except LeaseHeld as error:
                    del self._held[owner]
                    self._lost[owner] = error
                else:
                    self._held[owner] = later


def _renew_loop(leases: weakref.ref[Leases], stop: threading.Event) -> None:
    while not stop.wait(RENEW_EVERY_S):
        alive = leases()
        if alive is None:
            return
        try:
            alive.renew()
        except (*delta_log.unreadable(), LakeError) as error:
            log.warning("leases were not renewed (%s); tried again in %d s", error, RENEW_EVERY_S)
        del alive


def read_leases(root: Address, owner: str | None = None) -> list[Lease]:
    """All leases of a lake's control folder, or those of one owner."""
    table = _there(Location(root) / "leases")
    return [] if table is None else _rows(table, owner)


def _rows(table: delta_log.Table, owner: str | None) -> list[Lease]:
    path = delta_log.root_of(table)
    with delta_log.damage_reported(path, _remedy(path)):
        return [
            restored(Lease, {**row, "owner": file["partition.owner"]}, str(path))
            for file in delta_log.files_of(table, "path", "partition.owner")
            if owner is None or file["partition.owner"] == owner
            for row in delta_log.file_of(table, file["path"]).parquet().read().to_pylist()
        ]


def _open(path: Location) -> delta_log.Table:
    table = _there(path)
    if table is None:
        from deltalake import DeltaTable

        path.make()
        DeltaTable.create(
            str(path),
            schema=schema_of(Lease),
            mode="ignore",
            partition_by=["owner"],
            configuration={**delta_log.OWN, **delta_log.BRIEF},
        )
        return _open(path)
    return table


def _there(path: Location) -> delta_log.Table | None:
    return delta_log.opened(path, _remedy(path))


def _remedy(path: Location) -> str:
    return f"stop every run on this lake, remove {path} (it only says who works on what), and run the command again"


def machine() -> str:
    """Names this machine, this boot of it and this process namespace: a process id means something only inside it."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        import psutil

        boot, namespace = str(psutil.boot_time()), ""
    return f"{socket.gethostname()}/{boot}/{namespace}"


def _started(pid: int) -> float | None:
    import psutil

    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return process.create_time()
    except psutil.NoSuchProcess:
        return None


def _same(left: float, right: float | None) -> bool:
    return right is not None and abs(left - right) < 1.0
