"""What loads definitions, shows help or a status does not load what only runs need. A process each: modules stay."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.pipelines.runtime.handmade import HandmadeLake

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("examples/*/pipeline.*"))
HEAVY = ("pyspark", "deltalake", "pyarrow", "pandas", "numpy", "great_expectations")

LOAD = """
import sys
from pathlib import Path

import dagster as dg
import tidegate
from tidegate.assets.factories import location_definitions, on_lake
from tidegate.pipelines.runtime.scripts import load_script

assert tidegate.TidegateComponent.get_spec()
found = [
    on_lake(load_script(Path(path), f"pipeline_{number}"), lake=".tidegate/none")
    for number, path in enumerate(sys.argv[1:])
]
definitions = location_definitions(found)
dg.Definitions.validate_loadable(definitions)
repository = definitions.get_repository_def()
print(len(repository.job_names), len(repository.schedule_defs))
"""


def loaded(code: str, *arguments: str) -> list[str]:
    """What of HEAVY a process has loaded that runs this."""
    return ran(code, *arguments)[-1].split()


def ran(code: str, *arguments: str) -> list[str]:
    """The lines that a process prints which runs this, the last one being what of HEAVY it has loaded."""
    code += f"\nimport sys\nprint()\nprint(*(name for name in {HEAVY} if name in sys.modules))"
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


def test_fifty_scripts_have_a_job_and_a_schedule_each_and_load_without_what_runs_them() -> None:
    """Every example, several times."""
    assert len(EXAMPLES) > 5
    counted, *_, heavy = ran(LOAD, *(EXAMPLES * 10)[:50])
    jobs, schedules = map(int, counted.split())
    assert heavy == ""
    assert 50 < jobs <= 50 + 9, "beside theirs the operations, and that of assets without a job"
    assert 50 < schedules <= 50 + 2


def test_what_scripts_the_code_location_and_its_alerts_need_is_light() -> None:
    assert loaded("import tidegate\ntidegate.process, tidegate.sql, tidegate.watermarks") == []
    assert loaded("import tidegate.orchestration.definitions\nimport tidegate\ntidegate.TidegateAlerts") == []
    assert set(loaded("import tidegate.assets.continuous")) <= {"deltalake", "pyarrow", "numpy"}, "no Spark"


COMMAND = """
import sys
from tidegate.orchestration.commands.app import app

app(standalone_mode=False)
"""


def test_help_is_light() -> None:
    assert loaded(COMMAND, "run", "--help") == []


def test_a_look_at_a_script_needs_neither_spark_nor_great_expectations_nor_dagster(tmp_path: Path) -> None:
    made = HandmadeLake(tmp_path / "lake")
    made.one_epoch(matched=7, unmatched_key_absent_u=3)
    code = f"{COMMAND}\nassert 'dagster' not in sys.modules"
    script = "examples/clicks/pipeline.sql"
    for line in (
        ["explain", script],
        ["status", script, "--lake", str(made.root)],
        ["status", "--lake", str(made.root)],
    ):
        assert set(loaded(code, *line)) <= {"deltalake", "pyarrow", "numpy"}


BARS = """
import io
import sys
from rich.console import Console
from tidegate.orchestration.console.bars import Bars

with Bars(Console(file=io.StringIO())) as bars:
    bars.task("a step")
assert "dagster" not in sys.modules
"""


def test_a_command_whose_output_is_no_terminal_needs_no_dagster() -> None:
    """Its bars are lines, as in Dagster's logs."""
    assert loaded(BARS) == []
