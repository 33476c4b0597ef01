"""When a folder was made, which tells it from another one that has been given its inode. Nobody can set it; a copy of
the folder has another.
"""

from __future__ import annotations

import ctypes
import os
import struct
from functools import cache
from pathlib import Path
from typing import Any

_BTIME = 0x800
_HERE = -100
_SIZE = 256
_MASK, _TIME = 0, 80
"""Of Linux's statx(2): the bit that asks for the time of birth, AT_FDCWD, the size of its result, and where in that the
bits are that were answered, and the time."""


def born(path: Path) -> int | None:
    """When `path` was made (ns since 1970); None where the file system or the system does not tell. Raises OSError."""
    found = getattr(os.stat(path), "st_birthtime", None)
    if found is not None:  # macOS
        return int(found * 1e9)
    statx = _statx()
    if statx is None:
        return None
    result = ctypes.create_string_buffer(_SIZE)
    if statx(_HERE, os.fsencode(path), 0, _BTIME, result) != 0:
        return None
    (answered,) = struct.unpack_from("=I", result, _MASK)
    seconds, nanoseconds = struct.unpack_from("=qI", result, _TIME)
    return (seconds * 1_000_000_000 + nanoseconds) or None if answered & _BTIME else None


@cache
def _statx() -> Any:
    """The C library's function, which Python has no name for; None where there is none."""
    try:
        return ctypes.CDLL(None).statx
    except (OSError, AttributeError):
        return None
