"""A database that is none of ours: all that a second one has to bring, and how its table is planned up to the flip."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.sources.mysql_cdc.driver import MemorySplits
from tidegate.pipelines.connectors.protocol import Landed, PlanRequest, SourceContext, SourcePosition, StoredStep
from tidegate.pipelines.connectors.table import Column as DeclaredColumn
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.cdc.changelog import STRING, CanonicalType
from tidegate.pipelines.sources.cdc.chunks import Chunk, SnapshotKey
from tidegate.pipelines.sources.cdc.database import ChunkReader, CutRule, Settings, SnapshotStep
from tidegate.pipelines.sources.cdc.source import CdcSource


@dataclass(frozen=True)
class Lsn:
    """A place in the log: PostgreSQL's, about."""

    at: int

    @property
    def order(self) -> tuple[int, int]:
        return 0, self.at

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Text:
    name: str

    @property
    def canonical(self) -> CanonicalType:
        return STRING

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Number:
    """A key column of whole numbers."""

    quoted: str = '"id"'
    integer: bool = True
    fetch: str = '"id"'

    def literal(self, value: str) -> str:
        return value

    def to_json(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True)
class Piece:
    start: Lsn
    end: Lsn
    columns: tuple[Text, ...]
    flip_at: Lsn | None
    server: str = ""

    @property
    def empty(self) -> bool:
        return self.start == self.end

    @property
    def flips(self) -> bool:
        return self.flip_at is not None and self.end.order >= self.flip_at.order

    def to_json(self) -> dict[str, Any]:
        return {"kind": "wal", **asdict(self)}


class Server:
    """The log's end, and a table of 25 rows with the ids 1 to 25."""

    rows, snapshot_key = 25, SnapshotKey((Number(),))

    def __init__(self) -> None:
        self.lsn = 100

    def column(self, name: str) -> Text | None:
        return Text(name)

    @contextmanager
    def cursor(self) -> Iterator[Server]:
        yield self

    def execute(self, query: str, args: Any = None) -> None:
        assert query == 'SELECT MIN("id"), MAX("id") FROM "app"."users"'

    def fetchone(self) -> tuple[int, int]:
        return 1, 25

    def close(self) -> None: ...


class AsOfNow:
    """Reads views that do not say where they are: a chunk's cut is a place that is past it."""

    exact = False

    def start(self, cursor: Server) -> Lsn:
        return Lsn(cursor.lsn)

    def after(self, cursor: Server) -> Lsn:
        return Lsn(cursor.lsn)


class OtherSource(CdcSource[Lsn, SnapshotStep, Piece]):
    log_split = "wal"
    server_id = "7"

    def __init__(self, context: SourceContext, server: Server, mode: str = "initial") -> None:
        super().__init__(context, Settings("app.users", ("app", "users"), mode, chunk_rows=10), server)
        self.server = server

    def preflight(self, position: SourcePosition) -> None: ...

    def source_table(self, before: object) -> Server:
        return self.server

    def cut_rule(self) -> CutRule[Lsn]:
        return AsOfNow()

    def end(self, cursor: Server) -> Lsn:
        return Lsn(cursor.lsn)

    def position_of(self, stored: Any) -> Lsn:
        return Lsn(**stored)

    def cut_of(self, start: Lsn, place: tuple[int, int]) -> Lsn:
        return Lsn(place[1])

    def step_of(self, ranges: Any) -> SnapshotStep | Piece:
        values = {**ranges, "columns": tuple(Text(**column) for column in ranges["columns"])}
        if values.pop("kind") == "snapshot":
            return SnapshotStep(**{**values, "start": Lsn(**values["start"]), "key": self.server.snapshot_key})
        places = {name: values[name] and Lsn(**values[name]) for name in ("start", "end", "flip_at")}
        return Piece(**{**values, **places})

    def check_log(self, step: object) -> None: ...

    def snapshot_start(self, cursor: Server, total: int, key: Any, columns: Sequence[Text]) -> SnapshotStep:
        return SnapshotStep(0, 0, total, Lsn(cursor.lsn), self.server.snapshot_key, tuple(columns))

    def log_start(self, cursor: Server, end: Lsn, instant: int) -> Piece:
        return Piece(end, end, (Text("name"),), end)

    def log_after(self, snapshot: SnapshotStep, flip_at: Lsn, began_at: int) -> Piece:
        return Piece(snapshot.start, snapshot.start, (Text("name"),), flip_at)

    def next_piece(
        self, cursor: Server, before: Piece, end: Lsn, request: PlanRequest
    ) -> tuple[Piece | None, int | None]:
        goal = max(end, before.end, before.flip_at or end, key=lambda place: place.order)
        step = replace(before, start=before.end, end=goal)
        return (None if step.empty and not step.flips else step), None

    def read_log(self, spark: Any, step: Piece, stored: StoredStep) -> None: ...

    def log_landed(self, step: Piece, rows: object) -> Landed:
        return Landed()

    def position_after(self, stored: StoredStep) -> Lsn:
        return self.position_of(stored.step.ranges["end"])

    def chunk_reader(self, columns: Any, key: Any, chunks: Sequence[Chunk], *more: Any) -> ChunkReader:  # type: ignore[override]
        raise NotImplementedError

    def quote(self, name: str) -> str:
        return f'"{name}"'

    def literal(self, table: object, column: str, value: Any) -> str:
        return str(value)


TABLE = Table("users", (DeclaredColumn("name", "STRING", "STRING"),), {"connector": "other"})


def opened(server: Server, splits: MemorySplits, folder: Path, mode: str = "initial") -> OtherSource:
    context = SourceContext(
        table=TABLE, options={}, generation=1, splits=splits, scratch=str(folder), clock=lambda: 1_000
    )
    return OtherSource(context, server, mode)


def run(server: Server, folder: Path, mode: str = "initial") -> list[StoredStep]:
    """All steps of a run that opens its source anew for each, and whose server writes 5 bytes of log in each."""
    splits, steps, emitted = MemorySplits(), [], []
    position = SourcePosition()
    ends = opened(server, splits, folder, mode).ends(position)
    while True:
        source = opened(server, splits, folder, mode)
        source.delegate_watermark_periodic_emit(lambda: emitted.append(len(steps)))
        found = source.plan(PlanRequest(**vars(position), ends=ends, instant=1_000)).step
        if found is None:
            assert emitted == [number for number, stored in enumerate(steps, 1) if stored.step.flips]
            return steps
        server.lsn += 5
        steps.append(StoredStep(found, 1, len(steps) + 1, 1_000))
        source.landed(steps[-1], None)
        position = SourcePosition(previous=steps[-1], first=steps[0], flipped=found.flips or position.flipped)


def test_chunks_then_the_log_up_to_the_greatest_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.pipelines.sources.cdc.snapshot.STEP_CHUNKS", 2)
    found = [(stored.step.phase, stored.step.summary, stored.step.flips) for stored in run(Server(), tmp_path)]
    assert [(phase, flips) for phase, _, flips in found] == [
        ("bounded", False),
        ("bounded", False),
        ("unbounded", True),
    ]
    assert [summary for _, summary, _ in found[:2]] == ["chunks 1-2 of 3", "chunks 3-3 of 3"]


def test_the_log_is_read_from_before_the_first_chunk_past_every_view(tmp_path: Path) -> None:
    *_, last = run(Server(), tmp_path)
    assert (last.step.ranges["start"], last.step.ranges["flip_at"]) == ({"at": 100}, {"at": 105})
    assert last.step.ranges["server"] == "7"


def test_without_a_snapshot_the_first_step_flips(tmp_path: Path) -> None:
    (only,) = run(Server(), tmp_path, "latest-offset")
    assert (only.step.phase, only.step.flips) == ("unbounded", True)


def test_a_chunk_whose_cut_was_lost_is_no_flip(tmp_path: Path) -> None:
    splits = MemorySplits()
    source = opened(Server(), splits, tmp_path)
    first = source.plan(PlanRequest(ends={"at": 100}, instant=1_000)).step
    assert first is not None
    stored = StoredStep(first, 1, 1, 1_000)
    with pytest.raises(SourceError, match="users: the cut of chunk-0000000 is not known"):
        source.plan(PlanRequest(previous=stored, first=stored, ends={"at": 100}, instant=1_000))
