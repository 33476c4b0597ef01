"""A team's own project: what create-dagster makes, with Tidegate's wheel installed, and `dg dev` on it."""

from __future__ import annotations

import json
import os
import re
import shlex
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import yaml
from deltalake import DeltaTable

from tests.assets.test_project import section
from tests.orchestration.services import ROOT, Ui, Webhook, dagster_home, environment, running, until
from tests.scripts.installed import Installed, installed_in

KIND = "tidegate.TidegateComponent"
CLASS = re.compile(r"^class (\w+)", re.MULTILINE)


@dataclass(frozen=True)
class OwnProject(Ui):
    """The project while `dg dev` runs in it: asked as the UI asks, with commands typed in its folder.

    `said` is what `dg check defs` printed; `webhook` has the alerts of all its pipelines."""

    made: Installed
    webhook: Webhook
    said: str

    @property
    def folder(self) -> Path:
        return self.made.project

    @property
    def log(self) -> str:
        """What `dg dev` has printed."""
        return (self.folder / "dagster.log").read_text()

    def run(self, command: str, *arguments: str, status: int = 0) -> str:
        """What a command prints that is typed in the project's folder, and has to end with `status`."""
        return self.made.run(command, *arguments, status=status)

    def tidegate(self, command: str, pipeline: str, *arguments: str, status: int = 0) -> str:
        """The same of a command of Tidegate's, on a pipeline and its lake."""
        script = f"src/my_project/defs/{pipeline}/pipeline.sql"
        return self.run("tidegate", command, script, *arguments, "--lake", f"state/{pipeline}", status=status)

    def lake(self, name: str) -> Path:
        return self.folder / "state" / name

    def put(self, path: str, *rows: Mapping[str, Any]) -> None:
        """A file that a source reads, finished a while ago; `path` is below the folder of all components."""
        file = self.folder / "src" / "my_project" / "defs" / path
        file.parent.mkdir(exist_ok=True)
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        past = time.time() - 60
        os.utime(file, (past, past))

    def add(self, name: str, script: str, **attributes: Any) -> Path:
        """Another pipeline, loaded as by the UI's button Reload. Its folder."""
        folder = written(self.folder, name, script, **attributes)
        self.reload()
        return folder

    def reload(self) -> None:
        """Load what the project's files have become, as the UI's button does; a minute on a busy machine."""
        reloaded = self.ask(
            "mutation($l: String!) { reloadRepositoryLocation(repositoryLocationName: $l) { __typename"
            " ... on WorkspaceLocationEntry { locationOrLoadError {"
            " __typename ... on PythonError { message } } } } }",
            l=self.location,
        )["reloadRepositoryLocation"]
        assert reloaded["__typename"] == "WorkspaceLocationEntry", reloaded
        until(self.loaded, "the code location is loaded again")

    def rows(self, lake: str, target: str = "enriched_click") -> int:
        """How many are published."""
        return DeltaTable(str(self.lake(lake) / "targets" / target)).to_pyarrow_dataset().count_rows()

    def published(self, lake: str, target: str, *columns: str) -> list[tuple[Any, ...]]:
        """The rows themselves, in order."""
        path = self.lake(lake) / "targets" / target
        if not DeltaTable.is_deltatable(str(path)):
            return []
        rows = DeltaTable(str(path)).to_pyarrow_table(columns=[*columns]).to_pylist()
        return sorted(tuple(row[column] for column in columns) for row in rows)

    def partitions(self, asset: str) -> list[str]:
        """The partitions that an asset's page shows, in order."""
        node = self.ask(
            "query($k: AssetKeyInput!) { assetNodeOrError(assetKey: $k) { ... on AssetNode { partitionKeys } } }",
            k={"path": asset.split("/")},
        )["assetNodeOrError"]
        return node["partitionKeys"]

    def told(self, kind: str, pipeline: str) -> list[str]:
        """The states of the alerts of one kind, in the order in which they came."""
        found = [message for message in self.webhook.messages if message["kind"] == kind]
        return [message["state"] for message in found if message["pipeline"] == pipeline]

    def worker_of(self, run_id: str) -> psutil.Process | None:
        """The process that the events of a run name."""
        with dg.DagsterInstance.from_config(str(self.folder / "home")) as history:
            entries = history.all_logs(run_id, of_type=dg.DagsterEventType.ENGINE_EVENT)
        pids = [entry.get_dagster_event().engine_event_data.metadata.get("pid") for entry in entries]
        named = [int(str(pid.value)) for pid in pids if pid is not None]
        return psutil.Process(named[-1]) if named else None


def written(project: Path, name: str, script: str, component: str = "", **attributes: Any) -> Path:
    """A component's folder in a project: `pipeline.sql` and its YAML, with a lake of the pipeline's own. `component`:
    the class of the team's own in whose place it is."""
    folder = project / "src" / "my_project" / "defs" / name
    folder.mkdir(exist_ok=True)
    (folder / "pipeline.sql").write_text(script)
    attributes = {"script": "pipeline.sql", "lake": f"state/{name}", **attributes}
    if component:
        (folder / "component.py").write_text(component)
    kind = f"my_project.defs.{name}.component.{found[1]}" if (found := CLASS.search(component)) else KIND
    declared = {"type": kind, "attributes": attributes}
    (folder / "defs.yaml").write_text(yaml.safe_dump(declared, sort_keys=False))
    return folder


@contextmanager
def started(folder: Path, pipelines: Mapping[str, Mapping[str, Any]] | None = None) -> Iterator[OwnProject]:
    """The project, made below `folder` by the commands of docs/dagster-project.md, as they stand there. It has the
    pipeline `shop`, on the lake `state/lake`, alerts, and `pipelines`: by name what `written` takes. A run is one
    process, as that page's section on executors has it."""
    made = installed_in(folder, folder)
    made.add(f"create-dagster=={version('dagster')}")
    title = "\n## The first pipeline\n"
    page = (ROOT / "docs" / "dagster-project.md").read_text().partition(title)[2].partition("\n## ")[0]
    commands = [shlex.split(line) for line in re.findall("^    (.+)$", page, re.MULTILINE)]
    said = ""
    for command, *arguments in commands[:-1]:
        if command == "cd":
            made = replace(made, project=made.project / arguments[0])
        else:
            said = made.run(command, *arguments)
    assert commands[-1] == ["dg", "dev"]
    for path, text in section("The executor").items():
        if path.endswith(".py"):
            (made.project / "src" / path).write_text(text)
    for name, given in (pipelines or {}).items():
        written(made.project, name, **given)
    with Webhook() as webhook:
        made = replace(made, more=environment(dagster_home(made.project / "home"), TIDEGATE_WEBHOOK_URL=webhook.url))
        dev = (str(made.bin / "dg"), "dev")
        with running(made.project / "dagster.log", made.environment(), *dev, folder=made.project) as address:
            project = OwnProject(address, made, webhook, said, location=made.project.name)
            until(project.loaded, "the code location is loaded")
            until(lambda: project.ticks("tidegate_alerts"), "runs that end from now on are reported")
            yield project
