"""What Great Expectations needs of a process before it can be imported."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec


def name_main_module() -> None:
    """Give `__main__` a spec if it has neither a spec nor a file.

    Great Expectations imports PySpark's Connect client, which takes a process without them for a run of doctests and
    ends it with status 0 (pyspark/sql/connect/utils.py, check_dependencies). A process that multiprocessing has
    spawned, as every run that Dagster launches is, has neither. Multiprocessing itself passes over this name.
    """
    main = sys.modules["__main__"]
    if main.__spec__ is None and not hasattr(main, "__file__"):
        main.__spec__ = ModuleSpec("__main__", None)
