"""Keys with many versions: their time lines are cut into slots, so that a probe row is held against a few versions.

An equi-join on the key alone compares a probe row with every version of it, which is quadratic where a key is hot. With
the slot of its time beside the key it is compared with those of one slot, and the hot key is spread over all tasks. The
slots change what it costs and never what it finds, so old statistics do no harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from pipelines.frames import as_views
from pipelines.lake.rows import quoted

FEW_PAIRS = 50_000_000
"""Up to so many pairs of a probe row and a version, nobody looks for heavy keys: they are gone through in a second."""

PER_KEY = 32
"""A key with more versions than this is heavy."""

PER_SLOT = 8
"""About how many versions begin in one slot."""

MOST = 100_000
"""At most so many keys are heavy (they are broadcast): the bar rises with the number of versions."""

_LANES = 16_384


@dataclass(frozen=True)
class HeavyKeys:
    """`view`: a relation of the heavy keys (columns as the build's), with `_begin`, `_end`, `_width` in us."""

    view: str
    keys: tuple[str, ...]

    def joined(self, rows: str, names: Sequence[str]) -> str:
        """FROM clause: `rows` AS r, each with what is known of its key as `h`; `names` are the key's columns there."""
        equal = " AND ".join(f"r.{name} = h.{quoted(key)}" for name, key in zip(names, self.keys, strict=True))
        return f"{rows} r LEFT JOIN {self.view} h ON {equal}"

    @staticmethod
    def slot(time: str) -> str:
        """SQL: the slot of a time (us) on its key's line; 0 for all times of a key that is not heavy."""
        inside = f"least(greatest({time}, h._begin), h._end)"
        return f"IF(h._width IS NULL, IF({time} IS NULL, NULL, 0), CAST(({inside} - h._begin) div h._width AS INT))"

    @staticmethod
    def slots(begin: str, end: str) -> str:
        """SQL: the slots that begin <= t < end touches, as an array."""
        first, last = HeavyKeys.slot(begin), HeavyKeys.slot(f"{end} - 1")
        return f"IF(h._width IS NULL, array(0), sequence({first}, {last}))"


@dataclass
class HeavyKeysByTable:
    """What was found of each build, kept while the process lives: sought again once a build has grown by a quarter."""

    _known: dict[tuple[str, int], tuple[int, DataFrame | None]] = field(default_factory=dict)

    def of(self, table: tuple[str, int], changelog: DataFrame, keys: Sequence[str], rows: int) -> DataFrame | None:
        """The heavy keys of a changelog of about `rows` rows; `table` names its folder and generation."""
        known = self._known.get(table)
        if known is None or not known[0] <= rows <= known[0] * 1.25:
            known = (rows, find_heavy(changelog, keys, rows))
            self._known[table] = known
        return known[1]


def find_heavy(changelog: DataFrame, keys: Sequence[str], versions: int) -> DataFrame | None:
    """The heavy keys of a changelog of about `versions` rows, with their times; None where there are none.

    A first pass counts by hash and is cheap; only where that shows long lines, keys are counted one by one.
    """
    by_key = ", ".join(quoted(key) for key in keys)
    one = by_key if len(keys) == 1 else f"struct({by_key})"
    with as_views({"changelog": changelog}) as views:
        rows = f"SELECT {by_key}, _rowtime FROM {views['changelog']} WHERE _op <> 't' AND _rowtime IS NOT NULL"
        lanes = (
            f"SELECT count(1) AS n, approx_count_distinct({one}, 0.2) AS keys FROM ({rows}) "
            f"GROUP BY pmod(xxhash64({by_key}), {_LANES})"
        )
        spark = changelog.sparkSession
        first = spark.sql(f"SELECT max(n) AS most, sum(n) AS n, sum(keys) AS keys FROM ({lanes})").collect()[0]
        found, distinct = int(first["n"] or 0), max(int(first["keys"] or 0), 1)
        if found <= PER_KEY or (found / distinct <= PER_KEY / 2 and first["most"] <= 4 * found / _LANES + 1_000):
            return None
        bar = max(PER_KEY, versions // MOST)
        lines = (
            f"SELECT {by_key}, count(1) AS n, unix_micros(min(_rowtime)) AS _begin, "
            f"unix_micros(max(_rowtime)) AS _end FROM ({rows}) GROUP BY {by_key} HAVING count(1) > {bar}"
        )
        width = f"greatest((_end - _begin) div (n div {PER_SLOT}), 1L)"
        table = spark.sql(f"SELECT {by_key}, _begin, _end, {width} AS _width FROM ({lines})").toArrow()
    return spark.createDataFrame(table) if table.num_rows else None
