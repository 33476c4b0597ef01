"""Results of the suite, stored under the lake: JSON for every epoch, and Data Docs to look at.

<lake>/_quality/<insert>/g1-e12.json      what the suite said of epoch 12 (the newest KEEP, and every failed one)
<lake>/_quality/<insert>/index.html       Data Docs of the newest epoch, at most PAGE_EVERY_S old while epochs come
<lake>/_quality/<insert>/g1-e12.html      Data Docs of an epoch that failed
<lake>/_quality/<insert>/suite-…          the same of the suite that the target names ('quality.suite')
"""

from __future__ import annotations

import json
import re
import time
from html import escape
from typing import TYPE_CHECKING, Any

from tidegate.pipelines.location import Location
from tidegate.pipelines.runtime.gate import StagedEpoch

if TYPE_CHECKING:
    from great_expectations.core import ExpectationSuiteValidationResult

QUALITY = "_quality"
"""The folder of results and pages in a lake."""
KEEP = 1000
PAGE_EVERY_S = 60.0
"""A page takes longer to render than a small epoch's checks, so not every epoch gets a fresh one."""

_NAME = r"g(\d+)-e(\d+)\.json"


def folder(staged: StagedEpoch) -> Location:
    """Where the results of one INSERT lie."""
    return staged.lake.root / QUALITY / staged.insert.id


def keep(
    staged: StagedEpoch, result: ExpectationSuiteValidationResult, of: str = "", held: bool | None = None
) -> tuple[str, str]:
    """Store a result, and its page if one is wanted. Returns the paths of the JSON and of the page. Repeating it
    replaces the same files. `of` is put in front of the names: "suite-" for the script's own suite. `held`: whether it
    holds the epoch, which then keeps its page; by the result's success when None. A warning does not hold."""
    held = not result.success if held is None else held
    home = folder(staged)
    home.make()
    plan = staged.plan
    stem = f"{of}g{plan.generation}-e{plan.epoch}"
    path = home / f"{stem}.json"
    content = {
        "insert": plan.insert,
        "generation": plan.generation,
        "epoch": plan.epoch,
        "plan": plan.digest,
        "result": result.to_json_dict(),
    }
    _write(path, json.dumps(content, indent=1))
    page = home / f"{of}index.html"
    if held:
        html = render(result)
        _write(home / f"{stem}.html", html)
        _write(page, html)
    elif not page.is_there() or page.written_before(time.time() - PAGE_EVERY_S):
        _write(page, render(result))
    if not held:
        _forget(home, of)
        return str(path), str(page)
    return str(path), str(home / f"{stem}.html")


POLICY = (
    "default-src 'none'; style-src 'unsafe-inline' https:; font-src https:; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)
"""The content security policy of a page: its styles come from where Great Expectations has them; no script runs,
neither its own, which come from elsewhere and would see the rows, nor one that is part of a value."""

_MARKUP = {"<": "\ue000", ">": "\ue001", "&": "\ue002", '"': "\ue003", "'": "\ue004"}
"""Replacements for HTML's special characters while a page is made, so that neither markup nor double escaping
results."""
_STOOD_IN = str.maketrans(_MARKUP)
_ESCAPED = str.maketrans({stand_in: escape(character) for character, stand_in in _MARKUP.items()})


def render(result: ExpectationSuiteValidationResult) -> str:
    """The Data Docs page of one result: one file that needs no other of ours.

    Great Expectations escapes some of the values in it, and inserts others as they are. So what is rendered holds no
    special character of HTML; these are inserted, escaped, once the page is made.
    """
    from great_expectations.core.expectation_validation_result import expectationSuiteValidationResultSchema
    from great_expectations.render.renderer.page_renderer import ValidationResultsPageRenderer
    from great_expectations.render.view.view import DefaultJinjaPageView

    plain: Any = expectationSuiteValidationResultSchema.load(_without_markup(result.to_json_dict()))
    page = DefaultJinjaPageView().render(ValidationResultsPageRenderer().render(plain)).translate(_ESCAPED)
    # What a script would unfold is shown from the start.
    unfolded = "<style>.collapse { display: block !important }</style>"
    head = f'<head><meta http-equiv="Content-Security-Policy" content="{POLICY}">{unfolded}'
    return page.replace("<head>", head, 1)


def _without_markup(value: Any) -> Any:
    """A JSON value with stand-ins for the characters of HTML."""
    match value:
        case str():
            return value.translate(_STOOD_IN)
        case dict():
            return {_without_markup(key): _without_markup(item) for key, item in value.items()}
        case list():
            return [_without_markup(item) for item in value]
    return value


def _forget(home: Location, of: str) -> None:
    """Remove the oldest results that passed; results of failed epochs, which have a page, stay."""
    names = {entry.name for entries in home.listed() for entry in entries}
    results = re.compile(re.escape(of) + _NAME)
    found = [(match, name) for name in names if (match := results.fullmatch(name))]
    if len(found) <= KEEP:
        return
    oldest_first = sorted(found, key=lambda item: (int(item[0][1]), int(item[0][2])))
    for _, name in oldest_first[:-KEEP]:
        if name.replace(".json", ".html") not in names:
            (home / name).delete()


def _write(path: Location, text: str) -> None:
    path.put(text.encode())
