"""Every relative link of the pages leads to a file that is there, and to a heading that it has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES += sorted((ROOT / "examples").rglob("*.md"))

FENCED = re.compile(r"^ *(```|~~~).*?^ *\1 *$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^()\s]+)\)")


def anchors(page: str) -> set[str]:
    """What GitHub makes of a page's headings."""
    found: dict[str, int] = {}
    for heading in HEADING.findall(FENCED.sub("", page)):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        found[name] = found.get(name, -1) + 1
        if found[name]:
            found[f"{name}-{found[name]}"] = 0
    return set(found)


def broken(page: Path) -> list[str]:
    """The page's relative links that lead nowhere."""
    return [link for link in LINK.findall(FENCED.sub("", page.read_text())) if not leads(page, link)]


def leads(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    if ":" in path:
        return True
    target = page.parent / path if path else page
    return target.exists() and (not anchor or anchor in anchors(target.read_text()))


def test_there_are_pages() -> None:
    assert len(PAGES) > 40


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    assert broken(page) == []


def test_a_link_that_leads_nowhere_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A `b`: c\n# Twice\n# Twice\n```\n# no heading\n[no link](gone.md)\n```\n[self](#a-b-c) [again](#twice-1)\n"
        "[gone](gone.md) [no](#no-heading) [third](page.md#twice-2) [web](https://localhost/gone#no)\n"
    )
    assert broken(page) == ["gone.md", "#no-heading", "page.md#twice-2"]
