from dataclasses import replace

import dagster as dg
import pytest

from tidegate.assets.checks import check_names, check_specs, results
from tidegate.pipelines.runtime.gate import CheckResult, GateVerdict

STAGED = dg.AssetKey(["clicks", "enriched_click_staged"])


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


def test_only_the_verdict_blocks():
    specs = check_specs(STAGED, ["released-after-flip", "unmatched-policy"])
    assert [(spec.name, spec.blocking) for spec in specs] == [
        ("gate", True),
        ("released_after_flip", False),
        ("unmatched_policy", False),
    ]


def test_a_held_epoch_fails_the_gate_and_its_cause_with_reasons_and_commands():
    specs = check_specs(STAGED, ["released-after-flip", "unmatched-policy"])
    gate, flips, policy = results(specs, verdict(False), "held")
    assert (gate.passed, flips.passed, policy.passed) == (False, True, False)
    assert {result.severity for result in (gate, flips, policy)} == {dg.AssetCheckSeverity.ERROR}
    assert gate.metadata["verdict"].value == "held"
    assert "7 rows have no match" in gate.metadata["reasons"].value
    assert gate.metadata["next"].value == (
        "tidegate release SCRIPT enriched_click   or   tidegate discard SCRIPT enriched_click"
    )
    assert (policy.metadata["observed"].value, policy.metadata["expected"].value) == (7, 0)


def test_every_check_answers_when_nothing_is_staged():
    specs = check_specs(STAGED, ["released-after-flip"])
    found = list(results(specs, None, None))
    assert [(result.check_name, result.passed) for result in found] == [("gate", True), ("released_after_flip", True)]
    assert "nothing is staged" in found[0].metadata["waiting"].value


def test_a_check_that_the_gate_did_not_report_goes_with_the_verdict_and_says_so():
    specs = check_specs(STAGED, ["suite"])
    assert [result.passed for result in results(specs, verdict(False), "held")] == [False, False]
    assert "did not report" in list(results(specs, verdict(True), "passed"))[1].metadata["detail"].value


def test_a_check_that_warns_is_shown_so_and_does_not_block():
    warned = CheckResult("constraints", True, {"small": 3}, {}, "3 rows", warning="3 rows violate the constraint small")
    told = replace(verdict(True), checks=(*verdict(True).checks, warned))
    gate, constraints = results(check_specs(STAGED, ["constraints"]), told, "passed")
    assert (gate.passed, gate.metadata["warnings"].value) == (True, "3 rows violate the constraint small")
    assert (constraints.passed, constraints.severity) == (False, dg.AssetCheckSeverity.WARN)


def test_data_docs_are_linked_from_the_verdict_and_from_their_check(monkeypatch: pytest.MonkeyPatch):
    suite = CheckResult("suite", True, {"expectations": 2, "page": "/lake/_quality/e/suite-index.html"})
    told = replace(verdict(True), checks=(*verdict(True).checks, suite))
    for result in results(check_specs(STAGED, ["suite"]), told, "passed"):
        assert result.metadata["data docs file"].value == "/lake/_quality/e/suite-index.html"
        assert "data docs" not in result.metadata, "nobody serves it"
    monkeypatch.setenv("TIDEGATE_DOCS_URL", "http://127.0.0.1:3001/")
    for result in results(check_specs(STAGED, ["suite"]), told, "passed"):
        assert result.metadata["data docs"].value == "http://127.0.0.1:3001/e/suite-index.html"


def test_the_installed_gate_tells_its_checks():
    assert "released-after-flip" in check_names()
