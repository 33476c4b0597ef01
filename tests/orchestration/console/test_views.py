"""What a run says of its epochs: every row that landed is in one of its numbers."""

from __future__ import annotations

import re
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pytest

from tests.pipelines.runtime.plans import release, taken
from tidegate.orchestration.commands.report import Written
from tidegate.orchestration.console.shown import shown
from tidegate.pipelines import text
from tidegate.pipelines.facts.maintenance import MaintainedLake, MaintainedTable
from tidegate.pipelines.facts.plan import Explanation, NextLanding, NextRelease, NextSteps
from tidegate.pipelines.facts.problems import LakeState
from tidegate.pipelines.facts.quarantine import (
    Quarantine,
    QuarantinedInsert,
    QuarantinedLot,
    QuarantinedRow,
    ShownRows,
    Taken,
)
from tidegate.pipelines.facts.run import (
    LandedSource,
    NothingPublished,
    PublishedEpoch,
    ReleasedInsert,
    Run,
    StuckStep,
    TickDone,
)
from tidegate.pipelines.facts.verification import Verification
from tidegate.pipelines.lake import StagedRow
from tidegate.pipelines.records.document import as_json
from tidegate.pipelines.records.kinds import facts_of
from tidegate.pipelines.runtime.continuous import Tick
from tidegate.pipelines.runtime.ledger import WhereRowsAre
from tidegate.pipelines.runtime.releasing.insert_runner import Published
from tidegate.pipelines.runtime.runner import Released
from tidegate.pipelines.runtime.status import InsertStatus, SourceStatus, Stuck
from tidegate.pipelines.runtime.verifying.verify import VerifyReport
from tidegate.pipelines.text import sentence
from tidegate.quality_checks.against_source import Reconciliation, RowDifference, SourceReconciliation

PLAN = release("enriched", 2, taken("clicks", 1, 2))
STAGED = StagedRow("insert enriched", 1, 2, "", 0, "", [], {"to:publish": 5, "to:quarantine": 2, "to:drop": 1_003}, {})
DONE = Published("enriched", 1, 2, 5, 2, PLAN, STAGED)


def test_dropped_rows_are_counted() -> None:
    released = Released("enriched", (DONE, DONE))
    found = Run("p", True, (), (), (ReleasedInsert.of(released),))
    heads, numbers = (line.split() for line in "\n".join(map(str, shown(found))).splitlines()[:2])
    assert dict(zip(heads, numbers, strict=False)) == {
        "INSERT": "enriched", "published": "10", "quarantined": "4", "dropped": "2,006", "epochs": "2",
    }  # fmt: skip
    done = PublishedEpoch.of(DONE)
    assert as_json(done) == {
        "insert": "enriched", "generation": 1, "epoch": 2, "rows": 5, "quarantined": 2, "dropped": 1_003, "pins": [],
        "published": True,
    }  # fmt: skip
    [line] = map(str, shown(done))
    assert line.endswith("5 rows, 2 rows quarantined, 1,003 rows dropped by WHERE or INNER.")
    tick = TickDone.of(Tick(1, (), (released,), (), 0.1))
    assert "epoch 2: 5 published, 2 quarantined, 1,003 dropped" in tick.line


@pytest.mark.parametrize(
    ("value", "sql"),
    [
        (Decimal(55240), "55240"),
        (Decimal("1E+3"), "1000"),
        (Decimal("0.10"), "0.10"),
        ("ann's", "'ann''s'"),
        (None, "NULL"),
        (True, "TRUE"),
        (b"\x00\xff", "X'00ff'"),
        (datetime(2026, 1, 2, 3, 4, 5), "2026-01-02 03:04:05"),
    ],
)
def test_a_value_is_shown_as_people_write_it(value: object, sql: str) -> None:
    assert text.value(value) == sql


def test_a_key_that_differs_is_shown_plainly() -> None:
    assert str(RowDifference({"id": Decimal(55240)}, "missing")) == "id = 55240 is not in the lake"


@pytest.mark.parametrize(
    ("text", "one"),
    [
        ("the file /data/a.json is gone", "the file /data/a.json is gone"),
        ("The file is gone.", "The file is gone"),
        ("The file is gone. It was there before.", "The file is gone; it was there before"),
        ("two\n  lines", "two lines"),
        ("a value, e.g. 7, of rate 0.5", "a value, e.g. 7, of rate 0.5"),
        ("1 of 2 rows (see below). DeltaTable is left", "1 of 2 rows (see below); DeltaTable is left"),
        ("[CAST_INVALID_INPUT] The value 'x' is malformed. Use `try_cast` instead. SQLSTATE: 22018",
         "[CAST_INVALID_INPUT] The value 'x' is malformed; use `try_cast` instead; SQLSTATE: 22018"),
        ("", ""),
    ],
)  # fmt: skip
def test_an_errors_text_is_one_sentence_without_its_stop(text: str, one: str) -> None:
    assert sentence(text) == one


DOCUMENTED = {
    "`status`": (
        LakeState, SourceStatus, InsertStatus, WhereRowsAre, Stuck,
    ),
    "`run`": (Run, LandedSource, ReleasedInsert),
    "`run --continuous`": (TickDone, StuckStep),
    "`run --dry-run`": (NextSteps, NextLanding, NextRelease),
    "`release`, `discard`": (PublishedEpoch, NothingPublished),
    "`verify`": (Verification, VerifyReport),
    "`reconcile`": (Reconciliation, SourceReconciliation),
    "`quarantine list`": (Quarantine, QuarantinedInsert, QuarantinedLot),
    "`quarantine show`": (ShownRows, QuarantinedRow),
    "`quarantine release`, `quarantine discard`": (Taken,),
    "`maintain`": (MaintainedLake, MaintainedTable),
    "`explain`": (Explanation,),
    "`report`": (Written,),
}  # fmt: skip
PAGE = (Path(__file__).parents[3] / "docs" / "cli.md").read_text().partition("\n## JSON\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize(("command", "names"), re.findall(r"^\| (`.*?`) \| (.*) \|$", PAGE, re.MULTILINE))
def test_the_names_of_the_page_are_those_of_the_records(command: str, names: str) -> None:
    known = {each.name for record in DOCUMENTED[command] for each in facts_of(record) if not each.said}
    written = set(re.findall(r"`(\w+)`", names))
    assert written - known == set()
    first = {each.name for each in facts_of(DOCUMENTED[command][0]) if not each.said}
    assert first - written == set()
