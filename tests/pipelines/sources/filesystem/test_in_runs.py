"""Whole pipelines whose tables are folders: growing, aborted, restarted, refused."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.cases import SEED
from tests.pipelines.runtime.crashing import may_die
from tests.pipelines.sources.filesystem.folders import Files
from tidegate.pipelines.errors import PlanningError, SourceError
from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.runtime import faults
from tidegate.pipelines.runtime.status import status
from tidegate.pipelines.sql import SqlError, compile_script
from tidegate.pipelines.testing import Harness

AT = 1_767_225_600_000
"""2026-01-01, in ms."""

SCRIPT = """
CREATE TABLE users (id INT PRIMARY KEY NOT ENFORCED, name STRING) WITH (
    'connector' = 'filesystem', 'path' = '{root}/users', 'format' = 'csv');
CREATE TABLE clicks (id INT, n INT, file STRING METADATA FROM 'file.name', p AS PROCTIME()) WITH (
    'connector' = 'filesystem', 'path' = 'file://{root}/clicks', 'format' = 'json', 'scan.max-rows-per-epoch' = '3');
CREATE TABLE shown (n INT, name STRING, file STRING) WITH ('connector' = 'scripted', 'gate.on-unmatched' = 'publish');
INSERT INTO shown SELECT c.n, u.name, c.file FROM clicks AS c
LEFT JOIN users FOR SYSTEM_TIME AS OF c.p AS u ON c.id = u.id
"""
IN_TIME = """
CREATE TABLE rates (currency STRING PRIMARY KEY NOT ENFORCED, rate DECIMAL(6, 2), at TIMESTAMP(3),
    WATERMARK FOR at AS at) WITH ('connector' = 'filesystem', 'path' = '{root}/rates', 'format' = 'changelog-json');
CREATE TABLE orders (n INT, currency STRING, at TIMESTAMP(3), WATERMARK FOR at AS at - INTERVAL '1' SECOND) WITH (
    'connector' = 'filesystem', 'path' = '{root}/orders', 'format' = 'debezium-json');
CREATE TABLE shown (n INT, rate DECIMAL(6, 2)) WITH ('connector' = 'scripted');
INSERT INTO shown SELECT o.n, r.rate FROM orders AS o
LEFT JOIN rates FOR SYSTEM_TIME AS OF {time} AS r ON o.currency = r.currency
"""


@pytest.fixture
def root(files: Files) -> Path:
    return files.path.parent


def clicks(start: int, stop: int) -> list[dict[str, Any]]:
    return [{"id": n % 4, "n": n} for n in range(start, stop)]


def test_folders_that_grow(spark: SparkSession, root: Path) -> None:
    users, probes = Files(root / "users"), Files(root / "clicks")
    users.write("1.csv", "1,one\n2,two\n")
    for number in range(3):
        probes.write(f"{number}.json", clicks(2 * number, 2 * number + 2))
    harness = Harness(SCRIPT.format(root=root), spark, root / "lake")
    found = {row["n"]: (row["name"], row["file"]) for row in harness.advance()}
    assert found == {
        0: (None, "0.json"), 1: ("one", "0.json"), 2: ("two", "1.json"), 3: (None, "1.json"),
        4: (None, "2.json"), 5: ("one", "2.json"),
    }  # fmt: skip
    log = harness.lake.watermarks.last("clicks")
    assert (log.epoch, log.rows, log.position, log.flip_epoch) == (3, 2, "3 files", 3)
    assert [source.chunks for source in status(harness.lake).sources] == [None, None]

    users.write("2.csv", "1,changed\n3,three\n")
    probes.write("3.json", clicks(5, 8))
    harness.restart()
    assert {row["n"]: row["name"] for row in harness.advance()} == {5: "changed", 6: "two", 7: "three"}
    assert harness.advance() == []

    users.touch("1.csv", 5)  # with the same bytes, as in a copy
    assert harness.advance() == []
    users.write("1.csv", "1,two\n2,one\n")
    with pytest.raises(SourceError, match=r"users: the file 1\.csv changed after it was taken up"):
        harness.run()
    harness.runner.advance("users", resnapshot=True)
    probes.write("4.json", clicks(9, 10))
    assert [row["name"] for row in harness.advance()] == ["two"], "the newest file's"

    probes.write("1.json", clicks(12, 14))
    probes.write("5.json", clicks(10, 11))
    with pytest.raises(SourceError, match=r"clicks: the file 1\.json changed after it was taken up") as changed:
        harness.run()
    assert "put the old file back" in changed.value.next_command
    assert "--resnapshot" not in changed.value.next_command
    with pytest.raises(PlanningError, match="rows of clicks are released by shown"):
        harness.runner.advance("clicks", resnapshot=True)
    assert harness.lake.epochs.last("clicks").generation == 1  # type: ignore[union-attr]


def test_a_line_that_does_not_fit_stops_its_table_until_it_is_mended(spark: SparkSession, root: Path) -> None:
    users, probes = Files(root / "users"), Files(root / "clicks")
    users.write("1.csv", "1,one\n")
    probes.write("0.json", [{"id": 1, "n": 1}])
    probes.write("1.json", '{"id": 1, "n": 2}\n{"id": 1, "n": "three"}\n')
    harness = Harness(SCRIPT.format(root=root), spark, root / "lake")
    with pytest.raises(
        SourceError, match=r"clicks: .*/1\.json, the line at byte 18: column n: 'three' does not fit INT"
    ):
        harness.run()
    assert harness.published("shown") == []
    harness.runner.close()
    harness = Harness(SCRIPT.format(root=root), spark, root / "lake")
    (probes.path / "0.json").unlink()
    for wrong in ("four", "five"):
        probes.write("1.json", [{"id": 1, "n": 2}, {"id": 1, "n": wrong}])
        with pytest.raises(SourceError, match=f"column n: '{wrong}' does not fit INT"):
            harness.run()
    probes.write("1.json", [{"id": 1, "n": 2}, {"id": 1, "n": 3}])
    assert sorted(row["n"] for row in harness.advance()) == [2, 3]
    probes.write("1.json", [{"id": 1, "n": 7}])
    with pytest.raises(SourceError, match=r"1\.json changed after it was taken up"):
        harness.run()


@pytest.mark.thorough
def test_aborts_lose_no_line_and_repeat_none(spark: SparkSession, root: Path) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    users, probes = Files(root / "users"), Files(root / "clicks")
    users.write("1.csv", "".join(f"{n},name {n}\n" for n in range(4)))
    points = [point for point in faults.POINTS if point.startswith("source.")]
    harness = Harness(SCRIPT.format(root=root), spark, root / "lake")
    aborted = pushed = 0
    for turn, wanted in enumerate(points * 2):
        passes = chance.randint(1, 3)
        # Two files are more than an epoch holds, so each full one is an epoch: the abort always comes.
        sizes = [chance.randint(2, 4) for _ in range(passes)] + [0] * chance.randint(0, 2)
        for number, size in enumerate(chance.sample(sizes, len(sizes))):
            probes.write(f"{chance.randrange(100)}-{turn}-{number}.json", clicks(pushed, pushed + size))
            pushed += size
        with may_die(wanted, passes=passes) as died:
            harness.run()
        aborted += len(died)
        harness.restart()
    harness.advance()
    assert aborted == 2 * len(points)
    assert Counter(row["n"] for row in harness.published("shown")) == Counter(range(pushed))
    assert {row["name"] for row in harness.published("shown") if row["n"] % 4 == 3} == {"name 3"}


def test_changelogs_land_with_their_watermarks(spark: SparkSession, root: Path) -> None:
    rates, orders = Files(root / "rates"), Files(root / "orders")

    def rate(op: str, value: float, second: int) -> dict[str, Any]:
        return {"op": op, "data": {"currency": "EUR", "rate": value, "at": f"2026-01-01 00:00:{second:02}.000"}}

    def order(n: int, second: int) -> dict[str, Any]:
        return {"n": n, "currency": "EUR", "at": AT + second * 1000}

    rates.write("1.json", [rate("+I", 1.1, 5), rate("-U", 1.1, 10), rate("+U", 1.2, 10), rate("-D", 1.2, 20)])
    orders.write(
        "1.json", [{"op": "c", "after": order(1, 4)}, {"op": "u", "before": order(1, 4), "after": order(2, 9)}]
    )
    harness = Harness(IN_TIME.format(root=root, time="o.at"), spark, root / "lake")
    for table, ops, watermark in (
        ("rates", [("c", "1.10"), ("u", "1.20"), ("d", "1.20")], 20_000),
        ("orders", [("+I", 1), ("-U", 1), ("+U", 2)], 8_000),
    ):
        harness.runner.advance(table)
        rows = lake_rows.between(spark, harness.lake.table_path(table), 1, 0, 1).orderBy("_offset").collect()
        value = "rate" if table == "rates" else "n"
        assert [(row["_op"], row[value] if value == "n" else str(row[value])) for row in rows] == ops
        log = harness.lake.watermarks.last(table)
        assert (log.flip_epoch, log.timestamp) == (1, AT + watermark)
        if table == "rates":  # a delete is at the time of its line, whenever its file was written
            assert [row["_rowtime"].second for row in rows] == [5, 10, 20]


def test_a_probe_with_updates_is_refused_in_processing_time(root: Path) -> None:
    script = IN_TIME.replace("currency STRING, at TIMESTAMP(3)", "currency STRING, p AS PROCTIME(), at TIMESTAMP(3)")
    with pytest.raises(SqlError, match="a processing-time join needs a probe that only grows; orders has updates"):
        compile_script(script.format(root=root, time="o.p"))


VIEWS = """
CREATE TABLE users (id INT PRIMARY KEY NOT ENFORCED, name STRING, age INT) WITH (
    'connector' = 'filesystem', 'path' = '{root}/users', 'format' = 'json');
CREATE TABLE clicks (id INT, n INT) WITH ('connector' = 'filesystem', 'path' = '{root}/clicks', 'format' = 'json');
CREATE TABLE shown (n INT, name STRING, grown STRING) WITH ('connector' = 'scripted', 'gate.on-unmatched' = 'publish');
CREATE VIEW taken AS SELECT id AS k, n * 10 AS n, PROCTIME() AS p FROM clicks WHERE n % 3 <> 0
UNION ALL SELECT id, -n, PROCTIME() FROM clicks WHERE n < 3;
CREATE VIEW known (name, grown, k) AS
SELECT COALESCE(name, 'none'), IF(age > 17, 'yes', 'no'), id FROM users WHERE age > 9;
INSERT INTO shown
WITH small AS (SELECT * FROM taken WHERE n < 200)
SELECT s.n, u.name, u.grown FROM small AS s
LEFT JOIN known /* the chosen version alone is tested */ FOR SYSTEM_TIME AS OF s.p AS u ON s.k = u.k AND u.name <> 'b'
WHERE COALESCE(u.name, '') <> 'c'
"""


def test_views_of_both_sides_one_a_union_give_what_plain_python_gives(spark: SparkSession, root: Path) -> None:
    people = {0: ("a", 20), 1: (None, 12), 2: ("b", 30), 3: ("c", 40), 4: ("d", 5)}
    users = [{"id": id, "name": name, "age": age} for id, (name, age) in people.items()]
    rows = [{"id": n % 7, "n": n} for n in range(30)]
    Files(root / "users").write("1.json", users)
    harness = Harness(VIEWS.format(root=root), spark, root / "lake")
    expected = list[tuple[int, str | None, str | None]]()
    for first in (0, 15):
        Files(root / "clicks").write(f"{first}.json", rows[first : first + 15])
        harness.advance()
    taken = [(row["id"], row["n"] * 10) for row in rows if row["n"] % 3]
    taken += [(row["id"], -row["n"]) for row in rows if row["n"] < 3]
    for id, number in taken:
        name, age = people.get(id, ("", 0))
        there = age > 9 and name != "b"
        if number < 200 and not (there and name == "c"):
            expected.append(
                (number, (name or "none") if there else None, ("yes" if age > 17 else "no") if there else None)
            )
    published = [(row["n"], row["name"], row["grown"]) for row in harness.published("shown")]
    assert sorted(published) == sorted(expected)
    assert {name for _, name, _ in expected} == {"a", "none", None}
    assert harness.verify("shown").passed
