from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE
from types import SimpleNamespace
from typing import Any

import pytest
from deltalake.exceptions import DeltaError

from tidegate.pipelines.clock import system_clock
from tidegate.pipelines.errors import LakeError, LeaseHeld
from tidegate.pipelines.lake.control import Records
from tidegate.pipelines.lake.leases import TIME_TO_LIVE_MS, LeaseRow, Leases, Reservation, read_leases
from tidegate.pipelines.lake.owner_log import OwnerLog, OwnerLogs
from tidegate.pipelines.lake.records import EpochRow, StuckRow
from tidegate.pipelines.progress import SilentProgress

HOLD = """
import sys
from tidegate.pipelines.lake.owner_log import OwnerLogs
from tidegate.pipelines.lake.leases import Leases
leases = Leases(OwnerLogs(sys.argv[1]), label="another run")
leases.acquire("clicks")
print("held", flush=True)
sys.stdin.read()
"""


SLEEP = HOLD.replace("sys.stdin.read()", "").replace(
    'print("held", flush=True)',
    """
import os, signal
from tidegate.pipelines.lake import delta_log
from tidegate.pipelines.lake.control import Records
from tidegate.pipelines.lake.owner_log import OwnerLog
from tidegate.pipelines.lake.records import EpochRow, StuckRow

def asleep(self, *given, put=OwnerLog.put):
    OwnerLog.put = put
    os.kill(os.getpid(), signal.SIGSTOP)
    put(self, *given)

plans = Records(leases._logs, EpochRow)
for epoch in (1, 2):
    row = EpochRow("clicks", 1, epoch, "source", 0, {"by": "who slept"})
    plans.append([row], application="plan", version=epoch)
    OwnerLog.put = asleep
""",
)


def test_a_second_runner_reads_who_holds_it(tmp_path: Path) -> None:
    first, second = Leases(OwnerLogs(tmp_path), label="first"), Leases(OwnerLogs(tmp_path), label="second")
    first.acquire("clicks")
    first.acquire("clicks")
    second.acquire("users")

    with pytest.raises(LeaseHeld, match="first, process"):
        second.acquire("clicks")
    first.close()
    second.acquire("clicks")
    assert {lease.row.label for lease in read_leases(OwnerLogs(tmp_path), "clicks")} == {"second"}


def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdin=PIPE, stdout=PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        mine = Leases(OwnerLogs(tmp_path), label="mine")
        with pytest.raises(LeaseHeld, match="another run"):
            mine.acquire("clicks")
        other.kill()
        other.wait()
        mine.acquire("clicks")
    assert runners_of(tmp_path, but=mine) == []  # who dies leaves nothing that stays


def test_runners_that_live_for_seconds_on_machines_whose_clocks_differ_by_an_hour_take_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No lease is taken from one that is at work, and none is held for ever: each runner looks once, and ends."""

    def runner(host: str) -> Leases:
        monkeypatch.setattr("tidegate.pipelines.lake.leases.machine", lambda: f"{host}/boot/ns")
        ahead = {"a": 3_600_000, "b": 0}[host]
        return Leases(OwnerLogs(tmp_path), label=f"cron on {host}", clock=lambda: system_clock() + ahead)

    for epoch, (host, other) in enumerate(("ab", "ba") * 3, 1):
        at_work = runner(host)
        at_work.acquire("clicks")
        for _ in range(2):
            with contextlib.closing(runner(other)) as waits, pytest.raises(LeaseHeld, match=f"cron on {host}"):
                waits.acquire("clicks")
        record(at_work._logs, epoch)
        if host == "a":  # it is killed before it ends its lease; the other machine's next runners judge that
            at_work._stop.set()
            later(tmp_path, at_work)
        else:
            at_work.close()
    assert [row.epoch for row in Records(OwnerLogs(tmp_path), EpochRow).rows("clicks")] == [*range(1, 7)]
    assert len(list((tmp_path / "runners").iterdir())) == 0


def test_an_abandoned_runner_of_this_process_holds_nothing(tmp_path: Path) -> None:
    first = Leases(OwnerLogs(tmp_path), label="first")
    first.acquire("clicks")
    first.abandon()

    Leases(OwnerLogs(tmp_path), label="second").acquire("clicks")


def test_a_lease_of_another_machine_ends_with_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time is that of its heartbeat in the lake; its own clock is an hour behind."""
    monkeypatch.setattr("tidegate.pipelines.lake.leases.machine", lambda: "elsewhere/boot/ns")
    logs = OwnerLogs(tmp_path)
    there = Leases(logs, label="there", clock=lambda: system_clock() - 3_600_000)
    there.acquire("clicks")
    record(logs, 1)
    monkeypatch.undo()
    here = Leases(OwnerLogs(tmp_path), label="here")

    with pytest.raises(LeaseHeld, match="on elsewhere"):
        here.acquire("clicks")
    later(tmp_path, there)
    here.acquire("clicks")
    there.renew()
    with pytest.raises(LeaseHeld, match="being worked on"):
        record(logs, 2)  # it slept before the commit
    with pytest.raises(LeaseHeld, match="being worked on"):
        there.acquire("clicks")
    assert [row.epoch for row in Records(logs, EpochRow).rows("clicks")] == [1]


def test_a_runner_that_wakes_up_while_one_of_its_leases_is_taken_keeps_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.pipelines.lake.leases.machine", lambda: "elsewhere/boot/ns")
    there = Leases(OwnerLogs(tmp_path), label="there")
    for owner in ("clicks", "users"):
        there.acquire(owner)
    monkeypatch.undo()
    logs = OwnerLogs(tmp_path)
    here, log = Leases(logs, label="here"), logs.of("clicks")
    later(tmp_path, there)
    later(tmp_path)
    taken = log.append_after

    def after_it_woke(*given: Any) -> None:
        there.renew()
        taken(*given)

    monkeypatch.setattr(log, "append_after", after_it_woke)
    here.acquire("clicks")
    with pytest.raises(LeaseHeld, match="on elsewhere"):
        here.acquire("users")


def test_who_has_no_lease_may_say_why_it_is_stuck_and_disturbs_nobody(tmp_path: Path) -> None:
    logs, others = OwnerLogs(tmp_path), OwnerLogs(tmp_path)
    holder, refused = Leases(logs, label="at work"), Leases(others, label="refused")
    holder.acquire("clicks")
    with pytest.raises(LeaseHeld, match="at work"):
        refused.acquire("clicks")
    for epoch in (1, 2):
        row = StuckRow("clicks", 1, epoch, 0, 0, False, "LeaseHeld", "clicks is being worked on")
        assert Records(others, StuckRow).append([row], application="stuck", version=epoch, guarded=False)
        record(logs, epoch)
    holder.require("clicks")
    assert [row.label for row in Records(others, LeaseRow).rows("clicks")] == ["at work"]
    assert [row.epoch for row in Records(others, EpochRow).rows("clicks")] == [1, 2]
    assert Records(logs, StuckRow).last("clicks").what == "clicks is being worked on"


def test_a_process_that_slept_in_a_commit_does_not_make_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is stopped between its look at the lease and its commit; on another machine a runner goes on meanwhile."""
    monkeypatch.setattr("tidegate.pipelines.lake.leases.machine", lambda: "elsewhere/boot/ns")
    with subprocess.Popen([sys.executable, "-c", SLEEP, str(tmp_path)], stderr=PIPE, text=True) as other:
        assert os.WIFSTOPPED(os.waitpid(other.pid, os.WUNTRACED)[1])
        logs = OwnerLogs(tmp_path)
        mine = Leases(logs, label="mine")
        with pytest.raises(LeaseHeld, match="another run"):
            mine.acquire("clicks")
        later(tmp_path, *runners_of(tmp_path, but=mine))
        mine.acquire("clicks")
        row = EpochRow("clicks", 1, 2, "source", 0, {})
        Records(logs, EpochRow).append([row], application="another plan", version=2)
        os.kill(other.pid, signal.SIGCONT)
        _, shown = other.communicate()
    assert (other.returncode, "LeaseHeld: clicks is being worked on by another runner" in shown) == (1, True), shown
    assert [row.plan for row in Records(OwnerLogs(tmp_path), EpochRow).rows("clicks")] == [{"by": "who slept"}, {}]


def runners_of(control: Path, but: Leases) -> list[Any]:
    """The runners that have a heartbeat, but for one."""
    return [SimpleNamespace(holder=file.name) for file in (control / "runners").iterdir() if file.name != but.holder]


def record(logs: OwnerLogs, epoch: int) -> None:
    row = EpochRow("clicks", 1, epoch, "source", 0, {})
    Records(logs, EpochRow).append([row], application="plan", version=epoch)


def later(control: Path, *runners: Leases) -> None:
    """The runners' last sign of life in the lake is older than a lease lives."""
    names = [control / "runners" / each.holder for each in runners]
    for file in names or [*control.rglob("lease-*.parquet")]:
        at = file.stat().st_mtime - TIME_TO_LIVE_MS / 1000 - 1
        os.utime(file, (at, at))


def test_a_lease_whose_end_cannot_be_written_is_over_and_its_loss_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object, **__: object) -> None:
        raise DeltaError("No space left on device")

    first, second = Leases(OwnerLogs(tmp_path), label="first"), Leases(OwnerLogs(tmp_path), label="second")
    first.acquire("clicks")
    with monkeypatch.context() as disk:
        disk.setattr("tidegate.pipelines.lake.commits.commit", full)
        first.close()
    assert "clicks: the end of its lease was not written (No space left on device)" in caplog.text
    second.acquire("clicks")


READ_AND_LEAVE = """
import sys
from tidegate.pipelines.lake.owner_log import OwnerLogs
from tidegate.pipelines.lake.leases import read_leases
print(*sorted(lease.row.owner for lease in read_leases(OwnerLogs(sys.argv[1]))), sep="\\n")
"""


def test_a_process_that_ends_right_after_reading_ends_well(tmp_path: Path) -> None:
    """Arrow's threads once held a file system of Python's past the answer: about every second process was aborted."""
    owners = sorted(["clicks", "a b", "schrägé", "100%25", "it's"])
    leases = Leases(OwnerLogs(tmp_path), label="all")
    for owner in owners:
        leases.acquire(owner)
        assert [lease.row.owner for lease in read_leases(OwnerLogs(tmp_path), owner)] == [owner]
    readers = [
        subprocess.Popen([sys.executable, "-c", READ_AND_LEAVE, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(6)
    ]
    ends = [(reader.communicate()[0].splitlines(), reader.returncode) for reader in readers]
    assert ends == [(owners, 0)] * 6


@pytest.mark.parametrize("damaged", ["*.parquet", "_delta_log/*.json"])
def test_damaged_leases_say_what_to_bring_back(tmp_path: Path, damaged: str) -> None:
    leases = Leases(OwnerLogs(tmp_path), label="one")
    leases.acquire("t")
    path = OwnerLogs(tmp_path).of("t").path
    for file in Path(path).glob(damaged):
        file.write_text("no Parquet, no JSON")
    with pytest.raises(LakeError, match=f"bring {path} back from a backup"):
        Leases(OwnerLogs(tmp_path), label="two").acquire("t")
    with pytest.raises(LakeError, match=f"bring {path} back from a backup"):
        read_leases(OwnerLogs(tmp_path))
    leases.close()  # on the way out of an error: it must not take that error's place


@pytest.mark.parametrize("before", [False, True], ids=["of a new owner", "of a known owner"])
def test_of_two_that_take_a_lease_at_once_one_gets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    """Both have seen that it is free; the second one writes while the first one is about to."""
    first, second = Leases(OwnerLogs(tmp_path), label="first"), Leases(OwnerLogs(tmp_path), label="second")
    if before:
        with contextlib.closing(Leases(OwnerLogs(tmp_path), label="before")) as gone:
            gone.acquire("clicks")
    write, turn = OwnerLog.append_after, iter([True])

    def overtaken(self: OwnerLog, *args: Any) -> None:
        if next(turn, False):
            second.acquire("clicks")
        write(self, *args)

    monkeypatch.setattr(OwnerLog, "append_after", overtaken)
    with pytest.raises(LeaseHeld, match="second, process"):
        first.acquire("clicks")
    assert [lease.row.label for lease in read_leases(OwnerLogs(tmp_path), "clicks") if not lease.row.released] == [
        "second"
    ]
    second.renew()
    second.acquire("clicks")


# --- a run of several runners, and runners that wait -----------------------------------------------------------------


def test_what_is_handed_on_is_the_next_runner_s_of_the_same_run_alone(tmp_path: Path) -> None:
    run, again = Reservation("run 1", "run 1"), Reservation("run 2", "run 2")
    first = Leases(OwnerLogs(tmp_path), label="first step", reservation=run)
    first.acquire("clicks")
    with pytest.raises(LeaseHeld, match="first step"):  # it is at work: not even the run's other steps
        Leases(OwnerLogs(tmp_path), label="second step", reservation=run).acquire("clicks")
    first.hand_on("clicks")
    first.close()
    for other in (Leases(OwnerLogs(tmp_path), label="x"), Leases(OwnerLogs(tmp_path), label="y", reservation=again)):
        with pytest.raises(LeaseHeld, match="run 1, process"):
            other.acquire("clicks")
    second = Leases(OwnerLogs(tmp_path), label="second step", reservation=run)
    second.acquire("clicks")
    second.close()
    Leases(OwnerLogs(tmp_path), label="x").acquire("clicks")


def test_what_nobody_of_the_run_has_taken_up_is_free_at_its_end(tmp_path: Path) -> None:
    run = Reservation("run 1", "run 1")
    for owner in ("clicks", "users"):
        with contextlib.closing(Leases(OwnerLogs(tmp_path), label="step", reservation=run)) as leases:
            leases.acquire(owner)
            leases.hand_on(owner)
    run.end(OwnerLogs(tmp_path))
    assert [lease.row.released for lease in read_leases(OwnerLogs(tmp_path))] == [True, True]


HAND_ON = """
import sys
from tidegate.pipelines.lake.owner_log import OwnerLogs
from tidegate.pipelines.lake.leases import Leases, Reservation
process = {"own": None, "parent": int(sys.argv[2]), "unknown": 0}[sys.argv[3]]
leases = Leases(OwnerLogs(sys.argv[1]), label="step", reservation=Reservation("run 1", "run 1", process))
leases.acquire("clicks")
leases.hand_on("clicks")
print("handed on", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("process", ["own", "parent", "unknown"])
def test_a_dead_run_keeps_nothing(tmp_path: Path, process: str) -> None:
    """Whichever process was the run's: the step's, one that goes on (and is ended here), one that nobody knows."""
    sleeper = subprocess.Popen(["cat"], stdin=PIPE)
    command = [sys.executable, "-c", HAND_ON, str(tmp_path), str(sleeper.pid), process]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True) as step:
        assert step.stdout.readline() == "handed on\n"
        mine = Leases(OwnerLogs(tmp_path), label="mine")
        with pytest.raises(LeaseHeld, match="run 1"):
            mine.acquire("clicks")
        step.kill()
    if process != "own":
        with pytest.raises(LeaseHeld, match="run 1"):  # its next step may be about to start
            mine.acquire("clicks")
    sleeper.kill()
    sleeper.wait()
    if process == "unknown":
        later(tmp_path)
    mine.acquire("clicks")


def test_a_runner_waits_for_all_that_it_needs_in_the_order_of_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, mine = Leases(OwnerLogs(tmp_path), label="other"), Leases(OwnerLogs(tmp_path), label="mine")
    other.acquire("b")
    looked: list[float] = []

    def later(seconds: float) -> None:
        looked.append(seconds)
        assert mine.holds("a")
        assert not mine.holds("c")
        if len(looked) == 3:
            other.close()

    monkeypatch.setattr("tidegate.pipelines.lake.leases.sleep", later)
    mine.wait_for(["c", "b", "a"], 3600, SilentProgress())
    assert len(looked) == 3
    assert all(map(mine.holds, "abc"))


def test_a_runner_that_has_waited_for_long_enough_says_who_holds_it(tmp_path: Path) -> None:
    other, mine = Leases(OwnerLogs(tmp_path), label="other"), Leases(OwnerLogs(tmp_path), label="mine")
    other.acquire("b")
    with pytest.raises(LeaseHeld, match="other, process"):
        mine.wait_for(["b"], 0.01, SilentProgress())
