"""`tidegate demo`, small: from an empty folder to its verdict, and the ways in which it cannot start; then its lake in
a real browser: what a person sees in Dagster's UI, and what a click does."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections import namedtuple
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pymysql
import pytest
from deltalake import DeltaTable
from playwright.sync_api import Page, expect
from typer.testing import CliRunner

from tests.orchestration.browser import (
    LOCATION,
    browsing,
    materialize_all,
    number,
    open_launchpad,
    opened_run,
    picture,
    show_drawing,
    type_config,
)
from tests.orchestration.services import MailServer, Ui, Webhook, environment, free_port, running, until
from tidegate.orchestration.commands.app import app
from tidegate.orchestration.demo import writer
from tidegate.orchestration.demo.site import DATABASE, SCRIPT, Site, Sizes
from tidegate.orchestration.demo.stage import opened, reopened
from tidegate.orchestration.demo.verdict import verdict_lines
from tidegate.pipelines.errors import TidegateError
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.progress import SilentProgress
from tidegate.pipelines.runtime.splits import Splits
from tidegate.pipelines.runtime.status import status
from tidegate.pipelines.text import WHY

pytestmark = pytest.mark.long

RATES = SCRIPT.parents[1] / "rates" / "pipeline.sql"


@pytest.fixture(scope="module")
def played(jvm: None, server: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Site, str, str]:
    """The site of a small demo that has run, and what it printed: for people, and beside it."""
    folder = tmp_path_factory.mktemp("demo")
    command = [sys.executable, "-m", "tidegate.orchestration.cli", "demo", "--rows", "3000", "--clicks", "2000"]
    command += ["--writes-per-second", "200", "--folder", str(folder)]
    environment = {**os.environ, "TIDEGATE_MASTER": "local[2]"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return Site(folder), done.stdout, done.stderr


def test_the_last_lines_are_the_verdict_and_what_is_beside_them_is_for_people(played: tuple[Site, str, str]) -> None:
    site, shown, messages = played
    lines = shown.splitlines()
    verdict = [line for line in lines if line.startswith("Verdict:")]
    assert lines[-len(verdict) :] == verdict
    assert len(verdict) >= 3
    assert " = " in verdict[0]
    assert verdict[1].startswith("Verdict: 0 of ")
    assert "0 clicks lost, 0 twice" in verdict[1]
    assert "all as promised" in verdict[-1]
    assert f"tidegate ui --demo --folder {site.root}" in shown
    assert "cuts lie between binlog.0" in shown
    nulls = re.search(r"Verdict: without the gate, ([\d,]+) of the same clicks would have got a NULL", shown)
    assert int(nulls.group(1).replace(",", "")) > 0
    assert "user_info is not loaded yet" in messages
    assert re.search(r"Clicks waiting: [\d,]+ · user_info [\d.]+ s behind the binlog", messages)
    assert re.search(r"user_info snapshot: [\d,]+ of [\d,]+ chunks.*[\d,]+ rows/s", messages)
    for noise in ("WARN", "DEBUG", "Traceback"):
        assert noise not in messages


def test_the_lake_says_the_same_as_the_verdict(played: tuple[Site, str, str], lake: Lake) -> None:
    _, shown, _ = played
    now = json.loads(CliRunner().invoke(app, ["status", "--lake", str(lake.root), "--json"]).stdout)
    rows = now["inserts"][0]["rows"]
    assert rows["balanced"]
    assert rows["waiting"] == 0
    assert rows["landed"] >= 2000
    assert f"Verdict: {rows['landed']:,} clicks in = {rows['published']:,} matched" in shown
    reasons = {name.partition("@")[0]: count for name, count in rows["quarantined"].items()}
    assert set(reasons) <= {"key-null", "key-absent", "deleted"}
    assert reasons["key-absent"] > 0, "one click in a hundred names a user who is not there"
    verdict = next(line for line in shown.splitlines() if line.startswith("Verdict:"))
    for reason, count in reasons.items():
        assert f"{count:,} because {WHY[reason]}" in verdict
        assert f"quarantined: {WHY[reason]}" in shown


def test_clicks_were_there_before_the_table_and_the_writer_wrote_until_after_the_flip(
    played: tuple[Site, str, str], lake: Lake
) -> None:
    users, clicks = (lake.watermarks.rows(table, generation=1) for table in ("user_info", "click_event"))
    written, first = list(writer.read(played[0].journal)), lake.epochs.rows("user_info", generation=1, epoch=1)[0]
    flipped = min(row.flipped_at for row in users if row.flipped_at)
    assert written[0].at < first.planned_at
    assert written[-1].at > flipped
    assert sum(row.rows for row in clicks if row.landed_at < users[0].landed_at) >= 2000
    assert clicks[0].landed_at < flipped


def test_there_is_no_demo_to_open_before_the_first(tmp_path: Path) -> None:
    with pytest.raises(TidegateError, match="no demo to open") as raised, reopened(Site(tmp_path), SilentProgress()):
        pass
    assert str(raised.value.next_command).endswith(f"tidegate demo --folder {tmp_path}")


@pytest.mark.usefixtures("jvm")
def test_a_port_that_is_taken_is_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        result = CliRunner().invoke(app, ["demo", "--rows", "1000", "--port", port, "--folder", str(tmp_path)])
    assert result.exit_code == 1
    assert "port is taken by another program" in result.stderr
    assert "next:" in result.stderr


def test_a_machine_without_java_is_reported_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    result = CliRunner().invoke(app, ["demo", "--folder", str(tmp_path / "demo")])
    assert result.exit_code == 1
    assert "Spark needs Java 17 or later" in result.stderr
    assert not (tmp_path / "demo").exists()


@pytest.mark.usefixtures("jvm")
def test_a_full_disk_is_reported_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage(10**12, 10**12, 10**8))
    with (
        pytest.raises(TidegateError, match=r"needs \d+ MB of disk and 95 MB are free"),
        opened(Site(tmp_path), Sizes(), SilentProgress()),
    ):
        pass


def test_a_verdict_that_does_not_hold_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    from dataclasses import replace

    from tidegate.orchestration.console.screen import Screen
    from tidegate.orchestration.demo.proof import Proof
    from tidegate.orchestration.demo.verdict import Loading, Ungated, Verdict
    from tidegate.pipelines.runtime.ledger import WhereRowsAre

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
    screen, long = Screen(), f"tidegate status --lake /{'long/' * 60}lake"
    screen.result(replace(good, next_commands={long: "shows where every row is"}))
    assert f"next:  {long}   (shows where every row is)\n" in capsys.readouterr().out, "to be pasted, so not folded"
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


SUITE = {
    "name": "known",
    "expectations": [{"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "user_id"}}],
}


CLOSED = """
CREATE TABLE customer (customer_id INT PRIMARY KEY NOT ENFORCED, name STRING) WITH (
    'connector' = 'mysql-cdc', 'hostname' = '127.0.0.1', 'port' = '1', 'username' = 'reader',
    'password' = 'hunter2-in-the-script', 'database-name' = 'shop', 'table-name' = 'customer'
);
CREATE TABLE visit (customer_id INT, proctime AS PROCTIME()) WITH ('connector' = 'scripted');
CREATE TABLE named_visit (customer_id INT, name STRING) WITH ('connector' = 'scripted');
INSERT INTO named_visit SELECT visit.customer_id, name FROM visit
JOIN customer FOR SYSTEM_TIME AS OF visit.proctime ON visit.customer_id = customer.customer_id;
"""
"""A pipeline with a password in it."""


def strict_script() -> str:
    """The demo's tables once more, for two targets: `known_click`, and `strict_click`, whose gate holds clicks that
    name a user who is not there."""
    text = SCRIPT.read_text().replace("enriched_click", "known_click").rstrip()
    target = text[text.index("CREATE TEMPORARY TABLE known_click") :].replace("known_click", "strict_click")
    target = target.replace("= 'quarantine'", "= 'block', 'quality.suite' = 'suite.json'").removesuffix(";")
    return f"{text}\n{target}\nWHERE click_event.user_id IS NOT NULL;\n"


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the pipelines that are not the demo's."""
    return tmp_path_factory.mktemp("scripts")


@pytest.fixture(scope="module")
def channels() -> Iterator[tuple[Webhook, MailServer]]:
    """Where alerts go, beside a channel that nobody listens at."""
    with Webhook() as webhook, MailServer() as mail:
        yield webhook, mail


@pytest.fixture(scope="module")
def ui(played: tuple[Site, str, str], scripts: Path, channels: tuple[Webhook, MailServer]) -> Iterator[Ui]:
    """`tidegate ui --demo`, with three more pipelines on the demo's lake: `strict` joins the same two tables and holds
    what has no match, `rates` can be backfilled by months, `closed` is never run."""
    site, folder = played[0], scripts
    strict, closed = folder / "strict.sql", folder / "closed.sql"
    strict.write_text(strict_script())
    closed.write_text(CLOSED)
    (folder / "suite.json").write_text(json.dumps(SUITE))
    shutil.copytree(RATES.parent, folder / "rates")
    rates = folder / "rates.sql"
    rates.write_text(RATES.read_text().replace("'path' = '", f"'path' = '{folder}/rates/"))
    webhook, mail = channels
    env = environment(
        site.dagster,
        TIDEGATE_SCRIPT=f"{SCRIPT}:{strict}:{rates}:{closed}",
        TIDEGATE_FILES_ROOT=str(folder),
        TIDEGATE_PARTITIONS_FROM="2026-01-01",
        TIDEGATE_PARTITIONS_EVERY="month",
        TIDEGATE_AUTOMATION="1",
        TIDEGATE_WEBHOOK_URL=webhook.url,
        TIDEGATE_ALERT_URLS=f"{mail.url} json://user:hunter2-of-a-channel@127.0.0.1:{free_port()}/hooks/T0KEN",
        OTHER_PASSWORD="hunter2-in-the-environment",
    )
    opened = ("tidegate", "ui", "--demo", "--folder", str(site.root), "--docs-port", "0")
    with running(folder / "ui.log", env, *opened) as address:
        yield Ui(address)


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with browsing() as found:
        yield found


@pytest.fixture(scope="module")
def lake(played: tuple[Site, str, str]) -> Lake:
    return Lake(played[0].lake)


def rows_of(lake: Lake, target: str) -> int:
    path = str(lake.root / "targets" / target)
    return DeltaTable(path).count() if DeltaTable.is_deltatable(path) else 0


def pins_of(lake: Lake, insert: str) -> set[tuple[str, int]]:
    """The builds and the generations of them that the newest epoch of an INSERT was joined to."""
    (found,) = (item for item in status(lake).inserts if item.insert == insert)
    return {(pin.table, pin.generation) for pin in found.pins}


@pytest.mark.thorough  # a click on another pipeline shows the same, and what its gate holds
def test_a_click_on_materialize_all_publishes_rows(page: Page, ui: Ui, lake: Lake) -> None:
    before = rows_of(lake, "enriched_click")
    run = materialize_all(page, ui.address, "clicks")
    assert ui.ended(run) == "SUCCESS"
    page.goto(f"{ui.address}/runs/{run}")
    expect(page.get_by_text("Success", exact=True).first).to_be_visible()
    picture(page, "dagster-run")
    assert rows_of(lake, "enriched_click") > before
    page.goto(f"{ui.address}/assets/clicks/enriched_click")
    expect(page.locator(f"a[href*='/runs/{run}']").first).to_be_visible()


def test_the_demos_runs_are_shown_in_the_graph_and_at_the_published_asset(page: Page, ui: Ui, lake: Lake) -> None:
    page.goto(f"{ui.address}{LOCATION}/asset-groups/clicks/lineage")
    for name in ("user_info", "click_event", "enriched_click_staged", "enriched_click"):
        expect(page.get_by_text(name, exact=True).first).to_be_visible()
    expect(page.get_by_text("Materialized", exact=True)).to_have_count(4)
    picture(page, "dagster-graph")
    page.goto(f"{ui.address}/assets/clicks/enriched_click")
    expect(page.get_by_text("Row count", exact=True)).to_be_visible()
    expect(page.get_by_text(f"{rows_of(lake, 'enriched_click'):,}", exact=True).first).to_be_visible()
    for name in ("summary", "rows published", "rows quarantined", "waiting rows", "gate passed", "details"):
        expect(page.get_by_text(name, exact=True).first).to_be_visible()
    for column in ("user_id", "item_id", "gender"):
        expect(page.get_by_text(column, exact=True).first).to_be_visible()
    picture(page, "dagster-published")
    show_drawing(page, "rows by epoch", "Rows of each epoch")
    picture(page, "dagster-epochs")


def test_the_build_side_shows_its_flip_its_chunks_and_its_lag(page: Page, ui: Ui, lake: Lake) -> None:
    page.goto(f"{ui.address}/assets/clicks/user_info")
    for text in ("summary", "rows landed", "details"):
        expect(page.get_by_text(text, exact=True).first).to_be_visible()
    expect(page.get_by_text(re.compile("^flipped; "))).to_be_visible()
    chunks = len(Splits(lake, "user_info", 1).rows())
    assert number(page, "chunks done") == chunks  # shown without a click
    assert number(page, "lag (ms)") == lake.watermarks.rows("user_info", generation=1)[-1].lag_ms
    page.get_by_role("button", name="Plots").click()
    expect(page.locator("canvas").first).to_be_visible()
    expect(page.get_by_text("lag (ms)", exact=True).first).to_be_visible()


def test_the_checks_of_a_good_epoch_have_passed(page: Page, ui: Ui) -> None:
    page.goto(f"{ui.address}/assets/clicks/enriched_click_staged?view=checks&checkDetail=proof")
    expect(page.get_by_text("proof", exact=True).first).to_be_visible()
    expect(page.get_by_text("Passed", exact=True).first).to_be_visible()
    expect(page.get_by_text("Had every build side flipped before a row was released").first).to_be_visible()


@pytest.mark.thorough
def test_a_new_snapshot_is_begun_from_the_launchpad_and_takes_nothing_from_readers(
    page: Page, ui: Ui, lake: Lake
) -> None:
    before = rows_of(lake, "enriched_click")
    config = "ops:\n  clicks__user_info:\n    config:\n      resnapshot: true\n      max_epochs: 1\n"
    open_launchpad(page, ui.address, "clicks", config).get_by_role("button", name="Materialize").click()
    assert ui.ended(opened_run(page)) == "SUCCESS"
    page.goto(f"{ui.address}/assets/clicks/user_info")
    assert number(page, "flipped") == 0
    expect(page.get_by_text(re.compile("^still loading"))).to_be_visible()
    assert pins_of(lake, "enriched_click") == {("user_info", 1)}
    assert rows_of(lake, "enriched_click") > before


@pytest.mark.thorough
def test_the_dry_run_shows_what_comes_next_and_does_none_of_it(page: Page, ui: Ui, lake: Lake) -> None:
    planned = len(lake.epochs.rows("user_info", generation=2))
    page.goto(f"{ui.address}{LOCATION}/jobs/tidegate_dry_run/playground")
    type_config(page, page, "ops:\n  plan_only:\n    config:\n      pipeline: clicks\n")
    page.get_by_role("button", name="Launch Run").click()
    run = opened_run(page)
    assert ui.ended(run) == "SUCCESS"
    page.goto(f"{ui.address}/runs/{run}")
    page.get_by_text("[Show Markdown]").first.click()
    row = page.get_by_role("dialog").locator("tr", has_text="user_info")
    expect(row.get_by_text("2/2", exact=True)).to_be_visible()
    assert len(lake.epochs.rows("user_info", generation=2)) == planned


@pytest.fixture(scope="module")
def held_run(page: Page, ui: Ui) -> str:
    """A run of `strict` that a click has started, once it is over; its id."""
    run = materialize_all(page, ui.address, "strict")
    assert ui.ended(run) == "FAILURE"
    return run


def test_a_click_publishes_what_the_gate_lets_out_and_shows_why_it_holds_the_rest(
    page: Page, ui: Ui, lake: Lake, held_run: str
) -> None:
    assert rows_of(lake, "known_click") > 2000
    assert rows_of(lake, "strict_click") == 0
    assert status(lake).held == ("strict_click",)
    page.goto(f"{ui.address}/runs/{held_run}")
    expect(page.get_by_text("Failure", exact=True).first).to_be_visible()
    page.goto(f"{ui.address}/assets/strict/strict_click_staged?view=checks&checkDetail=rows")
    expect(page.get_by_text("Failed", exact=True).first).to_be_visible()
    expect(page.get_by_text("found no match in user_info").first).to_be_visible()
    expect(page.get_by_text("strict.sql strict_click").first).to_be_visible()
    picture(page, "dagster-held")
    page.goto(f"{ui.address}/assets/strict/strict_click")
    expect(page.get_by_text("Failed in").first).to_be_visible()
    expect(page.get_by_role("link", name=held_run[:8]).first).to_be_visible()
    picture(page, "dagster-not-published")


def test_the_running_daemon_reports_a_held_gate_with_all_that_a_person_needs(
    lake: Lake, scripts: Path, channels: tuple[Webhook, MailServer], held_run: str
) -> None:
    webhook, mail = channels
    (message,) = until(lambda: webhook.alerts("gate-held"), "the alert of the held gate")
    assert (message["pipeline"], message["insert"], message["epoch"]) == ("strict", "strict_click", 1)
    assert "the gate holds epoch 1 of strict/strict_click (" in message["text"]
    assert message["next"][0] == f"tidegate release {scripts}/strict.sql strict_click --lake {lake.root}"
    assert message["reasons"]
    assert message["counts"]["key-absent@user_info"] > 0
    assert {*message["keys"][0]["key"]} == {"user_id"}
    assert message["positions"]["user_info"].startswith("pinned at epoch ")
    assert message["run"].endswith(f"/runs/{held_run}")
    text = until(lambda: mail.text("the gate holds epoch 1 of strict"), "the mail of the held gate")
    for part in ("pipeline: strict", "user_id = ", "positions:", f"/runs/{held_run}", "next: tidegate release"):
        assert part in text
    assert "the gate holds epoch 1 of strict/strict_click" in (scripts / "ui.log").read_text()


@pytest.mark.thorough
def test_a_snapshot_that_was_begun_for_one_pipeline_is_one_for_all(ui: Ui, lake: Lake) -> None:
    assert pins_of(lake, "strict_click") == {("user_info", 2)}


@pytest.mark.thorough
def test_the_check_leads_to_the_pages_of_its_suite(page: Page, ui: Ui) -> None:
    page.goto(f"{ui.address}/assets/strict/strict_click_staged?view=checks&checkDetail=expectations")
    link = page.get_by_role("link", name=re.compile("suite-index.html")).first
    with page.expect_popup() as opened:
        link.click()
    docs = opened.value
    expect(docs.get_by_text("Successful Expectations", exact=True)).to_be_visible()
    docs.close()


def bring_all_users_back(site: Site) -> None:
    """What a person does who finds that the table lacks users, on the server that `tidegate ui --demo` has started."""
    socket_path = re.findall(r"socket: '([^']+)'", (site.database / "mariadb.log").read_text())[-1]
    with closing(pymysql.connect(unix_socket=socket_path, user="root", database=DATABASE, autocommit=True)) as server:
        server.cursor().execute("INSERT IGNORE INTO user_info SELECT seq, 'x' FROM seq_1_to_3030")


@pytest.mark.thorough
def test_a_held_epoch_is_released_from_the_launchpad_once_it_is_mended_and_published(
    page: Page, ui: Ui, lake: Lake, played: tuple[Site, str, str]
) -> None:
    bring_all_users_back(played[0])
    config = "ops:\n  strict__strict_click_staged:\n    config:\n      held: release\n"
    dialog = open_launchpad(page, ui.address, "strict", config)
    picture(page, "dagster-launchpad")
    dialog.get_by_role("button", name="Materialize").click()
    assert ui.ended(opened_run(page)) == "SUCCESS"
    (strict,) = (item for item in status(lake).inserts if item.insert == "strict_click")
    assert strict.rows.balanced
    assert strict.rows.quarantined == {}
    assert rows_of(lake, "strict_click") == strict.rows.published > 0
    page.goto(f"{ui.address}/assets/strict/strict_click_staged?view=checks&checkDetail=rows")
    expect(page.get_by_text("Passed", exact=True).first).to_be_visible()
    page.goto(f"{ui.address}/assets/strict/strict_click?view=checks&checkDetail=adds_up")
    expect(page.get_by_text("rows landed", exact=True).first).to_be_visible()
    picture(page, "dagster-adds-up")


def converted(lake: Lake) -> list[tuple[int, str]]:
    """What `rates` has published."""
    rows = DeltaTable(str(lake.root / "targets" / "converted_order")).to_pyarrow_table().to_pylist()
    return sorted((row["order_id"], str(row["dollars"])) for row in rows)


@pytest.mark.thorough
def test_an_event_time_source_draws_its_splits(page: Page, ui: Ui, lake: Lake) -> None:
    assert ui.ended(materialize_all(page, ui.address, "rates")) == "SUCCESS"
    assert converted(lake) == [(1, "110.00"), (2, "120.00")]
    page.goto(f"{ui.address}/assets/rates/orders")
    dialog = show_drawing(page, "watermarks of splits", "the watermark of each split")
    picture(dialog, "dagster-splits")


LATER = {
    "rates": '{"data": {"currency": "EUR", "rate": 1.5, "valid_from": "2100-01-01 00:00:00"}, "op": "+U"}',
    "orders": '{"order_id": 6, "currency": "EUR", "amount": 1.00, "order_time": "2100-01-01 00:00:05"}',
}
"""What lets the watermark go past all partitions."""


@pytest.mark.thorough
def test_a_backfill_is_launched_from_the_ui(page: Page, ui: Ui, lake: Lake, scripts: Path) -> None:
    for table, line in LATER.items():
        later = scripts / "rates" / table / "later.json"
        later.write_text(line + "\n")
        os.utime(later, (time.time() - 60,) * 2)  # it is whole, and no writer's any more
    assert ui.ended(materialize_all(page, ui.address, "rates")) == "SUCCESS"
    before = ui.runs("__ASSET_JOB")
    page.goto(f"{ui.address}/assets/rates/converted_order_by_time")
    page.get_by_role("button", name="Materialize").first.click()
    page.get_by_text("Show all partitions").click()
    page.get_by_role("button", name="All", exact=True).click()
    picture(page, "dagster-backfill")
    page.get_by_role("button", name="Launch backfill").click()
    run = until(lambda: [run for run in ui.runs("__ASSET_JOB") if run not in before], "the run of the backfill")[0]
    assert ui.ended(run) == "SUCCESS"
    rows = [(1, "110.00"), (2, "120.00"), (4, "65.00"), (5, "12.00")]
    assert converted(lake) == rows, "released again, in the place of what was there"
    page.goto(f"{ui.address}/assets/rates/converted_order_by_time")
    again = page.get_by_text("rows released again", exact=True).first
    expect(again).to_be_visible()
    again.scroll_into_view_if_needed()
    picture(page, "dagster-released-again")


def _switched(page: Page, ui: Ui, kind: str, name: str, wanted: str) -> bool:
    """Whether `wanted` is reached; else one click on the switch, once the page shows that it is not, and the page is
    loaded anew where that has moved nothing in 20 s."""
    if ui.state_of(kind, name) == wanted:
        return True
    switch = page.locator("label:has(input[type=checkbox])")
    box = switch.locator("input")
    expect(box).to_be_checked(checked=wanted == "STOPPED")
    expect(box).to_be_enabled()
    switch.click()
    with suppress(AssertionError):
        return until(lambda: ui.state_of(kind, name) == wanted, "the click has moved it", patience=20)
    page.reload()
    return False


@pytest.mark.parametrize(
    ("place", "kind"),
    [("schedules/clicks_schedule", "schedule"), ("sensors/default_automation_condition_sensor", "sensor")],
)
def test_schedule_and_sensor_are_started_and_stopped_by_a_click(page: Page, ui: Ui, place: str, kind: str) -> None:
    name = place.rpartition("/")[2]
    page.goto(f"{ui.address}{LOCATION}/{place}")
    for wanted in ("RUNNING", "STOPPED"):
        # The page asks the server every few seconds, and an answer from before the last click may come after it: then
        # a click asks for what is there already. A person sees that nothing has moved, and clicks again.
        until(lambda s=wanted: _switched(page, ui, kind, name, s), f"{name} is {wanted}")
        if wanted == "RUNNING":
            picture(page, f"dagster-{kind}")


def test_the_schedule_is_off_and_the_alerts_are_on(page: Page, ui: Ui) -> None:
    page.goto(f"{ui.address}/automation")
    for name in ("clicks_schedule", "tidegate_alerts"):
        expect(page.get_by_text(name, exact=True).first).to_be_visible()


def holds(path: Path, secret: bytes) -> bool:
    """Whether a file has `secret` in it. The running daemon removes files of its own at any moment."""
    try:
        return secret in path.read_bytes()
    except FileNotFoundError:
        return False


def test_every_tick_was_well_one_alert_was_sent_and_no_secret_is_anywhere(
    ui: Ui, played: tuple[Site, str, str], scripts: Path, channels: tuple[Webhook, MailServer], held_run: str
) -> None:
    for sensor in ("tidegate_alerts", "tidegate_continuous"):
        ticks = ui.ticks(sensor)
        assert ticks
        assert [tick for tick in ticks if tick["error"]] == []
    webhook, mail = channels
    assert len(webhook.alerts("gate-held", state="open")) == 1
    assert webhook.alerts("run-failed", run_id=held_run) == [], "a held gate is one incident, not two"
    log = (scripts / "ui.log").read_text()
    assert "channel 2 (json) did not take the alert" in log
    for secret in ("hunter2", "T0KEN"):
        assert secret not in str(webhook.messages)
        assert secret not in "".join(sent.as_string() for sent in mail.mails)
        assert secret not in log
        for folder in (played[0].dagster, played[0].lake):
            found = [path for path in folder.rglob("*") if path.is_file()]
            assert found
            assert [path for path in found if holds(path, secret.encode())] == []
