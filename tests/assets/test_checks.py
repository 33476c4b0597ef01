from dataclasses import replace
from typing import Any

import dagster as dg
import pytest

from tidegate.assets.checks import check_names, check_specs, fails, results
from tidegate.assets.names import GATE
from tidegate.pipelines.runtime.gate import CheckResult, GateVerdict
from tidegate.quality_checks.gate import CHECKS, QUESTIONS

STAGED = dg.AssetKey(["clicks", "enriched_click_staged"])
SPECS = check_specs(STAGED)


def verdict(passed: bool) -> GateVerdict:
    return GateVerdict(
        insert="enriched_click",
        generation=1,
        epoch=3,
        plan_digest="d" * 16,
        passed=passed,
        checks=(
            CheckResult("released-after-flip", True, {"user_info": [1, 2]}, None, "fine"),
            CheckResult("unmatched-policy", passed, 7, 0, "7 rows have no match"),
        ),
        reasons=() if passed else ("7 rows have no match",),
        decided_at=1_700_000_000_000,
    )


def shown(found: GateVerdict | None, state: str | None = None) -> dict[str, dg.AssetCheckResult]:
    return {result.check_name or "": result for result in results(SPECS, found, state)}


def test_four_checks_ask_the_fourteen_questions_and_each_blocks():
    assert [(spec.name, spec.blocking) for spec in SPECS] == [(name, True) for name in GATE]
    assert (*GATE,) == (*CHECKS,)
    assert len(QUESTIONS) == 14
    for spec, asked in zip(SPECS, CHECKS.values(), strict=True):
        lines = [line for line in (spec.description or "").splitlines() if line.startswith("* ")]
        assert lines == [f"* `{name}`: {text}" for name, text in asked.items()]
        assert all(text.endswith("?") for text in asked.values())


def test_a_held_epoch_fails_the_check_that_asks_with_reasons_and_commands():
    found = shown(verdict(False), "held")
    assert {name: result.passed for name, result in found.items()} == {name: name != "rows" for name in GATE}
    rows, proof = found["rows"], found["proof"]
    assert fails(rows)
    assert (rows.metadata["verdict"].value, proof.metadata["verdict"].value) == ("held", "held")
    assert rows.description == "epoch 3 is held by unmatched-policy"
    assert proof.description == "epoch 3 passed 1 question"
    assert str(proof.metadata["questions"].value).splitlines()[2:] == [
        r'| released-after-flip | passed | {"user_info": \[1, 2]} |  | fine |'
    ]
    assert str(rows.metadata["questions"].value).splitlines()[2:] == [
        "| unmatched-policy | failed | 7 | 0 | 7 rows have no match |"
    ]
    assert (rows.metadata["unmatched-policy"].value, rows.metadata["passed"].value) == (7, 0), "to be plotted"
    assert rows.metadata["reasons"].value == "7 rows have no match"
    assert rows.metadata["next"].value == (
        "tidegate release SCRIPT enriched_click   or   tidegate discard SCRIPT enriched_click"
    )
    assert "next" not in proof.metadata


def test_every_check_answers_when_nothing_is_staged():
    found = shown(None)
    assert all(result.passed for result in found.values())
    assert all("nothing is staged" in (result.description or "") for result in found.values())


def test_a_verdict_that_names_no_question_fails_every_check():
    held = replace(verdict(True), passed=False, reasons=("the gate of our own says no",))
    found = shown(held, "held")
    assert {result.passed for result in found.values()} == {False}
    assert found["rows"].description == "epoch 3 is held by the gate: the gate of our own says no"


def test_what_a_gate_of_ones_own_asks_is_among_the_expectations(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tidegate.assets.checks.check_names", lambda: ("one-place", "of-my-own"))
    *_, expectations = check_specs(STAGED)
    assert "* `of-my-own`" in (expectations.description or "").splitlines()
    own = replace(verdict(True), passed=False, checks=(CheckResult("of-my-own", False),), reasons=("no",))
    assert [name for name, result in shown(own).items() if not result.passed] == ["expectations"]


def test_a_check_that_warns_says_so_and_does_not_block():
    warned = CheckResult("constraints", True, {"small": 3}, {}, "3 rows", warning="3 rows violate the constraint small")
    judged = replace(verdict(True), checks=(*verdict(True).checks, warned))
    constraints = shown(judged, "passed")["constraints"]
    assert constraints.passed, "automation would wait for a check that blocks and is not green"
    assert constraints.description == "epoch 3 passed with a warning: 3 rows violate the constraint small"
    assert constraints.metadata["warnings"].value == "3 rows violate the constraint small"
    assert "| constraints | warned |" in constraints.metadata["questions"].value


def test_a_verdict_of_an_epoch_that_is_published_already_is_short():
    for result in shown(verdict(True), "published").values():
        assert (result.passed, list(result.metadata)) == (True, ["passed"])


def test_data_docs_are_linked_from_the_check_of_the_suite(monkeypatch: pytest.MonkeyPatch):
    suite = CheckResult("suite", True, {"expectations": 2, "page": "/lake/_quality/e/suite-index.html"})
    judged = replace(verdict(True), checks=(*verdict(True).checks, suite))

    def metadata() -> dict[str, Any]:
        return dict(shown(judged, "passed")["expectations"].metadata)

    assert metadata()["data docs file"].value == "/lake/_quality/e/suite-index.html"
    assert "data docs" not in metadata(), "nobody serves it"
    monkeypatch.setenv("TIDEGATE_DOCS_URL", "http://127.0.0.1:3001/")
    assert metadata()["data docs"].value == "http://127.0.0.1:3001/e/suite-index.html"


def test_the_installed_gate_shows_its_checks():
    assert "released-after-flip" in check_names()
