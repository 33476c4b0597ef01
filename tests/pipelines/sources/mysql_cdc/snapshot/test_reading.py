"""The SQL of a chunk."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidegate.pipelines.sources.cdc.chunks import WHOLE, Chunk
from tidegate.pipelines.sources.mysql_cdc.catalog import KeyColumn, MysqlKey, NoBound
from tidegate.pipelines.sources.mysql_cdc.snapshot.reading import SnapshotQuery
from tidegate.pipelines.sources.mysql_cdc.types import SourceColumn

KEY = MysqlKey((KeyColumn("k", "number", integer=True),), "PRIMARY")
QUERY = SnapshotQuery(
    "rates", "shop", "we`ird", [SourceColumn("k", "int", "int"), SourceColumn("d", "date", "date")], KEY, ("1", "2")
)
VALUES = "SELECT `k` AS `k`, TO_DAYS(`d`) - 719528 AS `d` FROM `shop`.`we``ird`"


def test_a_chunk_is_read_by_the_index_that_it_was_cut_by() -> None:
    assert QUERY.rows(Chunk(0)) == f"{VALUES} FORCE INDEX (`PRIMARY`)"
    wanted = "(`k` >= 5 AND `k` < 9)"
    assert QUERY.rows(Chunk(1, ("5",), ("9",))) == f"{VALUES} FORCE INDEX (`PRIMARY`) WHERE {wanted}"


def test_a_condition_leaves_the_index_to_the_server() -> None:
    assert QUERY.rows(WHOLE, "`k` IN (1)") == f"{VALUES} WHERE (`k` IN (1))"


def test_a_date_of_the_key_is_null_unless_it_exists() -> None:
    found = replace(QUERY, exact=frozenset({"k", "d"})).rows(Chunk(0))
    assert "SELECT `k` AS `k`, IF(FROM_DAYS(TO_DAYS(`d`)) = DATE(`d`), TO_DAYS(`d`) - 719528, NULL) AS `d`" in found


def test_a_bound_that_is_none_names_the_table_that_is_to_be_read_anew() -> None:
    with pytest.raises(NoBound, match="'x' is no bound of the key column k") as refused:
        QUERY.rows(Chunk(1, ("x",), ("9",)))
    assert "--resnapshot rates" in refused.value.next_command
