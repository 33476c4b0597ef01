"""Every place of the code that names a command is listed here, with the test that brings its error about and follows
it; and every command that is named is one that the command line has."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import typer.main

from tidegate.orchestration.commands.app import app
from tidegate.pipelines.commands import RESNAPSHOT, NextCommand, advice, in_another_lake, redeclare, resnapshot, then
from tidegate.pipelines.sources.cdc.errors import FRESH, RETRY, ReadError, explain
from tidegate.pipelines.sources.mysql_cdc import errors

ROOT = Path(__file__).parents[2]
CALLS = frozenset({"NextCommand", "resnapshot", "resolving", "redeclare", "in_another_lake"})
CONSTANTS = frozenset({"STATUS", "VERIFY", "RUN", "FRESH", "RETRY"})
"""What makes a command, or is one (`pipelines/commands.py`, `pipelines/sources/cdc/errors.py`)."""

STORIES = "tests/stories/changes/test_advice.py"
ON_A_SERVER = "tests/pipelines/sources/mysql_cdc/test_advice.py::test_what_the_log_of_a_table_advises"
OF_READERS = "tests/pipelines/test_next_commands.py::test_what_a_reader_advises_has_the_tables_name"
CLI = "tests/orchestration/test_cli.py"

ALWAYS = frozenset({"status", "run", "verify", "explain", "maintain", "discard", "release", "quarantine list"})
"""Commands that need nothing of the error but the script, the lake and the INSERT: they work in every state, if only to
say what the state is."""

FOLLOWED: dict[str, list[str]] = {
    f"{STORIES}::test_what_a_person_asks_for_and_cannot_have": [
        "pipelines/runtime/differences.py:changed",
        "pipelines/syntax/errors.py:SqlError.__init__",
    ],
    f"{STORIES}::test_a_value_that_does_not_fit_once_rows_have_landed": ["pipelines/sources/rows.py:misfit_error"],
    f"{STORIES}::test_a_delta_table_of_other_columns": [
        "pipelines/sources/delta/source.py:DeltaSource._check_columns",
        "pipelines/sources/delta/source.py:DeltaSource._another",
        "pipelines/sources/delta/source.py:DeltaSource._check_feed",
        "pipelines/sources/delta/source.py:DeltaSource._check_history",
        "pipelines/sources/delta/source.py:DeltaSource._same_columns",
        "pipelines/sources/delta/source.py:DeltaSource.explain",
        "pipelines/sources/delta/commits.py:CommitLog.commit",
        "pipelines/sources/filesystem/parquet.py:check",
    ],
    f"{STORIES}::test_a_file_that_has_changed_is_read_anew_under_the_tables_own_name": [
        "pipelines/sources/filesystem/catalog.py:Catalog.check",
        "pipelines/sources/filesystem/catalog.py:Catalog.same_folder",
        "pipelines/sources/hybrid.py:start_at",
    ],
    ON_A_SERVER: [
        "pipelines/sources/cdc/snapshot.py:TableComparison.__init__",
        "pipelines/sources/mysql_cdc/preflight.py:_missing_table",
        "pipelines/sources/mysql_cdc/preflight.py:check_columns",
        "pipelines/sources/mysql_cdc/preflight.py:check_key",
        "pipelines/sources/mysql_cdc/preflight.py:check_key_types",
        "pipelines/sources/mysql_cdc/preflight.py:check_virtual",
        "pipelines/sources/mysql_cdc/source.py:MysqlCdcSource.explain",
        "pipelines/sources/mysql_cdc/types.py:SourceColumn.canonical",
    ],
    OF_READERS: [
        "pipelines/sources/cdc/errors.py:",
        "pipelines/sources/cdc/errors.py:_next",
        "pipelines/sources/cdc/errors.py:explain",
        "pipelines/sources/cdc/errors.py:resnapshot",
        "pipelines/sources/cdc/snapshot.py:cuts_of",
        "pipelines/sources/cdc/source.py:CdcSource._torn",
        "pipelines/sources/mysql_cdc/errors.py:typed",
        "pipelines/sources/mysql_cdc/snapshot/reading.py:SnapshotQuery.rows",
        "pipelines/sources/mysql_cdc/snapshot/results.py:_changed",
    ],
    "tests/pipelines/sources/mysql_cdc/test_stops.py::test_a_log_that_began_anew": [
        "pipelines/sources/mysql_cdc/log.py:check_birth",
        "pipelines/sources/mysql_cdc/log.py:check_reachable",
        "pipelines/sources/mysql_cdc/log.py:check_server",
    ],
    "tests/pipelines/sources/kafka/test_retention.py::": ["pipelines/sources/kafka/checks.py:anew"],
    "tests/pipelines/sources/kafka/test_debezium.py::": [
        "pipelines/sources/kafka/snapshot_end.py:SnapshotEnd._check_tables"
    ],
    "tests/pipelines/runtime/test_missing_fields.py::": ["pipelines/runtime/definitions.py:Definitions._ways"],
    "tests/pipelines/runtime/test_lost_commits.py::": [
        "pipelines/runtime/indexes.py:Indexed._opened",
        "pipelines/runtime/lost_commits.py:_anew",
        "pipelines/runtime/lost_commits.py:_other_lake",
    ],
    "tests/pipelines/runtime/test_backfill.py::test_a_new_snapshot_never_takes_the_history_of_what_is_out": [
        "pipelines/runtime/releasing/event_time.py:Again.instead"
    ],
    "tests/pipelines/runtime/test_landed_retention.py::": [
        "pipelines/runtime/landed_retention.py:refuse_removed_lots",
        "pipelines/runtime/landed_retention.py:refuse_removed_span",
    ],
    "tests/pipelines/runtime/test_quarantined_rows.py::": ["pipelines/runtime/quarantine.py:refuse_removed"],
    "tests/orchestration/test_cli_quarantine.py::test_rows_are_listed_shown_discarded_and_released": [
        "pipelines/facts/quarantine.py:ReasonSums.notes",
        "orchestration/report/page.py:_quarantine",
        "pipelines/runtime/quarantine.py:refuse_process",
        "pipelines/runtime/releasing/planner.py:ReleasePlanner.out_of_quarantine",
    ],
    f"{CLI}::test_nothing_leaves_before_the_table_is_loaded_and_what_is_forged_is_found": [
        "pipelines/facts/source_problems.py:passing_log",
        "quality_checks/against_source.py:SourceReconciliation.notes",
        "quality_checks/against_source.py:Reconciliation.cause",
    ],
    f"{CLI}::test_explain_says_what_a_run_would_not_do": ["pipelines/facts/plan.py:Explanation.notes"],
    "tests/quality_checks/test_against_source.py::": [
        "quality_checks/against_source.py:_comparable",
    ],
}
"""Test -> the places whose command it follows; a file alone where several of its tests do."""


@cache
def sites() -> dict[str, list[str]]:
    """Every function that makes a command -> the commands, each as far as the text shows it."""
    found: dict[str, list[str]] = {}
    for top in ("pipelines", "quality_checks", "assets", "orchestration"):
        for path in sorted((ROOT / top).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if name != "pipelines/commands.py":
                for place, command in _commands(ast.parse(path.read_text(encoding="utf-8")), ()):
                    found.setdefault(f"{name}:{place}", []).append(command)
    return found


def _commands(node: ast.AST, inside: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        inside = (*inside, node.name)
    if isinstance(node, ast.Name) and node.id in CONSTANTS and isinstance(node.ctx, ast.Load):
        readers = {"FRESH": "run --resnapshot", "RETRY": "run"}
        yield ".".join(inside), readers.get(node.id, node.id.lower())
    if isinstance(node, ast.Call):
        called = getattr(node.func, "id", getattr(node.func, "attr", ""))
        if called == "NextCommand":
            verb = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else "status"
            words = [word.value for part in node.args[1:2] for word in ast.walk(part) if isinstance(word, ast.Constant)]
            options = [str(word) for word in words if str(word).startswith("--")]
            yield ".".join(inside), " ".join([str(verb), *options])
        elif called in CALLS:
            made = {"resnapshot": "run --resnapshot", "resolving": "release"}
            yield ".".join(inside), made.get(called, "run --lake")
    for child in ast.iter_child_nodes(node):
        yield from _commands(child, inside)


def test_every_command_that_needs_more_than_the_script_is_followed_by_a_test() -> None:
    listed = [place for places in FOLLOWED.values() for place in places]
    assert len(set(listed)) == len(listed)
    of_binlog = {place for place in sites() if place.startswith("pipelines/sources/mysql_cdc/binlog/")}
    needed = {place for place, commands in sites().items() if not set(commands) <= ALWAYS} - of_binlog
    assert needed - set(listed) == set(), "name the test that brings the error about, and follows its command"
    assert set(listed) - set(sites()) == set(), "these places name no command any more"
    for place in of_binlog:  # all of them alike: `OF_READERS` for every kind of error, `ON_A_SERVER` for one
        assert set(sites()[place]) <= {"run --resnapshot", "run"}, place
    for test in FOLLOWED:
        file, _, name = test.partition("::")
        assert f"def {name}" in (ROOT / file).read_text(encoding="utf-8"), test


def test_every_command_is_one_of_the_command_line() -> None:
    commands = typer.main.get_command(app)
    for place, found in sites().items():
        for line in found:
            verbs, options = re.findall(r"(?<!\S)[a-z]+", line), re.findall(r"--\S+", line)
            command = commands
            for verb in verbs:
                command = command.commands[verb]  # type: ignore[attr-defined]
            known = {name for parameter in command.params for name in parameter.opts}
            assert set(options) <= known, f"{place}: tidegate {line}"


def _kinds(base: type[ReadError]) -> Iterator[type[ReadError]]:
    for kind in base.__subclasses__():
        yield kind
        yield from _kinds(kind)


@pytest.mark.parametrize("kind", sorted(_kinds(ReadError), key=str), ids=lambda kind: kind.__name__)
def test_what_a_reader_advises_has_the_tables_name(kind: type[ReadError]) -> None:
    """As the error comes from a task of Spark, as text; and as it comes from the plan of a step."""
    mend = errors.UNLOCK if kind is errors.TableLocked else "mend it"
    for given in (None, FRESH, RETRY, then(mend, FRESH)):
        typed = kind("it is wrong", where="binlog.000001:4", next_command=given)
        text = RuntimeError(f"Traceback\n{kind.__module__}.{kind.__name__}: {typed}")
        for raised in (typed, text):
            found = explain(raised, "b", "step", "t on db")
            assert found is not None
            advised = found.advice.of_table("b", lambda: True)
            assert "--resnapshot TABLE" not in str(advised)
            again = "run the same command again" in str(advised)
            assert again or any(RESNAPSHOT in part.arguments for part in advised.parts if isinstance(part, NextCommand))
        assert "--resnapshot TABLE" not in str(typed.advice.of_table("b", lambda: True))


def test_advice_is_that_of_the_scripts_table_and_of_what_has_landed() -> None:
    edit = redeclare("write INT")
    assert str(advice(edit)) == str(advice(edit).of_table("b", lambda: False)) == "write INT"
    assert str(advice(edit).of_table("b", lambda: True)) == str(in_another_lake("write INT"))
    assert str(then("mend it", resnapshot("part")).of_table("b", lambda: True)).endswith("--resnapshot b")
