"""The versions of every key in time, as a pin sees them: what an event-time join matches.

The versions of a key tile the time line: each begins at its rowtime and ends where the next one begins (by rowtime,
then seq), the first one reaching back to the beginning of time and the last one to its end. So a probe row of a known
key always meets one interval, which says either what matches or why nothing does.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.lake.rows import quoted

BEGINNING, END = "-9223372036854775808L", "9223372036854775807L"
_IN_ORDER = "_rowtime, _seq"
"""A struct is ordered by its fields, as they stand: to name them would sort rows that are five columns wider."""


def versions_sql(
    changelog: str,
    keys: Sequence[str],
    columns: Sequence[str],
    *,
    wanted: str | None = None,
    looked: str | None = None,
    truncated: bool = True,
    seq: bool = False,
) -> str:
    """SQL that gives the intervals of every key: `columns`, `_generation`, `_epoch`, and in us, UTC:

        _from, _until     the interval is _from <= t < _until; no two of a key overlap, and none is empty
        _since            the version's own rowtime: before it (which is in a key's first interval only) nothing was
        _ended            from here on nothing is: the delete's rowtime, or a truncate's; END where neither came

    Args:
        changelog: A relation: a build side's rows of one generation up to the pinned epoch. One without a rowtime is at
            no time and has no version.
        wanted: A relation of keys (the same columns) to which the build is cut down first.
        looked: SQL that gives rows of those keys that are not in the changelog (joins.lookup).
        truncated: False when the log says that the table was never truncated, which saves a scan.
        seq: Whether to give `_seq`, too.
    """
    by_key = [quoted(key) for key in keys]
    carried = list(dict.fromkeys([*by_key, *(quoted(name) for name in columns), "_generation", "_epoch"]))
    read = ", ".join([*carried, "_op", "_seq", "_rowtime"])
    chosen = f"SELECT {read} FROM {changelog} WHERE _op <> 't' AND _rowtime IS NOT NULL"
    if wanted is not None:
        equal = " AND ".join(f"b.{key} = w.{key}" for key in by_key)
        chosen = f"SELECT /*+ BROADCAST(w) */ b.* FROM ({chosen}) b LEFT SEMI JOIN {wanted} w ON {equal}"
    if looked is not None:
        chosen += f" UNION ALL SELECT {read} FROM ({looked}) WHERE _rowtime IS NOT NULL"
    order = f"PARTITION BY {', '.join(by_key)} ORDER BY {_IN_ORDER}"
    ended, rows = f"IF(_op = 'd', _since, {END})", f"({chosen})"
    if truncated:
        truncates = (
            "SELECT array_sort(collect_list(struct(_rowtime, _seq))) AS _truncates "
            f"FROM {changelog} WHERE _op = 't' AND _rowtime IS NOT NULL"
        )
        rows = f"({chosen}) CROSS JOIN ({truncates})"
        after = "get(filter(_truncates, t -> t > struct(_rowtime, _seq)), 0)._rowtime"
        ended = f"least({ended}, coalesce(unix_micros({after}), {END}))"
    ordered = (
        f"SELECT *, unix_micros(_rowtime) AS _since, lag(_rowtime) OVER ({order}) IS NULL AS _first, "
        f"coalesce(unix_micros(lead(_rowtime) OVER ({order})), {END}) AS _until FROM {rows}"
    )
    if seq:
        carried.append("_seq")
    return (
        f"SELECT {', '.join(carried)}, IF(_first, {BEGINNING}, _since) AS _from, _until, _since, {ended} AS _ended "
        f"FROM ({ordered}) WHERE _first OR _since < _until"
    )
