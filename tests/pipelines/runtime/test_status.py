from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from tests.pipelines.runtime.handmade import HandmadeLake, store
from tidegate.orchestration.commands.app import app
from tidegate.orchestration.console.shown import shown
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.runtime.status import (
    Chunks,
    InsertStatus,
    LakeStatus,
    SourceStatus,
    in_chains,
    settled_status,
    status,
)


@pytest.fixture
def made(tmp_path: Path) -> HandmadeLake:
    return HandmadeLake(tmp_path / "lake")


def _source(made: HandmadeLake, table: str) -> SourceStatus:
    return next(source for source in status(made.lake, made.pipeline).sources if source.table == table)


def _insert(made: HandmadeLake) -> InsertStatus:
    return status(made.lake, made.pipeline).inserts[0]


def test_an_empty_lake_has_a_status(made: HandmadeLake) -> None:
    found = status(made.lake, made.pipeline, clock=lambda: 7)
    assert found.at == 7
    assert [source.epochs for source in found.sources] == [0, 0]
    assert (found.inserts[0].state, found.inserts[0].waits_for) == (None, ("users",))
    assert status(Lake(made.root)).sources == ()


def test_a_first_run_is_seen_before_it_has_planned_anything(tmp_path: Path) -> None:
    """A server that does not answer what a plan asks of it keeps a run there for as long as it likes."""
    lake = Lake(tmp_path / "first")
    assert not lake.exists()
    made = HandmadeLake(tmp_path / "other")
    leases = lake.leases("a run")
    leases.acquire("users")
    found = status(Lake(lake.root, create=False), made.pipeline)
    (holder,) = [source.holder for source in found.sources if source.table == "users"]
    assert holder.startswith("a run, process ")
    assert "a run, process " in "\n".join(map(str, rendered(found)))
    leases.close()


def rendered(found: LakeStatus) -> list[str]:
    """The state as people see it."""
    console = Console(width=200)
    with console.capture() as captured:
        for part in shown(found):
            console.print(part)
    return captured.get().splitlines()


def test_statements_stand_below_those_that_they_read() -> None:
    base = InsertStatus("", None, None, 1, 1, None, None, None, (), (), (), None, None, "", False)
    read = {"a": (), "b": (), "of a": ("a",), "of of a": ("of a",), "of b": ("b",), "of all": ("of of a", "b")}
    inserts = [replace(base, insert=name, reads=reads) for name, reads in read.items()]
    below = ["a", "└ of a", "  └ of of a", "b", "└ of b", "    └ of all"]
    assert [item.in_chain for item in in_chains(inserts)] == below
    assert sorted(item.insert for item in in_chains(inserts[::-1])) == sorted(read)


def test_a_source_that_loads_shows_its_chunks_and_no_watermark(made: HandmadeLake) -> None:
    made.landed("users", 1, 500, phase="bounded")
    made.chunks("users", [{"file": "binlog.000009", "position": 900}, {"file": "binlog.000010", "position": 4}, None])
    users = _source(made, "users")
    assert (users.phase, users.chunks, users.flip, users.watermark) == ("bounded", Chunks(2, 3), None, None)
    assert (users.rows, users.epochs, users.step, users.lag_ms) == (500, 1, "step 1", 5)


def test_a_flip_shows_its_epoch_its_time_and_the_greatest_cut(made: HandmadeLake) -> None:
    made.landed("users", 1, 500, phase="bounded")
    made.chunks("users", [{"file": "binlog.000009", "position": 900}, {"file": "binlog.000010", "position": 4}])
    made.landed("users", 2, 3, flip=2)
    made.landed("users", 3, 4, flip=2)
    users = _source(made, "users")
    assert (users.flip.epoch, users.flip.at, users.flip.position) == (2, 2000, "log:2")
    assert users.flip.cut == {"file": "binlog.000010", "position": 4}
    assert (users.watermark, users.use_processing_time, users.position, users.rows) == (0, True, "log:3", 507)


def test_a_planned_epoch_that_has_not_landed_is_seen(made: HandmadeLake) -> None:
    made.landed("users", 1, 1, flip=1)
    newer = HandmadeLake(made.root)
    from tidegate.pipelines.connectors.protocol import Step
    from tidegate.pipelines.runtime.epochs import source_row

    store(newer.lake, source_row("users", 1, 2, 0, Step({})))
    assert (_source(made, "users").epochs, _source(made, "users").planned) == (1, 2)


def test_an_insert_goes_through_its_states(made: HandmadeLake) -> None:
    made.landed("users", 1, 5, flip=1)
    made.landed("clicks", 1, 10)
    plan = made.planned(1, 0, 1)
    assert _insert(made).state == "planned"
    made.staged(plan, matched=7, unmatched_key_absent_u=3)
    assert _insert(made).state == "staged"
    made.judged(plan)
    assert _insert(made).state == "passed"
    made.published(plan)
    found = _insert(made)
    assert (found.state, found.epoch, found.pins[0].epoch, found.waits_for) == ("published", 1, 1, ())
    assert (found.rows.matched, found.rows.quarantined, found.rows.waiting) == (7, {"key-absent@u": 3}, 0)


def test_a_held_epoch_shows_why_and_its_rows_wait(made: HandmadeLake) -> None:
    made.landed("users", 1, 5, flip=1)
    made.landed("clicks", 1, 10)
    made.landed("clicks", 2, 4)
    made.released(1, 0, 1, "3 rows found no match", on_unmatched="block", matched=7, unmatched_key_absent_u=3)
    found = status(made.lake, made.pipeline)
    assert found.held == ("enriched",)
    assert found.inserts[0].reasons == ("3 rows found no match",)
    rows = found.inserts[0].rows
    assert (rows.published, rows.waiting, rows.held, rows.balanced) == (0, 14, 10, True)


def test_without_a_script_all_that_ran_is_shown(made: HandmadeLake) -> None:
    made.landed("users", 1, 5, flip=1)
    made.landed("clicks", 1, 10)
    made.released(1, 0, 1, matched=10)
    found = status(Lake(made.root))
    assert [source.table for source in found.sources] == ["clicks", "users"]
    assert [(insert.insert, insert.state, insert.probe) for insert in found.inserts] == [
        ("enriched", "published", "clicks")
    ]
    assert found.totals.published == 10


def test_the_holder_of_a_lease_is_named(made: HandmadeLake) -> None:
    made.landed("users", 1, 5, flip=1)
    assert _source(made, "users").worked_on_at is None
    leases = made.lake.leases("tidegate run", clock=lambda: 7_000)
    leases.acquire("users")
    leases.acquire("insert enriched")
    found = status(made.lake, made.pipeline)
    assert [source.holder is not None for source in found.sources] == [True, False]
    assert (found.inserts[0].holder or "").startswith("tidegate run, process")
    leases.close()
    over = _source(made, "users")
    assert (over.holder, over.worked_on_at) == (None, 7_000)


def test_a_status_is_json(made: HandmadeLake) -> None:
    made.landed("users", 1, 5, flip=1)
    made.landed("clicks", 1, 10)
    plan = made.planned(1, 0, 1)
    made.staged(plan, matched=10)
    found = json.loads(json.dumps(status(made.lake, made.pipeline).to_json()))
    assert found["inserts"][0]["rows"]["balanced"] is True
    assert found["inserts"][0]["pins"] == [{"table": "users", "generation": 1, "epoch": 1, "flip_epoch": 1}]


def test_rows_that_do_not_add_up_are_reported_unless_somebody_works_on_them(made: HandmadeLake) -> None:
    made.landed("users", 1, 5, flip=1)
    made.landed("clicks", 1, 10)
    made.released(1, 0, 1, matched=4)
    found = settled_status(made.lake, made.pipeline)
    problem = "enriched: of 10 rows of clicks that landed, 4 are in a place"
    assert found.to_json()["imbalanced"] == ["enriched"]
    result = CliRunner().invoke(app, ["status", "--lake", str(made.root)])
    assert (result.exit_code, problem in result.stdout) == (1, True)
    leases = made.lake.leases("a run")
    leases.acquire(made.owner)
    assert settled_status(made.lake, made.pipeline).imbalanced == ()
    leases.close()
