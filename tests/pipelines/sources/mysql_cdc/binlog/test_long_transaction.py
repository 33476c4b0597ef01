"""A transaction is read in memory that does not depend on how long it is: 400,000 rows, in a soak 5 million."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from itertools import pairwise

import pytest

from tests.conftest import Database
from tests.pipelines.sources.mysql_cdc.binlog.recording import position, server_of, wanted
from tidegate.pipelines.sources.mysql_cdc.binlog import BinlogRange

ROWS = 5_000_000 if os.environ.get("TIDEGATE_SOAK") else 400_000
READ = """
import json, sys
from tidegate.pipelines.sources.mysql_cdc.binlog import BinlogRange, ServerOptions, WantedTable, read_range
from tests.memory import peak_rss

server, spans, table = json.load(sys.stdin)
for span in spans:
    batches = read_range(ServerOptions(**server), BinlogRange.from_json(span), WantedTable.from_json(table))
    sizes = [batch.num_rows for batch in batches]
    print(sum(sizes), max(sizes), peak_rss(), flush=True)
"""


@pytest.mark.thorough
@pytest.mark.soak
@pytest.mark.timeout(0)
def test_a_long_transaction_takes_no_more_memory_than_a_short_one(database: Database) -> None:
    database.execute("CREATE TABLE a (id INT PRIMARY KEY, at DATETIME(6), n BIGINT, s CHAR(200) CHARACTER SET ascii)")
    places = [position(database)]
    for first, last in ((1, ROWS // 4), (ROWS // 4 + 1, ROWS // 4 + ROWS)):
        database.execute(f"INSERT INTO a SELECT seq, NOW(6), seq, REPEAT(MD5(seq), 6) FROM seq_{first}_to_{last}")
        places.append(position(database))
    spans = [BinlogRange(0, start, end).to_json() for start, end in pairwise(places)]
    given = json.dumps([asdict(server_of(database)), spans, wanted(database, "a").to_json()])
    done = subprocess.run(
        [sys.executable, "-c", READ], input=given, capture_output=True, text=True, check=False, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stderr
    short, long = (list(map(int, line.split())) for line in done.stdout.splitlines())
    print(f"{long[0]:,} rows: peak RSS {long[2] >> 20:,} MiB, {short[0]:,} rows: {short[2] >> 20:,} MiB")
    assert (short[0], long[0]) == (ROWS // 4, ROWS)
    assert long[1] <= 1.1 * short[1], "a batch is of one chunk, whatever the transaction"
    assert long[2] <= 1.2 * short[2]
