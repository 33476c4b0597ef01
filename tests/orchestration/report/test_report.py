"""The report: what it says of a lake, that it holds all of itself, and that it needs no Spark."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright
from typer.testing import CliRunner

from tests.assets.clicks import REASON, handmade, pipeline, script
from tests.orchestration.browser import chromium
from tests.orchestration.services import ROOT
from tests.pipelines.runtime.handmade import HandmadeLake, no_spark
from tidegate.orchestration.commands.app import app
from tidegate.orchestration.report import render
from tidegate.pipelines.commands import Commands
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.facts.report import gather
from tidegate.pipelines.lake import Lake, SplitRow
from tidegate.pipelines.runtime.runner import Runner

VOID = {"meta", "br"}
SECOND = 1_000


class Whole(HTMLParser):
    """Every element is closed, and none names anything outside of the page."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.said: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "link", "img", "iframe", "object"), tag
        for name, value in attrs:
            assert name not in ("src", "href"), (tag, value)
            assert not name.startswith("on"), (tag, name)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None: ...

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.said.append(data)


def text_of(page: str) -> str:
    whole = Whole()
    whole.feed(page)
    assert whole.open == []
    return " ".join(" ".join(whole.said).split())


@pytest.fixture
def rows(tmp_path: Path) -> HandmadeLake:
    """A build of two chunks that has flipped, five hundred clicks, an epoch with a quarantine and one that is held."""
    found = handmade(tmp_path / "lake")
    found.begun(found.build, 1, 10 * SECOND)
    splits = [("chunk-0", 0, None), ("chunk-1", 1, ["5"])]
    found.lake.splits.append(
        [SplitRow(found.build, 1, 0, name, number, {"lower": lower}) for name, number, lower in splits],
        application="splits",
        version=1,
    )
    found.lake.splits.append(
        [SplitRow(found.build, 1, 1, name, n, None, {"file": "b.000007", "position": 40 + n}) for name, n, _ in splits],
        application="splits",
        version=2,
    )
    found.landed(found.build, 1, 40, at=20 * SECOND, lag_ms=700, flip=1)
    for epoch in (1, 2):
        found.begun(found.probe, epoch, (20 + epoch) * SECOND)
        found.landed(found.probe, epoch, 250, at=(21 + epoch) * SECOND, lag_ms=epoch * 100)
    counts = {"rows": 250, "matched": 247, "to:publish": 247, "to:quarantine": 3, "unmatched:deleted@user_info": 3}
    found.epoch(1, counts, at=30 * SECOND, publish=True)
    found.epoch(2, {"rows": 250, "matched": 1, "to:publish": 1, "to:quarantine": 249}, REASON, at=40 * SECOND)
    return found


@pytest.fixture
def page(rows: HandmadeLake) -> str:
    return render(gather(rows.lake, pipeline("block"), clock=lambda: 60 * SECOND))


def test_the_page_says_all_of_it(page: str):
    said = text_of(page)
    for part in (
        "The gate holds epoch 2 of enriched_click (250 rows). 2 rows have no match.",
        "Flow",
        "build, complete",
        "LEFT join by processing time",
        "Gate: held",
        "Phases",
        "Watermarks",
        "(MIN, true)",
        "Cuts",
        "user_info: 2 of 2 chunks read",
        "b.000007:41",
        "Verdicts",
        "2 rows have no match.",
        "Quarantine by reason",
        "the key was deleted (user_info)",
        "Problems",
        "tidegate release",
        "enriched_click: 2 epochs",
    ):
        assert part in said, part
    look = "<code>tidegate quarantine show SCRIPT enriched_click</code> (the rows, and the nearest versions)"
    assert look in page, "what is copied can be typed"


def test_it_holds_all_that_it_shows(page: str):
    text_of(page)
    assert "url(" not in page.replace("url(#tip)", "")
    assert "@import" not in page
    assert re.findall(r"https?://", page) == []


def test_who_reads_no_further_than_the_head_knows_why_and_what_to_do(rows: HandmadeLake):
    commands = Commands(Path("/srv/clicks.sql"), Path("/data/lake"))
    said = text_of(render(gather(rows.lake, pipeline("block"), clock=lambda: 60 * SECOND), commands))
    head = said.partition("landed, all sources")[0]
    assert "The gate holds epoch 2 of enriched_click (250 rows). 2 rows have no match." in head
    assert "tidegate release /srv/clicks.sql enriched_click --lake /data/lake" in head
    assert "tidegate discard /srv/clicks.sql enriched_click --lake /data/lake" in head
    quarantine = said.partition("Quarantine by reason")[2]
    assert "tidegate quarantine show /srv/clicks.sql enriched_click --lake /data/lake" in quarantine


def test_the_page_is_red_while_a_source_has_failed(tmp_path: Path):
    rows = handmade(tmp_path / "lake")
    rows.landed(rows.build, 1, at=20 * SECOND, lag_ms=0, flip=1)
    rows.landed(rows.probe, 1, 5, at=20 * SECOND, lag_ms=0)
    rows.epoch(1, {"rows": 5, "matched": 5, "to:publish": 5}, at=30 * SECOND, publish=True)
    with Runner(rows.pipeline, rows.lake, spark=no_spark, clock=lambda: 40 * SECOND) as runner:
        green = render(gather(rows.lake, pipeline("block"), clock=lambda: 60 * SECOND))
        runner.stuck(rows.probe, SourceError("the <b>topic</b> is gone"))
        red = render(gather(rows.lake, pipeline("block"), clock=lambda: 60 * SECOND))
    assert '<p class="verdict good">Everything that may be released is published.' in green
    assert '<p class="verdict bad">click_event is stuck since 1970-01-01 00:00:40 UTC: the &lt;b&gt;topic' in red
    assert "<b>topic" not in red


def test_a_build_that_nobody_loads_and_one_that_somebody_loads(tmp_path: Path):
    rows = handmade(tmp_path / "lake")
    rows.begun(rows.build, 1, 10 * SECOND)
    rows.landed(rows.probe, 1, 5, at=20 * SECOND)
    said = text_of(render(gather(rows.lake, pipeline("block"))))
    assert "Nobody works on user_info. tidegate run SCRIPT (goes on where it stopped)" in said
    with closing(rows.lake.leases("tidegate run of somebody")) as leases:
        leases.acquire(rows.build)
        said = text_of(render(gather(rows.lake, pipeline("block"))))
    assert "enriched_click waits until user_info is complete." in said
    assert "Nobody works" not in said


def test_a_lake_where_nothing_has_run_has_a_page(tmp_path: Path):
    found = render(gather(Lake(tmp_path / "lake"), pipeline()))
    said = text_of(found)
    assert "Waiting for user_info: no row is released before its flip." in said
    assert "There is none." in said


def test_the_command_writes_it_without_spark(rows: HandmadeLake, tmp_path: Path):
    path = ROOT / "examples" / "clicks" / "pipeline.sql"
    code = (
        "import sys; from tidegate.orchestration.commands.app import app\n"
        "try: app(sys.argv[1:])\n"
        "except SystemExit as ended: status = ended.code\n"
        "assert 'pyspark' not in sys.modules and 'dagster' not in sys.modules; sys.exit(status)"
    )
    out = tmp_path / "page.html"
    asked = ["report", str(path), "--lake", str(rows.lake.root), "--out", str(out), "--json"]
    done = subprocess.run([sys.executable, "-c", code, *asked], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["page"] == str(out)
    assert out.read_text().startswith("<!doctype html>")


def test_watermarks_that_have_a_time_are_drawn(tmp_path: Path):
    rows = handmade(tmp_path / "lake")
    rows.landed(rows.build, 1, at=20 * SECOND, flip=1)
    for epoch, timestamp in ((1, 5 * SECOND), (2, 15 * SECOND)):
        rows.landed(rows.probe, epoch, 5, at=(20 + epoch) * SECOND, timestamp=timestamp, use_processing_time=False)
    page = render(gather(rows.lake, pipeline("block"), clock=lambda: 60 * SECOND))
    label = 'aria-label="The watermark of each source, by when it was emitted"'
    drawn = page.partition(label)[2].partition("</svg>")[0]
    step = r'<path d="M[\d.]+ [\d.]+H[\d.]+V[\d.]+H[\d.]+" class="line c\d"/>'
    assert len(re.findall("<path", drawn)) == len(re.findall(step, drawn)) == 1, "(MIN, true) is no time"
    assert drawn.count("<circle") == 2


def test_a_file_that_cannot_be_written_is_an_error_with_a_next_command(rows: HandmadeLake, tmp_path: Path):
    path = tmp_path / "clicks.sql"
    path.write_text(script("block"))
    done = CliRunner().invoke(
        app, ["report", str(path), "--lake", str(rows.lake.root), "--out", str(tmp_path / "no" / "page.html")]
    )
    assert done.exit_code == 1
    assert "--out FILE" in done.output


def test_a_browser_shows_it_without_a_word_of_complaint(page: str, tmp_path: Path):
    path = tmp_path / "page.html"
    path.write_text(page)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        shown, complaints, asked = browser.new_page(viewport={"width": 1200, "height": 900}), [], []
        shown.on("console", lambda message: complaints.append(message.text))
        shown.on("request", lambda request: asked.append(request.url))
        shown.goto(path.as_uri())
        assert shown.locator("section").count() == 10
        assert shown.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        boxes = [picture.bounding_box() for picture in shown.locator("svg").all()]
        browser.close()
    assert boxes
    assert all(box is not None and box["height"] > 30 for box in boxes)
    assert complaints == []
    assert asked == [path.as_uri()]


def test_generations_stand_one_after_another(rows: HandmadeLake):
    facts = gather(rows.lake, pipeline("block"), clock=lambda: 60 * SECOND)
    (build,) = [source for source in facts.sources if source.table.name == "user_info"]
    (phase,) = build.phases
    assert (phase.began, phase.flipped) == (10 * SECOND, 20 * SECOND)
    again = replace(build, phases=(phase, replace(phase, generation=2, began=30 * SECOND, flipped=None)))
    said = text_of(render(replace(facts, sources=(again, *facts.sources[1:]))))
    assert "generation 2" in said
