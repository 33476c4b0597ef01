"""What a process of a test has needed of memory."""

from __future__ import annotations

from pathlib import Path


def peak_rss() -> int:
    """The peak RSS of this process, in bytes.

    `getrusage` would not do: its `ru_maxrss` outlives `exec`, so that a child tells the peak of the process that
    started it.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "VmHWM":
            return int(value.split()[0]) << 10
    raise LookupError("/proc/self/status has no VmHWM")
