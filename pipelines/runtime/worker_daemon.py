"""`python -m tidegate.pipelines.runtime.worker_daemon`: Spark's daemon of Python workers (`pyspark.daemon`), which
imports what their tasks need before it forks them: otherwise each would import it again, for 0.6 s of processor time.

Spark's own daemon imports little, since threads of a library do not survive a fork. Of what is imported here, two have
a thread: the allocators of Arrow and of delta-rs, jemalloc, which starts it again in the fork. No task runs in the
daemon.
"""

from __future__ import annotations

import gc
import runpy


def preload() -> None:
    """Import what the tasks of a landing, of a release and of a process need."""
    import pyarrow.dataset  # noqa: F401
    import pyspark.worker  # noqa: F401

    import tidegate.pipelines.joins.task
    import tidegate.pipelines.joins.writer
    import tidegate.pipelines.runtime.landing.writing  # noqa: F401


if __name__ == "__main__":
    preload()
    gc.collect()
    gc.freeze()  # nothing of it is garbage, and to look through it would copy its pages
    runpy.run_module("pyspark.daemon", run_name="__main__")
