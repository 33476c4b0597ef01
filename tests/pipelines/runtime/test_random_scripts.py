"""Random scripts over random histories, cut into runs anywhere: every target is what a plain model says that is given
the plans, whatever is late, idle, held, killed or released from quarantine on the way."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests import cases
from tests.cases import at_length
from tests.oracle.scripts import BUILDS, Join, Map, Script, Statement, Union, Unnest, drawn
from tests.pipelines.runtime.script_stories import Story, values_of
from tests.pipelines.watermarks import tables
from tidegate.pipelines.testing import Harness
from tidegate.pipelines.watermarks import BEGINNING, MIN_TIMESTAMP, ProcessingTimeRevoked, Watermark

CHAIN = Script(
    (
        Statement("clean", Map("a", leaves_out=7)),
        Statement("named", Join("clean", "users")),
        Statement("tally", "named", window=20, timed=False),
        Statement("busy", Map("tally", leaves_out=3), "p", timed=False),
        Statement("rated", Join("named", "rates", "LEFT "), policy="publish"),
        Statement("seen", Map("rated", 1000, 1)),
    ),
    (3, 2, 5, 4, 1, 0),
)
UNIONS = Script(
    (
        Statement("mixed", Join(Union(("a", Map("b", 1000, 0, 7), Map("a", 2000, 1)), "view"), "users")),
        Statement("rated", Join(Union(("c", "mixed")), "rates", "LEFT "), policy="publish"),
        Statement("plain", Union((Map("c", leaves_out=3), Union(("b", "c"))))),
        Statement(
            "each",
            Join(
                Union((Join("a", "users", "LEFT ", leaves_out=True), Union(("c", Join(Map("a", 1000, 1), "rates"))))),
                "rates",
                "LEFT ",
            ),
        ),
    ),
    (1, 0, 2, 3),
)
AS_IT_COMES = Script(
    (
        Statement("named", Join(Map("a", leaves_out=7), "users"), "p", "block"),
        Statement("rated", Join(Union(("named", Unnest("c"), Map("named", 1000, 1))), "rates"), "p"),
        Statement(
            "late",
            Join(Union(("named", Unnest(Unnest("b"), True))), "rates", "LEFT ", strict=True, by_view=True),
            "ts",
            "publish",
        ),
    )
)
"""A processing-time chain, and held epochs above what is released in event time beside an input that may be idle."""
UNNESTED = Script(
    (
        Statement("named", Join(Unnest(Map("a", leaves_out=7), style="view"), "users")),
        Statement("rated", Join(Unnest(Unnest("named", True)), "rates", "LEFT ", strict=True), policy="publish"),
        Statement("every", Join(Map(Unnest("a", True), 1000, 0, 3), "rates"), "p", "block"),
    )
)
JOINED = Script(
    (
        Statement("known", Join(Map("a", leaves_out=7), "users"), "p"),
        Statement("timed", Join(Map("a", 1000), "users"), policy="block"),
        Statement("met", Join(Join(Union(("b", "c")), "known"), "timed", "LEFT ", strict=True), "p", "publish"),
        Statement("after", Join(Join(Map("b", 1000), "known", "LEFT ", strict=True, by_view=True), "timed")),
        Statement("again", Join("after", "known", leaves_out=True), "p", most=4),
    ),
    (4, 2, 3, 0, 1),
)
"""Targets that are joined: they are complete once `users`, which may load late, has flipped."""
SCRIPTS = {"as it comes": AS_IT_COMES, "unnested": UNNESTED, "unions": UNIONS, "chain": CHAIN, "joined": JOINED}


def histories() -> Iterator[tuple[str, int]]:
    for seed in (2, 0, 1, 3):
        yield from ((name, seed) for name in SCRIPTS)
    for seed in range(10):
        yield from ((name, seed) for name in ("drawn", "calm"))


@pytest.mark.parametrize(("name", "seed"), at_length(histories()))
def test_every_target_is_what_a_plain_model_says_wherever_the_script_is_cut(
    spark: SparkSession, tmp_path: Path, name: str, seed: int
) -> None:
    chance, calm = random.Random(seed), name == "calm"
    script = SCRIPTS.get(name) or drawn(chance, calm=calm)
    harness = Harness(script.sql, spark, tmp_path / "lake")
    story = Story(harness, script, chance, calm=calm)
    if name == "as it comes":
        story.hold_what_is_idle("named")
        story.check()
    rounds = chance.randint(3, 4) if cases.AT_LENGTH else 2
    loading = chance.randint(0, rounds - 1)
    for number in range(rounds):
        for _ in range(chance.randint(3, 9)):
            story.step(late_build=BUILDS[0] if number < loading else "")
        story.run()
        if not calm and chance.random() < 0.5:
            story.resolve()
            story.release()
        story.check()
    story.finish()
    assert not harness.run().moved
    story.check()
    if calm:
        once = Harness(script.sql, spark, tmp_path / "once")
        for call, args in story.events:
            call(once, *args)
        once.advance()
        other = Story(once, script, chance, calm=True)
        for each in script.statements:
            runs = [sorted(values_of(row)[1:] for row in of.stored(each.target)) for of in (story, other)]
            assert runs[0] == runs[1]
    story.look_back()
    story.check()
    story.prove()


THROUGH = {
    2: ("a", Union(("t0", "b")), Map("t1"), "t2"),
    3: ("a", Union(("t0", "b")), Union(("t1", "c")), "t2"),
}
"""Three statements, to which one input comes after the other, and a reader."""


COMBINED = [case.values[0] for case in reversed(tables.cases("combined")) if "last" not in case.values[0]]


@pytest.mark.parametrize(("time", "case"), at_length([(time, case) for time in ("p", "ts") for case in COMBINED], 3))
def test_the_watermark_of_a_chain_of_three_is_that_of_all_its_inputs_together(
    spark: SparkSession, tmp_path: Path, time: str, case: dict[str, Any]
) -> None:
    said = " ".join(case["steps"])
    if time == "ts" and "now" in said and "idle" in said:
        return  # a build would be one more input: nothing that it emits would leave both to the others
    trees = [Join(tree, "users") if time == "ts" else tree for tree in THROUGH[case["inputs"]]]
    script = Script(tuple(Statement(f"t{place}", tree) for place, tree in enumerate(trees)))
    harness = Harness(script.sql, spark, tmp_path)
    if time == "ts":
        harness.watermark("users", 0)
        harness.end_of_snapshot("users") if "now" in said else harness.idle("users")
    emitted = [MIN_TIMESTAMP] * 3
    for source, word, expected, step in tables.steps(case):
        channel, name = int(source), "abc"[int(source)]
        mark = tables.watermark(word) if word not in ("idle", "active") else Watermark(emitted[channel])
        emitted[channel] = max(emitted[channel], mark.timestamp)
        with suppress(ProcessingTimeRevoked):
            if word == "idle":
                harness.idle(name)
            else:
                harness.watermark(name, mark.timestamp, mark.use_processing_time)
        harness.run()
        last = harness.lake.watermarks.last("t2")
        found = last.status if last else (BEGINNING, False)
        assert found == (tables.watermark(expected[0]), "idle" in expected), step
