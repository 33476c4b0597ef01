"""Tables of one server: what one of them read, the others need not ask the server for."""

from __future__ import annotations

import stat
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from tests.conftest import Database
from tests.pipelines.sources.mysql_cdc.binlog.recording import position, read, server_of, wanted
from tidegate.pipelines.sources.mysql_cdc.binlog.model import BinlogPosition, BinlogRange, WantedTable
from tidegate.pipelines.sources.mysql_cdc.binlog.reading import read_range
from tidegate.pipelines.sources.mysql_cdc.binlog.rows.table_reader import schema_of
from tidegate.pipelines.sources.mysql_cdc.binlog.spool import Spool
from tidegate.pipelines.sources.mysql_cdc.errors import ConnectionLost, SpoolDamaged

TABLES = ("a", "b", "c")


def at(number: int, file: str = "binlog.000001") -> BinlogPosition:
    return BinlogPosition(file, number)


def spool_of(folder: Path, reader: str, readers: tuple[str, ...] = TABLES, birth: str = "7-1") -> Spool:
    return Spool(str(folder), reader, readers, birth, birth)


def there(end: BinlogPosition, birth: str) -> bool:
    return birth == "7-1"


def kept(spool: Spool, *ends: int) -> None:
    """Ranges between the ends, recorded by the spool's reader, without an event."""
    for start, end in pairwise(ends):
        with spool.recording(BinlogRange(at(start), at(end))) as recording:
            assert list(recording.through([])) == []
            recording.finish()


@pytest.mark.parametrize(
    ("recorded", "start", "goal", "meets"),
    [
        ((), 10, 90, 90),
        ((10, 50), 10, 90, 50),
        ((10, 50, 70), 10, 90, 70),
        ((10, 50, 99), 10, 90, 50),
        ((20, 60), 40, 90, 60),
        ((20, 40), 40, 90, 90),
        ((10, 95), 40, 90, 90),
    ],
    ids=["alone", "the same start", "several in a row", "not beyond the goal", "the same end", "behind", "ahead"],
)
def test_where_a_piece_ends(tmp_path: Path, recorded: tuple[int, ...], start: int, goal: int, meets: int) -> None:
    kept(spool_of(tmp_path, "a"), *recorded)
    assert spool_of(tmp_path, "b").meeting(at(start), at(goal), there) == at(meets)
    own = spool_of(tmp_path, "a").meeting(at(start), at(goal), there)
    assert own == at(goal), "its own ranges are nothing to a reader"
    assert spool_of(tmp_path, "b", birth="8-1").meeting(at(start), at(goal), there) == at(goal), "another log"


def test_a_range_that_the_server_no_longer_has_is_no_place_to_meet(tmp_path: Path) -> None:
    kept(spool_of(tmp_path, "a"), 10, 50, 70)
    spool = spool_of(tmp_path, "b")
    assert spool.meeting(at(10), at(90), lambda end, birth: end.position <= 60) == at(50)
    assert spool.meeting(at(10), at(90), lambda end, birth: birth != "7-1") == at(90)


def test_a_range_goes_when_the_last_reader_has_left_it(tmp_path: Path) -> None:
    kept(spool_of(tmp_path, "a"), 10, 50, 70)
    spool_of(tmp_path, "b").leave(at(70))
    assert len(list(tmp_path.iterdir())) == 2
    spool_of(tmp_path, "c").leave(at(60))
    assert [place.name for place in tmp_path.iterdir()] == [spool_of(tmp_path, "a").place(_span(50, 70)).name]
    spool_of(tmp_path, "c").leave(at(80))
    assert list(tmp_path.iterdir()) == []


def _span(start: int, end: int) -> BinlogRange:
    return BinlogRange(at(start), at(end))


def test_an_unfinished_recording_leaves_nothing(tmp_path: Path) -> None:
    spool = spool_of(tmp_path, "a")
    with spool.recording(_span(10, 50)) as recording:
        assert list(recording.through([])) == []
    assert list(tmp_path.iterdir()) == []
    assert spool.stored(_span(10, 50)) is None


def test_nobody_else_may_look_into_it(tmp_path: Path) -> None:
    folder = tmp_path / "scratch" / "_binlog" / "server_3306"
    folder.mkdir(parents=True, mode=0o755)  # as it was made before
    kept(spool_of(folder, "a"), 10, 50)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert spool_of(folder, "b").meeting(at(10), at(90), there) == at(50)


def test_the_oldest_ranges_go_beyond_the_limit(database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE a (id INT PRIMARY KEY, s LONGTEXT)")
    table, start = wanted(database, "a"), position(database)
    spool = spool_of(tmp_path, "a")
    for number in (1, 2, 3):
        database.execute(f"INSERT INTO a VALUES ({number}, REPEAT('x', 100000))")
        end = position(database)
        _read(database, table, BinlogRange(start, end), replace(spool, limit=250_000))
        start = end
    assert len(list(tmp_path.iterdir())) == 2


def test_the_second_table_gets_the_same_rows_and_the_server_sends_them_once(database: Database, tmp_path: Path) -> None:
    database.execute(*[f"CREATE TABLE {name} (id INT PRIMARY KEY, s LONGTEXT)" for name in ("a", "b")])
    start = position(database)
    for table in ("a", "b"):
        database.execute(
            f"INSERT INTO {table} SELECT seq, REPEAT('{table}', 400) FROM seq_1_to_20000",
            f"INSERT INTO {table} VALUES (0, REPEAT('{table}', 17000000))",  # an event of several packets
        )
    span = BinlogRange(start, position(database))
    before = _sent(database)
    first = _read(database, wanted(database, "a"), span, spool_of(tmp_path, "a", ("a", "b")))
    size = _sent(database) - before
    second = _read(database, wanted(database, "b"), span, spool_of(tmp_path, "b", ("a", "b")))
    assert size > span.end.position - span.start.position
    assert _sent(database) - before - size < 0.05 * size
    assert first.equals(read(database, wanted(database, "a"), start, span.end))
    assert second.equals(read(database, wanted(database, "b"), start, span.end))
    assert first.num_rows == second.num_rows == 20_001


def _read(database: Database, table: WantedTable, span: BinlogRange, spool: Spool) -> pa.Table:
    batches = list(read_range(server_of(database), span, table, spool=spool))
    return pa.Table.from_batches(batches, schema_of(table))


def _sent(database: Database) -> int:
    """Bytes that the server has sent to anybody."""
    return int(database.execute("SHOW GLOBAL STATUS LIKE 'Bytes_sent'")[0][1])


@pytest.mark.parametrize("rots", ["a byte of a row", "a length", "the end", "all"])
def test_a_spool_that_rotted_is_found_out_and_read_anew(database: Database, tmp_path: Path, rots: str) -> None:
    database.execute("CREATE TABLE a (id INT PRIMARY KEY, s LONGTEXT)")
    start = position(database)
    database.execute("INSERT INTO a VALUES (1, REPEAT('x', 1000))")
    span, table = BinlogRange(start, position(database)), wanted(database, "a")
    spool = spool_of(tmp_path, "a")
    _read(database, table, span, spool)
    events = spool.place(span) / "events"
    whole = events.read_bytes()
    rotten = {
        "a byte of a row": whole.replace(b"xxxx", b"xxyx", 1),
        "a length": b"\xff" * 16 + whole[16:],
        "the end": whole[:-1],
        "all": b"",
    }
    events.write_bytes(rotten[rots])
    with pytest.raises(SpoolDamaged, match="copy is removed"):
        _read(database, table, span, spool_of(tmp_path, "b"))
    assert _read(database, table, span, spool_of(tmp_path, "b")).num_rows == 1, "from the server"


def test_a_read_that_is_cut_off_is_not_taken_for_whole(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidegate.pipelines.sources.mysql_cdc.binlog import reading

    database.execute("CREATE TABLE a (id INT PRIMARY KEY, s LONGTEXT)")
    start = position(database)
    database.execute("INSERT INTO a SELECT seq, REPEAT('x', 1000) FROM seq_1_to_2000")
    span, table = BinlogRange(start, position(database)), wanted(database, "a")
    whole = reading.dump

    def cut_off(*args: object, **more: object) -> object:
        yield next(whole(*args, **{**more, "chunk_bytes": 1 << 16}))  # type: ignore[arg-type]
        raise ConnectionLost("the server is gone")

    monkeypatch.setattr(reading, "dump", cut_off)
    with pytest.raises(ConnectionLost):
        _read(database, table, span, spool_of(tmp_path, "a"))
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    assert _read(database, table, span, spool_of(tmp_path, "b")).num_rows == 2000
