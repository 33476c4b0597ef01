"""Scripts with a history: each has run over its first files, and has found no second ones yet.

A script lies beside its data, so that a relative 'path' means the same however it is resolved. Cases share the data and
copy the lake.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner, Result

from tests.copies import kept_files
from tidegate.orchestration.commands.app import app

SCRIPTS = Path(__file__).with_name("scripts")
Row = tuple[Any, ...]
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Base:
    """A script, what its folders hold before and after its history, and what its targets hold then.

    `first` and `second` are rows by folder; `before` and `after` are a target's rows, without the lake's own columns
    (nothing: whatever the first run leaves, and nothing more).
    """

    script: str
    first: Mapping[str, Rows]
    second: Mapping[str, Rows]
    before: Mapping[str, Sequence[Row]]
    after: Mapping[str, Sequence[Row]]
    modules: Sequence[str] = ()
    more: Mapping[str, Rows] = field(default_factory=dict)
    """Folders that the script does not read: what a changed one may turn to."""


def click(id: int, item: str, price: int, weight: int = 1) -> dict[str, Any]:
    return {"id": id, "item": item, "price": price, "weight": weight}


RATES = Base(
    "rates.sql",
    first={
        "rates": [
            {"currency": "eur", "rate": 2, "spread": 1, "place": "f", "at": 1000, "announced": 1000},
            {"currency": "usd", "rate": 3, "spread": 1, "place": "n", "at": 1000, "announced": 1000},
            {"currency": "eur", "rate": 4, "spread": 1, "place": "f", "at": 900_000, "announced": 900_000},
        ],
        "orders": [
            {"id": 1, "currency": "eur", "amount": 10, "buyer": "a", "at": 2000, "paid": 3000},
            {"id": 2, "currency": "usd", "amount": 10, "buyer": "b", "at": 2500, "paid": 3500},
            {"id": 3, "currency": "gbp", "amount": 10, "buyer": "c", "at": 2600, "paid": 3600},
        ],
    },
    second={
        "orders": [
            {"id": 4, "currency": "eur", "amount": 10, "buyer": "a", "at": 5000, "paid": 6000},
            {"id": 5, "currency": "usd", "amount": 20, "buyer": "b", "at": 5500, "paid": 6500},
            {"id": 6, "currency": "gbp", "amount": 10, "buyer": "c", "at": 5600, "paid": 6600},
            {"id": 7, "currency": "eur", "amount": -1, "buyer": "c", "at": 5700, "paid": 6700},
            {"id": 8, "currency": "eur", "amount": 300, "buyer": "c", "at": 5800, "paid": 6800},
        ],
    },
    before={"converted": [(1, 20, 20), (2, 30, 20)]},
    after={"converted": [(1, 20, 20), (2, 30, 20), (4, 20, 20), (5, 60, 40), (8, 600, 600)]},
    more={
        "fees": [
            {"currency": "eur", "rate": 100, "spread": 1, "place": "f", "at": 1000, "announced": 1000},
            {"currency": "usd", "rate": 100, "spread": 1, "place": "n", "at": 900_000, "announced": 900_000},
        ],
        "other_orders": [{"id": 91, "currency": "eur", "amount": 10, "buyer": "a", "at": 7000, "paid": 7000}],
    },
)

CLICKS = Base(
    "clicks.sql",
    first={"clicks": [click(1, "pen", 2), click(2, "cup", 5)]},
    second={"clicks": [click(3, "pen", 3), click(4, "jug", 7)]},
    before={"sold": [(1, 2), (2, 5)], "items": [(1, "pen"), (2, "cup")]},
    after={
        "sold": [(1, 2), (2, 5), (3, 3), (4, 7)],
        "items": [(1, "pen"), (2, "cup"), (3, "pen"), (4, "jug")],
    },
)

MINUTES = Base(
    "minutes.sql",
    first={
        "clicks": [
            {"item": "pen", "price": 1, "at": 1000},
            {"item": "pen", "price": 2, "at": 2000},
            {"item": "pen", "price": 4, "at": 61_000},
        ]
    },
    second={"clicks": [{"item": "pen", "price": 8, "at": 62_000}, {"item": "cup", "price": 1, "at": 121_000}]},
    before={"sums": [("pen", 2, 3)]},
    after={"sums": [("pen", 2, 3), ("pen", 2, 12)]},
)

NUMBERS = Base("numbers.sql", first={}, second={}, before={}, after={})

GRADES = Base(
    "grades.sql",
    first={"clicks": [{"id": 1, "price": 2}, {"id": 2, "price": 20}]},
    second={"clicks": [{"id": 3, "price": 9}]},
    before={"graded": [(1, "cheap!"), (2, "dear!")]},
    after={"graded": [(1, "cheap!"), (2, "dear!"), (3, "cheap!")]},
    modules=("grading.py",),
)

PROCESS = Base(
    "process.py",
    first={
        "clicks": [
            {"id": 1, "item": "pen", "shop": "a", "at": 1000},
            {"id": 2, "item": "pen", "shop": "b", "at": 2000},
        ]
    },
    second={"clicks": [{"id": 3, "item": "pen", "shop": "a", "at": 30_000}]},
    before={"counts": [(1, "pen", 1), (2, "pen", 2)]},
    after={"counts": [(1, "pen", 1), (2, "pen", 2), (3, "pen", 3)]},
)

BASES = {Path(base.script).stem: base for base in (RATES, CLICKS, MINUTES, NUMBERS, GRADES, PROCESS)}


class Story:
    """A base that has run over its first files, and what may be done to it."""

    def __init__(self, base: Base, folder: Path) -> None:
        self.base, self.folder = base, folder
        self.lake = folder / "lake"
        for name, rows in {**base.first, **base.more}.items():
            self.put(name, 1, rows)
        self.write({})
        ran = self.run()
        assert ran.exit_code == 0, ran.output
        self.left = self.targets()
        assert not base.before or self.left == self.wanted(base.before)
        for name, rows in base.second.items():
            self.put(name, 2, rows)

    def put(self, name: str, number: int, rows: Rows) -> None:
        """A file of a folder, older than any settle time, and after those of lower numbers."""
        file = self.folder / name / str(number)
        file.parent.mkdir(exist_ok=True)
        csv = self.base.script == "clicks.sql"
        lines = (",".join(map(str, row.values())) if csv else json.dumps(row) for row in rows)
        file.write_text("".join(f"{line}\n" for line in lines))
        os.utime(file, (1e9 + number, 1e9 + number))

    def write(self, changes: Mapping[str, Sequence[Sequence[str]]]) -> None:
        """Write the script and its modules, as changed by `changes`: pairs of old and new by file."""
        for name in (self.base.script, *self.base.modules):
            text = (SCRIPTS / name).read_text()
            for old, new in changes.get(name, ()):
                assert old in text, f"{name} has no {old!r}"
                text = text.replace(old, new)
            (self.folder / name).write_text(text)
            sys.modules.pop(Path(name).stem, None)

    @contextmanager
    def on_a_copy(self, lake: Path) -> Iterator[None]:
        """Go on with a copy of the lake, as long as this lasts."""
        kept = self.lake
        shutil.copytree(kept, lake, ignore=shutil.ignore_patterns("_scratch"))
        self.lake = lake
        try:
            yield
        finally:
            self.lake = kept

    def wanted(self, targets: Mapping[str, Sequence[Sequence[Any]]] | None = None) -> dict[str, list[Row]]:
        """`targets` as `targets()` would tell them ("NULL" is None); without them what the unchanged script leaves."""
        rows = targets or self.base.after or self.left
        plain = {
            name: [tuple(None if v == "NULL" else v for v in row) for row in found] for name, found in rows.items()
        }
        return {name: sorted(found, key=repr) for name, found in sorted(plain.items())}

    def run(self, *arguments: str, command: str = "run", script: str = "") -> Result:
        """A command on this script, or on another one beside it."""
        return tidegate(
            self.folder, command, self.folder / (script or self.base.script), *arguments, "--lake", self.lake
        )

    def targets(self) -> dict[str, list[Row]]:
        """The rows of every target, sorted, without the lake's own columns."""
        return {path.name: rows_of(path) for path in sorted((self.lake / "targets").glob("*")) if path.is_dir()}

    def files(self) -> dict[str, tuple[int, int]]:
        return state_of(self.lake)


def state_of(lake: Path) -> dict[str, tuple[int, int]]:
    """Every file that a lake keeps: its size and time. Leases, scratch, and why a run was refused are no state."""
    scratch = lake / "_scratch"
    return {
        str(path.relative_to(lake)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in kept_files(lake)
        if scratch not in path.parents
    }


def tidegate(folder: Path, *arguments: object) -> Result:
    """The command, as it runs in `folder` with the files and modules that lie there."""
    sys.path.insert(0, str(folder))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDEGATE_FILES_ROOT", str(folder))
        try:
            return CliRunner().invoke(app, [str(argument) for argument in arguments])
        finally:
            sys.path.remove(str(folder))


def rows_of(path: Path) -> list[Row]:
    table = DeltaTable(path).to_pyarrow_table()
    names = [name for name in table.column_names if not name.startswith("_")]
    return sorted((tuple(row[name] for name in names) for row in table.select(names).to_pylist()), key=repr)
