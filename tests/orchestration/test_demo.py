"""`tidegate demo`, small: from an empty folder to its verdict, and the ways in which it can not start."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import dagster as dg
import pytest
from typer.testing import CliRunner

from orchestration.cli import app
from orchestration.demo import journal
from orchestration.demo.site import Site, Sizes
from orchestration.demo.stage import opened, reopened
from orchestration.demo.verdict import verdict_lines
from orchestration.words import WHY
from pipelines.errors import TidegateError
from pipelines.lake import Lake
from pipelines.progress import SilentProgress
from pipelines.runtime.status import status
from tests.orchestration.services import Ui, command, environment, running

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Site, str, str]:
    """The site of a small demo that has run, and what it printed: for people, and beside it."""
    folder = tmp_path_factory.mktemp("demo")
    command = [sys.executable, "-m", "orchestration.cli", "demo", "--rows", "3000", "--clicks", "2000"]
    command += ["--writes-per-second", "200", "--folder", str(folder)]
    environment = {**os.environ, "TIDEGATE_MASTER": "local[2]"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return Site(folder), done.stdout, done.stderr


def test_the_last_lines_are_the_verdict(played: tuple[Site, str, str]) -> None:
    lines = played[1].splitlines()
    verdict = [line for line in lines if line.startswith("Verdict:")]
    assert lines[-len(verdict) :] == verdict
    assert len(verdict) >= 3
    assert " = " in verdict[0]
    assert verdict[1].startswith("Verdict: 0 of ")
    assert "0 clicks lost, 0 twice" in verdict[1]
    assert "all as promised" in verdict[-1]
    assert "make ui" in played[1]
    assert "cuts lie between binlog.0" in played[1]


def test_what_it_shows_beside_is_for_people(played: tuple[Site, str, str]) -> None:
    _, _, messages = played
    assert "user_info is not loaded yet" in messages
    for noise in ("WARN", "DEBUG", "Traceback"):
        assert noise not in messages


def test_the_lake_says_the_same_as_the_verdict(played: tuple[Site, str, str]) -> None:
    site, shown, _ = played
    now = json.loads(CliRunner().invoke(app, ["status", "--lake", str(site.lake), "--json"]).stdout)
    rows = now["inserts"][0]["rows"]
    assert rows["balanced"]
    assert rows["waiting"] == 0
    assert rows["landed"] >= 2000
    assert f"Verdict: {rows['landed']:,} clicks in = {rows['published']:,} matched" in shown


def test_every_reason_is_told_in_words_with_its_count(played: tuple[Site, str, str]) -> None:
    site, shown, _ = played
    (insert,) = status(Lake(site.lake)).inserts
    assert insert.rows is not None
    reasons = {name.partition("@")[0]: count for name, count in insert.rows.quarantined.items()}
    assert set(reasons) <= {"key-null", "key-absent", "deleted"}
    assert reasons["key-absent"] > 0, "one click in a hundred names a user who is not there"
    verdict = next(line for line in shown.splitlines() if line.startswith("Verdict:"))
    for reason, count in reasons.items():
        assert f"{count:,} because {WHY[reason]}" in verdict
        assert f"kept out: {WHY[reason]}" in shown


def test_without_the_gate_there_were_silent_nulls(played: tuple[Site, str, str]) -> None:
    told = re.search(r"Verdict: without the gate, ([\d,]+) of the same clicks would have got a NULL", played[1])
    assert told is not None
    assert int(told.group(1).replace(",", "")) > 0


def test_the_writer_wrote_from_before_the_snapshot_until_after_the_flip(played: tuple[Site, str, str]) -> None:
    lake, written = Lake(played[0].lake), list(journal.read(played[0].journal))
    first = lake.epochs.rows("user_info", generation=1, epoch=1)[0]
    flipped = min(row.flipped_at for row in lake.watermarks.rows("user_info", generation=1) if row.flipped_at)
    assert written[0].at < first.planned_at
    assert written[-1].at > flipped


def test_the_clicks_were_there_before_the_table(played: tuple[Site, str, str]) -> None:
    lake = Lake(played[0].lake)
    users, clicks = (lake.watermarks.rows(table, generation=1) for table in ("user_info", "click_event"))
    flipped = min(row.flipped_at for row in users if row.flipped_at)
    assert sum(row.rows for row in clicks if row.landed_at < users[0].landed_at) >= 2000
    assert clicks[0].landed_at < flipped


def test_how_fast_the_table_was_loaded_is_shown(played: tuple[Site, str, str]) -> None:
    assert re.search(r"user_info snapshot: [\d,]+ of [\d,]+ chunks.*[\d,]+ rows/s", played[2])


def test_the_runs_are_in_dagsters_history(played: tuple[Site, str, str]) -> None:
    with dg.DagsterInstance.from_config(str(played[0].dagster)) as instance:
        runs = instance.get_runs()
        assert len(runs) >= 4
        assert {run.status for run in runs} == {dg.DagsterRunStatus.SUCCESS}
        assert instance.get_latest_materialization_event(dg.AssetKey(["clicks", "enriched_click"])) is not None


def test_what_it_says_comes_next_works_in_a_new_shell(played: tuple[Site, str, str], tmp_path: Path) -> None:
    site = played[0]
    env = environment(site.dagster)
    verify = command("tidegate", "verify", "examples/clicks/pipeline.sql", "--lake", str(site.lake), env=env)
    assert verify.returncode == 0, verify.stdout + verify.stderr
    with running(tmp_path / "ui.log", env, "tidegate", "ui", "--demo", "--folder", str(site.root)) as address:
        ui = Ui(address)
        shown = ui.ask("{ assetNodes { assetKey { path } assetMaterializations(limit: 1) { runId } } }")["assetNodes"]
        names = {"/".join(node["assetKey"]["path"]) for node in shown if node["assetMaterializations"]}
        assert {"clicks/user_info", "clicks/click_event", "clicks/enriched_click"} <= names
        assert ui.ended(ui.launch("clicks")) == "SUCCESS"


def test_its_database_comes_back_as_it_was_left(played: tuple[Site, str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))
    with reopened(played[0], SilentProgress()) as server:
        ((rows,),) = server.execute("SELECT count(*) FROM user_info", database="example_database")
        assert rows > 1000
        assert os.environ["MYSQL_PORT"] == str(server.port)
        assert os.environ["CLICKS_AT_START"] == "2000"


def test_there_is_no_demo_to_open_before_the_first(tmp_path: Path) -> None:
    with pytest.raises(TidegateError, match="no demo to open") as raised, reopened(Site(tmp_path), SilentProgress()):
        pass
    assert raised.value.next_command == "make demo"


def test_a_port_that_is_taken_is_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        result = CliRunner().invoke(app, ["demo", "--rows", "1000", "--port", port, "--folder", str(tmp_path)])
    assert result.exit_code == 1
    assert "port is taken by another program" in result.stderr
    assert "next:" in result.stderr


def test_a_machine_without_java_is_told_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    result = CliRunner().invoke(app, ["demo", "--folder", str(tmp_path / "demo")])
    assert result.exit_code == 1
    assert "Spark needs Java 17 or later" in result.stderr
    assert not (tmp_path / "demo").exists()


def test_a_full_disk_is_told_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage(10**12, 10**12, 10**8))
    with (
        pytest.raises(TidegateError, match=r"needs \d+ MB of disk and 95 MB are free"),
        opened(Site(tmp_path), Sizes(), SilentProgress()),
    ):
        pass


def test_a_verdict_that_does_not_hold_says_so(played: tuple[Site, str, str]) -> None:
    from dataclasses import replace

    from orchestration.demo.proof import Proof
    from orchestration.demo.ungated import Ungated
    from orchestration.demo.verdict import Loading, Verdict
    from pipelines.runtime.accounting import WhereRowsAre

    good = Verdict(
        clicks=WhereRowsAre("e", "c", 1, landed=3, matched=2, quarantined={"key-null@u": 1}),
        loading=Loading("u", 1, 1, "b:1", "b:2", "b:3", 2, 1),
        proof=Proof(3, 0, 0, 0, 1, 1),
        ungated=Ungated(3, 3, 2, (1.0, 2.0)),
        tables={},
        seconds=1.0,
        next_commands={},
    )
    assert good.holds
    for bad in (
        replace(good, proof=replace(good.proof, disagreeing=1)),
        replace(good, proof=replace(good.proof, lost=1)),
        replace(good, clicks=replace(good.clicks, landed=4, waiting=1)),
        replace(good, clicks=replace(good.clicks, landed=4)),
    ):
        assert not bad.holds
        assert list(verdict_lines(bad))[-1].startswith("Verdict: NOT as promised")
    assert next(iter(verdict_lines(good))) == (
        "Verdict: 3 clicks in = 2 matched + 1 without a match (1 because the key is null)."
    )
