"""Only one runner works on a table or an INSERT at a time: the CLI, the continuous mode or Dagster.

A lease lies in the log that it protects: to take an owner is to commit a `lease` record as the log's next version,
which one of two runners can do. A runner that was stopped meanwhile finds that version taken, and another's lease in
it: it has lost the owner (`OwnerLog.guard`).

A lease ends when it is released, when its process is dead (on the same machine), or when its runner's heartbeat is
TIME_TO_LIVE_MS older than one's own. A heartbeat is a file that the runner writes every RENEW_EVERY_S; both times are
the storage's, so that clocks of two machines are never compared.

Runners that continue one another's work, the steps of a Dagster run, share a `Reservation`: one hands its lease on, and
only another one of them can take it before the reservation ends.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import uuid
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic, sleep
from typing import ClassVar

from tidegate.pipelines.clock import Clock, system_clock
from tidegate.pipelines.commands import remedy
from tidegate.pipelines.errors import LakeError, LeaseHeld, TidegateError
from tidegate.pipelines.lake import delta_log
from tidegate.pipelines.lake.control import Records
from tidegate.pipelines.lake.owner_log import OwnerLogs
from tidegate.pipelines.lake.records import Record
from tidegate.pipelines.location import Location
from tidegate.pipelines.progress import Progress, Task

TIME_TO_LIVE_MS = 120_000
RENEW_EVERY_S = 30.0
LOOK_EVERY_S = 1.0
"""How often a waiting runner checks whether a lease is free."""

log = logging.getLogger(__name__)

_live: weakref.WeakValueDictionary[str, Leases | Reservation] = weakref.WeakValueDictionary()


@dataclass(frozen=True)
class LeaseRow(Record):
    """Who works on the owner, or has. `epoch` counts the owner's leases; the last one holds.

    Attributes:
        label: What the holder is doing ("tidegate run", "dagster run 1234").
        at: When it was taken or released (ms, UTC, by the holder's clock): for people.
    """

    table: ClassVar[str] = "lease"

    holder: str
    machine: str
    pid: int
    started: float
    label: str
    at: int
    released: bool = False


@dataclass(frozen=True)
class Lease:
    """A lease as it stands. `held_at`: when it was surely held (ms, by the storage's clock): its runner's last
    heartbeat, or where there is none, when it was written; of a released one, when it was released."""

    row: LeaseRow
    held_at: int

    def describe(self) -> str:
        """For people."""
        host = self.row.machine.split("/")[0]
        return f"{self.row.label}, process {self.row.pid} on {host}" if host else self.row.label

    def over(self, now: int) -> bool:
        """Whether anyone may take it. `now`: ms, by the storage's clock, if anything is decided by it."""
        row = self.row
        if row.released:
            return True
        if row.machine != machine():
            return now - self.held_at > TIME_TO_LIVE_MS
        if row.pid == os.getpid() and _same(row.started, _started(row.pid)):
            return row.holder not in _live
        return not _same(row.started, _started(row.pid))


class Heartbeats:
    """The files by which runners of other machines are known to be alive."""

    def __init__(self, control: Location) -> None:
        self._folder = control / "runners"

    def beat(self, holder: str) -> int:
        """Write one, and return its time. Raises OSError."""
        self._folder.make()
        return (self._folder / holder).write_now()

    def last(self, holder: str) -> int | None:
        """When a runner wrote its last one (ms, by the storage's clock)."""
        return (self._folder / holder).written_at() if holder else None

    def end(self, holder: str) -> None:
        """Delete it. Raises OSError."""
        (self._folder / holder).delete()


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

    def end(self, logs: OwnerLogs) -> None:
        """Release what nobody has taken up, at the end of a run whose process goes on."""
        leases = Leases(logs, label=self.label, reservation=self)
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
    """The leases that one runner holds; close() releases them all. A thread writes its heartbeat while they are held.
    What another runner of the same `reservation` has handed on can be taken."""

    def __init__(
        self, logs: OwnerLogs, *, label: str, clock: Clock = system_clock, reservation: Reservation | None = None
    ) -> None:
        self._logs = logs
        self._records = Records(logs, LeaseRow)
        self._beats = Heartbeats(logs.control)
        self._clock = clock
        self._label = label
        self._reservation = reservation
        self._held: dict[str, LeaseRow] = {}
        self._lost: dict[str, LeaseHeld] = {}
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._renewer: threading.Thread | None = None
        self.holder = uuid.uuid4().hex
        _live[self.holder] = self

    def acquire(self, owner: str) -> LeaseRow:
        """Take (or keep) the lease of `owner`. Raises LeaseHeld, which names the holder, and LakeError where it cannot
        be written."""
        with self._lock:
            if owner in self._held:
                self.require(owner)
                return self._held[owner]
            if owner in self._lost:
                raise self._lost[owner]
            row = LeaseRow(
                owner, 1, 0, self.holder, machine(), os.getpid(), _started(os.getpid()) or 0.0, self._label,
                self._clock(),
            )  # fmt: skip
            try:
                self._renew()
                row = self._swap(row, self._reservation)
            except delta_log.unreadable() as error:
                raise LakeError(
                    f"{owner}: its lease cannot be written: {error}",
                    where=str(self._logs.of(owner).path),
                    state="nothing was changed by this run",
                    next_command=remedy(str(error)) + ", then run the same command again",
                ) from error
            self._held[owner] = row
            self._logs.of(owner).guard = partial(_require_of, weakref.ref(self), owner)
            if self._reservation is not None:
                self._reservation.handed_on.discard(owner)
            return row

    def require(self, owner: str) -> None:
        """Raise LeaseHeld where another runner has taken what this one had: it was stopped for longer than a lease
        lives."""
        with self._lock:
            last = self._records.last(owner)
            if owner in self._held and last is not None and last.holder != self.holder:
                del self._held[owner]
                self._lost[owner] = LeaseHeld(owner, _standing(self._logs, self._beats, last).describe())
            if owner in self._lost:
                raise self._lost[owner]

    @contextmanager
    def named(self, owner: str) -> Iterator[None]:
        """Raise LeaseHeld in place of what fails inside the block because another runner has taken the lease: it has
        removed the files of this one's attempt, for example."""
        try:
            yield
        except TidegateError:
            with suppress(*delta_log.unreadable(), LakeError):
                self.require(owner)
            raise

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
            held = self._held.pop(owner, None)
            if held is None:
                return
            theirs = replace(
                held, holder=run.holder, machine=run.machine, pid=run.pid, started=run.started, label=run.label
            )
            with suppress(LeaseHeld):  # another runner has taken it meanwhile
                self._swap(theirs)
                run.handed_on.add(owner)

    def release(self, owner: str) -> None:
        """Let one lease go."""
        with self._lock:
            held = self._held.pop(owner, None)
            if held is not None:
                with suppress(LeaseHeld):  # another runner has taken it meanwhile: it is theirs to end
                    self._swap(replace(held, released=True, at=self._clock()))

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
        with suppress(OSError):  # it only gets older
            self._beats.end(self.holder)
        _live.pop(self.holder, None)

    def abandon(self) -> None:
        """Behave like a killed process: nothing is released, the leases are dead."""
        self._stop.set()
        self._held.clear()
        _live.pop(self.holder, None)

    def _swap(self, row: LeaseRow, reservation: Reservation | None = None) -> LeaseRow:
        from tidegate.pipelines.lake.commits import until_committed

        return until_committed(self._swap_once, row, reservation, attempts=10, wait=0.02, most=0.5)

    def _swap_once(self, row: LeaseRow, reservation: Reservation | None = None) -> LeaseRow:
        """Commit `row` as the owner's next lease. Raises LeaseHeld if another runner holds it and has not handed it on
        to `reservation`."""
        owner, own = row.owner, {self.holder, reservation.holder if reservation else self.holder}
        table = self._logs.of(owner).create()
        last, held = self._records.last(owner), None
        if last is not None and last.holder not in own and not last.released:
            held = _standing(self._logs, self._beats, last)
            if not held.over(self._beats.beat(self.holder)):
                raise LeaseHeld(owner, held.describe())
        row = replace(row, epoch=last.epoch + 1 if last else 1)
        self._logs.of(owner).append_after(table, row)
        with suppress(OSError):  # of one that died: without it, its other leases are as old as their records
            if held is not None and self._beats.last(held.row.holder) == held.held_at:  # else it has woken up
                self._beats.end(held.row.holder)
        return row

    def _renew(self) -> None:
        if self._renewer is None:
            self.renew()
            self._renewer = threading.Thread(
                target=_renew_loop, args=(weakref.ref(self), self._stop), name="tidegate-leases", daemon=True
            )
            self._renewer.start()

    def renew(self) -> None:
        """Write this runner's heartbeat. Raises OSError."""
        self._beats.beat(self.holder)


def _require_of(leases: weakref.ref[Leases], owner: str) -> None:
    """`Leases.require` of a runner that is there; one that was dropped without an end has no leases."""
    alive = leases()
    if alive is not None:
        alive.require(owner)


def _renew_loop(leases: weakref.ref[Leases], stop: threading.Event) -> None:
    while not stop.wait(RENEW_EVERY_S):
        alive = leases()
        if alive is None:
            return
        try:
            alive.renew()
        except OSError as error:
            log.warning("the heartbeat was not written (%s); tried again in %d s", error, RENEW_EVERY_S)
        del alive


def read_leases(logs: OwnerLogs, owner: str | None = None) -> list[Lease]:
    """The last lease of each owner, or that of one."""
    records, beats = Records(logs, LeaseRow), Heartbeats(logs.control)
    found = map(records.last, logs.owners() if owner is None else [owner])
    return [_standing(logs, beats, row) for row in found if row is not None]


def _standing(logs: OwnerLogs, beats: Heartbeats, row: LeaseRow) -> Lease:
    beaten_at = row.at if row.released else beats.last(row.holder)
    if beaten_at is None:
        log_of = logs.of(row.owner)
        newest = max(log_of.files(LeaseRow), key=lambda file: file.epochs[1], default=None)
        beaten_at = newest and (log_of.path / newest.path).written_at()
    return Lease(row, beaten_at or 0)


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
