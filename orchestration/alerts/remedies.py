"""What to do about causes that lie outside of Tidegate, found in an error's text. No part of the text is repeated."""

from __future__ import annotations

import re

_REMEDIES: tuple[tuple[str, str], ...] = (
    (
        r"No space left on device|\b(?:errno|os error):? 28\b|Disk quota exceeded",
        "make room on the disk of the lake or of its temporary folder (df -h shows which is full; tidegate maintain "
        "SCRIPT removes what retention allows), then run it again",
    ),
    (r"Too many open files", "allow more open files where Dagster runs (ulimit -n 65536), then start it again"),
    (
        r"OutOfMemoryError|Cannot allocate memory|\bMemoryError\b",
        "give the process more memory (spark_config: spark.driver.memory), or run fewer at once",
    ),
    (r"Read-only file system", "mount the lake's disk writable (dmesg says why it is not), then run it again"),
    (r"Permission denied", "let the user that runs Dagster write to the lake (ls -ld on the path of the error)"),
)


def mends(text: str) -> tuple[str, ...]:
    """What to do about the first known cause that `text` names; nothing for others."""
    return next(((remedy,) for pattern, remedy in _REMEDIES if re.search(pattern, text)), ())
