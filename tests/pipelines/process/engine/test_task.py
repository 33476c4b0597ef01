"""A task over Arrow batches and state files: the same as the engine on plain records, epoch by epoch."""

from __future__ import annotations

import gc
import json
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle

from tests.pipelines.process.engine.test_epoch import CASES, parsed, shown
from tests.pipelines.process.scripted import Order, Scripted
from tests.pipelines.runtime.processes.functions import SEEN, TOTAL, Timed
from tidegate.pipelines.process import Arrived, EventTimeExtension, FunctionRaised, LocalRun, WrongValue
from tidegate.pipelines.process.engine.bucket import StateColumns, read_groups
from tidegate.pipelines.process.engine.rows import InputShape
from tidegate.pipelines.process.engine.steps import Steps
from tidegate.pipelines.process.engine.task import COLLECTED, KIND, REPORT, REPORTED, TaskPlan, run_task
from tidegate.pipelines.process.values import record_type
from tidegate.pipelines.watermarks import MAX_TIMESTAMP, MIN_TIMESTAMP, Watermark

BUCKETS, TASKS = 3, 2
LAST = pa.struct([("number", pa.int64()), ("name", pa.string())])
COLUMNS = StateColumns(
    keys=(("_key_k", pa.string()),),
    states=(
        ("seen", pa.list_(pa.int64())),
        ("total", pa.int64()),
        ("last", LAST),
        ("by_name", pa.map_(pa.string(), pa.int64())),
    ),
)
OUTPUT = pa.schema(
    [("k", pa.string()), ("at", pa.int64()), ("seen", pa.string()), ("total", pa.int64()), ("last", pa.string()),
     ("names", pa.string())]
)  # fmt: skip
RECORD = pa.schema([("k", pa.string()), ("number", pa.int64()), ("name", pa.string())])
SHAPE = InputShape(tuple(RECORD.names))
FUNCTION = EventTimeExtension.wrap_process_function(Timed())


def bucket_of(key: str | None) -> int:
    return 0 if key is None else sum(map(ord, key)) % BUCKETS


class Epochs:
    """Runs the tasks of one epoch after the other, as the stager does."""

    def __init__(
        self,
        folder: Path,
        batch: int,
        function: Any = FUNCTION,
        columns: StateColumns = COLUMNS,
        output: pa.Schema = OUTPUT,
        record: pa.Schema = RECORD,
    ) -> None:
        self.folder, self.batch, self.function = folder, batch, function
        self.columns, self.output, self.record = columns, output, record
        self.groups: dict[int, tuple[tuple[str, int], ...]] = {}
        self.buckets: dict[int, tuple[int | None, int]] = {}
        self.time = MIN_TIMESTAMP

    def run(self, records: list[tuple], end: int, rewrite: bool = False) -> list[tuple]:
        steps = Steps(self.time, (self.time,), end, (0,))
        due = frozenset(number for number, (least, _) in self.buckets.items() if least is not None and least <= end)
        plan = TaskPlan(
            cloudpickle.dumps(self.function), (), steps, (InputShape(tuple(self.record.names)),), 1, (self.output,),
            self.columns, self.groups, due, TASKS, str(self.folder), rewrite=rewrite,
        )  # fmt: skip
        found: list[tuple] = []
        reports: list[dict[str, Any]] = []
        for task in range(TASKS):
            for batch in run_task(plan, task, self._batches(records, task)):
                assert batch.schema == plan.schema
                for row in pa.table(batch).to_pylist():
                    if row[KIND] == REPORT:
                        reports.append(json.loads(row[REPORTED]))
                    else:
                        found.append(tuple(row[f"_out0_{place}"] for place in range(len(self.output))))
        if rewrite:
            self.groups = {}
        for report in reports:
            for place, bucket in enumerate(report["groups"]):
                group = (str(self.folder / report["file"]), place)
                self.groups[bucket] = (group, *self.groups.get(bucket, ()))
            self.buckets |= {int(number): tuple(word) for number, word in report["buckets"].items()}
        assert sum(report["seen"][0] for report in reports) == len(records)
        self.time = end
        return found

    def _batches(self, records: list[tuple], task: int):
        own = [(bucket_of(record[0]), record) for record in records if bucket_of(record[0]) % TASKS == task]
        own.sort(key=lambda item: (item[0], item[1][0] is not None, item[1][0] or ""))
        for start in range(0, len(own), self.batch):
            part = own[start : start + self.batch]
            columns = {"_bucket": pa.array([bucket for bucket, _ in part], pa.int32())}
            columns["_key0"] = pa.array([record[0] for _, record in part], pa.string())
            columns["_step"] = pa.array([0] * len(part), pa.int32())
            columns["_time"] = pa.nulls(len(part), pa.int64())
            for place, kind in enumerate(self.record.types):
                columns[f"_in0_{place}"] = pa.array([record[place] for _, record in part], kind)
            yield pa.record_batch(columns)

    def living(self) -> dict[Any, dict[str, Any]]:
        """What the files hold of every key, the newest row of each."""
        found: dict[Any, dict[str, Any]] = {}
        for groups in self.groups.values():
            for row in read_groups(reversed(groups), self.columns.schema).to_pylist():
                found[row["_key_k"]] = row
        return {key: row for key, row in found.items() if row["_live"]}


@pytest.mark.parametrize("seed", range(6))
def test_epochs_of_tasks_are_epochs_of_the_engine(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    epochs = Epochs(tmp_path, batch=chance.choice([1, 2, 7, 1000]))
    local = LocalRun(FUNCTION, lambda record: record.k)
    end = 0
    for number in range(6):
        records = [
            (chance.choice(["a", "b", "c", "dd", None]), chance.randrange(100), chance.choice("xyz"))
            for _ in range(chance.randrange(12))
        ]
        end = MAX_TIMESTAMP if number == 5 else end + chance.randrange(40)
        found = epochs.run(records, end, rewrite=number in (2, 4))
        made = [record_type(SHAPE.columns)(*record) for record in records]
        (emitted,) = local.epoch([Arrived(made, Watermark(end))])
        by_key: dict[Any, list] = defaultdict(list)
        for row in emitted:
            by_key[row[0]].append(row)
        found_by_key: dict[Any, list] = defaultdict(list)
        for row in found:
            found_by_key[row[0]].append(row)
        assert found_by_key == by_key
        living = epochs.living()
        assert {key: row["_timers"] or [] for key, row in living.items()} == {
            key: state.get("timers", []) for key, state in local.state.items()
        }
        assert {key: row["seen"] for key, row in living.items()} == {
            key: state["seen"] for key, state in local.state.items()
        }
        assert sum(count for _, count in epochs.buckets.values()) == len(local.state)


def test_a_list_that_is_added_to_is_put_together_from_what_is_stored(tmp_path: Path) -> None:
    epochs = Epochs(tmp_path, batch=10)
    for number in range(3):
        epochs.run([("a", 100 + number, "x"), ("b", 200 + number, "y")], number)
    assert {key: row["seen"] for key, row in epochs.living().items()} == {"a": [100, 101, 102], "b": [200, 201, 202]}
    assert len(epochs.groups[bucket_of("a")]) == 3
    epochs.run([("b", 203, "y")], 4, rewrite=True)
    assert {len(groups) for groups in epochs.groups.values()} == {1}
    assert epochs.living()["a"]["seen"] == [100, 101, 102]
    names = {name for groups in epochs.groups.values() for name, _ in groups}
    assert all(pq.read_metadata(name).num_rows == 1 for name in names)


class Lists(Timed):
    """Adds to its list, and now and then reads it, puts another in its place, or clears it."""

    def process_record(self, record, output, ctx) -> None:
        seen = ctx.get_state_manager().get_state(SEEN)
        if record.name == "read":
            output.collect((record.k, len(seen.get()), "", 1, "", ""))
        elif record.name == "other":
            seen.update([record.number, *seen.get()[:2]])
        elif record.name == "clear":
            seen.clear()
        else:
            seen.add(record.number)
            self.time.register_timer(record.number)

    def on_event_timer(self, timestamp: int, output, ctx) -> None:
        ctx.get_state_manager().get_state(SEEN).add(-timestamp)


@pytest.mark.parametrize("seed", range(6))
def test_stored_and_new_elements_stand_in_their_order(tmp_path: Path, seed: int) -> None:
    chance, function = random.Random(seed), EventTimeExtension.wrap_process_function(Lists())
    epochs, local = Epochs(tmp_path, 100, function), LocalRun(function, lambda record: record.k)
    for end in range(0, 64, 8):
        records = [
            (chance.choice("abcdefgh"), chance.randrange(80), chance.choice(["add"] * 8 + ["read", "other", "clear"]))
            for _ in range(chance.randrange(30))
        ]
        epochs.run(records, end, rewrite=chance.random() < 0.2)
        local.epoch([Arrived([record_type(SHAPE.columns)(*record) for record in records], Watermark(end))])
        found = {key: (row["seen"], row["_timers"]) for key, row in epochs.living().items()}
        assert found == {key: (state.get("seen"), state.get("timers")) for key, state in local.state.items()}


class Forgetful(Timed):
    """Clears its list at once, and the rest when a record asks for it."""

    def process_record(self, record, output, ctx) -> None:
        states = ctx.get_state_manager()
        if record.name == "clear":
            states.get_state(TOTAL).clear()
            return
        states.get_state(TOTAL).add(record.number)
        states.get_state(SEEN).add(record.number)
        states.get_state(SEEN).clear()


def test_nothing_is_kept_of_a_key_whose_list_is_empty(tmp_path: Path) -> None:
    epochs = Epochs(tmp_path, 10, EventTimeExtension.wrap_process_function(Forgetful()))
    epochs.run([("a", 1, "x"), ("b", 2, "x")], 1)
    assert {key: (row["seen"], row["total"]) for key, row in epochs.living().items()} == {
        "a": (None, 1),
        "b": (None, 2),
    }
    epochs.run([("a", 0, "clear")], 2)
    assert set(epochs.living()) == {"b"}
    assert sum(count for _, count in epochs.buckets.values()) == 1


class Closes(Timed):
    """Tells that it is closed."""

    def on_event_time_watermark(self, watermark_timestamp: int, output, ctx) -> None:
        self.output = output

    def close(self) -> None:
        self.output.collect(("closed", 1, "", 1, "", ""))


def test_what_is_collected_at_the_end_is_kept_once(tmp_path: Path) -> None:
    epochs = Epochs(tmp_path, 10, EventTimeExtension.wrap_process_function(Closes()))
    assert [row[0] for row in epochs.run([("a", 50, "x"), ("b", 50, "x")], 9)] == ["closed"]
    local = LocalRun(EventTimeExtension.wrap_process_function(Closes()), lambda record: record.k)
    assert [row[0] for row in local.epoch([Arrived([], Watermark(9))])[0]] == ["closed"]


class Collected(Timed):
    """Tells how often Python looks for cycles."""

    def on_event_timer(self, timestamp: int, output, ctx) -> None:
        output.collect((ctx.get_state_manager().get_current_key(), gc.get_threshold()[0], "", 1, "", ""))


def test_cycles_are_looked_for_less_often_while_a_task_runs(tmp_path: Path) -> None:
    before = gc.get_threshold()
    epochs = Epochs(tmp_path, 10, EventTimeExtension.wrap_process_function(Collected()))
    assert [row[1] for row in epochs.run([("b", 5, "x")], 9)] == [COLLECTED]
    with pytest.raises(FunctionRaised):
        Epochs(tmp_path, 10, EventTimeExtension.wrap_process_function(WrongState())).run([("b", 5, "x")], 9)
    assert gc.get_threshold() == before != (COLLECTED, 20, 20)


class WrongOutput(Timed):
    def on_event_timer(self, timestamp: int, output, ctx) -> None:
        output.collect(("fine", 1, "", 1, "", ""))
        output.collect((ctx.get_state_manager().get_current_key(), "soon", "", 1, "", ""))


class WrongState(Timed):
    def process_record(self, record, output, ctx) -> None:
        ctx.get_state_manager().get_state(TOTAL).add("much")


class TooFew(Timed):
    def on_event_timer(self, timestamp: int, output, ctx) -> None:
        output.collect({"k": 1})


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (WrongOutput(), r"WrongOutput at key 'b': output record \('b', 'soon'.* does not fit"),
        (TooFew(), r"TooFew at key 'b': output record .* the schema differ in at, last, names, seen, total"),
    ],
)
def test_values_of_another_type_name_their_key(tmp_path: Path, function: Any, expected: str) -> None:
    epochs = Epochs(tmp_path, 10, EventTimeExtension.wrap_process_function(function))
    with pytest.raises(WrongValue, match=expected):
        epochs.run([("b", 5, "x")], 9)


class WrongTimer(Timed):
    def on_event_timer(self, timestamp: int, output, ctx) -> None:
        ctx.get_state_manager().get_state(TOTAL).clear()
        ctx.get_state_manager().get_state(TOTAL).add("much")


def test_a_state_of_another_type_names_the_key_and_what_was_called(tmp_path: Path) -> None:
    epochs = Epochs(tmp_path, 10, EventTimeExtension.wrap_process_function(WrongState()))
    wrong = r"WrongValue: state 'total': 'much' \(str\) is no BIGINT \(test_task.py:\d+\)"
    with pytest.raises(FunctionRaised, match=rf"key 'b', record Record\(k='b', number=5.*{wrong}"):
        epochs.run([("b", 5, "x")], 3)
    epochs = Epochs(tmp_path, 10, EventTimeExtension.wrap_process_function(WrongTimer()))
    with pytest.raises(FunctionRaised, match=f"key 'b', timer 5: {wrong}"):
        epochs.run([("b", 5, "x")], 6)


def test_a_row_gets_the_fields_that_came_later(tmp_path: Path) -> None:
    Epochs(tmp_path, 10).run([("a", 5, "x"), ("b", 6, "")], 1)
    wider = pa.struct([("name", pa.string()), ("more", pa.map_(pa.string(), pa.int64())), ("number", pa.int64())])
    schema = pa.schema([("last", wider), ("new", pa.list_(pa.string())), ("_key_k", pa.string())])
    found = [
        row
        for path in tmp_path.glob("*.parquet")
        for number in range(pq.read_metadata(path).num_row_groups)
        for row in read_groups([(str(path), number)], schema).to_pylist()
    ]
    assert sorted(found, key=lambda row: row["_key_k"]) == [
        {"last": {"name": "x", "more": None, "number": 5}, "new": None, "_key_k": "a"},
        {"last": {"name": "", "more": None, "number": 6}, "new": None, "_key_k": "b"},
    ]
    path = next(tmp_path.glob("*.parquet"))
    with pytest.raises(WrongValue, match="state 'last' is stored as struct"):
        read_groups([(str(path), 0)], pa.schema([("last", pa.int64())]))


def test_a_timer_at_the_end_of_time_fires_there(tmp_path: Path) -> None:
    epochs = Epochs(tmp_path, 10)
    epochs.run([("a", MAX_TIMESTAMP, "x"), ("b", 5, "x")], 9)
    epochs.run([("dd", 50, "x")], 20)
    assert {(row[0], row[1]) for row in epochs.run([], MAX_TIMESTAMP)} == {("a", MAX_TIMESTAMP), ("dd", 50)}


ORDER = pa.schema([("key", pa.string()), *((name, pa.int64()) for name in Order._fields[1:-1]), ("clear", pa.bool_())])
TIMES = pa.map_(pa.int64(), pa.int64())
SCRIPTED = StateColumns(
    keys=(("_key_k", pa.string()),),
    states=(
        ("seen", pa.list_(pa.int64())),
        ("again", TIMES),
        ("cancel", TIMES),
        ("total", pa.int64()),
        ("last", pa.int64()),
    ),
)
FOUR = pa.schema([("key", pa.string()), ("what", pa.string()), ("at", pa.int64()), ("now", pa.int64())])


class Short(Scripted):
    """Tells the first four things, which are the same of records and timers."""

    def process_record(self, record, output, ctx) -> None:
        super().process_record(record, _First(output), ctx)

    def on_event_timer(self, timestamp: int, output, ctx) -> None:
        super().on_event_timer(timestamp, _First(output), ctx)


class _First:
    def __init__(self, output: Any) -> None:
        self._output = output

    def collect(self, record: tuple) -> None:
        self._output.collect(record[:4])


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_timers_go_through_state_files(tmp_path: Path, case: dict[str, Any]) -> None:
    """Every step is an epoch, that reads its timers from what the epochs before it have written."""
    epochs = Epochs(tmp_path, 10, EventTimeExtension.wrap_process_function(Short()), SCRIPTED, FOUR, ORDER)
    emitted: list[tuple] = []
    for count, step in enumerate(case["steps"]):
        word = parsed(step, count)
        if isinstance(word, Watermark):
            emitted += epochs.run([], max(epochs.time, word.timestamp), rewrite=count % 4 == 3)
        else:
            emitted += epochs.run([word], epochs.time, rewrite=count % 4 == 3)
    assert [shown(item) for item in emitted] == case["emitted"]
