"""Eight writers that never rest: inserts, updates, deletes, rollbacks, and rows whose key moves to another chunk."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pymysql

from tests.conftest import Database

_LOST_RACES = {1062, 1213, 1205, 1020}
"""Duplicate key, deadlock, lock wait: the errors of writers that get in each other's way."""


class Writers:
    """Threads that change `t (k INT PRIMARY KEY, v INT, s VARCHAR)` with keys below `keys`, while they may."""

    def __init__(self, database: Database, keys: int, seed: int, count: int = 8) -> None:
        self.database = database
        self.keys = keys
        self._may = threading.Event()
        self._stop = threading.Event()
        self._seeds = [seed + number for number in range(count)]
        self._pool = ThreadPoolExecutor(count + 1)
        self._done: list[Future[None]] = []

    def __enter__(self) -> Writers:
        self._done = [self._pool.submit(self._work, seed) for seed in self._seeds]
        self._done.append(self._pool.submit(self._rotate))
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._may.set()
        self._pool.shutdown()
        for future in self._done:
            future.result()

    @contextmanager
    def busy(self) -> Iterator[None]:
        """They work inside the block only."""
        self._may.set()
        try:
            yield
        finally:
            self._may.clear()

    def _work(self, seed: int) -> None:
        chance = random.Random(seed)
        with self.database.connect(autocommit=False) as connection, connection.cursor() as cursor:
            while not self._stop.is_set():
                self._may.wait()
                try:
                    for _ in range(chance.choice((1, 1, 1, 2, 5))):
                        self._change(cursor, chance)
                    connection.rollback() if chance.random() < 0.1 else connection.commit()
                except pymysql.err.MySQLError as error:
                    connection.rollback()
                    if error.args[0] not in _LOST_RACES:
                        raise
                time.sleep(chance.random() * 0.01)

    def _change(self, cursor: pymysql.cursors.Cursor, chance: random.Random) -> None:
        key, value = chance.randrange(self.keys), chance.randrange(10**9)
        kind = chance.random()
        if kind < 0.35:
            cursor.execute(
                "UPDATE t SET v = %s WHERE k BETWEEN %s AND %s", (value, key, key + chance.choice((0, 0, 7)))
            )
        elif kind < 0.55:
            cursor.execute("UPDATE t SET k = %s, v = %s WHERE k = %s", (chance.randrange(self.keys), value, key))
        elif kind < 0.85:
            cursor.execute("INSERT INTO t VALUES (%s, %s, %s)", (key, value, "x" * chance.randrange(20)))
        else:
            cursor.execute("DELETE FROM t WHERE k = %s", (key,))

    def _rotate(self) -> None:
        with self.database.connect() as connection, connection.cursor() as cursor:
            while not self._stop.is_set():
                self._may.wait()
                cursor.execute("FLUSH BINARY LOGS")
                self._stop.wait(0.4)
