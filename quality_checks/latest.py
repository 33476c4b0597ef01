"""The latest version of every key, by seq, as a pin sees it, in SQL: what a source is compared with."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.pipelines.connectors.spec import SEQ_PARTS
from tidegate.pipelines.lake.rows import quoted

NEWEST_FIRST = ", ".join(f"_seq.{part} DESC" for part in SEQ_PARTS)


def latest_sql(changelog: str, keys: Sequence[str], columns: Sequence[str]) -> str:
    """SQL that gives one row a key, the one with the greatest `_seq`: `columns`, `_generation`, `_epoch` and `_gone`,
    which is true where it is a delete, or older than the last truncate.

    `changelog`: a relation: a build side's rows of one generation up to the pinned epoch.
    """
    by_key = ", ".join(map(quoted, keys))
    carried = ", ".join(dict.fromkeys([*map(quoted, keys), *map(quoted, columns), "_generation", "_epoch"]))
    rank = f"row_number() OVER (PARTITION BY {by_key} ORDER BY {NEWEST_FIRST})"
    ranked = f"SELECT {carried}, _op, _seq, {rank} AS _rank FROM {changelog} WHERE _op <> 't'"
    last_truncate = f"(SELECT max(_seq) FROM {changelog} WHERE _op = 't')"
    gone = f"_op = 'd' OR coalesce(_seq < {last_truncate}, false) AS _gone"
    return f"SELECT {carried}, {gone} FROM ({ranked}) WHERE _rank = 1"
