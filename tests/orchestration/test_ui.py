"""Dagster's UI in a real browser, on a real lake: what a person sees, and what a click does.

$TIDEGATE_SCREENSHOTS names a folder to put pictures into (docs/images).
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from playwright.sync_api import Page, expect, sync_playwright

from tests.orchestration.services import Dagster, until


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.fail("there is no Chromium to test the UI with: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1720, "height": 960})
        page.set_default_timeout(60_000)
        expect.set_options(timeout=60_000)
        # The newcomers' dialog comes when it likes, and only once.
        page.add_locator_handler(page.get_by_role("button", name="Skip", exact=True), lambda skip: skip.click())
        yield page
        browser.close()


def picture(page: Page, name: str) -> None:
    """A screenshot, when somebody asks for it."""
    if folder := os.environ.get("TIDEGATE_SCREENSHOTS"):
        page.wait_for_timeout(2000)  # let charts and graphs settle; nothing is asserted by it
        if (skip := page.get_by_role("button", name="Skip", exact=True)).is_visible():
            skip.click()
        page.screenshot(path=Path(folder) / f"{name}.png")


def test_a_click_on_materialize_all_publishes_rows(page: Page, dagster: Dagster):
    assert dagster.clicks.published() == []
    page.goto(f"{dagster.address}/locations/tidegate/asset-groups/clicks/lineage")
    for name in ("user_info", "click_event", "enriched_click_staged", "enriched_click"):
        expect(page.get_by_text(name, exact=True).first).to_be_visible()
    page.goto(f"{dagster.address}/locations/tidegate/jobs/clicks")
    page.get_by_role("button", name="Materialize all").click()
    page.get_by_role("link", name="View", exact=True).click()
    page.wait_for_url(re.compile("/runs/"))
    run_id = page.url.rpartition("/")[2].partition("?")[0]
    assert dagster.ended(run_id) == "SUCCESS"
    expect(page.get_by_text("Success", exact=True).first).to_be_visible()
    picture(page, "dagster-run")
    assert dagster.clicks.published() == [
        {"user_id": 1, "item_id": 10, "gender": "F"},
        {"user_id": 2, "item_id": 20, "gender": "F"},
    ]
    page.goto(f"{dagster.address}/locations/tidegate/asset-groups/clicks/lineage")
    expect(page.get_by_text("Materialized", exact=True)).to_have_count(4)
    picture(page, "dagster-graph")


def test_the_published_asset_shows_its_numbers(page: Page, dagster: Dagster):
    page.goto(f"{dagster.address}/assets/clicks/enriched_click")
    expect(page.get_by_text("Row count", exact=True)).to_be_visible()
    for name in ("rows published", "quarantine rows", "waiting rows", "matched rows", "verdict"):
        expect(page.get_by_text(name, exact=True).first).to_be_visible()
    for column in ("user_id", "item_id", "gender"):
        expect(page.get_by_text(column, exact=True).first).to_be_visible()
    picture(page, "dagster-published")


def test_the_published_asset_draws_its_epochs(page: Page, dagster: Dagster):
    page.goto(f"{dagster.address}/assets/clicks/enriched_click")
    page.locator("tr", has_text="rows by epoch").get_by_text("[Show Markdown]").first.click()
    drawn = page.get_by_role("img", name="rows by epoch, and those that wait")
    expect(drawn).to_be_visible()
    assert drawn.evaluate("image => image.naturalWidth") == 820, "the browser has drawn it"
    picture(page, "dagster-epochs")


def test_the_build_side_shows_its_flip(page: Page, dagster: Dagster):
    page.goto(f"{dagster.address}/assets/clicks/user_info")
    for text in ("flip epoch", "watermark", "(MIN, true)", "rows landed", "position"):
        expect(page.get_by_text(text, exact=True).first).to_be_visible()
    picture(page, "dagster-build")


def test_the_checks_of_a_good_epoch_have_passed(page: Page, dagster: Dagster):
    page.goto(f"{dagster.address}/assets/clicks/enriched_click_staged?view=checks&checkDetail=gate")
    for name in ("gate", "released_after_flip", "matches_in_pin", "one_place"):
        expect(page.get_by_text(name, exact=True).first).to_be_visible()
    expect(page.get_by_text("Passed", exact=True).first).to_be_visible()


def test_a_held_gate_says_why_and_what_to_do(page: Page, dagster: Dagster, held_run: str):
    page.goto(f"{dagster.address}/assets/strict/s_enriched_click_staged?view=checks&checkDetail=gate")
    expect(page.get_by_text("Failed", exact=True).first).to_be_visible()
    expect(page.get_by_text("found no match in s_user_info").first).to_be_visible()
    expect(page.get_by_text(f"tidegate release {dagster.folder}/strict.sql s_enriched_click").first).to_be_visible()
    picture(page, "dagster-held")
    page.goto(f"{dagster.address}/assets/strict/s_enriched_click")
    expect(page.get_by_text("Failed in").first).to_be_visible()
    expect(page.get_by_role("link", name=held_run[:8]).first).to_be_visible()
    assert dagster.strict.published() == []


def test_the_check_leads_to_the_pages_of_its_suite(page: Page, dagster: Dagster, held_run: str):
    page.goto(f"{dagster.address}/assets/strict/s_enriched_click_staged?view=checks&checkDetail=gate")
    link = page.get_by_role("link", name=re.compile("suite-index.html")).first
    with page.expect_popup() as opened:
        link.click()
    docs = opened.value
    expect(docs.get_by_text("Successful Expectations", exact=True)).to_be_visible()
    docs.close()


def test_a_held_epoch_is_released_from_the_launchpad_and_published(page: Page, dagster: Dagster, held_run: str):
    dagster.strict.users(9)  # what was missing
    page.goto(f"{dagster.address}/locations/tidegate/jobs/strict")
    page.get_by_role("button", name="Materialize all").locator("xpath=following::button[1]").click()
    page.get_by_text("Open launchpad").click()
    editor = page.locator(".CodeMirror").filter(has_text="on_unmatched")
    editor.click()
    page.keyboard.press("Control+A")
    page.keyboard.insert_text("ops:\n  strict__s_enriched_click_staged:\n    config:\n      held: release\n")
    expect(page.get_by_text("No errors", exact=True)).to_be_visible()
    picture(page, "dagster-launchpad")
    page.get_by_role("dialog").get_by_role("button", name="Materialize").click()
    page.wait_for_url(re.compile("/runs/"))
    assert dagster.ended(page.url.rpartition("/")[2].partition("?")[0]) == "SUCCESS"
    assert [row["user_id"] for row in dagster.strict.published()] == [1, 2, 9]
    page.goto(f"{dagster.address}/assets/strict/s_enriched_click_staged?view=checks&checkDetail=gate")
    expect(page.get_by_text("Passed", exact=True).first).to_be_visible()
    page.goto(f"{dagster.address}/assets/strict/s_enriched_click?view=checks&checkDetail=adds_up")
    expect(page.get_by_text("rows landed", exact=True).first).to_be_visible()
    picture(page, "dagster-adds-up")


def test_flip_and_verdict_are_plotted(page: Page, dagster: Dagster, held_run: str):
    for asset, number in (("strict/s_user_info", "flipped"), ("strict/s_enriched_click", "gate passed")):
        page.goto(f"{dagster.address}/assets/{asset}")
        page.get_by_role("button", name="Plots").click()
        expect(page.get_by_text(number, exact=True).first).to_be_visible()
        expect(page.locator("canvas").first).to_be_visible()
    picture(page, "dagster-plots")


def test_two_runs_started_together_fail_clearly_or_wait_and_publish_each_row_once(dagster: Dagster):
    runs = [dagster.launch("spans") for _ in range(2)]
    ended = {run: dagster.ended(run) for run in runs}
    failed = [run for run, status in ended.items() if status == "FAILURE"]
    errors = {error for run in failed for error in dagster.typed_errors(run)}
    assert errors <= {"LeaseHeld", "ConcurrentRun"}, "another runner is at work, and it is said who"
    assert len(errors) > 0 or not failed
    if len(failed) == 2:  # each found the other at some table
        assert dagster.ended(dagster.launch("spans")) == "SUCCESS"
    assert converted(dagster) == [1, 2, 3]


def converted(dagster: Dagster) -> list[int]:
    """The ids that `spans` has published."""
    path = dagster.folder / "lake" / "targets" / "converted"
    return sorted(DeltaTable(str(path)).to_pyarrow_table(columns=["id"]).column("id").to_pylist())


def test_a_backfill_is_launched_from_the_ui(page: Page, dagster: Dagster):
    page.goto(f"{dagster.address}/locations/tidegate/jobs/spans_backfill")
    page.get_by_role("button", name="Materialize").first.click()
    page.get_by_text("Show all partitions").click()
    page.get_by_role("button", name="All", exact=True).click()
    picture(page, "dagster-backfill")
    page.get_by_role("button", name="Launch backfill").click()
    run = until(lambda: dagster.runs("spans_backfill"), "the run of the backfill")[0]
    assert dagster.ended(run) == "SUCCESS"
    assert converted(dagster) == [1, 2, 3], "released again, in the place of what was there"
    page.goto(f"{dagster.address}/assets/spans/converted_by_time")
    expect(page.get_by_text("rows released again", exact=True).first).to_be_visible()


@pytest.mark.parametrize(
    ("place", "kind"),
    [("schedules/clicks_schedule", "schedule"), ("sensors/default_automation_condition_sensor", "sensor")],
)
def test_schedule_and_sensor_are_started_and_stopped_by_a_click(page: Page, dagster: Dagster, place: str, kind: str):
    name = place.rpartition("/")[2]
    page.goto(f"{dagster.address}/locations/tidegate/{place}")
    switch = page.locator("label:has(input[type=checkbox])")
    for status in ("RUNNING", "STOPPED"):
        switch.click()
        until(lambda s=status: dagster.standing(kind, name) == s, f"{name} is {status}")
        if status == "RUNNING":
            picture(page, f"dagster-{kind}")


def test_the_schedule_is_off_and_the_alerts_are_on(page: Page, dagster: Dagster):
    page.goto(f"{dagster.address}/automation")
    for name in ("clicks_schedule", "tidegate_alerts"):
        expect(page.get_by_text(name, exact=True).first).to_be_visible()
    picture(page, "dagster-automation")
