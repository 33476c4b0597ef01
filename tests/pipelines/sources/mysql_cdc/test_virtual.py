"""Which VIRTUAL columns follow the session that reads; the expressions are as MariaDB 11.4 and MySQL 9.7 give them."""

from __future__ import annotations

import pytest

from tidegate.pipelines.sources.mysql_cdc.catalog import SourceTable
from tidegate.pipelines.sources.mysql_cdc.types import SourceColumn
from tidegate.pipelines.sources.mysql_cdc.virtual import session_dependent

TYPES = {"id": "int", "at": "timestamp", "year": "timestamp", "d": "datetime", "t": "time", "h": "timestamp"}


def why(virtual: dict[str, tuple[str, str]]) -> dict[str, str]:
    """`virtual`: name -> type, expression."""
    kinds = TYPES | {name: kind for name, (kind, _) in virtual.items()}
    return dict(
        session_dependent(
            SourceTable(
                kind="BASE TABLE",
                engine="InnoDB",
                rows=0,
                columns=tuple(SourceColumn(name, kind, kind) for name, kind in kinds.items()),
                collations={},
                keys={},
                create="",
                virtual={name: expression for name, (_, expression) in virtual.items()},
            )
        )
    )


@pytest.mark.parametrize(
    ("expression", "kind", "reason"),
    [
        ("year(`d`)", "int", None),  # `year` is a TIMESTAMP here
        ("year(`year`)", "int", "computed of the TIMESTAMP year"),
        ("hour(`AT`)", "int", "computed of the TIMESTAMP at"),
        ("concat(`id`,'`at` it\\'s now()/@')", "varchar", None),
        ("concat(`id`,_utf8mb4\\'`at` it\\\\\\'s now()/@\\')", "varchar", None),  # as MySQL escapes it
        ("concat(`id`,_utf8mb4\\'x\\',dayname(`d`),_utf8mb4\\'y\\')", "varchar", "computed of `dayname`"),
        ("concat(`it's`,dayname(`d`),`it's`)", "varchar", "computed of `dayname`"),
        ("`a``at` + 1", "int", None),
        ("dayname(`d`)", "varchar", "computed of `dayname`"),
        ("to_char(`d`,'Month')", "varchar", "computed of `to_char`"),
        ("`id` / 3", "double", "computed of `/`"),
        ("`id` DIV 3", "int", None),
        ("week(`d`)", "int", "computed of `week`"),
        ("week(`d`,0)", "int", None),
        ("yearweek(`d`,0) + dayofweek(`d`)", "int", None),
        ("`d`", "timestamp", "a TIMESTAMP"),
        ("cast(`t` as datetime)", "datetime", "computed of the TIME t"),
        ("`t` > `d`", "int", "computed of the TIME t"),
        ("hour(`t`) + time_to_sec(`t`)", "int", None),
        ("`d` + interval 1 day", "datetime", None),
        ("at + 1", "int", "computed of the TIMESTAMP at"),
    ],
)
def test_one_column(expression: str, kind: str, reason: str | None) -> None:
    assert why({"v": (kind, expression)}) == ({} if reason is None else {"v": reason})


def test_a_column_over_another_follows_the_session_as_that_one_does() -> None:
    virtual = {
        "c": ("int", "`b` + 1"),
        "b": ("int", "`a` + 1"),
        "a": ("int", "hour(`at`)"),
        "z": ("int", "`y` + 1"),
        "y": ("int", "`id` * 2"),
        "year2": ("int", "year(`d`)"),
        "h": ("int", "hour(`d`)"),  # called like a TIMESTAMP elsewhere, and like its own function
        "hour": ("int", "hour(`d`)"),
    }
    assert why(virtual) == {
        "a": "computed of the TIMESTAMP at",
        "b": "computed of the VIRTUAL a",
        "c": "computed of the VIRTUAL b",
    }
