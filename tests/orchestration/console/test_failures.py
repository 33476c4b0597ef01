"""What a failed command says: commands that can be pasted, and places as they are."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
import typer
from deltalake.exceptions import TableNotFoundError
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PythonException

from tidegate.orchestration.console.screen import Screen, reported
from tidegate.pipelines.commands import Commands
from tidegate.pipelines.errors import LeaseHeld
from tidegate.pipelines.runtime.gate import ask


def test_the_commands_are_whole_and_the_holder_is_named_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(commands=Commands(Path("/s/p.sql"), Path("/data/lake")))
    with pytest.raises(typer.Exit), reported(screen):
        raise LeaseHeld("insert enriched", "tidegate run --continuous, process 4711 on host")
    printed = capsys.readouterr().err
    assert "where: tidegate run --continuous, process 4711 on host\n" in printed
    assert "tidegate status --lake /data/lake   (wait" in printed


class HttpError(OSError):
    """As HTTP libraries have it: the address is in its text."""


@pytest.mark.parametrize("raised", [KeyError, HttpError, PythonException], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("as_json", [False, True])
def test_a_check_that_raises_is_reported_by_its_type_and_with_what_to_do(
    capsys: pytest.CaptureFixture[str], as_json: bool, raised: type[Exception]
) -> None:
    """What it says may hold a secret, and the text of a typed error goes into alerts: only the stack has it."""

    def raises(*_: Any) -> Any:
        raise raised("hunter2")

    staged: Any = SimpleNamespace(plan=SimpleNamespace(insert="enriched", epoch=7))
    with pytest.raises(typer.Exit) as left, reported(Screen(as_json=as_json)):
        ask(raises, staged, lambda: pytest.fail("it needs no Spark"), 60)
    assert isinstance(left.value.__cause__.__cause__, raised)
    assert "hunter2" in str(left.value.__cause__.__cause__)
    printed = capsys.readouterr()
    assert "hunter2" not in printed.out + printed.err
    what, then = (
        f"the checks of epoch 7 of enriched failed ({raised.__name__})",
        "look where it failed (--debug shows the stack, ",
    )
    if as_json:
        error = json.loads(printed.out)["error"]
        assert (error["kind"], error["what"], error["next"][: len(then)]) == ("NoVerdict", what, then)
    else:
        assert f"Error: {what}\n" in printed.err
        assert f"  next:  {then}" in printed.err


@pytest.mark.parametrize(
    ("raised", "what", "does"),
    [
        (PermissionError(30, "Read-only file system", "/data/lake/_control"), "Read-only", "make the disk writable"),
        (pa.ArrowInvalid("Parquet magic bytes not found in footer"), "Parquet magic bytes", "mend the cause (a file "),
        (TableNotFoundError("no log files"), "no log files", "mend the cause (a file that is damaged or gone"),
        (Py4JNetworkError("Answer from Java side is empty"), "Answer from Java side", "find out why Spark's process"),
        (HttpError("https://user:hunter2@host"), "HttpError", "mend the cause (a file that is damaged or gone"),
    ],
)
def test_what_the_disk_or_the_engine_throws_is_no_stack_and_json_where_that_is_asked_for(
    capsys: pytest.CaptureFixture[str], raised: Exception, what: str, does: str
) -> None:
    with pytest.raises(typer.Exit) as left, reported(Screen(as_json=True)):
        raise raised
    assert left.value.exit_code == 1
    printed = capsys.readouterr()
    error = json.loads(printed.out)["error"]
    assert what in error["what"]
    assert "run the same command again" in error["next"]
    assert error["next"].startswith(does)
    assert "hunter2" not in printed.out + printed.err
    assert error["where"] == ("/data/lake/_control" if isinstance(raised, PermissionError) else "")


def test_a_mistake_of_the_program_keeps_its_stack() -> None:
    with pytest.raises(KeyError), reported(Screen(as_json=True)):
        raise KeyError("x")
