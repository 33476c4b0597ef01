"""The problems of lakes that are made by hand: each kind, how it begins and how it ends, and what explains what."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.pipelines.runtime.grown import decoded, grown
from tests.pipelines.runtime.handmade import HandmadeLake, no_spark, store
from tests.quality_checks.staged import Given, stage
from tidegate.pipelines.commands import RUN, Commands
from tidegate.pipelines.connectors.protocol import Unread
from tidegate.pipelines.errors import DefinitionChanged, SourceError
from tidegate.pipelines.facts.problem import Asked, Bounds, InsertScope, Problem, Reported, Scope, after, roots
from tidegate.pipelines.facts.problems import problems
from tidegate.pipelines.lake import SplitWatermark, WatermarkRow
from tidegate.pipelines.lake.layout import Places
from tidegate.pipelines.lake.owner_log import OwnerLogs
from tidegate.pipelines.runtime.epochs import insert_owner
from tidegate.pipelines.runtime.ledger import checkpoint
from tidegate.pipelines.runtime.runner import Runner
from tidegate.pipelines.sql.compile import keyed_joins
from tidegate.pipelines.text import sentence

MINUTE = 60_000
DAY = 1440 * MINUTE
NOW = 1_000 * MINUTE
REASON = "2 rows have no match."
HERE = Commands(Path("p.sql"), Path("/data/lake"))


@pytest.fixture
def made(tmp_path: Path) -> HandmadeLake:
    """A lake that is up to date: nothing is a problem."""
    found = HandmadeLake(tmp_path / "lake")
    found.landed(found.build, 1, 500, at=NOW, lag_ms=0, flip=1)
    found.landed(found.probe, 1, 10, at=NOW, lag_ms=0)
    found.released(1, 0, 1, matched=10)
    return found


def shown(made: HandmadeLake, now: int = NOW, **given: Any) -> list[Problem]:
    """The problems that are shown of the whole pipeline; by the lake alone there are the same."""
    found = roots(problems(made.lake, now, Scope.of(made.lake, made.pipeline), **given))
    alone = roots(problems(made.lake, now, **given))
    assert [problem.key for problem in alone] == [problem.key for problem in found]
    return found


def kinds(made: HandmadeLake, now: int = NOW, **given: Any) -> list[str]:
    return [problem.kind for problem in shown(made, now, **given)]


def runner(made: HandmadeLake, now: int = NOW, label: str = "tidegate run") -> Runner:
    return Runner(made.pipeline, made.lake, spark=no_spark, clock=lambda: now, label=label, environment={})


def test_nothing_is_a_problem_of_what_is_up_to_date_and_of_no_lake(made: HandmadeLake, tmp_path: Path) -> None:
    assert shown(made) == []
    made.lake.root = made.lake.root / "none"
    made.lake.control = made.lake.root / "_control"
    made.lake.logs = OwnerLogs(made.lake.control)
    assert problems(made.lake, NOW) == []


def test_a_held_epoch_lasts_until_a_person_has_decided(made: HandmadeLake) -> None:
    made.landed(made.probe, 2, 7, at=NOW, lag_ms=0)
    made.released(2, 1, 2, REASON, "And more.", unmatched_key_absent_u=2, matched=5)
    (problem,) = shown(made)
    assert problem.kind == "gate-held"
    assert problem.fails
    assert problem.title == f"the gate holds epoch 2 of enriched (7 rows). {REASON}"
    assert problem.text[0] == "And more."
    assert problem.counts == {"key-absent@u": 2}
    assert problem.positions["users"] == "pinned at epoch 1/1; now epoch 1/1, log:1"
    assert problem.to_json(HERE)["next"] == [
        "tidegate release p.sql enriched --lake /data/lake",
        "tidegate discard p.sql enriched --lake /data/lake",
    ]
    (hidden,) = shown(made, bounds=Bounds(keys=0))
    assert hidden.title.endswith(REASON), "a verdict of before its checks were stored has its reasons alone"
    made.released(3, 1, 2, REASON, supersedes=2, kind="re-release", matched=7)
    (again,) = shown(made)
    assert (again.key, again.replaces) == (problem.key.replace("1/2", "1/3"), problem.key)
    made.released(4, 1, 2, supersedes=3, kind="re-release", matched=7)
    assert shown(made) == []


@pytest.mark.parametrize("whose", ["table", "INSERT"])
def test_who_is_stuck_is_so_until_a_step_has_worked_whoever_ran_it(made: HandmadeLake, whose: str) -> None:
    owner = made.build if whose == "table" else insert_owner("enriched")
    with runner(made, 1_000) as active:
        active.stuck(owner, SourceError("the table was dropped", where="log:7", next_command=RUN))
    with runner(made, 9_000) as active:
        active.stuck(owner, SourceError("it is still not there. Nor is its log"))
        active.stuck(owner, SourceError("it is still not there. Nor is its log"))
    assert len(made.lake.stuck.rows(owner)) == 2, "the same is stored once"
    (problem,) = shown(made)
    name = "users" if whose == "table" else "enriched"
    assert problem.key == f"stuck {made.lake.root} {name} 1000", "one problem, whatever it says meanwhile"
    assert problem.title == (f"{name} is stuck since 1970-01-01 00:00:01 UTC: it is still not there; nor is its log.")
    assert (problem.since, problem.details["error"], problem.details["by"]) == (1_000, "SourceError", "tidegate run")
    with runner(made) as later:
        later._works(owner)
    assert shown(made) == []


def test_what_a_stuck_table_leaves_behind_is_explained_by_it(made: HandmadeLake) -> None:
    made.begun(made.probe, 2, NOW)
    with runner(made) as active:
        active.stuck(made.probe, SourceError("the topic is gone"))
    found = problems(made.lake, NOW + 20 * MINUTE, Scope.of(made.lake, made.pipeline))
    explained = {each.kind: each.explained_by.partition(" ")[0] for each in found}
    assert explained == {"stuck": "", "unfinished": "stuck", "lag": "stuck"}


def test_a_refused_run_leaves_its_reason_until_one_begins(made: HandmadeLake) -> None:
    with runner(made) as active:
        for table in (made.probe, made.build):
            active.definitions.number(table)
    clicks = made.pipeline.table(made.probe)
    columns = (clicks.columns[0], replace(clicks.columns[1], type="STRING", spark_type="STRING"))
    changed = replace(made.pipeline, tables={**made.pipeline.tables, made.probe: replace(clicks, columns=columns)})
    for label in ("tidegate run", "dagster run 1", "dagster run 1"):
        refused = Runner(changed, made.lake, spark=no_spark, clock=lambda: NOW, label=label, environment={})
        with refused as active, pytest.raises(DefinitionChanged) as error:
            active.run() if label == "tidegate run" else active.advance(made.build)
    (problem,) = shown(made)
    assert problem.kind == "refused"
    assert problem.title.startswith("a run of clicks was refused at 1970-01-01 16:40:00 UTC, before it began: ")
    assert problem.details["by"] == "dagster run 1"
    assert sentence(error.value.what) in problem.title
    with runner(made) as active:
        active._works(made.probe)
    assert shown(made) == []


def test_a_build_that_has_not_flipped_in_time(tmp_path: Path) -> None:
    made = HandmadeLake(tmp_path / "lake")
    with runner(made, 0) as active:
        active.definitions.number(made.build)
    made.begun(made.build, 1, 0)
    made.landed(made.probe, 1, 11, at=29 * MINUTE, lag_ms=0)
    made.chunks(made.build, [{"position": 1}, None])
    scope = Scope.of(made.lake, made.pipeline)
    assert problems(made.lake, 29 * MINUTE, scope) == []
    (problem,) = problems(made.lake, 31 * MINUTE, scope)
    assert problem.title == (
        "users has not flipped 31 min after its first plan (bound 30 min), with 1 of 2 chunks read."
    )
    assert problem.counts == {"waiting for the flip": 11}
    assert not problem.fails
    assert [each.kind for each in problems(made.lake, 31 * MINUTE)] == ["unfinished", "not-flipped"], (
        "by the lake alone"
    )
    assert [each.kind for each in problems(made.lake, 3 * MINUTE, scope, bounds=Bounds(timedelta(minutes=2)))] == [
        "not-flipped"
    ]
    made.landed(made.build, 1, at=31 * MINUTE, flip=1)
    assert problems(made.lake, 31 * MINUTE, scope) == []


@pytest.mark.parametrize(
    ("lag_ms", "minutes", "expected"),
    [
        pytest.param(20, 40, "and nothing has landed for 40 min", id="it was behind, and nothing has landed since"),
        pytest.param(16 * MINUTE, 0, "it was 16 min behind when epoch 2 landed", id="it was behind"),
        pytest.param(0, 40, None, id="it was not behind, and nobody has asked since"),
        pytest.param(None, 40, None, id="nobody knows"),
        pytest.param(20, 10, None, id="inside of the bound"),
    ],
)
def test_lag_by_the_lake_alone(made: HandmadeLake, lag_ms: int | None, minutes: int, expected: str | None) -> None:
    made.landed(made.probe, 2, at=NOW, lag_ms=lag_ms)
    found = shown(made, NOW + minutes * MINUTE)
    assert [each.kind for each in found] == ([] if expected is None else ["lag"])
    if expected is not None:
        assert expected in found[0].title
        made.landed(made.probe, 3, at=NOW + minutes * MINUTE, lag_ms=0)
        assert shown(made, NOW + minutes * MINUTE) == []


@pytest.mark.parametrize(
    ("unread", "expected"),
    [
        (Unread(1, "file", NOW - 40 * MINUTE), "1 file has not landed, for up to 40 min"),
        (Unread(21_000, "version", NOW - 40 * MINUTE), "21,000 versions have not landed, for up to 40 min"),
        (Unread(1, "byte", NOW - 40 * MINUTE, "the binlog"), "1 byte of the binlog has not landed, for up to 40 min"),
    ],
    ids=["one", "many", "one of many"],
)
def test_lag_by_what_the_source_reports(made: HandmadeLake, unread: Unread, expected: str) -> None:
    made.landed(made.probe, 2, at=NOW - 50 * MINUTE, lag_ms=0)
    asked = after(None, landed(epoch=2), unread, NOW)
    (problem,) = shown(made, reported={made.probe: Reported(asked)})
    assert expected in problem.title
    assert problem.details["lag_ms"] == 40 * MINUTE
    made.landed(made.probe, 3, at=NOW, lag_ms=0)
    assert shown(made, reported={made.probe: Reported(asked)}) == [], "it has landed since"


@pytest.mark.parametrize(
    ("held", "ended", "expected"),
    [
        pytest.param(None, False, "may be behind its source: nobody has read it for 40 min, and ", id="nothing runs"),
        pytest.param(20, False, "may be behind its source: nobody has read it for 20 min, and ", id="not for long"),
        pytest.param(10, False, None, id="a run has found nothing"),
        pytest.param(None, True, None, id="nothing will ever come"),
    ],
)
def test_a_source_that_only_a_run_can_ask_may_be_behind_when_nobody_runs(
    made: HandmadeLake, held: int | None, ended: bool, expected: str | None
) -> None:
    splits = [asdict(SplitWatermark("t-0", 0, False, ended=each)) for each in (True, ended)]
    made.landed(made.probe, 2, at=NOW - 40 * MINUTE, lag_ms=0, splits=splits)
    if held is not None:
        with closing(made.lake.leases("tidegate run", clock=lambda: NOW - held * MINUTE)) as leases:
            leases.acquire(made.probe)
    assert kinds(made) == [], "whether it can be asked is not known"
    found = shown(made, reported={made.probe: Reported(Asked(1, 2, mute=True))})
    assert [each.title.partition("only a")[0].partition("clicks ")[2] for each in found] == (
        [] if expected is None else [expected]
    )


def landed(**values: Any) -> WatermarkRow:
    return WatermarkRow(**{**dict(owner="t", generation=1, epoch=3, landed_at=NOW - 60 * MINUTE), **dict(
        rows=0, timestamp=0, use_processing_time=False, flip_epoch=1), **values})  # fmt: skip


SOME = Unread(9, "row")


@pytest.mark.parametrize(
    ("lag_ms", "answers", "since"),
    [
        pytest.param(0, [], None, id="nobody has asked"),
        pytest.param(0, [(5, Unread())], None, id="nothing is left"),
        pytest.param(0, [(5, SOME)], -60, id="all there was had landed then"),
        pytest.param(7 * MINUTE, [(5, SOME)], -67, id="it was behind when it landed"),
        pytest.param(None, [(5, SOME)], -60, id="nobody knew then"),
        pytest.param(0, [(5, Unread()), (4, SOME)], -5, id="nothing was left later on"),
        pytest.param(0, [(9, Unread()), (5, SOME), (3, SOME)], -9, id="it stays the last such time"),
        pytest.param(
            0, [(5, Unread()), (4, replace(SOME, since=NOW - 8 * MINUTE))], -8, id="the source knows since when"
        ),
    ],
)
def test_since_when_there_is_something_that_has_not_landed(
    lag_ms: int | None, answers: list[tuple[int, Unread]], since: int | None
) -> None:
    log, asked = landed(lag_ms=lag_ms), None
    for ago, reported in answers:
        asked = after(asked, log, reported, NOW - ago * MINUTE)
    found = None if asked is None else asked.unread_since(log)
    assert found == (None if since is None else NOW + since * MINUTE)
    if asked is not None:
        assert asked.unread_since(landed(epoch=4)) is None, "an epoch has landed since then"
        assert after(asked, landed(epoch=4), SOME, NOW) == Asked(1, 4, rest="9 rows", number=9)
        assert after(asked, log, None, NOW) == Asked(1, 3, mute=True), "a source that cannot be asked"


def test_a_log_that_will_be_deleted_before_it_is_read(made: HandmadeLake) -> None:
    def reported(left_s: float | None, connector: str = "kafka") -> dict[str, Reported]:
        return {made.probe: Reported(None, left_s, 7 * 86_400.0, "t-0:5", connector)}

    assert shown(made, reported=reported(4 * 86_400.0)) == []
    assert shown(made, reported=reported(None)) == []
    (problem,) = shown(made, reported=reported(86_400.0))
    assert problem.title.startswith("the server deletes the log that clicks has not read yet in about 24.0 h")
    assert problem.positions["clicks, cursor"] == "t-0:5"
    assert "retention.ms" in str(problem.next[1])
    (of_mysql,) = shown(made, reported=reported(86_400.0, "mysql-cdc"))
    assert "binlog" in str(of_mysql.next[1])
    (gone,) = shown(made, reported=reported(0.0))
    assert gone.replaces == problem.key
    assert str(gone.next[0]) == "tidegate run SCRIPT --resnapshot clicks"


def test_a_quarantine_that_grows(tmp_path: Path) -> None:
    made = HandmadeLake(tmp_path / "lake")
    made.landed(made.build, 1, at=NOW, lag_ms=0, flip=1)
    made.landed(made.probe, 1, 10_000, at=NOW, lag_ms=0)
    absent = {"to:quarantine": 60, "unmatched:key-absent@users": 60}

    def grows(**bounds: Any) -> list[Problem]:
        return [each for each in shown(made, bounds=Bounds(**bounds)) if each.kind == "quarantine-growing"]

    for epoch, minutes in ((1, 90), (2, 30)):
        made.epoch(epoch, absent, at=NOW - minutes * MINUTE, publish=True)
    assert grows() == [], "60 rows in the last hour; the bound is 100"
    made.epoch(3, {**absent, "discarded": 5000}, at=NOW)
    made.epoch(4, absent, at=NOW, again=120)
    fifth = made.epoch(5, absent, at=NOW)
    assert grows() == [], "epoch 5 is not published, epoch 3 was a person's own decision, rows of epoch 4 came back"
    made.published(fifth)
    (problem,) = grows()
    assert problem.details["rows"] == 120
    assert problem.counts == {"key-absent@users": 120}
    assert str(problem.next[0]) == "tidegate quarantine list SCRIPT enriched"
    assert grows(quarantine_window=timedelta(minutes=10)) == [], "60 rows in the last ten minutes"


def test_a_hot_key_leaves_room_for_others_where_a_quarantine_grows(tmp_path: Path) -> None:
    ids = [7] * 500 + list(range(100, 112))
    staged = stage(tmp_path, Given({"unmatched:key-absent@u": len(ids)}))
    made = HandmadeLake(tmp_path / "lake")
    store(made.lake, staged.staged)
    made.judged(staged.plan)
    made.published(staged.plan)
    places = Places(made.lake.target_path(made.target), "enriched")
    insert = InsertScope("enriched", places.target, places.staged, keyed_joins(made.pipeline, made.insert, str))
    (quarantined,) = Path(str(places.staged)).rglob("_disposition=quarantine/*.parquet")
    probes = pa.array([{"id": number} for number in ids])
    pq.write_table(pq.ParquetFile(quarantined).read().append_column("_probe", probes), quarantined)

    def growing(**given: Any) -> Problem:
        found = problems(made.lake, 3000, Scope("p", inserts=(insert,), qualified=True), **given)
        return next(each for each in found if each.kind == "quarantine-growing")

    assert growing().keys == (), "rows are not read"
    found = growing(shows_rows=lambda key: key.endswith("enriched 1"))
    assert found.title.startswith("the quarantine of p/enriched grows: 512 rows in 60 min")
    assert [missed.key["id"] for missed in found.keys] == [7, *range(100, 109)]
    assert growing(shows_rows=lambda key: True, bounds=Bounds(keys=0)).keys == ()
    quarantined.write_bytes(b"no Parquet")
    assert growing(shows_rows=lambda key: True).keys == (), "keys are evidence: a problem does not wait for them"


def test_a_look_at_a_quarantine_that_grows_reads_the_epochs_of_its_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    bounds = Bounds(quarantine_rows=5, quarantine_window=timedelta(seconds=20))
    for epochs in (200, 800):
        made = grown(tmp_path / str(epochs), epochs)  # staged long ago
        checkpoint(made.lake, "enriched", made.lake.target_path(made.target), 0, looked_back=True)  # as upkeep does
        for epoch in range(epochs + 1, epochs + 11):
            made.released(epoch, epoch - 1, epoch, matched=1, unmatched_deleted_u=2)
        with decoded(monkeypatch) as rows:
            found = problems(made.lake, (epochs + 10) * 1000, Scope.of(made.lake, made.pipeline), bounds=bounds)
        assert [each.details["rows"] for each in found if each.kind == "quarantine-growing"] == [20]
        seen.append(sum(rows.values()))
    assert seen[1] <= seen[0]


def test_rows_that_do_not_add_up(made: HandmadeLake) -> None:
    made.landed(made.probe, 2, 10, at=NOW, lag_ms=0)
    made.released(2, 1, 2, matched=4)
    (problem,) = shown(made)
    assert (problem.kind, problem.fails) == ("imbalanced", True)
    places = "(published, quarantined, dropped, waiting)"
    assert problem.title == f"enriched: of 20 rows of clicks that landed, 14 are in a place {places}: 6 too few."
    assert str(problem.next[0]) == "tidegate verify SCRIPT   (says where they are)"
    with closing(made.lake.leases("tidegate run", clock=lambda: NOW)) as leases:
        leases.acquire(made.owner)
        assert shown(made) == [], "somebody is at it"


def test_an_epoch_that_nobody_finishes(made: HandmadeLake) -> None:
    made.begun(made.probe, 2, NOW)
    made.planned(NOW // 1000, 1, 1)
    assert {each.owner: each.title for each in shown(made)} == {
        "clicks": "clicks: epoch 2 is not finished, and nobody works on it.",
        made.owner: f"enriched: epoch {NOW // 1000} is not finished, and nobody works on it.",
    }
    assert shown(made, bounds=Bounds(unfinished_within=timedelta(minutes=1))) == [], "its run may be started again"
    later = NOW + 20 * MINUTE
    assert kinds(made, later, bounds=Bounds(unfinished_within=timedelta(minutes=1))) == ["unfinished"] * 2
    with closing(made.lake.leases("tidegate run", clock=lambda: later)) as leases:
        leases.acquire(made.probe)
        leases.acquire(made.owner)
        assert kinds(made, later) == ["lag"], "somebody works on it, and takes long"


def test_what_cannot_be_read_hides_no_other_problem(made: HandmadeLake) -> None:
    made.landed(made.probe, 2, 7, at=NOW, lag_ms=0)
    made.released(2, 1, 2, REASON, matched=7)
    for file in Path(made.lake.control).rglob("watermarks-*.parquet"):
        file.write_bytes(b"PAR1")
    unread: list[str] = []
    lake = type(made.lake)(made.lake.root)
    found = problems(
        lake, NOW, Scope.of(lake, made.pipeline), unread=lambda key, error: unread.append(f"{key}: {error}")
    )
    assert [each.kind for each in found] == []
    assert any(each.startswith(f"lag {lake.root} clicks: ") for each in unread)
