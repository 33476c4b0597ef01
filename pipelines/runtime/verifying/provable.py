"""The findings of `verify`, epoch by epoch; and which epochs can still be recomputed: everything that they read is
there, and their INSERT has the same text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, reduce
from typing import Any, Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidegate.pipelines.clock import system_clock
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.lake import rows as lake_rows
from tidegate.pipelines.lake.stream import Stream
from tidegate.pipelines.runtime.epochs.history import ReleasedEpoch
from tidegate.pipelines.runtime.retention import Retention
from tidegate.pipelines.sql.canonical import computed
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.sql.model import Insert
from tidegate.pipelines.text import counted

Place = Literal["publish", "quarantine", "drop", "violation"]
EpochState = Literal["equal", "different", "rows lost", "beyond retention", "other script"]


@dataclass(frozen=True)
class Difference:
    """Rows of one epoch that are `missing` from a place though its pins give them, or `unexpected` there.

    Rows that are dropped, and the constraints that a row violates (place violation), are only counted. `keys`: up to
    ten of them, as JSON of the target's primary key (of the whole row if it has none); reasons if rows are only
    counted.
    """

    place: Place
    kind: Literal["missing", "unexpected"]
    rows: int
    keys: tuple[str, ...]


@dataclass(frozen=True)
class EpochReport:
    """One published epoch. `rows` were released by it; `detail` says why it was not recomputed. `beyond_retention`: how
    many of its rows found nothing because retention had removed versions of their time before it was planned."""

    generation: int
    epoch: int
    rows: int
    state: EpochState
    differences: tuple[Difference, ...] = ()
    detail: str = ""
    beyond_retention: int = 0


@dataclass(frozen=True)
class VerifyReport:
    """All published epochs of an INSERT. `problems` are findings that belong to no single epoch. `script_differs`: the
    given script differs from the lake's definition, by which the epochs are verified."""

    insert: str
    epochs: tuple[EpochReport, ...]
    problems: tuple[str, ...] = ()
    script_differs: bool = False

    @property
    def differences(self) -> int:
        """Rows that are missing or unexpected."""
        return sum(difference.rows for epoch in self.epochs for difference in epoch.differences)

    @property
    def rows(self) -> int:
        """Released rows that were recomputed."""
        return sum(epoch.rows for epoch in self.epochs if epoch.state in ("equal", "different"))

    @property
    def passed(self) -> bool:
        """Whether nothing was found. Epochs beyond retention do not count: see `unproved`. Epochs of another script do
        count, since nobody can say what their rows should be; so do rows that are gone though no retention has removed
        them."""
        return not self.problems and not any(
            epoch.state in ("different", "other script", "rows lost") for epoch in self.epochs
        )

    @property
    def unproved(self) -> tuple[EpochReport, ...]:
        """Epochs that cannot be recomputed any more."""
        return tuple(epoch for epoch in self.epochs if epoch.state not in ("equal", "different"))

    def to_json(self) -> dict[str, Any]:
        """The same as JSON values."""
        return {
            **asdict(self),
            "differences": self.differences,
            "rows": self.rows,
            "passed": self.passed,
            "unproved": len(self.unproved),
        }


Counts = dict[str, dict[tuple[int, int], int]]
"""Place -> (generation, epoch) -> rows."""


Unproved = dict[tuple[int, int], tuple[EpochState, str]]
"""(generation, epoch) -> its state instead of proved, and why."""


@dataclass(frozen=True)
class Provable:
    """What is known of the epochs of one INSERT before anything is recomputed. `environment`: replaces `${VARIABLE}` in
    options, None for the process's own."""

    pipeline: Pipeline
    lake: Lake
    insert: Insert
    environment: Mapping[str, str] | None = None

    def counts(self, spark: SparkSession) -> Counts:
        """How many rows each table that is read has, by generation and epoch, in one job; and those that landed and are
        not in its table any more, as `gone <table>`."""
        places = {f"table {table}": Stream(self.lake, table).path for table in self._tables}
        target = self.pipeline.table(self.insert.target)
        places |= {
            "target": self.lake.target_path(target),
            "quarantine": self.lake.quarantine_path(target, self.insert),
        }
        frames = [
            lake_rows.read(spark, path).groupBy("_generation", "_epoch").count().withColumn("place", F.lit(place))
            for place, path in places.items()
        ]
        found: Counts = {place: {} for place in places}
        for row in reduce(DataFrame.unionByName, frames).collect():
            found[row["place"]][(row["_generation"], row["_epoch"])] = row["count"]
        gone = {f"gone {table}": self._gone(table, found[f"table {table}"]) for table in self._tables}
        return found | gone

    @property
    def _tables(self) -> set[str]:
        return {self.insert.probe, *self.insert.builds}

    def unproved(self, counts: Counts, epochs: Sequence[ReleasedEpoch]) -> Unproved:
        """Epochs whose rows are no longer all there, or whose INSERT had another text; with the reason."""
        found: Unproved = {}
        gone = {table: counts[f"gone {table}"] for table in self._tables}
        reach = cache(lambda table, generation: Stream(self.lake, table).generation(generation).removed)
        retention = Retention(self.lake, self.pipeline, system_clock, self.environment)
        for epoch in epochs:
            plan = epoch.plan
            if not computed(plan.computes, self.pipeline, self.insert):
                text = "the script's INSERT has changed since this epoch was made"
                found[epoch.key] = ("other script", text)
                continue
            state: EpochState = "beyond retention"
            texts: list[str] = []
            joined = plan.pins if plan.reads[0] < plan.reads[1] else ()
            for table, generation, after, upto, pin in [
                (plan.probe, plan.probe_generation, *plan.reads, None),
                *((pin.table, pin.generation, 0, pin.epoch, pin) for pin in joined),
            ]:
                removed = reach(table, generation)
                if pin is None and not plan.lots and not removed.asked_by(plan.parts):
                    after = max(after, removed.epoch or 0)  # of epochs that are gone it reads no row
                number = sum(n for (g, e), n in gone[table].items() if g == generation and after < e <= upto)
                if not number:
                    continue
                if pin is None and removed.epoch is not None:
                    low = max(after, removed.epoch)
                    if any(n for (g, e), n in gone[table].items() if g == generation and low < e <= upto):
                        state = "rows lost"
                else:
                    in_all = sum(n for (g, _), n in gone[table].items() if g == generation)
                    if removed.nothing or (removed.rows is not None and in_all > removed.rows):
                        state = "rows lost"
                    elif pin is not None and retention.spares(epoch, pin, removed):
                        continue
                texts.append(f"{counted(number, 'row')} of {table} that it read {'is' if number == 1 else 'are'} gone")
            if texts:
                why = ", and no retention has removed so many" if state == "rows lost" else ""
                found[epoch.key] = (state, " and ".join(texts) + why)
        return found

    def _gone(self, table: str, there: dict[tuple[int, int], int]) -> dict[tuple[int, int], int]:
        """(generation, epoch) -> rows that landed by the watermark log and are not in the table any more."""
        log = {(row.generation, row.epoch): row.rows for row in Stream(self.lake, table).log()}
        return {key: count - there.get(key, 0) for key, count in log.items() if count > there.get(key, 0)}
