"""Keeps what Spark's JVM prints out of the terminal."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def quiet_engine(log: Path) -> Iterator[None]:
    """A JVM that is started inside the block writes its messages into `log`, for as long as it lives.

    With $TIDEGATE_SPARK_LOG set, a person wants to read along, and they stay on standard error.
    """
    if "TIDEGATE_SPARK_LOG" in os.environ:
        yield
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    kept = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
