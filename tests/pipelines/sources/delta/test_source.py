"""Which commits a step takes is known from the log alone; what they hold is read with Spark (test_reading.py)."""

import json
import os
import shutil

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.pipelines.sources.sources_help import Bench, table
from tidegate.pipelines import paths
from tidegate.pipelines.connectors.protocol import Source, SourcePosition, Unread
from tidegate.pipelines.connectors.table import Column
from tidegate.pipelines.errors import PlanningError, SourceError
from tidegate.pipelines.sources.delta import CONNECTOR
from tidegate.pipelines.sources.delta import source as delta

COLUMNS = {"k": "BIGINT", "p": "STRING"}


class Lake:
    """A Delta table that a test writes to."""

    def __init__(self, path):
        self.path = path

    def append(self, *keys):
        rows = pa.table({"k": pa.array(keys, pa.int64()), "p": ["ab"[key % 2] for key in keys]})
        write_deltalake(self.path, rows, mode="append")

    @property
    def table(self):
        return DeltaTable(self.path)

    def feed(self):
        self.table.alter.set_table_properties({"delta.enableChangeDataFeed": "true"})

    def bench(self, role="probe", columns=COLUMNS, **more):
        return Bench(CONNECTOR, table(columns, "delta", {"path": str(self.path)}, role=role, **more), "", now=2**42)

    def timed(self, rowtime="at"):
        """A bench whose `at` is the time of a row's commit."""
        at = Column("at", "TIMESTAMP_LTZ(3)", "TIMESTAMP", expression="_rowtime")
        return self.bench(rowtime=rowtime, more=[at])

    def append_at(self, version, seconds):
        """One row, in a commit of that time."""
        self.append(version)
        os.utime(self.path / "_delta_log" / f"{version:020d}.json", (seconds, seconds))


@pytest.fixture
def lake(tmp_path):
    return Lake(tmp_path / "a table")


def spans(bench):
    steps = [stored.step.ranges for stored in bench.steps]
    return [(ranges["mode"], ranges.get("from"), ranges["to"]) for ranges in steps]


def test_the_snapshot_first_then_what_commits_added(lake):
    lake.append(1, 2)
    lake.append(3)
    bench = lake.bench()
    source = bench.source()
    assert isinstance(source, Source)
    assert not source.delegate_watermark_periodic_emit(lambda: None)
    source.preflight(SourcePosition())
    first = bench.plan()
    assert (first.phase, first.flips, first.summary) == ("bounded", True, "snapshot of version 1")
    assert bench.plan() is None

    lake.append(4, 5)
    lake.table.optimize.compact()
    lake.append(6)
    second = bench.plan()
    assert (second.phase, second.flips, second.summary) == ("unbounded", False, "versions 2-4 of 4")
    assert bench.plan() is None
    lake.table.optimize.compact()
    bench.plan()
    assert bench.plan() is None
    assert spans(bench) == [("snapshot", None, 1), ("added", 1, 4), ("nothing", 4, 5)]


def test_a_run_stops_at_the_ends_that_it_took(lake):
    lake.append(1)
    bench = lake.bench()
    ends = bench.source().ends(bench.position)
    lake.append(2)
    bench.plan(ends)
    assert bench.plan(ends) is None
    assert spans(bench) == [("snapshot", None, 0)]
    bench.plan()
    assert bench.plan(ends) is None, "another run has read on since they were taken"
    assert spans(bench) == [("snapshot", None, 0), ("added", 0, 1)]


@pytest.mark.parametrize("role", ["build", "probe"])
def test_a_change_without_a_feed_is_refused_by_its_version_after_what_is_before_it(lake, role):
    lake.append(1, 2)
    bench = lake.bench(role)
    bench.plan()
    lake.append(3)
    lake.table.delete("k = 1")
    bench.plan()
    assert spans(bench)[1:] == [("added", 0, 1)]
    with pytest.raises(
        SourceError, match=r"t: version 2 \(DELETE\) of the Delta table changed or removed rows"
    ) as error:
        bench.plan()
    assert "--resnapshot t" in str(error.value)


def test_a_probe_takes_no_changes_even_from_a_feed(lake):
    lake.append(1, 2)
    lake.feed()
    bench = lake.bench()
    bench.plan()
    lake.table.delete("k = 1")
    with pytest.raises(SourceError, match="a probe side takes only what is added"):
        bench.plan()


def test_a_build_takes_changes_from_a_feed_in_steps_of_their_own(lake):
    lake.append(1, 2, 3)
    lake.feed()
    bench = lake.bench("build")
    bench.plan()
    lake.append(4)
    lake.table.update(predicate="k = 1", updates={"p": "'new'"})
    lake.table.delete("k = 2")
    lake.append(5)
    while bench.plan():
        pass
    assert spans(bench)[1:] == [("added", 1, 2), ("changed", 2, 4), ("added", 4, 5)]


def test_a_step_ends_before_a_commit_that_changes_the_table_itself(lake):
    lake.append(1)
    bench = lake.bench("build")
    bench.plan()
    lake.append(2)
    lake.feed()
    lake.append(3)
    lake.table.delete("k = 1")
    lake.table.alter.set_table_properties({"delta.enableChangeDataFeed": "false"})
    lake.append(4)
    while bench.plan():
        pass
    assert spans(bench)[1:] == [("added", 0, 1), ("added", 1, 3), ("changed", 3, 4), ("added", 4, 6)]


def test_a_column_that_is_another_under_the_same_name_is_refused(lake):
    lake.append(1)
    bench = lake.bench()
    bench.plan()
    lake.append(2)

    def committed(version, **physical):
        """A commit that maps columns, as Spark's ALTER TABLE writes it."""
        fields = [
            {"name": name, "type": "long" if name == "k" else "string", "nullable": True,
             "metadata": {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": stored}}
            for name, stored in physical.items()
        ]  # fmt: skip
        action = {"metaData": {"schemaString": json.dumps({"type": "struct", "fields": fields})}}
        (lake.path / "_delta_log" / f"{version:020d}.json").write_text(json.dumps(action))

    ends = {**bench.source().ends(bench.position), "version": 5}
    committed(2, k="k", p="p")
    committed(3, k="k", q="p")
    committed(4, k="k", p="p")
    committed(5, k="k", q="p", p="col-7")
    assert bench.plan(ends) is not None
    assert bench.plan(ends) is not None
    assert spans(bench)[1:] == [("added", 0, 1), ("nothing", 1, 2)]
    with pytest.raises(SourceError, match="the Delta table has no column p from version 3 on"):
        bench.plan(ends)
    (lake.path / "_delta_log" / f"{3:020d}.json").write_text("{}")
    bench.plan(ends)
    bench.plan(ends)
    assert spans(bench)[3:] == [("nothing", 2, 3), ("nothing", 3, 4)]
    with pytest.raises(SourceError, match="column p of the Delta table is another one from version 5 on") as raised:
        bench.plan(ends)
    assert "--resnapshot t" in raised.value.next_command


def test_a_path_that_would_be_another_is_refused(tmp_path):
    with pytest.raises(SourceError, match="takes for something else"):
        Lake(tmp_path / "a%41b").bench().source()


def test_steps_are_bounded(lake, monkeypatch):
    monkeypatch.setattr(delta, "MAX_STEP_VERSIONS", 2)
    lake.append(0)
    bench = lake.bench()
    bench.plan()
    for key in (1, 2, 3):
        lake.append(key)
    while bench.plan():
        pass
    monkeypatch.setattr(delta, "MAX_STEP_FILES", 1)
    lake.append(4)
    lake.append(5)
    while bench.plan():
        pass
    assert [stop for _, _, stop in spans(bench)] == [0, 2, 3, 4, 5]


def test_max_rows_takes_whole_commits_one_at_least(lake):
    lake.append(0)
    bench = lake.bench()
    bench.plan()
    for keys in ((1, 2, 3), (4,), (5, 6), (7, 8)):
        lake.append(*keys)
    bench.max_rows = 3
    while bench.plan():
        pass
    assert [stop for _, _, stop in spans(bench)] == [0, 1, 3, 4]


@pytest.mark.parametrize(("rowtime", "stops"), [("at", [0, 1, 2, 3]), ("k", [0, 3])])
def test_alignment_limits_commits_where_their_time_is_the_rowtime(lake, rowtime, stops):
    lake.append(0)
    bench = lake.timed(rowtime)
    bench.plan()
    for version, seconds in ((1, 100), (2, 200), (3, 300)):
        lake.append_at(version, seconds)
    bench.limit = 100_000
    while bench.plan():
        pass
    assert [stop for _, _, stop in spans(bench)] == stops, "one commit at least: the group may wait for this table"


def test_a_table_that_others_are_behind_gets_no_commit_past_the_limit(lake):
    lake.append(0)
    bench = lake.timed()
    bench.plan()
    for version, seconds in ((1, 100), (2, 200)):
        lake.append_at(version, seconds)
    bench.ahead, bench.limit = frozenset("0"), 100_000
    assert bench.plan() is not None
    assert bench.held == {"0": 200_000}, "what comes next is known with the step before it"
    assert bench.plan() is None
    assert (spans(bench)[-1][2], bench.held) == (1, {"0": 200_000})
    bench.ahead = frozenset()
    bench.plan()
    assert spans(bench)[-1][2] == 2


def test_the_one_commit_past_the_limit_has_rows(lake):
    lake.append(0)
    lake.append(1)
    bench = lake.timed()
    bench.plan()
    lake.table.optimize.compact()
    lake.append(2)
    lake.append(3)
    bench.limit = 0
    bench.plan()
    assert spans(bench)[1:] == [("added", 1, 3)]


def test_only_inside_of_the_allowed_folders_where_they_are_named(lake, monkeypatch, tmp_path):
    lake.append(1)
    monkeypatch.setenv(paths.VARIABLE, str(tmp_path))
    lake.bench().source().preflight(SourcePosition())
    monkeypatch.setenv(paths.VARIABLE, str(tmp_path / "other"))
    with pytest.raises(SourceError, match="outside of"):
        lake.bench().source()


def test_another_table_in_the_same_place_is_refused(lake):
    lake.append(1)
    lake.append(2)
    bench = lake.bench()
    bench.plan()
    shutil.rmtree(lake.path)
    for key in (1, 2, 3):
        lake.append(key)
    with pytest.raises(SourceError, match="another Delta table lies here"):
        bench.plan()


@pytest.mark.parametrize("steps", [1, 2])
def test_a_step_that_was_planned_of_another_table_is_not_read(lake, steps):
    """A run was killed before it read the step, and the table was made anew until the next."""
    bench = lake.bench()
    for key in range(steps):
        lake.append(key)
        bench.plan()
    shutil.rmtree(lake.path)
    for key in range(steps):
        lake.append(key)
    with pytest.raises(SourceError, match="another Delta table lies here"):
        bench.source().read(None, bench.steps[-1])


class Backed(Lake):
    """A table with a copy of its folder as it was at some version."""

    def back_up(self):
        shutil.copytree(self.path, f"{self.path}.backup")

    def bring_back(self, *keys):
        """Put the copy in the table's place, and commit a row for each of `keys`."""
        shutil.rmtree(self.path)
        shutil.copytree(f"{self.path}.backup", self.path)
        for key in keys:
            self.append(key)


@pytest.fixture
def backed(tmp_path):
    """Versions 0 and 1 are in the copy."""
    lake = Backed(tmp_path / "a table")
    lake.append(1)
    lake.append(2)
    lake.back_up()
    return lake


ANOTHER_COMMIT = "version 2 of the Delta table, up to which it was read or planned, is another commit now"
GONE = "version 2 of the Delta table, up to which it was read or planned, is gone"


@pytest.mark.parametrize("role", ["build", "probe"])
@pytest.mark.parametrize(
    ("keys", "words"),
    [((), GONE), ((7,), ANOTHER_COMMIT), ((7, 8), ANOTHER_COMMIT)],
    ids=["older", "as long", "longer"],
)
@pytest.mark.parametrize("last", ["snapshot", "added"])
def test_a_table_that_was_brought_back_from_a_backup_is_refused(backed, role, keys, words, last):
    """Its id is that of the table that was read. `last`: how the newest step read version 2, which is lost."""
    bench = backed.bench(role)
    if last == "added":
        bench.plan()
    backed.append(3)
    bench.plan()
    assert (spans(bench)[-1][0], spans(bench)[-1][2]) == (last, 2)
    backed.bring_back(*keys)
    with pytest.raises(SourceError, match=words) as raised:
        bench.plan()
    assert "--resnapshot t" in str(raised.value)
    assert raised.value.where == str(backed.path)
    assert raised.value.state == "what was read before stands; nothing after it was read"


def test_a_table_that_was_brought_back_as_it_was_read_goes_on(backed):
    bench = backed.bench()
    bench.plan()
    backed.append(3)
    backed.bring_back(7)
    bench.plan()
    assert spans(bench) == [("snapshot", None, 1), ("added", 1, 2)]


@pytest.mark.parametrize(("keys", "words"), [((), GONE), ((7, 8), ANOTHER_COMMIT)], ids=["older", "longer"])
@pytest.mark.parametrize("mode", ["snapshot", "added"])
def test_a_step_is_not_read_of_a_table_that_was_brought_back_since_its_plan(backed, mode, keys, words):
    bench = backed.bench()
    if mode == "added":
        bench.plan()
    backed.append(3)
    bench.plan()
    assert spans(bench)[-1][0] == mode
    backed.bring_back(*keys)
    with pytest.raises(SourceError, match=words):
        bench.source().read(None, bench.steps[-1])


def test_a_step_does_not_land_that_was_read_while_the_table_was_brought_back(backed):
    bench = backed.bench()
    backed.append(3)
    bench.plan()
    backed.bring_back(7, 8)
    with pytest.raises(SourceError, match=ANOTHER_COMMIT) as raised:
        bench.source().landed(bench.steps[-1], None)
    assert raised.value.state == "its rows are written and not landed, so nothing reads them"


def test_a_table_that_is_brought_back_during_a_plan_is_refused(backed, monkeypatch):
    bench = backed.bench()
    backed.append(3)
    bench.plan()
    backed.append(4)
    chosen = delta.DeltaSource._next

    def brought_back(self, *given):
        backed.bring_back(7, 8)
        return chosen(self, *given)

    monkeypatch.setattr(delta.DeltaSource, "_next", brought_back)
    with pytest.raises(SourceError, match=ANOTHER_COMMIT):
        bench.plan()
    assert len(bench.steps) == 1


def test_deltas_own_restore_goes_on_as_a_commit(lake):
    """RESTORE makes a version of its own, which adds and removes files."""
    lake.append(1)
    lake.feed()
    lake.append(2)
    lake.append(3)
    bench = lake.bench("build")
    bench.plan()
    lake.table.restore(2)
    lake.append(4)
    while bench.plan():
        pass
    assert spans(bench) == [("snapshot", None, 3), ("changed", 3, 4), ("added", 4, 5)]


def test_there_is_nothing_to_compare_once_the_log_was_cleaned_up(lake):
    for key in range(4):
        lake.append(key)
    bench = lake.bench()
    bench.plan()
    lake.append(4)
    lake.table.create_checkpoint()
    for version in range(4):
        (lake.path / "_delta_log" / f"{version:020d}.json").unlink()
    bench.plan()
    assert spans(bench)[1:] == [("added", 3, 4)]


def test_lag_is_since_the_first_commit_that_is_not_read(lake):
    lake.append(1)
    bench = lake.bench()
    bench.plan()
    landed = bench.source().landed(bench.steps[0], None)
    assert (landed.lag_ms, landed.position, landed.watermarks) == (0, "version 0", None)
    lake.append(2)
    lake.append(3)
    written = (lake.path / "_delta_log" / f"{1:020d}.json").stat().st_mtime
    bench.now = int(written * 1000) + 1234
    assert bench.source().landed(bench.steps[0], None).lag_ms == 1234
    assert bench.source().unread(bench.position) == Unread(2, "version", int(written * 1000))


def test_what_is_unread_is_counted_without_reading_it(lake):
    lake.append(1)
    bench = lake.bench()
    assert bench.source().unread(bench.position) is None, "nothing is planned yet"
    bench.plan()
    assert bench.source().unread(bench.position) == Unread()
    lake.append(2)
    assert bench.source().unread(bench.position).rest == "1 version"


def test_preflight_compares_the_columns(lake):
    lake.append(1)
    with pytest.raises(SourceError, match="no column missing"):
        lake.bench(columns={"missing": "INT"}).source().preflight(SourcePosition())
    with pytest.raises(SourceError, match="column k is bigint in the Delta table, INT in the script"):
        lake.bench(columns={"k": "INT"}).source().preflight(SourcePosition())


def test_preflight_finds_no_table(lake):
    with pytest.raises(SourceError, match="there is no Delta table here"):
        lake.bench().source().preflight(SourcePosition())


@pytest.mark.parametrize("path", ["", "s3://bucket/table"])
def test_a_path_is_a_folder(path):
    with pytest.raises(PlanningError, match="'path' of t is a folder"):
        Bench(CONNECTOR, table(COLUMNS, "delta", {"path": path}), "").source()


def test_a_source_needs_a_path_a_target_does_not():
    assert "'path' is missing" in CONNECTOR.spec.check(table(COLUMNS, "delta"))[0]
    assert list(CONNECTOR.spec.check(table(COLUMNS, "delta", role="sink"))) == []
    assert CONNECTOR.spec.phases({})
    assert CONNECTOR.spec.signals({})
