"""The writer: a process that keeps changing `user_info` and writes down every commit.

    python -m tidegate.orchestration.demo.writer --socket S --rows N --per-second R --journal FILE

It ends, after the transaction that is under way, when its standard input does.

The journal has one JSON line a transaction, in order. Nothing of Tidegate's is needed to read it:

    {"transaction": 17, "at": 1767225600000, "changes": [["u", 4711, "f"], ["d", 42], ["k", 7, 1000007]]}

`transaction` counts up with the server's own commits (the number of its GTID), `at` is ms, UTC. A change is an insert
(i), an update (u), a delete (d), or a key that became another (k).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import select
import subprocess
import sys
import time
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql
from pymysql.cursors import Cursor

from tidegate.orchestration.demo.site import DATABASE, GENDERS
from tidegate.pipelines.errors import TidegateError

CHANGES = 20
"""Changes of one transaction."""

Change = Sequence[Any]


@dataclass(frozen=True)
class Transaction:
    """One commit."""

    number: int
    at: int
    changes: tuple[Change, ...]

    def line(self) -> str:
        return json.dumps({"transaction": self.number, "at": self.at, "changes": self.changes}) + "\n"


def read(path: Path) -> Iterator[Transaction]:
    """All commits, in order."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            found = json.loads(line)
            yield Transaction(found["transaction"], found["at"], tuple(map(tuple, found["changes"])))


def apply(state: MutableMapping[int, str], change: Change) -> None:
    """Make one change in a table held as user_id -> gender."""
    kind, user_id = change[0], change[1]
    if kind in "iu":
        state[user_id] = change[2]
    elif kind == "d":
        del state[user_id]
    else:
        state[change[2]] = state.pop(user_id)


class Keys:
    """The keys that are in the table, for picking one at random; and those that were in it once."""

    def __init__(self, rows: int, seed: int) -> None:
        self._random = random.Random(seed)
        self._live = list(range(1, rows + 1))
        self._gone: list[int] = []
        self._next = rows + 1

    def take(self, count: int) -> list[int]:
        """Remove up to `count` keys; the table keeps a thousandth of itself."""
        return [self._pop() for _ in range(min(count, len(self._live) - 1))]

    def pick(self, count: int) -> list[int]:
        """Different keys that stay in the table."""
        return sorted({self._random.choice(self._live) for _ in range(count)})

    def make(self, count: int) -> list[int]:
        """Keys to insert: one that was deleted comes back as often as one that never was."""
        made = []
        for _ in range(count):
            if self._gone and self._random.random() < 0.5:
                made.append(self._gone.pop(self._random.randrange(len(self._gone))))
            else:
                made.append(self._next)
                self._next += 1
        return made

    def gender(self) -> str:
        return self._random.choice(GENDERS)

    def inserted(self, keys: list[int]) -> None:
        self._live += keys

    def deleted(self, keys: list[int]) -> None:
        self._gone += keys

    def _pop(self) -> int:
        index = self._random.randrange(len(self._live))
        self._live[index], self._live[-1] = self._live[-1], self._live[index]
        return self._live.pop()


def transaction(cursor: Cursor, keys: Keys) -> list[Change]:
    """Make about CHANGES changes: updates, deletes, keys that become others, and as many inserts as deletes."""
    changes: list[Change] = []
    share = CHANGES // 6
    value, updated = keys.gender(), keys.pick(CHANGES - 3 * share)
    cursor.execute("UPDATE user_info SET gender = %s WHERE user_id IN %s", (value, updated))
    changes += [("u", key, value) for key in updated]

    deleted = keys.take(share)
    cursor.execute("DELETE FROM user_info WHERE user_id IN %s", (deleted,))
    changes += [("d", key) for key in deleted]

    moved = keys.take(share)
    targets = keys.make(len(moved))
    for old, new in zip(moved, targets, strict=True):
        cursor.execute("UPDATE user_info SET user_id = %s WHERE user_id = %s", (new, old))
        changes.append(("k", old, new))

    made = [(key, keys.gender()) for key in keys.make(share)]
    cursor.executemany("INSERT INTO user_info VALUES (%s, %s)", made)
    changes += [("i", key, value) for key, value in made]

    keys.inserted([key for key, _ in made] + targets)
    keys.deleted(deleted + moved)
    return changes


def write(socket: str, rows: int, per_second: int, journal: Path) -> None:
    """Write until standard input ends."""
    keys = Keys(rows, seed=rows)
    connection = pymysql.connect(unix_socket=socket, user="root", database=DATABASE, autocommit=False)
    with contextlib.closing(connection), connection.cursor() as cursor, journal.open("w", encoding="utf-8") as log:
        started, made = time.monotonic(), 0
        while not select.select([sys.stdin], [], [], _pause(started, made, per_second))[0]:
            changes = transaction(cursor, keys)
            connection.commit()
            cursor.execute("SELECT @@last_gtid")
            (gtid,) = cursor.fetchone() or ("",)
            log.write(Transaction(int(gtid.rpartition("-")[2]), time.time_ns() // 1_000_000, tuple(changes)).line())
            log.flush()
            made += len(changes)


def _pause(started: float, made: int, per_second: int) -> float:
    """How long to wait so that the rate holds, in seconds."""
    return max(0.0, made / per_second - (time.monotonic() - started))


@contextlib.contextmanager
def writing(socket: str, rows: int, per_second: int, journal: Path) -> Iterator[None]:
    """A writer runs inside the block; when the block ends, its last transaction is committed and written down.

    Raises TidegateError when it did not get that far.
    """
    journal.unlink(missing_ok=True)
    command = [sys.executable, "-m", "tidegate.orchestration.demo.writer", "--socket", socket, "--rows", str(rows)]
    command += ["--per-second", str(per_second), "--journal", str(journal)]
    # In a session of its own, a Ctrl-C ends it through its standard input, between two transactions.
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    try:
        while process.poll() is None and not (journal.exists() and journal.stat().st_size):
            time.sleep(0.02)
        yield
    finally:
        _, output = process.communicate()
    if process.returncode != 0:
        raise TidegateError(
            f"the writer ended early: {output.decode(errors='replace').strip().splitlines()[-1:]}",
            where=str(journal),
            state="what it committed is in the journal",
            next_command="tidegate demo",
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--socket", required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--per-second", type=int, required=True)
    parser.add_argument("--journal", type=Path, required=True)
    given = parser.parse_args()
    write(given.socket, given.rows, given.per_second, given.journal)


if __name__ == "__main__":
    main()
