"""Lakes that several tests begin with."""

from __future__ import annotations

import shutil
from pathlib import Path

from tidegate.pipelines.testing import Harness


def copy_of(harness: Harness, directory: Path) -> Harness:
    """The same lake once more, in a folder of its own, to be gone on with or tampered with."""
    shutil.copytree(harness.directory, directory)
    return Harness(harness.pipeline, harness.spark, directory)


def kept_files(lake: Path) -> list[Path]:
    """Every file of a lake that is state: not those by which a runner only says that it was there (its leases, why it
    was refused, the logs that hold these)."""
    passing = ("lease-", "stuck-", "owners-")
    found = (path for path in sorted(lake.rglob("*")) if path.is_file())
    control = (lake if (lake / "_control").is_dir() else lake.parent) / "_control"
    return [
        path
        for path in found
        if control not in path.parents
        or not ({"runners", "_delta_log"} & set(path.parts) or path.name.startswith(passing))
    ]
