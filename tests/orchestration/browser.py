"""Dagster's UI in a real browser. $TIDEGATE_SCREENSHOTS names a folder to put pictures into (docs/images)."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect, sync_playwright

PATIENCE_MS = 60_000
LOCATION = "/locations/tidegate"
STILL = "Object.assign(document.createElement('style'), {textContent: '* {animation: none !important}'})"
"""What turns in a page (spinners, above all) is drawn by the processor here, and never stops."""


def chromium() -> str:
    """Where Chromium lies. Without one, the test fails and names the command that installs it."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.fail("there is no Chromium to open pages with: apt-get install chromium")
    return found


@contextmanager
def browsing() -> Iterator[Page]:
    """A page of headless Chromium."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1720, "height": 960}, reduced_motion="reduce")
        page.add_init_script(f"addEventListener('DOMContentLoaded', () => document.head.append({STILL}))")
        page.set_default_timeout(PATIENCE_MS)
        expect.set_options(timeout=PATIENCE_MS)
        # The newcomers' dialog comes when it likes, and only once.
        page.add_locator_handler(page.get_by_role("button", name="Skip", exact=True), lambda skip: skip.click())
        yield page
        browser.close()


def picture(shown: Page | Locator, name: str) -> None:
    """A screenshot of a page, or of a part of one, when somebody asks for it."""
    if folder := os.environ.get("TIDEGATE_SCREENSHOTS"):
        page = shown if isinstance(shown, Page) else shown.page
        page.wait_for_timeout(2000)  # let charts and graphs settle; nothing is asserted by it
        if (skip := page.get_by_role("button", name="Skip", exact=True)).is_visible():
            skip.click()
        shown.screenshot(path=Path(folder) / f"{name}.png")


def materialize_all(page: Page, address: str, job: str) -> str:
    """Click on *Materialize all* of a job and open its run; the run's id."""
    page.goto(f"{address}{LOCATION}/jobs/{job}")
    page.get_by_role("button", name="Materialize all").click()
    page.get_by_role("link", name="View", exact=True).click()
    return opened_run(page)


def open_launchpad(page: Page, address: str, job: str, config: str) -> Locator:
    """Type `config` (YAML) into the launchpad of a job of assets; the dialog, which finds no error in it."""
    page.goto(f"{address}{LOCATION}/jobs/{job}")
    page.get_by_role("button", name="Materialize all").locator("xpath=following::button[1]").click()
    page.get_by_text("Open launchpad").click()
    dialog = page.get_by_role("dialog")
    type_config(page, dialog, config)
    return dialog


def type_config(page: Page, launchpad: Page | Locator, config: str) -> None:
    """Replace what the launchpad's editor holds; it must find no error."""
    editor = launchpad.locator(".CodeMirror").filter(has_text="ops")
    editor.click()
    page.keyboard.press("Control+A")
    page.keyboard.insert_text(config)
    expect(launchpad.get_by_text("No errors", exact=True)).to_be_visible()


def opened_run(page: Page) -> str:
    """The id of the run whose page is about to open. It is left at once: drawing a run that goes on is half the work
    of the run itself."""
    page.wait_for_url(re.compile("/runs/"))
    run = page.url.rpartition("/")[2].partition("?")[0]
    page.goto("about:blank")
    return run


def show_drawing(page: Page, row: str, drawn: str) -> Locator:
    """Open the picture in the metadata row called `row`; the dialog that shows it, once the browser has drawn it."""
    page.locator("tr", has_text=row).get_by_text("[Show Markdown]").first.click()
    image = page.get_by_role("img", name=drawn)
    expect(image).to_be_visible()
    assert image.evaluate("image => image.naturalWidth") == 820, "the browser has drawn it"
    return page.get_by_role("dialog").filter(has=image).last


def number(page: Page, name: str) -> int:
    """The value of an asset's metadata called `name`."""
    row = page.locator("tr", has=page.get_by_text(name, exact=True)).first
    expect(row).to_be_visible()
    return int(row.locator("td").last.inner_text().split()[0].replace(",", ""))
