from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.pipelines.runtime.handmade import no_spark, pipeline
from tests.quality_checks.staged import Given, stage
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.quality_checks.evidence import gather
from tidegate.quality_checks.gate import CHECK_NAMES, judge

CASES = tomllib.loads((Path(__file__).parents[1] / "fixtures" / "gate" / "verdicts.toml").read_text())["case"]


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


def strict(enforcer: str | None) -> Pipeline:
    """The handmade pipeline with a name that is NOT NULL, in a script that sets `enforcer`."""
    made = pipeline()
    target = made.table("enriched")
    columns = (*target.columns[:2], replace(target.columns[2], nullable=False))
    return replace(
        made, tables={**made.tables, "enriched": replace(target, columns=columns)}, not_null_enforcer=enforcer
    )


@pytest.mark.parametrize(("enforcer", "passed"), [(None, True), ("ERROR", False), ("DROP", True)])
def test_null_in_a_not_null_column_is_a_violation(tmp_path: Path, enforcer: str | None, passed: bool) -> None:
    """Of the rows to publish alone. Under DROP the join keeps such rows out, by a constraint."""
    counts = {"matched": 3, "unmatched:deleted@u": 4}
    verdict = judge(stage(tmp_path, Given(counts, nameless=2, pipeline=strict(enforcer))), no_spark)
    (found,) = [check for check in verdict.checks if check.name == "constraints"]
    assert (verdict.passed, found.passed) == (passed, passed)
    violated = "2 rows violate the constraint not-null-name (`name` IS NOT NULL), among them "
    assert (violated + '{"id": 0}, {"id": 1}' in found.detail) == (enforcer != "DROP")
    assert found.warning == (found.detail if enforcer is None else "")
    assert found.observed == ({} if enforcer == "DROP" else {"not-null-name": 2})
    whole = judge(stage(tmp_path / "whole", Given(counts, pipeline=strict(enforcer))), no_spark)
    assert whole.passed
    assert not any(check.warning for check in whole.checks)


def test_nulls_of_nested_columns_are_counted(tmp_path: Path) -> None:
    """A footer counts what is inside of them."""
    staged = stage(tmp_path, Given({"matched": 3}))
    evidence = gather(staged)
    path = evidence.footers[0].at
    rows = pq.read_table(path, partitioning=None)
    rows = rows.append_column("tags", pa.array([["a"], None, [None]], pa.list_(pa.string())))
    pq.write_table(rows.append_column("row", pa.array([{"a": 1}, None, None], pa.struct([("a", pa.int64())]))), path)
    evidence = gather(staged)
    assert [evidence.nulls(name) for name in ("id", "tags", "row", "gone")] == [0, 1, 2, None]


@pytest.mark.parametrize("harm", ["gone", "cut", "other"])
def test_a_file_that_was_tampered_with_is_held(tmp_path: Path, harm: str) -> None:
    staged = stage(tmp_path, Given({"matched": 30, "unmatched:deleted@u": 4}))
    path, quarantined = (Path(staged.path_of(staged.staged.of(place)[0])) for place in ("publish", "quarantine"))
    if harm == "gone":
        path.unlink()
    elif harm == "cut":
        path.write_bytes(path.read_bytes()[:-9])
    else:
        path.write_bytes(quarantined.read_bytes())
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

    monkeypatch.setattr("tidegate.quality_checks.evidence.read_footer", broken)
    with pytest.raises(OSError, match="Input/output"):
        judge(staged, no_spark)


def test_a_verdict_is_stored_and_read_back_whole(tmp_path: Path) -> None:
    from tidegate.pipelines.runtime.gate import GateVerdict

    verdict = judge(stage(tmp_path, Given({"matched": 3}, released=4)), no_spark)
    row = verdict.row(77)
    stored = GateVerdict.of(type(row).from_row(row.owner, row.to_row()))
    assert (stored.reasons, stored.passed, stored.decided_at) == (verdict.reasons, False, 77)
    assert [check.name for check in stored.checks] == [check.name for check in verdict.checks]
