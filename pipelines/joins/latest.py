"""The latest version of every key, by seq, as a pin sees it: what a processing-time join matches."""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.lake.rows import quoted
from pipelines.sources.protocol import SEQ_PARTS

NEWEST_FIRST = ", ".join(f"_seq.{part} DESC" for part in SEQ_PARTS)


def latest_sql(
    changelog: str,
    keys: Sequence[str],
    columns: Sequence[str],
    *,
    wanted: str | None = None,
    looked: str | None = None,
    truncated: bool = True,
    seq: bool = False,
) -> str:
    """SQL that gives one row a key, the one with the greatest `_seq`: `columns`, `_generation`, `_epoch` and `_gone`.

    A key whose latest row is a delete, or older than the last truncate, is kept and marked as gone, so that a probe row
    that finds it can say why it has no match.

    Args:
        changelog: A relation: a build side's rows of one generation up to the pinned epoch.
        wanted: A relation of keys (the same columns). The build is then only scanned, not shuffled: for a probe batch
            that is small beside it.
        looked: SQL that gives rows of those keys that are not in the changelog (joins.lookup).
        truncated: False when the log says that the table was never truncated, which saves a scan, and a look at each
            row's `_op`.
        seq: Whether to give `_seq`, too.
    """
    payload = list(dict.fromkeys([*(quoted(name) for name in columns), "_generation", "_epoch"]))
    by_key = [quoted(key) for key in keys]
    carried = ", ".join(dict.fromkeys([*by_key, *payload]))
    chosen = f"SELECT {carried}, _op, _seq FROM {changelog}" + (" WHERE _op <> 't'" if truncated else "")
    newest = _ranked(chosen, by_key) if wanted is None else _greatest(chosen, wanted, looked, by_key, payload)
    if seq:
        carried += ", _seq"
    if not truncated:
        return f"SELECT {carried}, _op = 'd' AS _gone FROM ({newest})"
    last_truncate = f"(SELECT max(_seq) FROM {changelog} WHERE _op = 't')"
    return f"SELECT {carried}, _op = 'd' OR coalesce(_seq < {last_truncate}, false) AS _gone FROM ({newest})"


def _ranked(chosen: str, keys: Sequence[str]) -> str:
    """Sorted by key: for a build of any size."""
    rank = f"row_number() OVER (PARTITION BY {', '.join(keys)} ORDER BY {NEWEST_FIRST})"
    return f"SELECT * FROM (SELECT *, {rank} AS _rank FROM ({chosen})) WHERE _rank = 1"


def _greatest(chosen: str, wanted: str, looked: str | None, keys: Sequence[str], payload: Sequence[str]) -> str:
    """One pass over the build, and hardly a row of it shuffled: for a few wanted keys."""
    equal = " AND ".join(f"b.{key} = w.{key}" for key in keys)
    pruned = f"SELECT /*+ BROADCAST(w) */ b.* FROM ({chosen}) b LEFT SEMI JOIN {wanted} w ON {equal}"
    if looked is not None:
        carried = ", ".join(dict.fromkeys([*keys, *payload, "_op", "_seq"]))
        pruned = f"SELECT {carried} FROM ({pruned}) UNION ALL SELECT {carried} FROM ({looked})"
    rest = [name for name in payload if name not in keys]
    version = f"max_by(struct({', '.join([*rest, '_op', '_seq'])}), _seq) AS _version"
    return (
        f"SELECT {', '.join(keys)}, _version.* FROM (SELECT {', '.join(keys)}, {version} FROM ({pruned}) GROUP BY ALL)"
    )
