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
from playwright.sync_api import Page, expect, sync_playwright

from tests.orchestration.services import Dagster


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


def test_the_schedule_is_off_and_the_alerts_are_on(page: Page, dagster: Dagster):
    page.goto(f"{dagster.address}/automation")
    for name in ("clicks_schedule", "tidegate_alerts"):
        expect(page.get_by_text(name, exact=True).first).to_be_visible()
    picture(page, "dagster-automation")
