"""Two sources, one three times as fast in event time: rows that have landed and cannot be released, drawn as SVG.

    python -m benchmarks.alignment docs/images/alignment.svg

A row can be released once the combined watermark has reached its rowtime. Every figure is counted in the lake.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from benchmarks.measure import Figure
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.runtime.runner import Runner
from tidegate.pipelines.runtime.session import start_session
from tidegate.pipelines.sql import compile_script

TABLE = """
CREATE TABLE {name} (n BIGINT, at AS TO_TIMESTAMP_LTZ(n, 3), WATERMARK FOR at AS at) WITH (
    'connector' = 'datagen', 'rows-at-start' = '1', 'rows-per-second' = '1000000',
    'fields.n.kind' = 'sequence', 'fields.n.start' = '0',
    'fields.n.end' = '999999', 'scan.max-rows-per-epoch' = '{pace}'{aligned});
CREATE TABLE kept_{name} (n BIGINT) WITH ('connector' = 'delta');
INSERT INTO kept_{name} SELECT n FROM {name};
"""
ALIGNED = ", 'scan.watermark.alignment.group' = 'g', 'scan.watermark.alignment.max-drift' = '5 s'"
PACE = {"fast": 3000, "slow": 1000}
TICKS = 12


def unreleased(spark: SparkSession, aligned: str, ticks: int = TICKS) -> list[int]:
    """After every tick of an epoch each: landed rows of both tables whose rowtime the combined watermark has not
    reached."""
    script = "".join(TABLE.format(name=name, pace=pace, aligned=aligned) for name, pace in PACE.items())
    found: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake(Path(folder) / "lake")
        now = 0
        with Runner(compile_script(script), lake, spark=lambda: spark, clock=lambda: now) as runner:
            for tick in range(ticks):
                now = tick * 1000  # so that a table flips at its first row, and has all others from then on
                for name in PACE:
                    runner.advance(name, max_epochs=1)
                watermarks = [row.timestamp for name in PACE if (row := lake.watermarks.last(name)) is not None]
                found.append(sum(_beyond(lake, name, min(watermarks)) for name in PACE))
    return found


def _beyond(lake: Lake, table: str, watermark: int) -> int:
    """Landed rows of a table with a rowtime after `watermark` (ms)."""
    rowtimes = DeltaTable(str(lake.table_path(table))).to_pyarrow_table(columns=["_rowtime"])["_rowtime"]
    return int((rowtimes.cast(pa.int64()).to_numpy() > watermark * 1000).sum())


def draw(without: Sequence[int], with_alignment: Sequence[int]) -> str:
    """Both as lines over ticks."""
    width, height, left, top = 720, 300, 70, 30
    most, last = max(*without, *with_alignment), len(without)

    def line(values: Sequence[int]) -> str:
        return " ".join(
            f"{left + width * (tick + 1) / last:.1f},{top + height * (1 - value / most):.1f}"
            for tick, value in enumerate(values)
        )

    def label(x: float, y: float, text: str, more: str = "") -> str:
        return f'<text x="{x:.0f}" y="{y:.0f}" {more}>{text}</text>'

    end = left + width
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {end + 150} {top + height + 60}" '
        'font-family="sans-serif" font-size="14">',
        f'<rect width="{end + 150}" height="{top + height + 60}" fill="white"/>',
        f'<path d="M{left} {top} V{top + height} H{end}" fill="none" stroke="#888"/>',
        f'<polyline points="{line(without)}" fill="none" stroke="#c0392b" stroke-width="3"/>',
        f'<polyline points="{line(with_alignment)}" fill="none" stroke="#2471a3" stroke-width="3"/>',
        label(end + 8, top + height * (1 - without[-1] / most) + 5, f"without: {without[-1]:,}", 'fill="#c0392b"'),
        label(
            end + 8, top + height * (1 - with_alignment[-1] / most) - 4, f"aligned: {with_alignment[-1]:,}",
            'fill="#2471a3"',
        ),
        label(left - 8, top + 5, f"{most:,}", 'text-anchor="end"'),
        label(left - 8, top + height, "0", 'text-anchor="end"'),
        label(left, top - 12, "rows that have landed and cannot be released yet"),
        label(end, top + height + 22, f"{last} ticks", 'text-anchor="end"'),
        label(left, top + height + 44, "fast: 3,000 ms of event time a tick; slow: 1,000; drift 5 s", 'fill="#555"'),
        "</svg>",
    ]  # fmt: skip
    return "\n".join(parts) + "\n"


def measure() -> list[Figure]:
    """The rows that wait after the last tick, with alignment beside without."""
    spark = start_session()
    without, aligned = unreleased(spark, "")[-1], unreleased(spark, ALIGNED)[-1]
    name = f"rows landed and not released after {TICKS} ticks, aligned"
    return [Figure(name, aligned, "rows", without, "without", "the drift and an epoch")]


if __name__ == "__main__":
    session = start_session()
    bare, aligned = unreleased(session, ""), unreleased(session, ALIGNED)
    print(f"without: {bare}\naligned: {aligned}")
    Path(sys.argv[1]).write_text(draw(bare, aligned))
