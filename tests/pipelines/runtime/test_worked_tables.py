"""docs/joins.md says by tables what a row finds and when it leaves: the tables are played as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

from tests.pipelines.runtime.plays import Play

PAGE = Path(__file__).parents[3] / "docs" / "joins.md"
CLOCK = re.compile(r"\b(\d\d):(\d\d)\b")


def table(heading: str) -> list[list[str]]:
    """The cells of the rows below the table's `heading`, which is one of its lines."""
    lines = PAGE.read_text().splitlines()
    start = lines.index(heading) + 2
    end = next(number for number in range(start, len(lines)) if not lines[number].startswith("|"))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[start:end]]


def times(text: str) -> list[int]:
    """The times of day that a cell names, in ms after midnight."""
    return [(int(hours) * 60 + int(minutes)) * 60_000 for hours, minutes in CLOCK.findall(text)]


def test_what_a_row_finds(play: Play) -> None:
    rows = table("| rates, in the order they came | | orders | finds |")
    found: dict[int, int] = {}
    missed: dict[int, str] = {}
    for number, (version, _, order, finds) in enumerate(rows):
        if version:
            currency, value = CLOCK.sub("", version).split()[:2]
            deleted = value == "deleted"
            rate = None if deleted else round(float(value) * 100)
            play.rate(currency, rate, times(version)[0], "-D" if deleted else "+I")
        at = times(order)
        currency = order.split()[-1] if at else "EUR"
        play.order(number, None if currency == "NULL" else currency, at[0] if at else None)
        if finds[0].isdigit():
            found[number] = round(float(finds.split(":")[0].split()[0]) * 100)
        else:
            missed[number] = finds.split("`")[1]
    assert (len(found), len(missed)) == (4, 5)
    end = times("11:00")[0]
    assert dict(play.upto(rates=end, orders=end)) == found
    assert {number: why.removeprefix("unmatched:").removesuffix("@r") for number, why in play.quarantined.items()} == (
        missed
    )


def test_when_a_row_leaves(play: Play) -> None:
    play.rate("EUR", 100, 0)
    rows = table("| | landed | rates' watermark | orders' watermark | W | leaves |")
    assert len(rows) == 3
    for _, landed, rates, orders, combined, leaves in rows:
        for at in times(landed):
            play.order(at, "EUR", at)
        gone = play.upto(rates=times(rates)[0] if rates else None, orders=times(orders)[0])
        assert [at for at, _ in gone] == times(leaves)
        assert play.plan.watermark % 86_400_000 == times(combined)[0]
