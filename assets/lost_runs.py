"""Runs that Dagster's history shows as under way though their process is gone, and slots of pools that such runs keep.

Dagster's own launcher starts a run as a process beside itself, and nothing checks whether that process still exists:
when everything is killed at once, or the machine is, the run stays started for ever, and every later run waits. Nor
does it take back the slots of a step that was killed, unless `free_slots_after_run_end_seconds` is set: in a pool with
a limit they would be missing for ever.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
from dagster import DagsterEventType, DagsterInstance, DagsterRun, DagsterRunStatus
from dagster._core.storage.dagster_run import FINISHED_STATUSES
from dagster._core.storage.runs import SqliteRunStorage

_Named = list[tuple[int, float]]
"""Processes, each with the time (s, UTC) of the event that names it."""
_UNDER_WAY = [DagsterRunStatus.STARTING, DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING]
_CLOCK_S = 5.0
"""How far the time of an event may lie before the start of the process that it names: the kernel reports its boot time
in whole seconds."""
_BOOT = Path("/proc/stat")
QUIET_S = 10.0
TEXT = (
    "The process that worked on this run was lost: Dagster, or the whole machine, was stopped in the middle of it. "
    "Nothing is committed in half. Start the run again: it goes on where this one stopped."
)


@dataclass(frozen=True)
class LostRun:
    """A run that was ended here; `cancelled` where a person had asked for its end before."""

    run_id: str
    job: str
    cancelled: bool

    def __str__(self) -> str:
        ended = "cancelled" if self.cancelled else "failed"
        return (
            f"Run {self.run_id} of {self.job} was under way when its process was lost: it is now recorded as {ended}, "
            "and runs that waited for it can start."
        )


@dataclass(frozen=True)
class FreedSlots:
    """The slots of pools that a run had when its process was lost; its end is in the history already."""

    run_id: str
    job: str

    def __str__(self) -> str:
        return (
            f"Run {self.run_id} of {self.job} has ended and its process is gone, but its steps had slots of a pool: "
            "they are free now, and runs that waited for them can start."
        )


@dataclass(frozen=True)
class UnknownRun:
    """A run that could not be checked or ended, and why; or, where it `has_ended`, its slots not freed. It stays as it
    is, and is checked again."""

    run_id: str
    job: str
    error: str
    has_ended: bool = False

    def __str__(self) -> str:
        if self.has_ended:
            return (
                f"Run {self.run_id} of {self.job} has ended, and the slots of pools that its steps had could not be "
                f"freed: {self.error}. It is tried again. Next: free them in Dagster, by Deployment, Concurrency."
            )
        return (
            f"Run {self.run_id} of {self.job} is under way, and whether its process is still there could not be seen: "
            f"{self.error}. Its state is kept, and it is checked again. Next: end it in Dagster, by Terminate."
        )


@contextlib.contextmanager
def only_server(home: Path) -> Iterator[int | None]:
    """Inside the block this process alone serves the DAGSTER_HOME; None where another one does already.

    The number is a file descriptor: a child that inherits it serves `home` for as long as it lives.
    """
    with (home / "served.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield lock.fileno()


Found = LostRun | FreedSlots | UnknownRun


def end_lost_runs(home: Path) -> list[Found]:
    """End every run of this DAGSTER_HOME that is under way and whose process is gone, and free the slots of pools that
    ended ones keep; sensors and alerts see it. A run whose state cannot be read does not keep the others from it.

    Call it only while no Dagster serves `home`. An instance whose history or runs are on another machine is left alone.
    """
    with DagsterInstance.from_config(str(home)) as instance:
        if not _is_of_this_machine(instance):
            return []

        def made_good(runs: Sequence[DagsterRun]) -> Iterator[Found]:
            return _made_good(instance, runs, lambda named: not _any_lives(named))

        found = list(made_good(instance.get_runs(dg.RunsFilter(statuses=_UNDER_WAY))))
        # Those that were ended just now are among them.
        return [*found, *made_good([record.dagster_run for record in _ended_with_slots(instance)])]


def end_runs_that_were_lost(instance: DagsterInstance, now: float, location: str) -> list[Found]:
    """`end_lost_runs` beside a running Dagster: only runs that name a process and have logged nothing for QUIET_S (s)
    before `now`. A run that names no process yet may be about to start.

    Call it in the code server of `location`, which starts the processes of its runs: another location may be
    served from another container, whose processes are not seen here."""
    if not _is_of_this_machine(instance):
        return []

    def quiet(records: Sequence[dg.RunRecord]) -> list[DagsterRun]:
        runs = [record.dagster_run for record in records if now - record.update_timestamp.timestamp() > QUIET_S]
        return [run for run in runs if run.remote_job_origin and run.remote_job_origin.location_name == location]

    def is_lost(named: _Named) -> bool:
        return bool(named) and not _any_lives(named)

    under_way = instance.get_run_records(dg.RunsFilter(statuses=_UNDER_WAY))
    return list(_made_good(instance, quiet([*under_way, *_ended_with_slots(instance)]), is_lost))


def _is_of_this_machine(instance: DagsterInstance) -> bool:
    """Whether its runs are processes of this machine: without /proc every one would seem gone."""
    elsewhere = instance.run_launcher.supports_check_run_worker_health  # then Dagster can look, by run_monitoring
    return isinstance(instance.run_storage, SqliteRunStorage) and not elsewhere and _BOOT.exists()


def _processes(instance: DagsterInstance, run: DagsterRun) -> _Named:
    """The processes that the run's events name, each with the time (s, UTC) of the event."""
    records = instance.all_logs(run.run_id, of_type=DagsterEventType.ENGINE_EVENT)
    named = [(record.get_dagster_event().engine_event_data.metadata.get("pid"), record.timestamp) for record in records]
    return [(int(str(pid.value)), at) for pid, at in named if pid is not None]


def _any_lives(processes: _Named) -> bool:
    return any(lives(pid, at) for pid, at in processes)


def lives(pid: int, at: float) -> bool:
    """Whether the process that had this number at a time (s, UTC) still runs: one that began later is another
    process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        boot = next(line for line in _BOOT.read_text().splitlines() if line.startswith("btime "))
    except (FileNotFoundError, ProcessLookupError):
        return False
    # The name in brackets may hold anything; the state is the first field after it, the start the twentieth.
    state, *fields = stat.rpartition(")")[2].split()
    began = int(boot.split()[1]) + int(fields[18]) / os.sysconf("SC_CLK_TCK")
    return state != "Z" and began <= at + _CLOCK_S


def _ended_with_slots(instance: DagsterInstance) -> Sequence[dg.RunRecord]:
    """Runs that have ended, and whose steps have slots of pools or wait for them."""
    storage = instance.event_log_storage
    with_slots = storage.get_concurrency_run_ids() if storage.supports_global_concurrency_limits else set()
    if not with_slots:
        return []
    return instance.get_run_records(dg.RunsFilter(run_ids=sorted(with_slots), statuses=list(FINISHED_STATUSES)))


def _made_good(
    instance: DagsterInstance, runs: Sequence[DagsterRun], is_lost: Callable[[_Named], bool]
) -> Iterator[Found]:
    """End the lost ones of these runs, by the processes that they name, or free the slots of those that have ended."""
    for run in runs:
        try:
            if not is_lost(_processes(instance, run)):
                continue
            if run.is_finished:
                instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
                yield FreedSlots(run.run_id, run.job_name)
            # One that has ended since it was listed has no process, and rightly.
            elif (now := instance.get_run_by_id(run.run_id)) is not None and now.status in _UNDER_WAY:
                yield _end(instance, now)
        except Exception as error:  # noqa: BLE001 a run that fails here must not keep the others as they are
            yield UnknownRun(run.run_id, run.job_name, f"{type(error).__name__}: {error}", run.is_finished)


def _end(instance: DagsterInstance, run: DagsterRun) -> LostRun:
    cancelled = run.status == DagsterRunStatus.CANCELING
    if cancelled:
        instance.report_run_canceled(run, TEXT)
    else:
        instance.report_run_failed(run, TEXT)
    return LostRun(run.run_id, run.job_name, cancelled)
