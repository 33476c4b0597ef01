"""What the tasks of an epoch report, and what of it is believed."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate.pipelines.process import ProcessError
from tidegate.pipelines.runtime.processing.outputs import same_on_every_task


def report(task: int, broadcast: str = "x", closing: str = "") -> dict[str, Any]:
    return {"task": task, "broadcast": broadcast, "closing": closing}


def test_the_same_everywhere() -> None:
    same_on_every_task("told", [report(0), report(1), report(2)], 3)
    same_on_every_task("told", [report(0)], 1)


@pytest.mark.parametrize(
    ("reports", "told"),
    [
        ([report(0), report(2)], "of 3 tasks of told, 2 have reported what they did"),
        ([report(0), report(1), report(1)], "of 3 tasks of told, 3 have reported what they did"),
        ([], "of 3 tasks of told, 0 have reported what they did"),
        ([report(0), report(1), report(2, "y")], "the tasks of told have come to different broadcast states"),
        ([report(0), report(1), report(2, closing="y")], "the tasks of told have collected different records in close"),
    ],
)
def test_what_is_refused(reports: list[dict[str, Any]], told: str) -> None:
    with pytest.raises(ProcessError, match=told):
        same_on_every_task("told", reports, 3)
