"""The versions of a build side: an index of them on disk, and the one version that each probe row meets (`find`).

hashing.py    a number for every key, equal where Spark's `=` says so
run.py        one run: the versions that landed in some epochs, in order of (key, time, seq), as mapped arrays
run_files.py  the files of a run, made from landed rows
index.py      all runs of a build at a pin: what a row meets
runs.py       which runs there are, where they lie, and who makes those that are missing
"""

from tidegate.pipelines.versions.index import ABSENT, BEFORE_FIRST, GONE, MATCH, Found, Index, IndexOf, newest, opened
from tidegate.pipelines.versions.run import NO_TIME
from tidegate.pipelines.versions.run_files import Made, make
from tidegate.pipelines.versions.runs import Span, chained, ensure, folder_of, merged, runs_in, shards_of, tidy

__all__ = [
    "ABSENT",
    "BEFORE_FIRST",
    "GONE",
    "MATCH",
    "NO_TIME",
    "Found",
    "Index",
    "IndexOf",
    "Made",
    "Span",
    "chained",
    "ensure",
    "folder_of",
    "make",
    "merged",
    "newest",
    "opened",
    "runs_in",
    "shards_of",
    "tidy",
]
