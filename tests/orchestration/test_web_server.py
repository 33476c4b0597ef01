"""The server of Data Docs: the pages of one folder, on this machine alone."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.orchestration.browser import browsing
from tests.orchestration.services import free_port
from tidegate.orchestration.commands import ui
from tidegate.orchestration.web_server import serving
from tidegate.pipelines.errors import TidegateError
from tidegate.quality_checks.docs import render
from tidegate.quality_checks.suite import name_main_module

ATTACK = "<script>document.title = 'owned'</script><img src=x onerror=\"document.title = 'owned'\">&amp; $value"


def got(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""


def test_pages_are_served_as_they_come_and_nothing_else(tmp_path: Path) -> None:
    pages, secret = tmp_path / "lake" / "_quality", tmp_path / "lake" / "secret"
    with serving(pages, 0) as address:
        assert address.startswith("http://127.0.0.1:")
        assert got(f"{address}/e/suite-index.html") == (404, "")
        (pages / "e").mkdir(parents=True)
        (pages / "e" / "suite-index.html").write_text("all is well")
        secret.write_text("no page")
        assert got(f"{address}/e/suite-index.html") == (200, "all is well")
        for other in ("/", "/e/", "/../secret", "/%2e%2e/secret", "/e/../../secret"):
            assert got(address + other) == (404, ""), other
    with pytest.raises(urllib.error.URLError):
        got(f"{address}/e/suite-index.html")


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    port = free_port()
    said = f"port {port} cannot be used for Data Docs"
    with serving(tmp_path, port), pytest.raises(TidegateError, match=said), serving(tmp_path, port):
        pass


@pytest.mark.parametrize(
    ("given", "link"),
    [
        ("", "http://127.0.0.1:3007"),
        ("http://127.0.0.1:3000", "http://127.0.0.1:3007"),
        ("http://localhost:3000", "http://127.0.0.1:3007"),
        ("https://dagster.example.com", "https://dagster.example.com"),
    ],
)
def test_links_go_to_the_port_that_is_served(given: str, link: str) -> None:
    assert ui.linked(given, ui.address_of("0.0.0.0", 3007)) == link


@pytest.mark.parametrize(
    ("host", "opens"),
    [("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("fe80::7", "[fe80::7]"), ("lake.example", "lake.example")],
)
def test_the_address_that_is_printed_opens(host: str, opens: str) -> None:
    assert ui.address_of(host, 3007) == f"http://{opens}:3007"


def test_what_is_opened_is_the_graph_of_the_pipeline() -> None:
    page = ui.graph("http://127.0.0.1:3007", "my clicks")
    assert page == "http://127.0.0.1:3007/locations/tidegate/asset-groups/my_clicks/lineage"


def page_of(value: str) -> str:
    """A page of Data Docs on a column that has this value."""
    name_main_module()  # a worker of tests has none
    from great_expectations.core import ExpectationSuiteValidationResult, ExpectationValidationResult
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    wrong = ExpectationValidationResult(
        success=False,
        expectation_config=ExpectationConfiguration(
            type="expect_column_values_to_match_regex", kwargs={"column": "name", "regex": value}
        ),
        result={
            "element_count": 1,
            "missing_count": 0,
            "missing_percent": 0.0,
            "unexpected_count": 1,
            "unexpected_percent": 100.0,
            "partial_unexpected_list": [value],
            "partial_unexpected_counts": [{"value": value, "count": 1}],
        },
    )
    counts = {"evaluated_expectations": 1, "successful_expectations": 0, "unsuccessful_expectations": 1}
    return render(
        ExpectationSuiteValidationResult(
            success=False, results=[wrong], suite_name=value, statistics={**counts, "success_percent": 0.0}, meta={}
        )
    )


def test_a_value_of_a_row_is_shown_as_it_is_and_never_run(tmp_path: Path) -> None:
    """By what the page holds, and by its policy; a page of before, which escaped nothing, by the server's policy."""
    (tmp_path / "new.html").write_text(page_of(ATTACK))
    (tmp_path / "old.html").write_text(f"<html><head><title>old</title></head><body><p>{ATTACK}</p></body></html>")
    with serving(tmp_path, 0) as address, browsing() as page:
        # No network: styles come from elsewhere.
        page.route(
            "**/*",
            lambda route: route.continue_() if route.request.url.startswith(("file:", address)) else route.abort(),
        )
        page.goto(f"{address}/new.html", wait_until="domcontentloaded")
        expect(page.get_by_text(ATTACK).nth(2)).to_be_attached()  # in the suite's name, in the rule, among the values
        page.wait_for_load_state()
        assert page.title() != "owned"
        page.goto(f"file://{tmp_path}/new.html")
        assert page.title() != "owned"
        page.goto(f"{address}/old.html")
        expect(page).to_have_title("old")
        page.goto(f"file://{tmp_path}/old.html")
        expect(page).to_have_title("owned")  # which is what the server keeps it from
