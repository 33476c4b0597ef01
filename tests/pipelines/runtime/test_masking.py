"""What the environment gives to WITH options is in no error, and in nothing that caused it."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from tidegate.pipelines.errors import PlanningError, SourceError
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.runtime.opening import Mask, MaskedCause
from tidegate.pipelines.runtime.runner import Runner
from tidegate.pipelines.sql import compile_script

SCRIPT = """
CREATE TABLE user_info (user_id INT PRIMARY KEY NOT ENFORCED, gender STRING) WITH (
    'connector' = 'mysql-cdc', 'hostname' = '${HOST}', 'port' = '${PORT}', 'username' = 'tidegate',
    'password' = '${PASSWORD}', 'database-name' = 'shop', 'table-name' = 'user_info', 'connect.timeout' = '1 s');
CREATE TABLE clicks (user_id INT, at AS PROCTIME()) WITH ('connector' = 'datagen', 'number-of-rows' = '${ROWS}');
CREATE TABLE enriched (user_id INT, gender STRING) WITH ('connector' = 'delta');
INSERT INTO enriched SELECT c.user_id, u.gender FROM clicks AS c
    LEFT JOIN user_info FOR SYSTEM_TIME AS OF c.at AS u ON c.user_id = u.user_id
"""
VALUES = {"HOST": "db.example.invalid", "PORT": "13306", "PASSWORD": "hunter2", "ROWS": "7"}


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("no route to db.example.invalid:13306", "no route to ${HOST}:${PORT}"),
        ("'port' = '13306': too large", "'port' = '${PORT}': too large"),
        ("position 413306 of epoch 7", "position 413306 of epoch 7"),
        ("is no whole number: '7'", "is no whole number: '${ROWS}'"),
        ("the user hunter2 is unknown", "the user ${PASSWORD} is unknown"),
    ],
)
def test_a_name_replaces_its_value(text: str, masked: str) -> None:
    assert Mask.of(compile_script(SCRIPT).tables.values(), VALUES).text(text) == masked


def test_a_cause_is_masked_too() -> None:
    cause = OSError(f"{VALUES['HOST']} does not answer")
    with pytest.raises(SourceError) as raised, Mask({"HOST": VALUES["HOST"]}).over():
        raise SourceError("no connection", where=f"u on {VALUES['HOST']}", next_command="look") from cause
    assert (raised.value.where, raised.value.next_command) == ("u on ${HOST}", "look")
    assert isinstance(raised.value.__cause__, MaskedCause)
    shown = "".join(traceback.format_exception(raised.value))
    assert "OSError: ${HOST} does not answer" in shown
    assert VALUES["HOST"] not in shown


def test_a_cause_that_says_nothing_of_it_stays() -> None:
    with pytest.raises(SourceError) as raised, Mask({"HOST": "db.example.invalid"}).over():
        raise SourceError("no connection") from KeyError("x")
    assert isinstance(raised.value.__cause__, KeyError)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"PORT": "70000"}, "70000"),
        ({"PORT": "12x"}, "12x"),
        ({}, "db.example.invalid"),
    ],
    ids=["out of range", "no number", "nobody there"],
)
def test_a_run_names_the_variable_and_not_its_value(tmp_path: Path, given: dict[str, str], expected: str) -> None:
    environment = {**VALUES, **given}
    pipeline = compile_script(SCRIPT)
    with Runner(pipeline, Lake(tmp_path / "lake"), environment=environment) as runner:
        with pytest.raises((SourceError, PlanningError)) as raised:
            runner.advance("user_info")
        shown = "".join(traceback.format_exception(raised.value))
    assert expected not in shown
    assert "${PORT}" in shown or "'port'" in shown
    assert "hunter2" not in shown
