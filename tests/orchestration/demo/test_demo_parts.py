"""The demo's parts, each against what it must say; the writer and the replay against a real MariaDB."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import typer.main
from deltalake import write_deltalake

from tidegate.orchestration.commands.app import app
from tidegate.orchestration.demo import writer
from tidegate.orchestration.demo.proof import PinnedEpoch, Proof, Replay, prove
from tidegate.orchestration.demo.site import Sizes
from tidegate.orchestration.demo.stage import fill, gender, serving, transaction_at
from tidegate.orchestration.demo.verdict import ungated
from tidegate.orchestration.demo.writer import Keys, writing
from tidegate.pipelines.progress import SilentProgress

SEQ = pa.struct(
    [("phase", pa.int32()), ("log", pa.int32()), ("file", pa.int64()), ("position", pa.int64()), ("row", pa.int32())]
)


def test_the_proof_knows_nothing_of_the_join() -> None:
    program = "import sys; import tidegate.orchestration.demo.proof; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not [
        name for name in loaded if name.startswith(("tidegate.pipelines.joins", "pyspark", "tidegate.quality_checks"))
    ]


def test_it_is_as_big_as_the_readme_says() -> None:
    command: Any = typer.main.get_command(app)
    given = {each.name: each.default for each in command.commands["demo"].params}
    assert (given["rows"], given["clicks"], given["writes_per_second"]) == (1_000_000, 500_000, 2_000)
    assert Sizes() == Sizes(1_000_000, 500_000, 2_000)


def test_every_kind_of_change_is_replayed() -> None:
    state = {1: "f", 2: "m", 3: "x"}
    for change in (("u", 1, "m"), ("d", 2), ("k", 3, 30), ("i", 2, "f")):
        writer.apply(state, change)
    assert state == {1: "m", 30: "x", 2: "f"}


def test_the_replay_stops_at_a_transaction_and_goes_on_from_there() -> None:
    commits = [writer.Transaction(number, 0, (("u", 1, letter),)) for number, letter in ((2, "m"), (5, "x"))]
    replay = Replay([(1, "f")], iter(commits))
    seen = []
    for upto in (1, 2, 4, 5, 9):
        replay.upto(upto)
        seen.append(replay.state[1])
    assert seen == ["f", "m", "m", "x", "x"]
    assert (replay.transactions, replay.changes) == (2, 2)


def test_the_writer_never_takes_a_key_twice() -> None:
    keys = Keys(1000, seed=3)
    live = set(range(1, 1001))
    for _ in range(300):
        gone = keys.take(3)
        assert live >= set(gone)
        live -= set(gone)
        keys.deleted(gone)
        made = keys.make(3)
        assert not live & set(made)
        live |= set(made)
        keys.inserted(made)
    assert live >= set(keys.pick(10))


@pytest.mark.usefixtures("server")
def test_a_replay_of_the_journal_is_the_table_at_every_position_of_the_binlog(tmp_path: Path) -> None:
    written = tmp_path / "journal.jsonl"
    with serving(tmp_path / "database", SilentProgress()) as (server, _):
        fill(server, 2000, SilentProgress())
        with writing(server.socket, 2000, 4000, written):
            positions = []
            while len(positions) < 20:
                (file, offset, *_), *_ = server.execute("SHOW MASTER STATUS")
                numbers = [transaction.number for transaction in _complete(written)]
                if numbers and numbers[-1] > 3 * len(positions):
                    positions.append(f"{file}:{offset}")
        commits = list(writer.read(written))
        numbers = [transaction_at(server, position) for position in positions]
        table = dict(server.execute("SELECT user_id, gender FROM user_info", database="example_database"))
        assert transaction_at(server, "binlog.000001:4") == 0

    assert numbers == sorted(numbers)
    assert numbers[0] >= 1
    assert [commit.number for commit in commits] == list(range(1, len(commits) + 1))
    kinds = {change[0] for commit in commits for change in commit.changes}
    assert kinds == {"i", "u", "d", "k"}
    replay = Replay(((user, gender(user)) for user in range(1, 2001)), iter(commits))
    replay.upto(commits[-1].number)
    assert replay.state == table


def _complete(path: Path) -> list[writer.Transaction]:
    """The whole lines of a journal that is still being written."""
    whole = path.with_suffix(".whole")
    whole.write_text("".join(line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")))
    return list(writer.read(whole))


# --- proof ---------------------------------------------------------------------------------------------------------


def table(path: Path, schema: list[tuple[str, Any]], rows: list[tuple]) -> Path:
    names = [name for name, _ in schema]
    columns = {name: pa.array([row[place] for row in rows], kind) for place, (name, kind) in enumerate(schema)}
    write_deltalake(str(path), pa.table({name: columns[name] for name in names}), mode="overwrite")
    return path


CLICK = [("_epoch", pa.int64()), ("user_id", pa.int32()), ("item_id", pa.int32())]
EPOCHS = [PinnedEpoch(1, 0, 1, "log:10", 5000), PinnedEpoch(2, 1, 3, "log:20", 9000)]
CLICKS = [(1, 1, 7), (1, 2, 7), (2, 1, 8), (3, 9, 8), (3, None, 8)]
PUBLISHED = [(1, 1, 7, "f"), (1, 2, 7, "m"), (2, 1, 8, "x")]
QUARANTINED = [(2, 9, 8, "unmatched:key-absent@user_info"), (2, None, 8, "unmatched:key-null@user_info")]


def proof_of(tmp_path: Path, published: list[tuple], quarantined: list[tuple]) -> Proof:
    written = tmp_path / "journal.jsonl"
    commits = [writer.Transaction(4, 0, (("u", 1, "x"),)), writer.Transaction(6, 0, (("u", 1, "never seen"),))]
    written.write_text("".join(commit.line() for commit in commits))
    return prove(
        EPOCHS,
        start=[(1, "f"), (2, "m")],
        journal=written,
        transaction_at={"log:10": 3, "log:20": 5}.__getitem__,
        clicks=table(tmp_path / "clicks", CLICK, CLICKS),
        published=table(tmp_path / "out", [*CLICK, ("gender", pa.string())], published),
        quarantine=table(tmp_path / "kept", [*CLICK, ("_reason", pa.string())], quarantined),
    )


def test_a_right_run_is_proved(tmp_path: Path) -> None:
    found = proof_of(tmp_path, PUBLISHED, QUARANTINED)
    assert found.holds
    assert (found.rows, found.transactions, found.changes) == (5, 1, 1)


@pytest.mark.parametrize(
    ("published", "quarantined", "counts"),
    [
        ([(1, 1, 7, "x"), *PUBLISHED[1:]], QUARANTINED, (1, 0, 0)),  # a version from after the pin
        ([*PUBLISHED[:2], (2, 1, 8, "f")], QUARANTINED, (1, 0, 0)),  # a version that was replaced before it
        ([(1, 1, 7, None), *PUBLISHED[1:]], QUARANTINED, (1, 0, 0)),  # a silent null
        (PUBLISHED[1:], QUARANTINED, (0, 1, 0)),
        ([*PUBLISHED, PUBLISHED[0]], QUARANTINED, (0, 0, 1)),
        (PUBLISHED[:2], [*QUARANTINED, (2, 1, 8, "unmatched:deleted@user_info")], (1, 0, 0)),  # the user is there
        (PUBLISHED, [(2, 9, 8, "unmatched:key-null@user_info"), QUARANTINED[1]], (1, 0, 0)),
        ([*PUBLISHED, (3, 1, 8, "x")], QUARANTINED, (0, 0, 1)),  # an epoch that nobody published
    ],
)
def test_whatever_is_wrong_is_counted(
    tmp_path: Path, published: list[tuple], quarantined: list[tuple], counts: tuple[int, int, int]
) -> None:
    found = proof_of(tmp_path, published, quarantined)
    assert (found.disagreeing, found.lost, found.extra) == counts
    assert not found.holds
    assert bool(found.examples) == bool(counts[0])


# --- without the gate ----------------------------------------------------------------------------------------------


def moment(ms: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(ms / 1000, dt.UTC)


def test_without_the_gate_a_click_sees_what_had_landed_when_it_came(tmp_path: Path) -> None:
    clicks = [
        # _epoch, user, offset, due
        (1, 1, 0, moment(1000)),  # user 1 lands at 2000: silent
        (1, 5, 1, moment(1000)),  # user 5 is never there: quarantined by the gate too
        (1, 1, 2, moment(2500)),  # there by now
        (2, 2, 3, moment(2500)),  # user 2 lands at 3000: silent
        (2, 1, 4, moment(3500)),  # user 1 is gone since 3000, and comes back at 4000
        (3, 1, 5, moment(4500)),
        (3, None, 6, moment(4500)),
        (4, 1, 7, moment(4500)),  # not released by any epoch
    ]
    schema = [("_epoch", pa.int64()), ("user_id", pa.int32()), ("_offset", pa.int64())]
    changes = [
        (1, "r", _seq(5, 0), 1),
        (2, "u", _seq(7, 1), 1),
        (2, "r", _seq(6, 0), 2),
        (2, "d", _seq(7, 2), 1),
        (3, "c", _seq(9, 0), 1),
    ]
    found = ungated(
        [PinnedEpoch(1, 0, 1, "", 5000), PinnedEpoch(2, 1, 3, "", 9000)],
        clicks=table(tmp_path / "clicks", [*schema, ("_rowtime", pa.timestamp("us", "UTC"))], clicks),
        changelog=table(
            tmp_path / "changes",
            [("_epoch", pa.int64()), ("_op", pa.string()), ("_seq", SEQ), ("user_id", pa.int32())],
            changes,
        ),
        quarantine=table(tmp_path / "kept", [("_offset", pa.int64())], [(1,), (6,)]),
        landed_at={1: 2000, 2: 3000, 3: 4000},
    )
    assert (found.clicks, found.nulls, found.silent) == (7, 5, 3)
    assert found.wait_ms == (4500.0, 6500.0)


def _seq(position: int, row: int) -> dict[str, int]:
    return {"phase": 1, "log": 0, "file": 1, "position": position, "row": row}
