"""`make bench` leaves no benchmark out."""

from __future__ import annotations

from pathlib import Path

import benchmarks.__main__ as bench


def test_every_module_that_measures_is_run() -> None:
    folder = Path(bench.__file__).parent
    measuring = {path.stem for path in folder.glob("*.py") if "\ndef measure(" in path.read_text()}
    assert "alignment" in measuring
    assert measuring <= {measure.__module__.rpartition(".")[2] for measure in bench.BENCHMARKS.values()}
