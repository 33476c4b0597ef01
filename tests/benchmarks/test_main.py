"""`make bench` leaves no benchmark out."""

from __future__ import annotations

from pathlib import Path

import benchmarks.__main__ as bench
from benchmarks import checks


def test_every_module_that_measures_is_run() -> None:
    folder = Path(bench.__file__).parent
    measuring = {path.stem for path in folder.glob("*.py") if "\ndef measure(" in path.read_text()}
    assert "alignment" in measuring
    assert measuring <= {measure.__module__.rpartition(".")[2] for measure in bench.BENCHMARKS.values()}


def test_the_releases_that_are_judged_differ_in_their_constraints_alone() -> None:
    found = checks.pipelines()
    assert {number: len(each.table("enriched").constraints) for number, each in found.items()} == {0: 0, 5: 5, 20: 20}
