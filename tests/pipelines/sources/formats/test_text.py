"""Random texts as values, against plain Python: the very value where it fits, and nothing where it does not."""

from __future__ import annotations

import datetime
import random
import re
from decimal import Decimal

import pytest

from tidegate.pipelines.sources.formats import text
from tidegate.pipelines.syntax.dialect import parse_type
from tidegate.pipelines.syntax.types import FlinkType, Kind, decimal

SEED = random.SystemRandom().randrange(10**9)
COUNT = 400
EPOCH = datetime.datetime(1970, 1, 1)


@pytest.fixture(scope="module")
def chance() -> random.Random:
    print(f"seed {SEED}")
    return random.Random(SEED)


def evaluated(spark, sql: str, texts: list[str]) -> list:
    rows = spark.createDataFrame(list(enumerate(texts)), "n INT, t STRING").coalesce(1)
    return [row["v"] for row in sorted(rows.selectExpr("n", f"{sql} AS v").collect(), key=lambda row: row["n"])]


def digits(chance: random.Random, most: int) -> str:
    return "".join(chance.choice("0000123456789") for _ in range(chance.randint(0, most)))


def decimals(chance: random.Random) -> list[str]:
    found = []
    for _ in range(COUNT):
        number = f"{chance.choice(['', '-', '+'])}{digits(chance, 38)}"
        number += f".{digits(chance, 38)}" if chance.random() < 0.6 else ""
        number += f"{chance.choice('eE')}{chance.randint(-40, 40)}" if chance.random() < 0.4 else ""
        found.append(number)
    return [*found, "", ".", "-", "e5", "1e", "1.5.2", "0x1", "1 2", " 1.5 ", "NaN", "1e999999999", "0e99999", "1_0"]


def fitting(number: str, of: FlinkType) -> Decimal | None:
    """The oracle: the value if it has not too many digits on either side of the point."""
    if not re.fullmatch(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", number):
        return None
    sign, figures, exponent = Decimal(number.strip()).as_tuple()
    assert isinstance(exponent, int)
    figures = tuple(figures)
    while figures and figures[-1] == 0:
        figures, exponent = figures[:-1], exponent + 1
    while figures and figures[0] == 0:
        figures = figures[1:]
    if not figures:
        return Decimal(0)
    scale, precision = of.scale or 0, of.precision or 0
    fits = -exponent <= scale and len(figures) + exponent <= precision - scale
    return Decimal((sign, figures, exponent)) if fits else None


@pytest.mark.parametrize(
    "of", [decimal(38, 0), decimal(38, 38), decimal(38, 18), decimal(10, 2), decimal(1, 1)], ids=str
)
def test_decimals(spark, chance: random.Random, of: FlinkType) -> None:
    texts = decimals(chance)
    for given, found in zip(texts, evaluated(spark, text.value("t", of), texts), strict=True):
        assert found == fitting(given, of), given


@pytest.mark.parametrize("precision", [0, 3, 6])
@pytest.mark.parametrize("standard", text.STANDARDS)
def test_timestamps(spark, chance: random.Random, precision: int, standard: text.Standard) -> None:
    of = FlinkType(Kind.TIMESTAMP, precision)
    texts, wanted = [], []
    for _ in range(COUNT):
        at = EPOCH + datetime.timedelta(seconds=chance.randint(-(10**9), 4 * 10**9))
        fraction = digits(chance, 8)
        texts.append(at.isoformat(sep=chance.choice(" T")) + (f".{fraction}" if fraction else ""))
        micros = fraction.ljust(9, "0")
        fits = (texts[-1][10] == " ") == (standard == "SQL") and not fraction.rstrip("0")[precision:]
        wanted.append(at.replace(microsecond=int(micros[:6])) if fits else None)
    texts += ["2026-02-29 00:00:00", "2026-13-01T00:00:00", "2026-01-01", "", "x", "2026-01-01 24:00:00"]
    wanted += [None] * 6
    assert evaluated(spark, text.value("t", of, standard), texts) == wanted


def test_numbers_since_1970(spark, chance: random.Random) -> None:
    for of in map(parse_type, ("TIMESTAMP(0)", "TIMESTAMP(3)", "TIMESTAMP(6)")):
        for unit in (3, 6, 9):
            numbers = [chance.randint(-(10 ** (8 + unit)), 10 ** (9 + unit)) for _ in range(50)]
            numbers += [number // 10**unit * 10**unit for number in numbers]
            numbers += [number // 10 ** (unit // 2) * 10 ** (unit // 2) for number in numbers]
            wanted = []
            for number in numbers:
                finer = 10 ** max(unit - text.precision(of), 0)
                micros = number * 10**6 // 10**unit
                wanted.append(None if number % finer else EPOCH + datetime.timedelta(microseconds=micros))
            found = evaluated(spark, text.since_epoch("t", of, unit), [str(number) for number in numbers])
            assert found == wanted, (of, unit)
    wrong = ["", "1.5", "x", "9" * 30]
    assert evaluated(spark, text.since_epoch("t", parse_type("TIMESTAMP(6)"), 9), wrong) == [None] * 4
