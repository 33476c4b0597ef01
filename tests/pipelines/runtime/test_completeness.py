"""What readers without Tidegate see of how far a lake is complete."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import searched
from tests.oracle.pins import rows_of
from tests.pipelines.runtime.grown import upkeep_of
from tests.pipelines.runtime.handmade import HandmadeLake, store, verdict_of
from tests.pipelines.runtime.plans import STATE, release, taken
from tests.pipelines.runtime.processes import functions as fn
from tests.stories.story import blocks
from tidegate.pipelines.lake import Lake, StagedRow
from tidegate.pipelines.process import EventTimeExtension
from tidegate.pipelines.runtime import completeness
from tidegate.pipelines.runtime.status import status
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.watermarks import Watermark

BOTH = ["events", "rules"]


@pytest.fixture
def made(tmp_path: Path) -> HandmadeLake:
    return HandmadeLake(tmp_path / "lake")


def second(number: int) -> datetime:
    return datetime.fromtimestamp(number, UTC)


def shown(lake: Lake) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in rows_of(str(lake.completeness_path))}


def publish(made: HandmadeLake, at: int = 1_000_000) -> bool:
    return completeness.publish(made.lake, made.pipeline, lambda: at)


def flipped(made: HandmadeLake) -> None:
    made.landed("users", 1, 3, flip=1, phase="bounded")
    made.landed("clicks", 1, 5, flip=1)


def test_nothing_is_complete_before_the_flip(made: HandmadeLake) -> None:
    assert publish(made)
    assert {name: row["epoch"] for name, row in shown(made.lake).items()} == {"users": 0, "clicks": 0, "enriched": 0}
    made.landed("users", 1, 3, phase="bounded")
    made.landed("clicks", 1, 5, flip=1)
    assert publish(made)
    rows = shown(made.lake)
    asked = ("epoch", "flipped_at", "complete_until", "complete_until_now")
    assert [rows["users"][name] for name in asked] == [1, None, None, False]
    assert rows["clicks"]["flipped_at"] == second(1)
    enriched = rows["enriched"]
    assert (enriched["insert"], enriched["verdict"], enriched["waiting"]) == ("enriched", None, 5)
    assert (enriched["complete_until"], enriched["complete_until_now"]) == (None, False)


def test_a_target_is_as_far_as_its_last_published_epoch(made: HandmadeLake) -> None:
    flipped(made)
    publish(made)
    assert not shown(made.lake)["enriched"]["complete_until_now"], "nothing of it is published"
    plan = made.released(1, 0, 1, publish=False, matched=4, unmatched_key_absent_u=1)
    publish(made)
    assert not shown(made.lake)["enriched"]["complete_until_now"], "staged and judged is not published"
    made.published(plan)
    publish(made)
    enriched = shown(made.lake)["enriched"]
    assert enriched["flipped_at"] == second(1)
    assert enriched["complete_until_now"], "no input has event time, so all is as it was when last asked"
    assert (enriched["epoch"], enriched["verdict"], enriched["waiting"], enriched["quarantined"]) == (1, "passed", 0, 1)

    made.landed("clicks", 2, 7, flip=1)
    made.released(2, 1, 2, "too many rows were late", matched=7)
    publish(made)
    enriched = shown(made.lake)["enriched"]
    assert (enriched["epoch"], enriched["verdict"], enriched["waiting"]) == (2, "held", 7)
    assert not enriched["complete_until_now"]


STOPS = ("none", "planned", "staged", "judged", "held", "not begun")
"""Where an epoch of an INSERT stops; `not begun`: rows have landed, and a build that cannot be read keeps it back."""


@searched(60)
@given(
    clicks=st.lists(st.integers(0, 3), min_size=1, max_size=4),
    releases=st.lists(st.tuples(st.integers(1, 3), st.sampled_from(STOPS)), max_size=3),
)
def test_wherever_an_insert_stops_nothing_is_complete_while_rows_wait(
    clicks: list[int], releases: list[tuple[int, str]]
) -> None:
    """Epochs of `clicks` rows land; each release takes so many of them, and may stop. Published after each commit."""
    with TemporaryDirectory() as folder:
        made = HandmadeLake(Path(folder) / "lake")
        made.landed("users", 1, 3, flip=1, phase="bounded")
        for epoch, rows in enumerate(clicks, 1):
            made.landed("clicks", epoch, rows, flip=1)
        out = upto = 0

        def claims_no_more_than_is_out() -> None:
            publish(made)
            enriched = shown(made.lake)["enriched"]
            assert enriched["waiting"] == sum(clicks) - out
            if sum(clicks) > out:
                assert not enriched["complete_until_now"]
                assert enriched["complete_until"] is None

        claims_no_more_than_is_out()
        for number, (many, stop) in enumerate(releases, 1):
            after, upto = upto, min(upto + many, len(clicks))
            rows = sum(clicks[after:upto])
            if stop == "not begun":
                break
            plan = made.planned(number, after, upto)
            claims_no_more_than_is_out()
            if stop == "planned":
                break
            made.staged(plan, matched=rows)
            claims_no_more_than_is_out()
            if stop == "staged":
                break
            made.judged(plan, *(["too many rows"] if stop == "held" else []))
            claims_no_more_than_is_out()
            if stop in ("held", "judged"):
                break
            made.published(plan)
            out += rows
            claims_no_more_than_is_out()
        else:
            assert shown(made.lake)["enriched"]["complete_until_now"] == (bool(releases) and out == sum(clicks))


def test_what_comes_late_takes_nothing_back(made: HandmadeLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was stopped between its look and its commit put "now" over the waiting rows of a later look."""
    flipped(made)
    made.released(1, 0, 1, matched=5)
    commit, turn = completeness.commit, iter([True])

    def overtaken(*args: Any, **kwargs: Any) -> None:
        if next(turn, False):
            made.landed("clicks", 2, 7, flip=1)
            assert publish(made)
        commit(*args, **kwargs)

    monkeypatch.setattr(completeness, "commit", overtaken)
    publish(made)
    enriched = shown(made.lake)["enriched"]
    assert (enriched["waiting"], enriched["complete_until_now"]) == (7, False)


def test_what_has_not_changed_takes_no_commit_and_other_scripts_rows_stay(made: HandmadeLake) -> None:
    flipped(made)
    assert publish(made, 1_000_000)
    assert not publish(made, 2_000_000)
    assert shown(made.lake)["clicks"]["as_of"] == second(1000)
    stranger = completeness.Complete("other", None, 1, None, None, False, 3, None, 0, 0)
    completeness._published(made.lake.completeness_path, lambda: [stranger], 3_000_000_000)
    made.landed("clicks", 2, 7, flip=1)
    assert publish(made, 4_000_000)
    epochs = {name: row["epoch"] for name, row in shown(made.lake).items()}
    assert epochs == {"users": 1, "clicks": 2, "enriched": 0, "other": 3}


def test_a_place_that_cannot_be_written_is_logged(made: HandmadeLake, caplog: pytest.LogCaptureFixture) -> None:
    flipped(made)
    Path(made.lake.completeness_path).write_text("in the way")
    assert not publish(made)
    assert "was not brought up to date" in caplog.text


def test_dead_files_go_with_upkeep(made: HandmadeLake) -> None:
    flipped(made)
    for epoch in range(2, 6):
        made.landed("clicks", epoch, 7, flip=1)
        assert publish(made)
    path = made.lake.completeness_path
    assert len(list(Path(path).glob("*.parquet"))) == 4
    with upkeep_of(made, least=0.0) as upkeep:
        upkeep.until(upkeep.now() + 60)
    assert len(list(Path(path).glob("*.parquet"))) == 1
    assert shown(made.lake)["clicks"]["epoch"] == 5


@pytest.fixture
def reader() -> Callable[[str, str, datetime], bool]:
    """The reader of docs/lake.md."""
    names: dict[str, Any] = {}
    exec("".join(block.text for block in blocks("docs/lake.md") if "def complete(" in block.text), names)
    return names["complete"]


def test_the_pages_reader_waits_until_all_is_there(
    made: HandmadeLake, reader: Callable[[str, str, datetime], bool]
) -> None:
    flipped(made)
    publish(made)
    lake = str(made.root)
    assert not reader(lake, "enriched", second(1))
    assert not reader(lake, "no such target", second(1))
    made.released(1, 0, 1, matched=5)
    publish(made)
    assert reader(lake, "enriched", second(1))


def test_a_step_shows_what_it_has_moved_and_what_reads_it(made: HandmadeLake) -> None:
    """A run of a hundred INSERTs has hundreds of steps: none looks at all of them."""
    flipped(made)
    publish(made)
    made.landed("users", 2, 1, flip=1)
    made.landed("clicks", 2, 7, flip=1)
    assert completeness.publish(made.lake, made.pipeline, lambda: 2_000_000, {"users"})
    rows = shown(made.lake)
    assert (rows["users"]["epoch"], rows["clicks"]["epoch"], rows["enriched"]["waiting"]) == (2, 1, 12)


def test_a_process_counts_the_rows_of_all_its_inputs_and_those_that_it_gave(tmp_path: Path) -> None:
    tables = "".join(f"CREATE TABLE {name} (k STRING, n BIGINT) WITH ('connector' = 'scripted');" for name in BOTH)
    function = EventTimeExtension.wrap_process_function(fn.Paired())
    pipeline = compile_script(tables).process("paired", BOTH, "k", function, "k STRING, number BIGINT, rule BIGINT")
    made = HandmadeLake(tmp_path / "lake", pipeline)
    for name, rows in zip(BOTH, [(7, 2), (3, 4)], strict=True):
        for epoch, landed in enumerate(rows, 1):
            made.landed(name, epoch, landed)
    plan = release("paired", 1, taken("events", 0, 1, 7), taken("rules", 0, 1, 3), state=STATE)
    counts = {"rows": 10, "processed": 10, "to:publish": 6, "to:quarantine": 2, "violated:real": 2}
    staged = StagedRow(made.owner, 1, 1, plan.digest, 0, "f", [], counts, {"emitted": 8})
    store(made.lake, plan.row(), staged, verdict_of(plan))
    made.published(plan)
    (found,) = status(made.lake, pipeline).inserts
    assert found.rows is not None
    assert (found.rows.landed, found.rows.matched, found.rows.waiting, found.rows.balanced) == (16, 10, 6, True)
    assert (found.rows.published, found.rows.rows_quarantined, found.rows.quarantined) == (6, 2, {})
    publish(made)
    assert (shown(made.lake)["paired"]["waiting"], shown(made.lake)["paired"]["quarantined"]) == (6, 2)


def test_a_process_whose_inputs_lost_their_last_log_rows_is_as_far_as_its_plan() -> None:
    """A power cut has taken them; whoever ends a run then must not be stopped by it."""
    plan = release("e", 1, taken("clicks", 0, 1, 7), state=STATE)
    assert completeness._watermark(plan, []) == Watermark(*STATE.watermark)
