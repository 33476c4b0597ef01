"""A third sink is a package and an entry point; it is notified of each epoch after its commit, at least once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.pipelines.runtime.handmade import FREE, HandmadeLake, pipeline, store
from tidegate.pipelines.connectors import registry
from tidegate.pipelines.connectors.spec import ConnectorSpec
from tidegate.pipelines.connectors.table import Options, Table
from tidegate.pipelines.lake.adopt import survey
from tidegate.pipelines.lake.records import StagedFile
from tidegate.pipelines.location import Location
from tidegate.pipelines.runtime.definitions import Definitions
from tidegate.pipelines.runtime.failures import StepFailed
from tidegate.pipelines.runtime.releasing.insert_runner import InsertRunner, Published
from tidegate.pipelines.runtime.releasing.join_runner import JoinRunner
from tidegate.pipelines.sinks.print import CONNECTOR as PRINT
from tidegate.pipelines.sinks.protocol import EpochListener, MakesSinks, Sink, TableSink, sink_of

NOTHING: Any = None


@dataclass(frozen=True)
class Bell(TableSink):
    """A target that rings; reads its rows without Spark. `adopted`: the files of each commit."""

    made: BellConnector

    def read(self, spark: Any, generation: int, after: int, upto: int) -> Any:
        return generation, after, upto

    def adopt(self, folder: Location, files: Sequence[StagedFile], **given: Any) -> int:
        self.made.adopted.append((given["application"].split("/")[-2], len(files)))
        return super().adopt(folder, files, **given)

    def published(self, rows: Any) -> None:
        if self.made.jammed:
            raise OSError("the bell is jammed")
        self.made.rung.append(rows)


@dataclass
class BellConnector:
    spec: ConnectorSpec = field(
        default_factory=lambda: ConnectorSpec("bell", (), "A target that rings.", source=False, sink=True)
    )
    jammed: bool = False
    rung: list[Any] = field(default_factory=list)
    adopted: list[tuple[str, int]] = field(default_factory=list)

    def source(self, context: Any) -> Any:
        raise NotImplementedError

    def sink(self, table: Table, path: Location) -> Bell:
        return Bell(path, self)


@pytest.fixture
def bell() -> Iterator[BellConnector]:
    made = BellConnector()
    with registry.given(made):
        yield made


class Lake(HandmadeLake):
    """clicks joined to users into a target that rings."""

    def __init__(self, root: Path) -> None:
        found = pipeline()
        rings = replace(found.table("enriched"), options=Options({"connector": "bell"}))
        super().__init__(root, replace(found, tables={**found.tables, "enriched": rings}))
        self.landed("users", 1, 3, flip=1)
        self.landed("clicks", 1, 3)
        self.landed("clicks", 2, 3)
        path = self.lake.target_path(self.target)
        Path(path).mkdir(parents=True)
        DeltaTable.create(str(path), pa.schema([("id", pa.int64()), ("_epoch", pa.int64())]))

    def judged_epoch(self, epoch: int, rows: int) -> None:
        plan = self.planned(epoch, epoch - 1, epoch)
        staged = self.staged_row(plan, matched=rows)
        folder = self.lake.new_attempt(self.target, self.insert, staged.folder)["publish"]
        for empty in self.lake.new_attempt(self.target, self.insert, staged.folder).values():
            Path(empty / "_disposition=publish").mkdir(parents=True)
        values = {"id": pa.array(range(rows)), "_epoch": pa.array([epoch] * rows, pa.int64())}
        pq.write_table(pa.table(values), folder / "_disposition=publish" / "a.parquet")
        files = [file.__dict__ for file in survey(folder)] if rows else []
        store(self.lake, replace(staged, files=files))
        self.judged(plan)

    def runner(self) -> InsertRunner:
        """A process that has just started."""
        lake = type(self.lake)(self.root)
        defined = Definitions(lake, self.pipeline, {}, lambda: 9)
        return JoinRunner(lake, self.pipeline, self.insert, FREE, lambda: NOTHING, lambda: 9, NOTHING, defined)

    def published_by(self, runner: InsertRunner) -> Published:
        done = runner.publish()
        assert done is not None
        return done


def test_each_epoch_goes_through_the_sink_which_is_notified_once(tmp_path: Path, bell: BellConnector) -> None:
    lake = Lake(tmp_path)
    lake.judged_epoch(1, rows=3)
    assert lake.published_by(lake.runner()).rows == 3
    assert bell.adopted == [("publish", 1), ("notified", 0)]
    assert bell.rung == [(1, 0, 1)]
    assert lake.published_by(lake.runner()).rows == 0, "it was there"
    lake.runner()._own()
    assert bell.rung == [(1, 0, 1)]
    log = sorted(Path(lake.lake.target_path(lake.target) / "_delta_log").glob("*.json"))
    added = [[json.loads(line) for line in path.read_text().splitlines()] for path in log[1:]]
    assert [sum("add" in action for action in actions) for actions in added] == [1, 0]


def test_an_epoch_without_rows_notifies_nobody(tmp_path: Path, bell: BellConnector) -> None:
    lake = Lake(tmp_path)
    lake.judged_epoch(1, rows=0)
    lake.published_by(lake.runner())
    lake.runner()._own()
    assert bell.rung == []


def test_what_fails_is_done_again_before_the_next_epoch(tmp_path: Path, bell: BellConnector) -> None:
    lake = Lake(tmp_path)
    lake.judged_epoch(1, rows=3)
    bell.jammed = True
    with pytest.raises(StepFailed, match="the bell is jammed") as failed:
        lake.runner().publish()
    assert failed.value.state == "the epoch is published; what enriched does with it is done again by the next run"
    lake.judged_epoch(2, rows=2)
    with pytest.raises(StepFailed, match="the bell is jammed"):
        lake.runner()._own()
    bell.jammed = False
    lake.runner()._own()
    assert bell.rung == [(1, 0, 1)]
    lake.published_by(lake.runner())
    assert bell.rung == [(1, 0, 1), (1, 1, 2)]


def test_a_lake_of_before_shows_its_newest_epoch_at_most(tmp_path: Path, bell: BellConnector) -> None:
    lake = Lake(tmp_path)
    with pytest.MonkeyPatch.context() as before:
        before.setattr(BellConnector, "sink", lambda self, table, path: TableSink(path))
        lake.judged_epoch(1, rows=3)
        lake.published_by(lake.runner())
        lake.judged_epoch(2, rows=2)
        lake.published_by(lake.runner())
    lake.runner()._own()
    assert bell.rung == [(1, 1, 2)]


def test_the_sinks_of_the_house(tmp_path: Path) -> None:
    target = pipeline().table("enriched")
    shown = replace(target, options=Options({"connector": "print", "print-identifier": "p"}))
    assert isinstance(PRINT, MakesSinks)
    for name, table in {"print": shown, "scripted": target, "delta": None}.items():
        table = table or replace(target, options=Options({"connector": name, "path": str(tmp_path)}))
        made = sink_of(table, Location(tmp_path))
        assert isinstance(made, Sink)
        assert isinstance(made, TableSink)
        assert isinstance(made, EpochListener) is (name == "print")
        assert made.committed("nobody") == -1
