"""A Delta table's change data feed as the build side of a whole pipeline: aborted, restarted, proved again."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from tests.cases import at_length
from tests.pipelines.runtime.crashing import dying
from tidegate.pipelines.testing import Harness

SCRIPT = """
CREATE TABLE users (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector' = 'delta', 'path' = '{path}');
CREATE TABLE clicks (user_id BIGINT, item BIGINT, proctime AS PROCTIME()) WITH ('connector' = 'scripted');
CREATE TABLE joined (item BIGINT, name STRING) WITH ('connector' = 'scripted');
INSERT INTO joined SELECT c.item, u.name FROM clicks AS c
LEFT JOIN users FOR SYSTEM_TIME AS OF c.proctime AS u ON c.user_id = u.id;
"""


def users(**names: int) -> pa.Table:
    return pa.table({"id": pa.array(names.values(), pa.int64()), "name": list(names)})


@pytest.fixture
def feed(tmp_path: Path) -> Path:
    path = tmp_path / "users"
    write_deltalake(path, users(ann=1, bob=2, cleo=3), configuration={"delta.enableChangeDataFeed": "true"})
    return path


@pytest.mark.parametrize(
    "point", at_length(["source.appended", "source.planned", "source.written", "source.watermarked"])
)
def test_changes_are_met_once_however_a_step_ended(spark: SparkSession, tmp_path: Path, feed: Path, point: str) -> None:
    harness = Harness(SCRIPT.format(path=feed), spark, tmp_path / "lake")

    def clicked(first: int, *keys: int) -> list[tuple[int, str]]:
        harness.push("clicks", [{"user_id": key, "item": first + n} for n, key in enumerate(keys)])
        return sorted((row["item"], row["name"]) for row in harness.advance())

    with dying(point, owner="users"):
        harness.run()
    harness.restart()
    assert clicked(10, 1, 2, 3) == [(10, "ann"), (11, "bob"), (12, "cleo")]

    DeltaTable(feed).update(predicate="id = 1", updates={"name": "'anne'"})
    DeltaTable(feed).delete("id = 2")
    DeltaTable(feed).update(predicate="id = 3", updates={"id": "4"})
    with dying(point, owner="users"):
        harness.run()
    harness.restart()
    assert clicked(20, 1, 2, 3, 4) == [(20, "anne"), (23, "cleo")]
    assert sorted((row["item"], row["_reason"]) for row in harness.quarantined("joined")) == [
        (21, "unmatched:deleted@u"),
        (22, "unmatched:deleted@u"),
    ]

    write_deltalake(feed, users(dora=1), mode="overwrite")
    assert clicked(30, 1, 4) == [(30, "dora")]
    report = harness.verify("joined")
    assert report.passed
    assert not report.unproved
