"""The latest version of every key, by seq, as a pin sees it: what a processing-time join matches."""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.lake.rows import quoted

NEWEST_FIRST = ", ".join(f"_seq.{part} DESC" for part in ("phase", "log", "file", "position", "row"))


def latest_sql(
    changelog: str, keys: Sequence[str], columns: Sequence[str], *, wanted: str | None = None, truncated: bool = True
) -> str:
    """SQL that gives one row a key, the one with the greatest `_seq`: `columns`, `_generation`, `_epoch` and `_gone`.

    A key whose latest row is a delete, or older than the last truncate, is kept and marked as gone, so that a probe row
    that finds it can say why it has no match.

    Args:
        changelog: A relation: a build side's rows of one generation up to the pinned epoch.
        wanted: A relation of keys (the same columns). The build is then only scanned, not shuffled: for a probe batch
            that is small beside it.
        truncated: False when the log says that the table was never truncated, which saves a scan.
    """
    carried = ", ".join(dict.fromkeys([*(quoted(name) for name in [*keys, *columns]), "_generation", "_epoch"]))
    chosen = f"SELECT {carried}, _op, _seq FROM {changelog} WHERE _op <> 't'"
    if wanted is not None:
        equal = " AND ".join(f"b.{quoted(key)} = w.{quoted(key)}" for key in keys)
        chosen = (
            f"SELECT /*+ BROADCAST(w) */ {_of('b', carried)}, b._op, b._seq "
            f"FROM ({chosen}) b LEFT SEMI JOIN {wanted} w ON {equal}"
        )
    by_key = ", ".join(quoted(key) for key in keys)
    rank = f"row_number() OVER (PARTITION BY {by_key} ORDER BY {NEWEST_FIRST})"
    newest = f"SELECT * FROM (SELECT *, {rank} AS _rank FROM ({chosen})) WHERE _rank = 1"
    if not truncated:
        return f"SELECT {carried}, _op = 'd' AS _gone FROM ({newest})"
    last_truncate = f"(SELECT max(_seq) FROM {changelog} WHERE _op = 't')"
    return f"SELECT {carried}, _op = 'd' OR coalesce(_seq < {last_truncate}, false) AS _gone FROM ({newest})"


def _of(alias: str, columns: str) -> str:
    return ", ".join(f"{alias}.{name}" for name in columns.split(", "))
