"""What to do about causes that lie outside of Tidegate, found in an error's text. No part of the text is repeated."""

from __future__ import annotations

import re

from tidegate.pipelines.commands import Advice, Advised, NextCommand, advice

MEND = "mend the cause"

_REMEDIES: tuple[tuple[str, Advised], ...] = (
    (
        r"No space left|\b(?:errno|os error):? 28\b|Disk quota exceeded|disk is full",
        "make room on the disk of the lake or of its temporary folder (df -h shows which is full; what retention lets "
        "go is removed by: " + NextCommand("maintain") + ")",
    ),
    (r"Too many open files", "allow more open files where it runs (ulimit -n 65536), and start it anew"),
    (
        r"OutOfMemoryError|Cannot allocate memory|\bMemoryError\b|bad_alloc|[Oo]ut of memory|beyond .*memory limits",
        "give it more memory (TIDEGATE_DRIVER_MEMORY=4g, in Dagster also spark_config: spark.driver.memory), or run "
        "fewer at once",
    ),
    (r"Read-only file system", "make the disk writable (dmesg says why it is not)"),
    (
        r"Input/output error|Stale file handle",
        "see to the disk, or the network share, that the path lies on (dmesg says what is wrong with it)",
    ),
    (
        r"Permission denied|Operation not permitted|AccessDeniedException",
        "let the user that it runs as read and write there (ls -ld shows whose the path is)",
    ),
    (
        r"Java server|Java side",
        "find out why Spark's process ended (_scratch/spark.log in the lake; dmesg says whether memory ran out)",
    ),
    (
        r"Name or service not known|name resolution|No address associated|UnknownHost|resolve host|dns error",
        "correct the host's name, or this machine's DNS",
    ),
    (
        r"Connection refused|Connection reset|Connection timed out|No route to host|Network is unreachable",
        "see that the server is up and can be reached from here (host, port, firewall)",
    ),
)


def remedy(text: str, otherwise: str = MEND) -> Advice:
    """What to do about the first known cause that `text` names, as the beginning of a sentence: `…, then run it again`;
    `otherwise` where it names none."""
    return advice(next((do for pattern, do in _REMEDIES if re.search(pattern, text)), otherwise))


def unsaid(text: str, *said: str) -> tuple[Advice, ...]:
    """What to do about the known cause that `text` names, where none of `said` has it."""
    found = remedy(text, "")
    begun = str(found).partition(" (")[0]  # what follows may name a script and a lake
    return (found,) if found and not any(begun in each for each in said) else ()
