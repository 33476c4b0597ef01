"""A random history of a script's sources, fed to it run by run, and what must hold of the lake that it leaves."""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests import cases
from tests.oracle.pins import rows_of
from tests.oracle.scripts import BUILDS, PROBES, Row, Script, Statement
from tests.oracle.statements import Landed, Model, Version
from tests.pipelines.runtime.crashing import may_die
from tests.pipelines.runtime.killing import started
from tidegate.pipelines.errors import GateHeld, PlanningError
from tidegate.pipelines.runtime import faults
from tidegate.pipelines.runtime.epochs import Asked, ReleasePlan, stored_plan
from tidegate.pipelines.runtime.ledger import WhereRowsAre
from tidegate.pipelines.testing import Harness
from tidegate.pipelines.watermarks import MIN_TIMESTAMP
from tidegate.quality_checks.reconcile import reconcile

AT = datetime(2026, 1, 1)
START = int(AT.replace(tzinfo=UTC).timestamp() * 1000)
END = 10_000


def moment(ms: int | None) -> datetime | None:
    return None if ms is None else AT + timedelta(milliseconds=ms)


def ms_of(time: datetime | None) -> int | None:
    return None if time is None else (time.replace(tzinfo=None) - AT) // timedelta(milliseconds=1)


class Story:
    """A random history of the sources, fed to a script step by step. `calm`: nothing is late or idle. `events`: all
    calls of the harness."""

    def __init__(self, harness: Harness, script: Script, chance: random.Random, *, calm: bool) -> None:
        self.harness, self.script, self.chance, self.calm = harness, script, chance, calm
        self.marks = dict.fromkeys((*PROBES, *BUILDS), 0)
        self.probes: dict[str, list[Row]] = {name: [] for name in PROBES}
        self.builds: dict[str, list[Version]] = {name: [] for name in BUILDS}
        self.events: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self.rounds: list[dict[str, tuple[int, int]]] = []
        self.told: set[str] = set()
        self.idle: set[str] = set()
        self.reached: dict[str, int] = {}
        self.held: set[str] = set()

    def _do(self, call: Callable[..., None], *args: Any) -> None:
        self.events.append((call, args))
        call(self.harness, *args)

    def step(self, late_build: str) -> None:
        chance = self.chance
        match chance.choice(["row", "row", "row", "version", "version", "mark", "mark", "mark", "idle"]):
            case "row":
                name = chance.choice([name for name in PROBES if self.script.readers(name)] or PROBES)
                self.push(name, [self._row(name) for _ in range(chance.randint(1, 4))])
            case "version":
                self.version(chance.choice(BUILDS), chance.randint(1, 5), chance.randint(1, 30))
            case "mark":
                name = chance.choice([name for name in self.marks if name != late_build])
                self.mark(name, self.marks[name] + chance.randint(0, 25))
            case _ if not self.calm:
                self.fall_idle(chance.choice([*PROBES, *PROBES, *BUILDS]))

    def fall_idle(self, name: str) -> None:
        self.idle.add(name)
        self._do(Harness.idle, name)

    def push(self, name: str, rows: list[Row]) -> None:
        self.idle.discard(name)
        self._do(Harness.push, name, [{"id": r.id, "k": r.k, "n": r.n, "ts": moment(r.ts)} for r in rows])

    def version(self, name: str, key: int, ahead: int) -> None:
        """A version of a key begins, or ends; behind what was promised, now and then."""
        at = max(self.marks[name] + ahead, 0)
        if not self.calm and self.chance.random() < 0.1:
            at = max(at - 40, 0)
        self._version(name, key, at, deleted=self.chance.random() < 0.1)

    def _version(self, name: str, key: int, at: int, *, deleted: bool = False) -> None:
        number = sum(map(len, self.builds.values()))
        self.idle.discard(name)
        self.builds[name].append(Version(key, number, at, deleted))
        self._do(Harness.push, name, [{"k": key, "v": number, "ts": moment(at)}], "-D" if deleted else "+I")

    def mark(self, name: str, ms: int) -> None:
        self.marks[name] = ms
        self.told.add(name)
        self.idle.discard(name)
        self._do(Harness.watermark, name, START + ms)

    def _row(self, name: str) -> Row:
        low = self.marks[name] + 1 if self.calm else max(self.marks[name] - 10, 0)
        number = len(self.probes[name]) + self.chance.randint(0, 5) * 100
        while any(row.id == number for row in self.probes[name]):
            number += 1
        time = None if self.chance.random() < 0.04 else self.chance.randint(low, low + 60)
        self.probes[name].append(Row(number, self.chance.randint(1, 4), self.chance.randint(0, 9), time))
        return self.probes[name][-1]

    # Runs

    def run(self) -> None:
        """One run, which may die somewhere and is begun anew then; and what a person does about what is held."""
        point, passes = self.chance.choice([*faults.POINTS, None]), self.chance.randint(1, 4)
        if point and cases.AT_LENGTH and self.chance.random() < 0.2:
            self._run_in_a_process(point, passes)
        with may_die(point, passes=passes) as died, suppress(GateHeld):
            self.harness.advance()
        if died or self.chance.random() < 0.2:
            self.harness.restart()
        if died:
            with suppress(GateHeld):
                self.harness.advance()
        self.look()

    def _run_in_a_process(self, point: str, passes: int) -> None:
        """A run in a process of its own, which SIGKILL ends where one owner passes a point, if it comes so far."""
        inserts = [each.target for each in self.script.statements]
        owner = self.chance.choice(inserts if point.startswith("insert.") else [*PROBES, *BUILDS])
        directory = self.harness.directory
        script = directory / "pipeline.sql"
        script.write_text(self.script.sql)
        leases = self.harness.runner.leases
        for each in filter(leases._records.last, (*PROBES, *BUILDS, *(f"insert {name}" for name in inserts))):
            leases.acquire(each)  # another process does not take what a runner of this one has left without a word
        self.harness.runner.close()
        given = {
            "script": str(script),
            "directory": str(directory),
            "kill_at": f"{point}@{owner}",
            "after": passes // 4,
        }
        with started(given) as process:
            process.communicate()
        shown = (directory / "stderr").read_text()
        assert process.returncode in (0, -signal.SIGKILL) or "GateHeld" in shown, shown[-3000:]
        self.harness.restart()

    def look(self) -> None:
        """After a run: everything has come as far as it can."""
        held = self._held()
        self._combined(held)
        self.held = held
        self.rounds.append(self._reached())

    def _reached(self) -> dict[str, tuple[int, int]]:
        """How far each table has come: its epoch and watermark (ms)."""
        lake = self.harness.lake
        found = dict[str, tuple[int, int]]()
        for name in PROBES:
            last = lake.watermarks.last(name)
            found[name] = (last.epoch, last.timestamp) if last else (0, MIN_TIMESTAMP)
        for each in self.script.statements:
            log, plans = lake.watermarks.last(each.target), self.published(each)
            reached = max([MIN_TIMESTAMP, *(plan.watermark for plan in plans)])
            found[each.target] = (plans[-1].epoch if plans else 0, max(reached, log.timestamp if log else reached))
        return found

    def _held(self) -> set[str]:
        return {each.target for each in self.script.statements if self.harness.runner.held(each.target)}

    def published(self, statement: Statement) -> list[ReleasePlan]:
        name = statement.target
        plans = [stored_plan(row) for row in self.harness.lake.epochs.rows(f"insert {name}")]
        gone = {plan.supersedes for plan in plans}
        plans = [plan for plan in plans if plan.epoch not in gone]
        if plans and self.harness.runner.releasing(name).position().state != "published":
            plans.pop()
        return plans

    def _combined(self, held: set[str]) -> None:
        """The watermark of each target that is read is FLIP-326's over its inputs: the least of those that are not
        idle; all idle, it stays. What is held has not moved, and is active."""
        lake, status = self.harness.lake, dict[str, tuple[int, bool]]()
        for name in (*PROBES, *BUILDS):
            status[name] = (START + self.marks[name] if name in self.told else MIN_TIMESTAMP, name in self.idle)
        for each in self.script.statements:
            name, log = each.target, lake.watermarks.last(each.target)
            told = log.timestamp if log else MIN_TIMESTAMP
            if not self.script.readers(name) or each.window:
                status[name] = (told, log is not None and log.idle)
                continue
            inputs = [status[table] for table in (*each.tables, *each.builds)]
            before = self.reached.get(name, MIN_TIMESTAMP)
            active = [ms for ms, idle in inputs if not idle]
            rows = [lake.watermarks.last(table) for table in each.builds]
            there = any(lake.watermarks.last(table) for table in each.tables)
            if name not in self.held and there and all(row and row.flip_epoch for row in rows):
                self.reached[name] = max(before, min(active, default=before))
                if not active:
                    assert name in held or before <= told <= max(before, *(ms for ms, _ in inputs))
                    self.reached[name] = told
            if name not in held:
                assert told == self.reached.get(name, MIN_TIMESTAMP), (name, told - START, inputs)
            status[name] = (told, log is not None and log.idle and name not in held)

    def resolve(self) -> None:
        """What is held is judged anew, or given up."""
        runner, chance = self.harness.runner, self.chance
        for name in sorted(self._held()):
            choice = chance.choice(["again", "discard", "quarantine", "publish"])
            for key in range(1, 8) if choice == "again" else ():
                for build in BUILDS:
                    self.version(build, key, 1)
            with suppress(GateHeld):
                if choice == "discard":
                    runner.resolve_held(name, discard=True)
                else:
                    runner.resolve_held(name, on_unmatched=None if choice == "again" else choice)  # type: ignore[arg-type]
        self.held = self._held()

    def release(self) -> None:
        """All that is in the quarantine of one of the statements is taken again."""
        name = self.chance.choice(self.script.statements).target
        statement = self.harness.pipeline.insert(name)
        if name not in self.held and not statement.windowed and self.rounds[-1][name][0]:
            with suppress(GateHeld):
                self.harness.runner.out_of_quarantine(name, Asked())

    # What must hold

    def model(self) -> Model:
        """The model of what was pushed, with the epochs in which it has landed."""
        rows, versions = dict[str, list[Landed]](), dict[str, list[Version]]()
        for name, pushed in self.probes.items():
            epochs = {row["id"]: row["_epoch"] for row in self.stored(name)}
            found = [row._replace(origin=(name, epochs[row.id], row.ts)) for row in pushed if row.id in epochs]
            rows[name] = [Landed(epochs[row.id], row, (name, row.id), ("", at)) for at, row in enumerate(found)]
        for name, built in self.builds.items():
            epochs = {row["v"]: row["_epoch"] for row in self.stored(name)}
            versions[name] = [each._replace(epoch=epochs[each.v]) for each in built if each.v in epochs]
        published = {each.target: self.published(each) for each in self.script.statements}
        model = Model(self.script, rows, versions, published, START)
        for each in self.script.statements:
            if each.window:
                stored = enumerate(self.stored(each.target))
                rows[each.target] = [
                    Landed(row["_epoch"], Row(row["id"], row["k"], row["n"], ms_of(row["ts"])), (each.target, number))
                    for number, row in stored
                ]
            else:
                model.run(each)
        return model

    def stored(self, name: str) -> list[dict[str, Any]]:
        lake, pipeline = self.harness.lake, self.harness.pipeline
        if name not in pipeline.tables:
            return []
        written = pipeline.writer_of(name)
        path = lake.target_path(pipeline.table(name)) if written else lake.table_path(name)
        return rows_of(str(path)) if (path / "_delta_log").is_there() else []

    def check(self) -> None:
        """Each target and each quarantine is the model's, epoch by epoch."""
        model, lake, pipeline = self.model(), self.harness.lake, self.harness.pipeline
        for each in self.script.statements:
            stored = sorted(values_of(row) for row in self.stored(each.target))
            if each.window:
                reached = {row.epoch: row.timestamp for row in lake.watermarks.rows(each.tables[0])}
                if all(self.marks[name] == END for name in self.marks):
                    counted = sorted((*row[1:],) for row in stored)
                    assert counted == [_sortable(row) for row in model.counted(each, reached)], each.target
                continue
            expected = sorted((row.epoch, *_sortable(row.row.values)) for row in model.rows[each.target])
            assert stored == expected, (
                each.target,
                Counter(stored) - Counter(expected),
                Counter(expected) - Counter(stored),
            )
            path = lake.quarantine_path(pipeline.table(each.target), pipeline.insert(each.target))
            kept = rows_of(str(path)) if (path / "_delta_log").is_there() else []
            expected = sorted(
                (epoch, *_sortable((row.id, row.k, row.ts))) for epoch, row in model.quarantined[each.target]
            )
            assert sorted((*values_of(row)[:3], values_of(row)[4]) for row in kept) == expected, each.target
        self._passed_over(model)

    def _passed_over(self, model: Model) -> None:
        """No row is behind the watermark of a statement when it comes to it, unless it was behind one of its way when
        it landed."""
        rounds = [*self.rounds, self._reached()]  # what a person decided has released more since the last run
        for each in self.script.statements:
            if not each.in_event_time:
                continue
            way = self._way(each)
            for epoch, row in model.first[each.target]:
                if row.origin is None or row.late or row.ts is None:
                    continue
                name, landed, _ = row.origin
                came = next(place for place, found in enumerate(rounds) if found[name][0] >= landed)
                taken = next(place for place, found in enumerate(rounds) if found[each.target][0] >= epoch)
                before = rounds[came - 1] if came else {}
                late = any(row.ts + START <= before.get(table, (0, MIN_TIMESTAMP))[1] for table in way)
                past = rounds[taken - 1][each.target][1] if taken else MIN_TIMESTAMP
                assert late or row.ts + START > past, (each.target, row)

    def _way(self, statement: Statement) -> set[str]:
        above = [each for each in self.script.statements if each.target in statement.tables]
        return {statement.target, *statement.tables}.union(*map(self._way, above))

    def prove(self) -> None:
        """Each row that has landed is in one place in each branch; at length, too, each epoch recomputes to what is
        published."""
        for insert in self.harness.pipeline.inserts:
            found = reconcile(self.harness.lake, self.harness.pipeline, insert)
            assert found.problems == ()
            if insert.windowed:
                continue
            assert isinstance(found.rows, WhereRowsAre)
            assert found.rows.waiting == 0
            if len(insert.branches) > 1:
                assert sum(each.landed for each in found.rows.branches) == found.rows.landed
            if cases.AT_LENGTH:
                report = self.harness.verify(insert.id)
                assert report.passed, report

    def hold_what_is_idle(self, named: str) -> None:
        """A row of `a` is held in a target whose inputs have fallen idle; what reads that beside `b` waits for it."""

        def run() -> None:
            with suppress(GateHeld):
                self.harness.advance()
            self.look()

        def row(name: str, key: int, time: int) -> None:
            self.probes[name].append(Row(len(self.probes[name]), key, 1, time))
            self.push(name, self.probes[name][-1:])

        for name in ("a", "b", *BUILDS):
            self.mark(name, 5)
        self._version("users", 1, 3)
        row("a", 1, 4)
        run()
        for name in ("a", "users"):
            self.fall_idle(name)
        run()
        row("a", 9, 7)
        run()
        assert self.held == {named}
        row("b", 1, 30)
        for name in ("b", "rates"):
            self.mark(name, 40)
        self._version("users", 9, 6)
        run()
        self.harness.runner.resolve_held(named)
        self.held = set()
        run()

    def look_back(self) -> None:
        """In the end, versions come for rows of long ago; what is not read is released anew, and what is in quarantine
        released."""
        runner, low = self.harness.runner, START + self.chance.randint(0, 60)
        for build in BUILDS:
            for key in range(1, 8):
                self.version(build, key, -END)
        self.harness.advance()
        for each in self.script.statements:
            if each.in_event_time and self.script.readers(each.target):
                with pytest.raises(PlanningError, match=f"reads {each.target}, so none of its rows"):
                    runner.backfill(each.target)
            elif each.in_event_time:
                with suppress(GateHeld):
                    runner.backfill(each.target, (low, low + 30))
            if not each.window:
                with suppress(GateHeld):
                    runner.out_of_quarantine(each.target, Asked())
        self.finish()

    def finish(self) -> None:
        """Everything is told, and nothing is held or waits."""
        for name in self.marks:
            self.mark(name, END)
        for _ in range(20):
            with suppress(GateHeld):
                self.harness.advance()
            if not self._held():
                break
            self.harness.restart()
            for name in sorted(self._held()):
                with suppress(GateHeld):
                    self.harness.runner.resolve_held(name, on_unmatched="quarantine")
        self.held = set()
        self.look()


def _sortable(values: Any) -> tuple[Any, ...]:
    return tuple(-1 if value is None else value for value in values)


def values_of(row: dict[str, Any]) -> tuple[Any, ...]:
    return (row["_epoch"], *_sortable((row["id"], row["k"], row["n"], ms_of(row["ts"]))))
