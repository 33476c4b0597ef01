"""What a failed command says: commands that can be pasted, and places as they are."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from pyspark.errors import PythonException

from orchestration.console import Screen, reported
from pipelines.commands import Commands
from pipelines.errors import LeaseHeld
from pipelines.runtime.judging import ask


def test_the_commands_are_whole_and_the_holder_is_named_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(commands=Commands(Path("/s/p.sql"), Path("/data/lake")))
    with pytest.raises(typer.Exit), reported(screen):
        raise LeaseHeld("insert enriched", "tidegate run --continuous, process 4711 on host")
    told = capsys.readouterr().err
    assert "where: tidegate run --continuous, process 4711 on host\n" in told
    assert "tidegate status --lake /data/lake   (wait" in told


class HttpError(OSError):
    """As HTTP libraries have it: the address is in its text."""


@pytest.mark.parametrize("raised", [KeyError, HttpError, PythonException], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("as_json", [False, True])
def test_a_check_that_raises_is_told_by_its_type_and_with_what_to_do(
    capsys: pytest.CaptureFixture[str], as_json: bool, raised: type[Exception]
) -> None:
    """What it says may hold a secret, and the text of a typed error goes into alerts: only the stack has it."""

    def raises(*_: Any) -> Any:
        raise raised("hunter2")

    staged: Any = SimpleNamespace(plan=SimpleNamespace(insert="enriched", epoch=7))
    with pytest.raises(typer.Exit) as left, reported(Screen(as_json=as_json)):
        ask(raises, staged, lambda: pytest.fail("it needs no Spark"), 60)
    assert left.value.__cause__ is not None
    assert isinstance(left.value.__cause__.__cause__, raised)
    assert "hunter2" in str(left.value.__cause__.__cause__)
    told = capsys.readouterr()
    assert "hunter2" not in told.out + told.err
    what, then = (
        f"the checks of epoch 7 of enriched failed ({raised.__name__})",
        "look where it failed (--debug shows the stack, ",
    )
    if as_json:
        error = json.loads(told.out)["error"]
        assert (error["kind"], error["what"], error["next"][: len(then)]) == ("NoVerdict", what, then)
    else:
        assert f"Error: {what}\n" in told.err
        assert f"  next:  {then}" in told.err
