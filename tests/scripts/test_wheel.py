"""What a wheel holds: all that is needed without the clone, and no name but `tidegate`."""

from __future__ import annotations

import fnmatch
import json
import os
import shutil
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.cases import at_length
from tests.orchestration.services import Ui, running, until
from tests.scripts.installed import FOLDERS, ROOT, Installed, installed_in
from tests.tidegate.test_names import ROOMS

SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
OF_THE_CLONE = {"orchestration/defs/clicks/defs.yaml"}
"""What shows the examples, which a wheel does not have."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Beside a project whose own packages are called like Tidegate's folders."""
    folder = tmp_path_factory.mktemp("installed")
    project = folder / "project"
    made = installed_in(folder, project)
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
    assert os.access(Path(file).parent / "pipelines" / "runtime" / "java_home" / "bin" / "java", os.X_OK)


def test_the_command_runs_out_of_a_wheel(installed: Installed) -> None:
    assert installed.run("tidegate", "--version").startswith("tidegate ")
    assert "The script is right" in installed.run("tidegate", "explain", "news_clicks/pipeline.py")


@pytest.mark.parametrize("module", at_length(["pipelines.sql.compile", "pipelines.process"]))
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
        until(Ui(address).loaded, "the code location is loaded")
