"""What a failed command says: commands that can be pasted, and places as they are."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from orchestration.console import Screen, reported
from pipelines.commands import Commands
from pipelines.errors import LeaseHeld


def test_the_commands_are_whole_and_the_holder_is_named_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(commands=Commands(Path("/s/p.sql"), Path("/data/lake")))
    with pytest.raises(typer.Exit), reported(screen):
        raise LeaseHeld("insert enriched", "tidegate run --continuous, process 4711 on host")
    told = capsys.readouterr().err
    assert "where: tidegate run --continuous, process 4711 on host\n" in told
    assert "tidegate status --lake /data/lake   (wait" in told
