"""What a wheel holds: all that is needed without the clone, and no name but `tidegate`."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import dagster as dg
import psutil
import pytest
from deltalake import DeltaTable

from tests.orchestration.services import Ui, Webhook, dagster_home, environment, running, until
from tests.tidegate.test_names import ROOMS
from tidegate.assets.scaffold import SCRIPT

ROOT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
FOLDERS = ("tidegate", *sorted(ROOMS))
OF_THE_CLONE = {"orchestration/defs/clicks/defs.yaml"}
"""What shows the examples, which a wheel does not have."""


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel in it, and a project whose own packages are called like Tidegate's folders."""

    wheel: Path
    bin: Path
    project: Path

    def environment(self) -> Mapping[str, str]:
        """Nothing of the clone: the project alone is on the path."""
        home = str(self.project / "home")
        return {**os.environ, "PYTHONPATH": str(self.project), "PATH": f"{self.bin}:{os.environ['PATH']}"} | {
            "DAGSTER_HOME": home,
            "VIRTUAL_ENV": str(self.bin.parent),
        }

    def run(self, command: str, *arguments: str, status: int = 0) -> str:
        done = subprocess.run(
            [self.bin / command, *arguments],
            cwd=self.project,
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    def add(self, *what: str | Path) -> None:
        """Install these into the environment, and nothing that they need: it is there."""
        pip = [sys.executable, "-m", "pip", "--python", self.bin / "python", "install", "--no-deps"]
        subprocess.run([*pip, *what], check=True, capture_output=True)


def build(into: Path) -> Path:
    """The wheel, of a copy of the clone: what setuptools leaves behind would be found by every other test."""
    clone = into / "clone"
    clone.mkdir(parents=True)
    for name in (*FOLDERS, "pyproject.toml", "README.md", "LICENSE"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, clone / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, clone / name)
    # `make install` puts the setuptools that the wheel needs into .venv; in an older environment pip fetches one.
    own = ["--no-build-isolation"] if int(version("setuptools").partition(".")[0]) >= 77 else []
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", *own, "--wheel-dir", into, clone]
    subprocess.run(pip, check=True, capture_output=True)
    (wheel,) = into.glob("tidegate-*.whl")
    return wheel


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("installed")
    wheel, venv, project = build(folder / "built"), folder / "venv", folder / "project"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (site,) = venv.glob("lib/python*/site-packages")
    # All other packages are those of this environment. Its .pth files, one of which leads to the clone, are not read.
    (site / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
    made = Installed(wheel, venv / "bin", project)
    made.add("--no-index", "--ignore-installed", wheel)
    for name in ("dg", "dagster", "dagster-webserver", "dagster-daemon"):  # whose first line names its environment
        text = (Path(sys.executable).parent / name).read_text().partition("\n")[2]
        (venv / "bin" / name).write_text(f"#!{venv / 'bin' / 'python'}\n{text}")
        (venv / "bin" / name).chmod(0o755)
    for room in ROOMS:
        (project / room).mkdir(parents=True)
        (project / room / "__init__.py").write_text("OWN = True\n")
    (project / "home").mkdir()
    (project / "home" / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    shutil.copytree(ROOT / "examples" / "news_clicks", project / "news_clicks")
    defs = project / "shop" / "defs" / "news"
    defs.mkdir(parents=True)
    for package in (project / "shop", project / "shop" / "defs"):
        (package / "__init__.py").touch()
    (project / "shop" / "definitions.py").write_text(
        "from pathlib import Path\nimport dagster as dg\n\n"
        "@dg.definitions\ndef defs():\n    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)\n"
    )
    (project / "pyproject.toml").write_text(
        '[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "shop"\n'
    )
    (defs / "defs.yaml").write_text(
        "type: tidegate.TidegateComponent\nattributes:\n  script: ../../../news_clicks/pipeline.py\n"
        "---\ntype: tidegate.TidegateAlerts\n"
    )
    return made


def test_every_file_beside_the_code_is_taken_along() -> None:
    files = [path for name in FOLDERS for path in (ROOT / name).rglob("*") if path.is_file()]
    other = [path for path in files if path.suffix not in (".py", ".pyc")]
    patterns = SETTINGS["package-data"]["*"]
    left = [path for path in other if not any(fnmatch.fnmatch(path.name, pattern) for pattern in patterns)]
    assert {str(path.relative_to(ROOT)) for path in left} == OF_THE_CLONE
    folders = {path.parent for path in files if path.suffix == ".py"}
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == [], "pip takes packages alone"


def test_a_wheel_takes_one_name(installed: Installed) -> None:
    names = {name.partition("/")[0] for name in zipfile.ZipFile(installed.wheel).namelist()}
    assert names == {"tidegate", f"tidegate-{version('tidegate')}.dist-info"}
    code = (
        "import tidegate, assets, pipelines, orchestration, quality_checks, json\n"
        "from tidegate.process.windows import Aggregate\n"
        "from tidegate.pipelines.process import windows\n"
        "own = [each.OWN for each in (assets, pipelines, orchestration, quality_checks)]\n"
        "print(json.dumps([tidegate.__file__, list(tidegate.__path__), own, Aggregate is windows.Aggregate]))"
    )
    file, path, own, same = json.loads(installed.run("python", "-c", code))
    assert (own, same) == ([True] * 4, True)
    assert file.startswith(str(installed.bin.parent))
    assert path == [str(Path(file).parent)]


def test_the_command_runs_out_of_a_wheel(installed: Installed) -> None:
    assert installed.run("tidegate", "--version").startswith("tidegate ")
    assert "The script is right" in installed.run("tidegate", "explain", "news_clicks/pipeline.py")


@pytest.mark.parametrize("module", ["pipelines.process", "pipelines.sql.compile"])
def test_the_name_of_a_folder_is_refused_with_the_new_one(installed: Installed, module: str) -> None:
    script = installed.project / "old.py"
    script.write_text(f"from {module} import anything\n")
    told = installed.run("tidegate", "explain", "old.py", status=1)
    own = module.split(".sql.")[0] + (".sql" if ".sql." in module else "")
    assert f"if Tidegate's is meant, write tidegate.{own} in the place of {own}" in told


def test_dagster_finds_both_components(installed: Installed) -> None:
    found = installed.run("dg", "list", "components", "--json")
    assert "tidegate.TidegateComponent" in found
    assert "tidegate.TidegateAlerts" in found


@pytest.mark.thorough
def test_a_project_of_ones_own_loads(installed: Installed) -> None:
    assert "All definitions loaded" in installed.run("dg", "check", "defs")
    assert "All component YAML validated" in installed.run("dg", "check", "yaml")


@pytest.mark.thorough
@pytest.mark.usefixtures("jvm")
def test_a_pipeline_runs_and_its_ui_shows_it(installed: Installed) -> None:
    """A process: Spark's Python workers have to find `tidegate`, too."""
    told = installed.run("tidegate", "run", "news_clicks/pipeline.py", "--lake", "lake")
    assert "published" in told
    project, log = installed.project, installed.project / "ui.log"
    command = [str(installed.bin / "tidegate"), "ui", "news_clicks/pipeline.py", "--lake", "lake"]
    with running(log, installed.environment(), *command, folder=project) as address:
        until(lambda: loaded(Ui(address)), "the code location is loaded")


@pytest.mark.thorough
@pytest.mark.usefixtures("jvm")
def test_a_project_that_create_dagster_makes_lives_with_a_held_gate_and_a_lost_run(
    installed: Installed, tmp_path: Path
) -> None:
    """The commands of docs/dagster-project.md, as they stand there; then what a person does in the UI."""
    installed.add(f"create-dagster=={version('dagster')}")
    title = "\n## The first pipeline\n"
    page = (ROOT / "docs" / "dagster-project.md").read_text().partition(title)[2].partition("\n## ")[0]
    commands = [shlex.split(line) for line in re.findall("^    (.+)$", page, re.MULTILINE)]
    made = replace(installed, project=tmp_path)
    for command, *arguments in commands[:-1]:
        if command == "cd":
            made = replace(made, project=made.project / arguments[0])
        else:
            said = made.run(command, *arguments)
    assert "All definitions loaded" in said
    assert commands[-1] == ["dg", "dev"]
    strict = made.project / "sql" / "strict.sql"
    strict.parent.mkdir()
    strict.write_text(SCRIPT.replace("'quarantine'", "'block'").replace("'fields.user_id.max' = '1000'", ABSENT))
    component = ("tidegate.TidegateComponent", "strict", "--script", "sql/strict.sql", "--lake", "state/strict")
    made.run("dg", "scaffold", "defs", *component)
    home, log = dagster_home(made.project / "home"), tmp_path / "dagster.log"
    with Webhook() as webhook:
        env = environment(home, TIDEGATE_WEBHOOK_URL=webhook.url) | dict(made.environment())
        with running(log, env, str(installed.bin / "dg"), "dev", folder=made.project) as address:
            ui = Ui(address, location=made.project.name)
            until(lambda: loaded(ui), "the code location is loaded")
            assert "in dagster.yaml: `concurrency: {pools: {default_limit: 1}}`." in log.read_text()
            until(lambda: ui.ticks("tidegate_alerts"), "runs that end from now on are reported")
            assert ui.ended(ui.launch("shop")) == "SUCCESS"
            assert (before := rows(made, "state/lake")) >= 100, "those that the source has at its start"
            hold_and_discard(made, ui, webhook)
            lose_a_run(home, ui, webhook)
            together = [ui.launch("shop") for _ in range(2)]
            assert [ui.ended(run_id) for run_id in together] == ["SUCCESS", "SUCCESS"]
            assert rows(made, "state/lake") > before, "one a second comes"
            until(lambda: told(webhook, "run-failed") == ["open", "resolved"], "the lost run is made good")
            for sensor in ("tidegate_alerts", "tidegate_continuous"):
                assert not [tick for tick in ui.ticks(sensor) if tick["error"]]
    assert told(webhook, "gate-held") == ["open", "resolved"]
    made.run("tidegate", "verify", "src/my_project/defs/shop/pipeline.sql", "--lake", "state/lake")


ABSENT = "'fields.user_id.max' = '100000'"
"""Of most clicks there is no user."""


def rows(made: Installed, lake: str) -> int:
    """How many are published."""
    return DeltaTable(str(made.project / lake / "targets" / "enriched_click")).to_pyarrow_dataset().count_rows()


def told(webhook: Webhook, kind: str) -> list[str]:
    return [message["state"] for message in webhook.messages if message["kind"] == kind]


def hold_and_discard(made: Installed, ui: Ui, webhook: Webhook) -> None:
    """A gate that holds is a failed check and one alert, until a person has decided in a terminal."""
    gate = lambda: ui.checked("gate", "strict", "enriched_click_staged")  # noqa: E731
    assert ui.ended(ui.launch("strict")) == "FAILURE"
    assert gate()[0] == "FAILED"
    until(lambda: told(webhook, "gate-held"), "the alert of the held gate")
    assert rows(made, "state/strict") == 0
    made.run("tidegate", "discard", "sql/strict.sql", "enriched_click", "--lake", "state/strict")
    until(lambda: told(webhook, "gate-held") == ["open", "resolved"], "the alert is over")
    until(lambda: gate()[0] == "SUCCEEDED", "its check is not failed any more")


def lose_a_run(home: Path, ui: Ui, webhook: Webhook) -> None:
    """kill -9 of a run while it works: it is recorded as failed and reported once, and nothing of it goes on."""
    run_id = ui.launch("shop")
    worker = until(lambda: worker_of(home, run_id), "the run names its process")
    engines = until(lambda: [child for child in worker.children(True) if child.name() == "java"], "it starts Spark")
    worker.kill()
    assert ui.ended(run_id) == "FAILURE"
    until(lambda: not [engine for engine in engines if engine.is_running()], "its JVM has ended")
    until(lambda: told(webhook, "run-failed") == ["open"], "the alert of the lost run")


def worker_of(home: Path, run_id: str) -> psutil.Process | None:
    """The process that the events of a run name."""
    with dg.DagsterInstance.from_config(str(home)) as history:
        entries = history.all_logs(run_id, of_type=dg.DagsterEventType.ENGINE_EVENT)
    pids = [entry.get_dagster_event().engine_event_data.metadata.get("pid") for entry in entries]
    named = [int(str(pid.value)) for pid in pids if pid is not None]
    return psutil.Process(named[-1]) if named else None


def loaded(ui: Ui) -> bool:
    try:
        entries = ui.ask(
            "{ workspaceOrError { ... on Workspace { locationEntries {"
            " locationOrLoadError { __typename ... on PythonError { message } } } } } }"
        )["workspaceOrError"]["locationEntries"]
    except OSError:
        return False
    states = [entry["locationOrLoadError"] for entry in entries]
    assert not [state for state in states if state and state["__typename"] == "PythonError"], states
    return bool(states) and all(state and state["__typename"] == "RepositoryLocation" for state in states)
