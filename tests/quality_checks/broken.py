"""The ways to break a check that tests/fixtures/gate/broken.toml names. Each takes a `Case`, and changes it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidegate.pipelines.lake import StagedRow
from tidegate.pipelines.runtime import gate as gate_module
from tidegate.pipelines.runtime.gate import GateVerdict, StagedEpoch
from tidegate.pipelines.runtime.runner import Runner
from tidegate.quality_checks.gate import judge

SHORT = "300 ms"


@dataclass
class Case:
    """One staged epoch that nobody has judged, its runner, and what is done to them.

    `timeout` is what 'gate.timeout' is set to. `change_rows` alters the staged row before it is stored. `elsewhere`:
    the check runs in a process of its own. `after` is done between the verdict and the publishing.
    """

    patch: pytest.MonkeyPatch
    folder: Callable[[], Path]
    gate: Any = judge
    timeout: str = "1 min"
    change_row: Callable[[StagedRow], StagedRow] = field(default=lambda row: row)
    files: Callable[[], None] = field(default=lambda: None)
    after: Callable[[Runner], None] = field(default=lambda runner: None)
    elsewhere: bool = False
    let_go: threading.Event = field(default_factory=threading.Event)

    def file(self, place: str = "publish") -> Path:
        return next(self.folder().glob(f"**/_disposition={place}/*.parquet"))


def _raising(error: BaseException) -> Callable[..., Any]:
    def gate(*_: Any) -> Any:
        raise error

    return gate


def _answering(change: Callable[[GateVerdict], Any]) -> Callable[..., Any]:
    """A gate whose word on a good epoch is changed."""

    def gate(staged: StagedEpoch, spark: Any) -> Any:
        return change(judge(staged, spark))

    gate.__module__ = judge.__module__  # so that it promises what the built-in gate promises
    return gate


def _no_space(*_: Any, **__: Any) -> Any:
    raise OSError(28, "No space left on device")


def raises(case: Case) -> None:
    case.gate = _raising(RuntimeError("a check of mine"))


def raises_without_a_word(case: Case) -> None:
    case.gate = _raising(KeyError())


def recurses_for_ever(case: Case) -> None:
    def gate(*arguments: Any) -> Any:
        return gate(*arguments)

    case.gate = gate


def runs_out_of_memory(case: Case) -> None:
    case.gate = _raising(MemoryError())


def asserts(case: Case) -> None:
    case.gate = _raising(AssertionError("not one row"))


def leaves_by_exit(case: Case) -> None:
    case.gate = _raising(SystemExit(0))


def hangs(case: Case) -> None:
    case.timeout, case.gate = SHORT, lambda *_: case.let_go.wait()


def says_yes_too_late(case: Case) -> None:
    def gate(staged: StagedEpoch, spark: Any) -> GateVerdict:
        case.let_go.wait()
        return judge(staged, spark)

    case.timeout, case.gate = SHORT, gate
    case.after = lambda _: case.let_go.set()


def answers_nothing(case: Case) -> None:
    case.gate = lambda *_: None


def answers_true(case: Case) -> None:
    case.gate = lambda *_: True


def answers_a_word(case: Case) -> None:
    case.gate = lambda *_: "passed"


def answers_a_dict(case: Case) -> None:
    case.gate = _answering(lambda verdict: {**vars(verdict)})


def answers_later(case: Case) -> None:
    def gate(staged: StagedEpoch, spark: Any) -> Any:
        yield judge(staged, spark)

    case.gate = gate


def answers_the_class(case: Case) -> None:
    case.gate = lambda *_: GateVerdict


def answers_for_another_insert(case: Case) -> None:
    case.gate = _answering(lambda verdict: replace(verdict, insert="other"))


def answers_for_another_generation(case: Case) -> None:
    case.gate = _answering(lambda verdict: replace(verdict, generation=2))


def answers_for_another_epoch(case: Case) -> None:
    case.gate = _answering(lambda verdict: replace(verdict, epoch=3))


def answers_for_another_plan(case: Case) -> None:
    case.gate = _answering(lambda verdict: replace(verdict, plan_digest="0" * 16))


def answers_without_checks(case: Case) -> None:
    case.gate = _answering(lambda verdict: replace(verdict, checks=()))


def answers_with_other_checks(case: Case) -> None:
    case.gate = _answering(lambda verdict: replace(verdict, checks=tuple(vars(check) for check in verdict.checks)))


def says_a_truthy_word(case: Case) -> None:
    case.gate = _answering(lambda verdict: replace(verdict, passed="yes"))


def has_an_undecided_check(case: Case) -> None:
    case.gate = _answering(
        lambda verdict: replace(verdict, checks=(replace(verdict.checks[0], passed=None), *verdict.checks[1:]))
    )


def answers_twice_for_one_check(case: Case) -> None:
    case.gate = _answering(lambda verdict: replace(verdict, checks=(*verdict.checks, verdict.checks[0])))


def leaves_a_check_out(case: Case) -> None:
    case.gate = _answering(
        lambda verdict: replace(verdict, checks=tuple(each for each in verdict.checks if each.name != "constraints"))
    )


def says_yes_though_a_check_failed(case: Case) -> None:
    case.gate = _answering(
        lambda verdict: replace(
            verdict, checks=tuple(replace(each, passed=each.name != "columns") for each in verdict.checks)
        )
    )


def says_no_without_a_reason(case: Case) -> None:
    case.gate = _answering(lambda verdict: replace(verdict, passed=False))


def is_not_installed(case: Case) -> None:
    gate_module.installed_gate.cache_clear()
    case.patch.setattr(gate_module, "entry_points", lambda **_: [])
    case.gate = None
    case.after = lambda _: gate_module.installed_gate.cache_clear()


def can_not_be_called(case: Case) -> None:
    case.gate = "tidegate.quality_checks.gate:judge"


def can_not_store_its_verdict(case: Case) -> None:
    case.patch.setattr("tidegate.pipelines.lake.control.Records.settle", _no_space)


def deletes_its_verdict(case: Case) -> None:
    from deltalake import DeltaTable

    def after(runner: Runner) -> None:
        for log in runner.lake.logs.there():
            DeltaTable(str(log.path)).delete("kind = 'verdicts'")

    case.after = after


def stores_a_verdict_on_another_plan(case: Case) -> None:
    from deltalake import DeltaTable

    def after(runner: Runner) -> None:
        digest = """regexp_replace(record, '"plan_digest":"[^"]*"', '"plan_digest":"0000000000000000"')"""
        for log in runner.lake.logs.there():
            DeltaTable(str(log.path)).update(updates={"record": digest}, predicate="kind = 'verdicts'")

    case.after = after


def ends_the_process(case: Case) -> None:
    case.elsewhere, case.gate = True, lambda *_: os._exit(0)


def kills_the_process(case: Case) -> None:
    case.elsewhere, case.gate = True, lambda *_: os.kill(os.getpid(), signal.SIGKILL)


def deletes_the_staged_files(case: Case) -> None:
    case.after = lambda _: [path.unlink() for path in case.folder().glob("**/*.parquet")] and None  # type: ignore[func-returns-value]


def stores_a_second_verdict(case: Case) -> None:
    """A no is stored by the gate, and somebody puts a yes beside it."""

    def no(verdict: GateVerdict) -> GateVerdict:
        checks = tuple(replace(each, passed=each.name != "columns") for each in verdict.checks)
        return replace(verdict, passed=False, checks=checks, reasons=("not one row",))

    def after(runner: Runner) -> None:
        (stored,) = runner.lake.verdicts.rows("insert enriched")
        runner.lake.verdicts.append([replace(stored, passed=True, reasons=[])], application="somebody", version=1)

    case.gate, case.after = _answering(no), after


def changes_a_file_after_its_verdict(case: Case) -> None:
    """Rows that go to quarantine take the place of those that are published."""
    case.after = lambda _: case.file().write_bytes(case.file("quarantine").read_bytes()) and None  # type: ignore[func-returns-value]


def says_yes_with_reasons_against_it(case: Case) -> None:
    case.gate = _answering(lambda verdict: replace(verdict, reasons=("not one row",)))


def is_interrupted(case: Case) -> None:
    case.gate = _raising(KeyboardInterrupt())


def has_a_suite_that_answers_nothing(case: Case) -> None:
    from types import SimpleNamespace

    nothing = SimpleNamespace(success=True, results=[], to_json_dict=dict)
    case.patch.setattr("tidegate.quality_checks.suite.run", lambda *_: nothing)
    case.patch.setattr("tidegate.quality_checks.docs.render", lambda _: "")


def has_no_great_expectations(case: Case) -> None:
    case.patch.setitem(sys.modules, "great_expectations", None)  # type: ignore[arg-type]


def has_an_expectation_that_raises(case: Case) -> None:
    from great_expectations.expectations.core.expect_column_max_to_be_between import ExpectColumnMaxToBeBetween

    def broken(*_: Any, **__: Any) -> Any:
        raise ValueError("broken metric")

    case.patch.setattr(ExpectColumnMaxToBeBetween, "_validate", broken)


def can_not_keep_the_suites_result(case: Case) -> None:
    case.patch.setattr("tidegate.quality_checks.docs._write", _no_space)


def finds_a_staged_file_gone(case: Case) -> None:
    case.files = lambda: case.file().unlink()


def finds_half_a_staged_file(case: Case) -> None:
    case.files = lambda: case.file().write_bytes(case.file().read_bytes()[:-9]) and None  # type: ignore[func-returns-value]


def finds_a_count_missing(case: Case) -> None:
    def without(row: StagedRow) -> StagedRow:
        return replace(row, facts={name: n for name, n in row.facts.items() if name != "violations@positive"})

    case.change_row = without


def finds_a_count_that_the_rows_deny(case: Case) -> None:
    def other(row: StagedRow) -> StagedRow:
        counts = {"violated:positive": 1, "unmatched:deleted@u": row.counts["unmatched:deleted@u"] - 1}
        return replace(row, counts={**row.counts, **counts})

    case.change_row = other


def finds_rows_without_a_mask(case: Case) -> None:
    case.files = lambda: _rewrite(case.file(), lambda table: table.drop_columns(["_violated"]))


def finds_a_violating_row_to_publish(case: Case) -> None:
    def violate(table: pa.Table) -> pa.Table:
        place = table.schema.get_field_index("_violated")
        return table.set_column(place, "_violated", pa.array([2] * table.num_rows, pa.int64()))

    case.files = lambda: _rewrite(case.file(), violate)


def _rewrite(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    table = pq.ParquetFile(path).read()
    pq.write_table(change(table), path)
