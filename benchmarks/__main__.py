"""`make bench`: every figure beside its peer, in one run. Names on the command line choose among them."""

from __future__ import annotations

import sys

from benchmarks import (
    age,
    alignment,
    asof,
    binlog_decode,
    checks,
    continuous,
    growth,
    kafka,
    memory,
    mysql,
    process,
    release,
    watermark,
)
from benchmarks.measure import Figure, show

BENCHMARKS = {
    "tick": release.tick,
    "cold-tick": release.cold_tick,
    "event-tick": release.event_tick,
    "whole-tick": release.whole_tick,
    "chain": release.chain,
    "large": release.large,
    "checks": checks.measure,
    "mysql": mysql.measure,
    "decode": binlog_decode.measure,
    "kafka": kafka.measure,
    "watermark": watermark.measure,
    "alignment": alignment.measure,
    "asof": asof.measure,
    "growth": growth.measure,
    "age": age.measure,
    "freshness": continuous.freshness,
    "hour": continuous.hour,
    "memory": memory.measure,
    "process": process.measure,
}


def main(names: list[str]) -> None:
    """Run the named benchmarks (all of them without a name) and show their figures."""
    unknown = sorted(set(names) - set(BENCHMARKS))
    if unknown:
        sys.exit(f"there is no benchmark {unknown[0]}; there are {', '.join(BENCHMARKS)}")
    figures: list[Figure] = []
    for name in names or BENCHMARKS:
        print(f"{name} …", flush=True)
        figures += BENCHMARKS[name]()
    show(figures)


if __name__ == "__main__":
    main(sys.argv[1:])
