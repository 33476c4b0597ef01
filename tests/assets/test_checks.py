from dataclasses import replace
from typing import Any

import dagster as dg
import pytest

from tests.pipelines.runtime.handmade import pipeline
from tidegate.assets.checks import check_names, check_specs, results, shown_apart, unshown
from tidegate.pipelines.connectors.table import Constraint, Suite
from tidegate.pipelines.runtime.gate import CheckResult, GateVerdict
from tidegate.quality_checks.gate import QUESTIONS

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


def test_only_the_verdict_blocks_and_every_check_says_what_it_asks():
    specs = check_specs(STAGED, ["constraints", "of-my-own"])
    assert [(spec.name, spec.blocking) for spec in specs] == [
        ("gate", True),
        ("constraints", False),
        ("of_my_own", False),
    ]
    gate, constraints, own = (spec.description or "" for spec in specs)
    assert all(f"* `{name}`: {asks}" in gate and asks.endswith("?") for name, asks in QUESTIONS.items())
    assert (constraints, own) == (QUESTIONS["constraints"], "`of-my-own`, a check of the installed gate.")


def with_target(**changes: Any) -> list[str]:
    """What is shown beside the gate of an INSERT whose target is changed so."""
    found = pipeline()
    target = replace(found.table("enriched"), **changes)
    changed = replace(found, tables={**found.tables, "enriched": target})
    return shown_apart(changed, changed.insert("enriched"))


def test_what_a_script_asks_for_itself_is_shown_beside_the_gate(monkeypatch: pytest.MonkeyPatch):
    key, *others = pipeline().table("enriched").columns
    assert not key.nullable
    assert with_target() == [], "a key is the gate's own to look at"
    assert with_target(constraints=(Constraint("small", "n < 9", "warn"),)) == ["constraints"]
    assert with_target(columns=(key, *(replace(column, nullable=False) for column in others))) == ["constraints"]
    assert with_target(suite=Suite("a.json", "{}", "0")) == ["suite"]
    monkeypatch.setattr("tidegate.assets.checks.check_names", lambda: ("one-place", "of-my-own"))
    assert with_target(suite=Suite("a.json", "{}", "0")) == ["of-my-own"]


def test_a_held_epoch_fails_the_gate_and_its_cause_with_reasons_and_commands():
    specs = check_specs(STAGED, ["released-after-flip", "unmatched-policy"])
    gate, flips, policy = results(specs, verdict(False), "held")
    assert (gate.passed, flips.passed, policy.passed) == (False, True, False)
    assert {result.severity for result in (gate, flips, policy)} == {dg.AssetCheckSeverity.ERROR}
    assert gate.metadata["verdict"].value == "held"
    assert gate.description == "epoch 3 is held by unmatched-policy"
    lines = str(gate.metadata["checks"].value).splitlines()
    assert lines[2] == r'| released-after-flip | passed | {"user_info": \[1, 2]} |  | fine |'
    assert lines[3] == "| unmatched-policy | failed | 7 | 0 | 7 rows have no match |"
    assert "7 rows have no match" in gate.metadata["reasons"].value
    assert gate.metadata["next"].value == (
        "tidegate release SCRIPT enriched_click   or   tidegate discard SCRIPT enriched_click"
    )
    assert policy.metadata["next"] == gate.metadata["next"]
    assert (policy.metadata["observed"].value, policy.metadata["expected"].value) == (7, 0)


def test_every_check_answers_when_nothing_is_staged():
    specs = check_specs(STAGED, ["released-after-flip"])
    found = list(results(specs, None, None))
    assert [(result.check_name, result.passed) for result in found] == [("gate", True), ("released_after_flip", True)]
    assert "nothing is staged" in (found[0].description or "")


def test_a_check_that_the_gate_did_not_report_goes_with_the_verdict_and_says_so():
    specs = check_specs(STAGED, ["suite"])
    assert [result.passed for result in results(specs, verdict(False), "held")] == [False, False]
    assert "did not report" in (list(results(specs, verdict(True), "passed"))[1].description or "")


def test_a_check_that_warns_is_shown_so_and_does_not_block():
    warned = CheckResult("constraints", True, {"small": 3}, {}, "3 rows", warning="3 rows violate the constraint small")
    judged = replace(verdict(True), checks=(*verdict(True).checks, warned))
    gate, constraints = results(check_specs(STAGED, ["constraints"]), judged, "passed")
    assert (gate.passed, gate.metadata["warnings"].value) == (True, "3 rows violate the constraint small")
    assert (constraints.passed, constraints.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert "| constraints | warned |" in gate.metadata["checks"].value


def test_a_verdict_of_an_epoch_that_is_published_already_is_short():
    (gate,) = results(check_specs(STAGED), verdict(True), "published")
    assert (gate.passed, list(gate.metadata)) == (True, ["gate passed"])


def test_data_docs_are_linked_from_the_verdict_and_from_their_check(monkeypatch: pytest.MonkeyPatch):
    suite = CheckResult("suite", True, {"expectations": 2, "page": "/lake/_quality/e/suite-index.html"})
    judged = replace(verdict(True), checks=(*verdict(True).checks, suite))
    for result in results(check_specs(STAGED, ["suite"]), judged, "passed"):
        assert result.metadata["data docs file"].value == "/lake/_quality/e/suite-index.html"
        assert "data docs" not in result.metadata, "nobody serves it"
    monkeypatch.setenv("TIDEGATE_DOCS_URL", "http://127.0.0.1:3001/")
    for result in results(check_specs(STAGED, ["suite"]), judged, "passed"):
        assert result.metadata["data docs"].value == "http://127.0.0.1:3001/e/suite-index.html"


def test_the_installed_gate_shows_its_checks():
    assert "released-after-flip" in check_names()


def test_however_many_checks_are_held_the_history_is_asked_twice(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
):
    """The sensor asks it at every look, of each INSERT that is held."""
    held = [dg.AssetCheckResult(asset_key=STAGED, check_name=f"c{number}", passed=False) for number in range(4)]
    first = unshown(instance, held)
    assert [event.check_name for event in first] == ["c0", "c1", "c2", "c3"]
    for event in first[1:]:
        instance.report_runless_asset_event(event)
    asked = list[str]()

    def counted(of: object, name: str) -> None:
        real = getattr(of, name)

        def ask(*arguments: Any, **named: Any) -> Any:
            asked.append(name)
            return real(*arguments, **named)

        monkeypatch.setattr(of, name, ask)

    counted(instance.event_log_storage, "get_latest_asset_check_execution_by_key")
    counted(instance, "fetch_materializations")
    assert [event.check_name for event in unshown(instance, held)] == ["c0"]
    assert len(asked) == 2
    assert unshown(instance, []) == []


def test_two_lakes_that_report_to_one_check_do_not_take_turns(instance: dg.DagsterInstance):
    """Two code locations with assets of one name: what one has reported, the other replaces once at most."""
    plans = [
        [dg.AssetCheckResult(asset_key=STAGED, check_name="gate", passed=False, metadata={"plan": plan})]
        for plan in ("one lake's", "the other's")
    ]
    for look in range(3):
        for held in plans:
            for event in unshown(instance, held, again=look > 0):
                assert look == 0
                instance.report_runless_asset_event(event)
    [record] = instance.event_log_storage.get_asset_check_execution_history(dg.AssetCheckKey(STAGED, "gate"), limit=1)
    assert record.id == 2
