"""Random histories of a build side and a probe: the target equals the plain-Python oracle, whatever interleaves.

One harness run carries many histories at once, on keys of their own; flips, releases and restarts are common to them.
"""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests import cases
from tests.cases import at_length
from tests.oracle.proctime import Oracle
from tests.pipelines.runtime.plays import clicks
from tidegate.pipelines.testing import Harness

HISTORIES = 50
ROUNDS = 3
KEYS = 3

_change = st.tuples(
    st.just("change"),
    st.integers(0, ROUNDS - 1),
    st.sampled_from(["+I", "+U", "-U", "-D"]),
    st.integers(0, KEYS - 1),
    st.sampled_from("fmx"),
)
_probe = st.tuples(
    st.just("probe"), st.integers(0, ROUNDS - 1), st.none(), st.one_of(st.integers(0, KEYS - 1), st.none()), st.none()
)
_history = st.lists(st.one_of(_change, _probe), min_size=2, max_size=10)
_numbers = itertools.count()


@pytest.mark.parametrize(
    ("kind", "policy"), at_length([("LEFT", "quarantine"), ("LEFT", "publish"), ("INNER", "publish")])
)
@settings(
    max_examples=5 if cases.AT_LENGTH else 3, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True
)  # the simplest example, which is always the first, and 2 x 50 histories, at length 4 x 50
@given(
    histories=st.lists(_history, min_size=HISTORIES, max_size=HISTORIES),
    flip=st.integers(0, ROUNDS - 1),
    restarts=st.lists(st.booleans(), min_size=ROUNDS, max_size=ROUNDS),
)
def test_the_target_equals_the_oracle(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    kind: str,
    policy: str,
    histories: list[list[tuple[Any, ...]]],
    flip: int,
    restarts: list[bool],
) -> None:
    directory: Path = tmp_path_factory.mktemp(f"history{next(_numbers)}")
    note(f"lake in {directory}")
    harness = Harness(clicks(kind, policy), spark, directory)
    oracle = Oracle("user_id", kind, policy)
    items = itertools.count()
    for number in range(ROUNDS):
        changes: list[tuple[str, dict[str, Any]]] = []
        probes: list[dict[str, Any]] = []
        for history, events in enumerate(histories):
            for what, when, op, key, value in events:
                user = None if key is None else history * KEYS + key
                if when == number and what == "change":
                    changes.append((op, {"user_id": user, "gender": value}))
                elif when == number:
                    probes.append({"user_id": user, "item_id": next(items)})
        for op, group in itertools.groupby(changes, key=lambda change: change[0]):
            harness.push("user_info", [row for _, row in group], op)
        for op, row in changes:
            if op != "-U":  # an update is one atomic replacement: its before-image alone changes nothing
                oracle.change(op, row)
        harness.push("click_event", probes)
        for row in probes:
            oracle.probe(row)
        if number == flip:
            harness.end_of_snapshot("user_info")
            oracle.flipped = True
        harness.advance()
        oracle.release()
        if restarts[number]:
            harness.restart()

    expected = Counter(
        (row["user_id"], row["item_id"], match["gender"] if match else None, "+I") for row, match in oracle.published
    )
    assert (
        Counter((r["user_id"], r["item_id"], r["gender"], r["op"]) for r in harness.published("enriched")) == expected
    )
    quarantined = Counter((row["item_id"], f"unmatched:{why}@u") for row, why in oracle.quarantined)
    assert Counter((r["item_id"], r["_reason"]) for r in harness.quarantined("enriched")) == quarantined
    assert harness.advance() == []
