"""Lakes that several tests begin with."""

from __future__ import annotations

import shutil
from pathlib import Path

from tidegate.pipelines.testing import Harness


def copy_of(harness: Harness, directory: Path) -> Harness:
    """The same lake once more, in a folder of its own, to be gone on with or tampered with."""
    shutil.copytree(harness.directory, directory)
    return Harness(harness.pipeline, harness.spark, directory)
