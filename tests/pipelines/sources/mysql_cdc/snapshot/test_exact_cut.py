"""Snapshots beside eight writers: each chunk is the table as of its cut, exactly.

2 snapshots; 20 in `make test-all`, 100 in a soak. $TIDEGATE_SNAPSHOTS sets another number; the seed is printed.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.cases import SEED, at_length
from tests.conftest import Database
from tests.pipelines.sources.mysql_cdc.driver import Driver, declare
from tests.pipelines.sources.mysql_cdc.replay import Place, Replay, number
from tests.pipelines.sources.mysql_cdc.writers import Writers

pytestmark = pytest.mark.long

SNAPSHOTS = int(os.environ.get("TIDEGATE_SNAPSHOTS") or ("100" if os.environ.get("TIDEGATE_SOAK") else "20"))
KEYS = 3000
CHUNK_ROWS = 60


@pytest.mark.soak
@pytest.mark.parametrize("snapshots", at_length([2, SNAPSHOTS]))
def test_each_chunk_is_the_replay_of_the_binlog_to_its_cut(
    spark: SparkSession, database: Database, tmp_path: Path, snapshots: int
) -> None:
    print(f"seed {SEED}")
    database.execute("CREATE TABLE t (k INT PRIMARY KEY, v INT, s VARCHAR(20))")
    replay = Replay(database, "t", "k")
    database.execute(
        f"INSERT INTO t SELECT seq, seq, '' FROM seq_0_to_{KEYS - 1} WHERE seq % 10 < 9", "ANALYZE TABLE t"
    )
    options = database.options("t") | {"scan.incremental.snapshot.chunk.size": str(CHUNK_ROWS)}
    table = declare(options, {"k": "INT", "v": "INT", "s": "STRING"}, ["k"])
    moved = 0
    with Writers(database, KEYS, SEED) as writers:
        for run in range(snapshots):
            driver = Driver(spark, tmp_path / str(run), table)
            with writers.busy():
                driver.run(max_steps=1)
            moved += check(driver, replay)
    # Chunks of one snapshot that stand at different places show that there was something to get wrong.
    assert moved > snapshots * 5
    print(f"{snapshots} snapshots, {moved} different cuts, {replay.transactions} transactions beside them")


def check(driver: Driver, replay: Replay) -> int:
    """Compare every chunk with the replay to its cut; return how many different cuts there were."""
    assert [step.step.ranges["last"] for step in driver.steps] == [len(driver.splits.rows())]
    found: dict[str, dict[int, tuple[int, str]]] = {}
    for row in driver.rows().select("k", "v", "s", "_split").collect():
        found.setdefault(row["_split"], {})[row["k"]] = (row["v"], row["s"])
    splits = driver.splits.rows()
    assert len(splits) >= 20
    lowers = [0, *(int(split["detail"]["lower"][0]) for split in splits[1:]), KEYS]
    cuts: dict[str, Place] = {
        split["split"]: (number(split["cut"]["file"]), split["cut"]["position"]) for split in splits
    }
    keys = {split["split"]: range(*lowers[split["ordinal"] : split["ordinal"] + 2]) for split in splits}
    # The cut of a chunk without rows is not its own, but one after it: it was empty at some moment until then.
    without_rows = keys.keys() - found.keys()
    empty: set[str] = set()
    start = driver.steps[0].step.ranges["start"]
    replay.to((number(start["file"]), start["position"]))
    for name in sorted(cuts, key=lambda name: cuts[name]):
        for state in replay.states(cuts[name]):
            empty |= {other for other in without_rows - empty if not any(key in state for key in keys[other])}
        wanted = {key: (row["v"], row["s"]) for key, row in replay.state.items() if key in keys[name]}
        where = f"{name} at {cuts[name]}, seed {SEED}"
        assert found[name] == wanted if name in found else name in empty, where
    return len(set(cuts.values()))
