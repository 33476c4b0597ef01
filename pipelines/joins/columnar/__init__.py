"""The event-time join of whole columns, for large releases of INSERTs that ask for columns alone.

Spark deals the work out and sees no row of it: a task maps the build's versions into its memory, reads row groups of
the probe, and writes the files that are staged. What comes out is what `pipelines.joins.release` gives for the same
plan, row by row and count by count (docs/decisions/0026).
"""

from pipelines.joins.columnar.plain import Plain, PlainJoin, Ref, compares, plain_of
from pipelines.joins.columnar.release import Groups, Share, Staged, dealt, merged, row_groups, stage
from pipelines.joins.columnar.versions import Changelog, save_versions

__all__ = [
    "Changelog",
    "Groups",
    "Plain",
    "PlainJoin",
    "Ref",
    "Share",
    "Staged",
    "compares",
    "dealt",
    "merged",
    "plain_of",
    "row_groups",
    "save_versions",
    "stage",
]
