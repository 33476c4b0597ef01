"""State may be larger than memory: a task holds one bucket of it, however much there is and however often it was
written."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.pipelines.process.keeping import ADDED, NOTE


def kept(keys: int) -> dict[str, int]:
    """What a task that keeps notes of so many keys has needed, in a process of its own."""
    command = [sys.executable, "-m", "tests.pipelines.process.keeping", str(keys)]
    words = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    found = {name: int(value) for name, value in zip(words[::2], words[1::2], strict=True)}
    assert found["read"] == 2 * keys * ADDED * NOTE
    return found


@pytest.mark.thorough
def test_ten_times_the_state_takes_no_more_memory() -> None:
    small, large = kept(2_500), kept(25_000)
    measured = f"peak {small['peak']} MiB with {small['state']} MiB of state, {large['peak']} with {large['state']}"
    print(measured)
    assert large["peak"] <= 1.2 * small["peak"], measured
    assert large["state"] >= 1.5 * large["peak"], measured
