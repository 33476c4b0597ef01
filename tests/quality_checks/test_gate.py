from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from quality_checks.gate import CHECK_NAMES, judge
from tests.quality_checks.staged import Given, stage

CASES = tomllib.loads((Path(__file__).parents[1] / "fixtures" / "gate" / "verdicts.toml").read_text())["case"]


def no_spark() -> Any:
    raise AssertionError("the gate asked for Spark")


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in CASES])
def test_the_verdict_is_that_of_the_table(tmp_path: Path, case: dict[str, Any]) -> None:
    known = {"name", "failed", "says"}
    given = Given(
        **{name: tuple(value) if name == "drop" else value for name, value in case.items() if name not in known}
    )
    verdict = judge(stage(tmp_path, given), no_spark)
    failed = [check.name for check in verdict.checks if not check.passed]
    assert failed == case.get("failed", []), verdict.reasons
    assert verdict.passed is (not failed)
    assert len(verdict.reasons) == len(failed)
    for words in case.get("says", []):
        assert any(words in reason for reason in verdict.reasons), verdict.reasons


def test_a_verdict_names_the_epoch_and_the_plan_it_is_about(tmp_path: Path) -> None:
    staged = stage(tmp_path, Given({"matched": 3}))
    verdict = judge(staged, no_spark)
    assert (verdict.insert, verdict.generation, verdict.epoch, verdict.plan_digest) == (
        "enriched",
        1,
        2,
        staged.plan.digest,
    )
    assert tuple(check.name for check in verdict.checks) == CHECK_NAMES


@pytest.mark.parametrize("harm", ["gone", "cut", "other"])
def test_a_file_that_was_tampered_with_is_held(tmp_path: Path, harm: str) -> None:
    staged = stage(tmp_path, Given({"matched": 30, "unmatched:deleted@u": 4}))
    path = Path(staged.folder) / "_disposition=publish" / "part-0.parquet"
    if harm == "gone":
        path.unlink()
    elif harm == "cut":
        path.write_bytes(path.read_bytes()[:-9])
    else:
        path.write_bytes((Path(staged.folder) / "_disposition=quarantine" / "part-0.parquet").read_bytes())
    verdict = judge(staged, no_spark)
    assert not verdict.passed
    assert "staged-files" in [check.name for check in verdict.checks if not check.passed]
    words = {"gone": "is gone", "cut": "is not a Parquet file", "other": "has 4 rows in"}
    assert any(words[harm] in reason for reason in verdict.reasons), verdict.reasons


def test_a_plan_that_is_not_the_staged_one_is_held(tmp_path: Path) -> None:
    from dataclasses import replace

    staged = stage(tmp_path, Given({"matched": 3}))
    verdict = judge(replace(staged, plan=replace(staged.plan, instant=1)), no_spark)
    assert "was staged from another plan" in verdict.reasons[0]


def test_a_disk_that_fails_is_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    staged = stage(tmp_path, Given({"matched": 3}))

    def broken(*_: Any) -> Any:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("quality_checks.evidence.read_footer", broken)
    with pytest.raises(OSError, match="Input/output"):
        judge(staged, no_spark)


def test_a_verdict_is_stored_and_read_back_whole(tmp_path: Path) -> None:
    from pipelines.runtime.gate import GateVerdict

    verdict = judge(stage(tmp_path, Given({"matched": 3}, released=4)), no_spark)
    row = verdict.row(77)
    stored = GateVerdict.of(type(row).from_row(row.to_row()))
    assert (stored.reasons, stored.passed, stored.decided_at) == (verdict.reasons, False, 77)
    assert [check.name for check in stored.checks] == [check.name for check in verdict.checks]
