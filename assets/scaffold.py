"""What `dg scaffold defs tidegate.TidegateComponent NAME` writes: a script, its YAML, and a test of both."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import dagster as dg
from dagster.components.component_scaffolding import scaffold_component
from pydantic import BaseModel, Field

from tidegate.assets.names import identifier
from tidegate.pipelines.errors import PlanningError

SCRIPT = """\
-- Clicks, each with the plan of its user, ready to run. Put your own connectors into WITH (…).

-- The build side: no click leaves before it is known to be complete.
CREATE TABLE user_info (
    user_id INTEGER PRIMARY KEY NOT ENFORCED,
    plan STRING
) WITH (
    'connector' = 'datagen',
    'number-of-rows' = '1000',
    'rows-at-start' = '1000',
    'fields.user_id.kind' = 'sequence',
    'fields.user_id.start' = '1',
    'fields.user_id.end' = '1000'
);

-- The probe side.
CREATE TABLE click_event (
    user_id INTEGER,
    item_id INTEGER,
    proctime AS PROCTIME()
) WITH (
    'connector' = 'datagen',
    'rows-at-start' = '100',
    'rows-per-second' = '1',
    'fields.user_id.min' = '1',
    'fields.user_id.max' = '1000'
);

-- The target. A click without a user is quarantined.
CREATE TABLE enriched_click (
    user_id INTEGER,
    item_id INTEGER,
    plan STRING
) WITH ('connector' = 'delta', 'gate.on-unmatched' = 'quarantine');

INSERT INTO enriched_click
SELECT c.user_id, c.item_id, u.plan FROM click_event AS c
LEFT JOIN user_info FOR SYSTEM_TIME AS OF c.proctime AS u ON c.user_id = u.user_id;
"""

_TEST = '''\
"""The pipeline {name}: it loads, and rows go through it as they should. No source is asked; the test plays them."""

from pathlib import Path

import dagster as dg
import pytest
from tidegate import Harness
from tidegate.testing import spark_session

PROJECT = Path(__file__).parents[1]
SCRIPT = PROJECT / "{script}"


@pytest.fixture(scope="session")
def spark():
    return spark_session()


def test_its_assets_load():
    found = dg.load_from_defs_folder(path_within_project=PROJECT).resolve_asset_graph().get_all_asset_keys()
    assert [key for key in found if key.path[0] == "{name}"]


{rows}'''

_ROWS = """\
def test_a_click_meets_its_user(spark, tmp_path):
    harness = Harness(SCRIPT, spark, tmp_path, scripted=True)
    harness.push("user_info", [{"user_id": 1, "plan": "free"}])
    harness.push("click_event", [{"user_id": 1, "item_id": 7}])
    assert harness.advance() == []  # the users may still be loading
    harness.end_of_snapshot("user_info")
    assert harness.advance() == [{"user_id": 1, "item_id": 7, "plan": "free", "op": "+I"}]
"""

_NO_ROWS = """\
def test_nothing_comes_of_nothing(spark, tmp_path):
    harness = Harness(SCRIPT, spark, tmp_path, scripted=True)
    assert harness.advance() == []  # harness.push("a_table", [{"a_column": 1}]), then advance: what is published
"""


class ScaffoldParams(BaseModel):
    """The options of `dg scaffold defs`. The script and the test that are there are left as they are."""

    script: str | None = Field(
        None, description="A script that is there, relative to the project; else one is written."
    )
    lake: str | None = None
    cron: str | None = None
    timezone: str | None = None
    partitions_from: str | None = None
    owner: list[str] = Field(default_factory=list)
    pool: str | None = None


class TidegateScaffolder(dg.Scaffolder[ScaffoldParams]):
    """Writes `pipeline.sql` and `defs.yaml` (or `component.py`) into the folder, and `tests/test_NAME.py`."""

    @classmethod
    def get_scaffold_params(cls) -> type[ScaffoldParams]:
        return ScaffoldParams

    def scaffold(self, request: dg.ScaffoldRequest[ScaffoldParams]) -> None:
        params = request.params
        folder = request.target_path.parent if request.append else request.target_path
        root = request.project_root or folder
        script = folder / "pipeline.sql" if params.script is None else (root / params.script).resolve()
        if params.script is not None and not script.is_file():
            raise PlanningError(
                f"there is no script {script}",
                where="--script",
                state="nothing was written",
                next_command="name a file that is there, relative to the project's root, or leave --script out",
            )
        own = params.script is None
        if own and not script.exists():
            script.write_text(SCRIPT, encoding="utf-8")
        name = folder.name if script.stem == "pipeline" else script.stem
        attributes: dict[str, Any] = {"script": os.path.relpath(script, folder)}
        if script.stem == "pipeline" and script.parent != folder:
            attributes["name"] = name
        given = {"owners": params.owner, **params.model_dump(exclude={"script", "owner", "pool"})}
        attributes |= {option: value for option, value in given.items() if value}
        if params.pool:
            attributes["op"] = {"pool": params.pool}
        scaffold_component(request, attributes)
        if request.project_root is not None:
            _write_test(request.project_root, name, script, own)


def _write_test(root: Path, name: str, script: Path, own: bool) -> None:
    test = root / "tests" / f"test_{identifier(name)}.py"
    if test.exists():
        return
    test.parent.mkdir(exist_ok=True)
    text = _TEST.format(name=name, script=os.path.relpath(script, root), rows=_ROWS if own else _NO_ROWS)
    test.write_text(text, encoding="utf-8")
