"""A team's own project: what create-dagster makes, with Tidegate's wheel installed, and `dg dev` on it."""

from __future__ import annotations

import json
import os
import re
import shlex
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import yaml
from dagster import DagsterEventType
from deltalake import DeltaTable

from tests.assets.test_project import section
from tests.orchestration.services import ROOT, SENSOR, Ui, Webhook, dagster_home, environment, running, until
from tests.scripts.installed import Installed, installed_in

KIND = "tidegate.TidegateComponent"
SENSORS = (SENSOR, "tidegate_continuous")
"""Those that the project has."""
CLASS = re.compile(r"^class (\w+)", re.MULTILINE)
RATES = """
CREATE TABLE rate (
    currency STRING PRIMARY KEY NOT ENFORCED, rate INT, valid_from TIMESTAMP(3), WATERMARK FOR valid_from AS valid_from
) WITH ('connector' = 'filesystem', 'path' = 'rates', 'format' = 'changelog-json');
CREATE TABLE orders (id INT, currency STRING, placed TIMESTAMP(3), WATERMARK FOR placed AS placed) WITH (
    'connector' = 'filesystem', 'path' = 'orders', 'format' = 'json'
);
CREATE TABLE converted (id INT, rate INT) WITH ('connector' = 'delta');
INSERT INTO converted SELECT o.id, r.rate FROM orders AS o
LEFT JOIN rate FOR SYSTEM_TIME AS OF o.placed AS r ON o.currency = r.currency;
"""
CLICKS = """
CREATE TABLE user_info (user_id INT PRIMARY KEY NOT ENFORCED, gender STRING) WITH (
    'connector' = 'filesystem', 'path' = 'users', 'format' = 'changelog-json'
);
CREATE TABLE click_event (user_id INT, proctime AS PROCTIME()) WITH (
    'connector' = 'filesystem', 'path' = 'clicks', 'format' = 'json'
);
CREATE TABLE enriched_click (user_id INT, gender STRING) WITH ('connector' = 'delta', 'gate.on-unmatched' = 'block');
INSERT INTO enriched_click SELECT c.user_id, u.gender FROM click_event AS c
LEFT JOIN user_info FOR SYSTEM_TIME AS OF c.proctime AS u ON c.user_id = u.user_id;
"""
BY_FILES = """
import time
from pathlib import Path

import tidegate

HERE = Path(__file__).parent


class ByFiles(tidegate.TidegateComponent):
    def execute(self, context, tidegate, step):
        while (HERE / f"{step.kind} waits").exists():
            time.sleep(0.2)
        if (HERE / f"{step.kind} fails").exists():
            Path((HERE / f"{step.kind} fails").read_text()).write_text("what this team does before a step")
        yield from super().execute(context, tidegate, step)
"""
"""A component of the team's own: a step waits while there is a file `<kind> waits` beside it, and fails while there is
a file `<kind> fails`, which names what cannot be written; empty, it is the folder."""


@dataclass(frozen=True)
class OwnProject(Ui):
    """The project while `dg dev` runs in it: asked as the UI asks, with commands typed in its folder.

    `printed` is what `dg check defs` printed; `webhook` has the alerts of all its pipelines."""

    made: Installed
    webhook: Webhook
    printed: str

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

    def beside(self, path: str) -> Path:
        """A file of a component: `path` is below the folder of all."""
        return self.folder / "src" / "my_project" / "defs" / path

    def put(self, path: str, *rows: Mapping[str, Any], age_s: float = 60) -> None:
        """A file that a source reads, finished so long ago; `path` as in `beside`."""
        file = self.beside(path)
        file.parent.mkdir(exist_ok=True)
        past = time.time() - age_s
        begun = file.with_name(f".{file.name}")  # which no source reads
        begun.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(begun, (past, past))
        begun.rename(file)

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

    def backfill(self, assets: Iterable[str], *partitions: str) -> str:
        """Launch a backfill as the dialog of the UI does that asks for partitions; its id."""
        launched = self.ask(
            "mutation($p: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $p) { __typename"
            " ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }",
            p={"assetSelection": [{"path": key.split("/")} for key in assets], "partitionNames": [*partitions]},
        )["launchPartitionBackfill"]
        assert launched["__typename"] == "LaunchBackfillSuccess", launched
        return launched["backfillId"]

    def backfilled(self, backfill_id: str) -> dict[str, str]:
        """The runs of a backfill, once it is over and all has succeeded: id -> status."""

        def found() -> dict[str, Any]:
            return self.ask(
                "query($i: String!) { partitionBackfillOrError(backfillId: $i) { ... on PartitionBackfill { status"
                " error { message } runs(limit: 100) { id status } } } }",
                i=backfill_id,
            )["partitionBackfillOrError"]

        running = ("REQUESTED", "CANCELING", "FAILING")
        over = until(lambda: None if (now := found())["status"] in running else now, "the backfill is over")
        return {run["id"]: run["status"] for run in over["runs"]} | {"backfill": over["status"]}

    def partitions(self, asset: str) -> list[str]:
        """The partitions that an asset's page shows, in order."""
        node = self.ask(
            "query($k: AssetKeyInput!) { assetNodeOrError(assetKey: $k) { ... on AssetNode { partitionKeys } } }",
            k={"path": asset.split("/")},
        )["assetNodeOrError"]
        return node["partitionKeys"]

    def materialized(self, asset: str) -> list[str]:
        """Those of its partitions that are."""
        with dg.DagsterInstance.from_config(str(self.folder / "home")) as history:
            return sorted(history.get_materialized_partitions(dg.AssetKey(asset.split("/"))))

    def group(self, name: str) -> list[str]:
        """What the button "Materialize all" of a group takes."""
        nodes = self.ask("{ assetNodes { assetKey { path } groupName isMaterializable } }")["assetNodes"]
        taken = [node for node in nodes if node["groupName"] == name and node["isMaterializable"]]
        return ["/".join(node["assetKey"]["path"]) for node in taken]

    def assets_of(self, run_id: str) -> set[str]:
        """Those that a run of the asset graph is to make."""
        run = self.ask("query($i: ID!) { runOrError(runId: $i) { ... on Run { assetSelection { path } } } }", i=run_id)
        return {"/".join(key["path"]) for key in run["runOrError"]["assetSelection"] or ()}

    def alerts(self, kind: str, pipeline: str = "") -> list[dict[str, Any]]:
        """The messages of one kind, in the order in which they came; an incident of no pipeline has none."""
        found = [message for message in self.webhook.messages if message["kind"] == kind]
        return [message for message in found if message["pipeline"] == pipeline]

    def alerted(self, kind: str, pipeline: str = "") -> list[str]:
        """The states of these messages."""
        return [message["state"] for message in self.alerts(kind, pipeline)]

    def events(self, run_id: str, kind: DagsterEventType | None = None) -> list[dg.EventLogEntry]:
        """What a run has in Dagster's history."""
        with dg.DagsterInstance.from_config(str(self.folder / "home")) as history:
            return list(history.all_logs(run_id, of_type=kind))

    def failures(self, run_id: str) -> list[str]:
        """What its failed steps say on its own page."""
        entries = self.events(run_id, DagsterEventType.STEP_FAILURE)
        failed = [entry.get_dagster_event().step_failure_data.user_failure_data for entry in entries]
        return [failure.description or "" for failure in failed if failure is not None]

    def worker_of(self, run_id: str) -> psutil.Process | None:
        """The process that the events of a run name."""
        entries = self.events(run_id, DagsterEventType.ENGINE_EVENT)
        pids = [entry.get_dagster_event().engine_event_data.metadata.get("pid") for entry in entries]
        named = [int(str(pid.value)) for pid in pids if pid is not None]
        return psutil.Process(named[-1]) if named else None

    def engines(self) -> list[psutil.Process]:
        """The JVMs of its runs."""
        found = psutil.process_iter(["name", "environ"])
        home = str(self.folder / "home")
        ours = [one for one in found if (one.info["environ"] or {}).get("DAGSTER_HOME") == home]
        return [one for one in ours if one.info["name"] == "java"]

    def kill(self, run_id: str) -> None:
        """kill -9 the process of a run, and wait until the run is recorded as failed."""
        until(lambda: self.worker_of(run_id), "the run names its process").kill()
        assert self.ended(run_id) == "FAILURE"

    @contextmanager
    def daemon_stopped(self) -> Iterator[None]:
        """Stop Dagster's daemon, as on a machine that sleeps: between two ticks, and with no database locked."""
        home = self.folder / "home"
        processes = psutil.process_iter(["cmdline"])
        lines = [(process, " ".join(process.info["cmdline"] or ())) for process in processes]
        (daemon,) = (process for process, line in lines if "dagster._daemon run" in line and str(home) in line)
        daemon.suspend()
        try:
            while any(map(_is_locked, home.rglob("*.db"))) or self._is_ticking():
                daemon.resume()
                time.sleep(0.5)
                daemon.suspend()
            yield
        finally:
            daemon.resume()

    def _is_ticking(self) -> bool:
        return any(self.ticks(name)[:1] and self.ticks(name)[0]["status"] == "STARTED" for name in SENSORS)


def _is_locked(database: Path) -> bool:
    try:
        with closing(sqlite3.connect(database, timeout=1, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
    except sqlite3.OperationalError:
        return True
    return False


def written(project: Path, name: str, /, script: str, component: str = "", **attributes: Any) -> Path:
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
def started(
    folder: Path, pipelines: Mapping[str, Mapping[str, Any]] | None = None, settings: str = "", **variables: str
) -> Iterator[OwnProject]:
    """The project, made below `folder` by the commands of docs/dagster-project.md, as they stand there. It has the
    pipeline `shop`, on the lake `state/lake`, alerts, and `pipelines`: by name what `written` takes. A run is one
    process, as that page's section on executors has it. `settings`: lines of dagster.yaml; `variables`: of the
    environment. No tick of a sensor may have failed by the end."""
    made = installed_in(folder, folder)
    made.add(f"create-dagster=={version('dagster')}")
    title = "\n## The first pipeline\n"
    page = (ROOT / "docs" / "dagster-project.md").read_text().partition(title)[2].partition("\n## ")[0]
    commands = [shlex.split(line) for line in re.findall("^    (.+)$", page, re.MULTILINE)]
    printed = ""
    for command, *arguments in commands[:-1]:
        if command == "cd":
            made = replace(made, project=made.project / arguments[0])
        else:
            printed = made.run(command, *arguments)
    assert commands[-1] == ["dg", "dev"]
    for path, text in section("The executor").items():
        if path.endswith(".py"):
            (made.project / "src" / path).write_text(text)
    for name, given in (pipelines or {}).items():
        written(made.project, name, **given)
    with Webhook() as webhook:
        home = dagster_home(made.project / "home", settings)
        made = replace(made, more=environment(home, TIDEGATE_WEBHOOK_URL=webhook.url, **variables))
        dev = (str(made.bin / "dg"), "dev")
        with running(made.project / "dagster.log", made.environment(), *dev, folder=made.project) as address:
            project = OwnProject(address, made, webhook, printed, location=made.project.name)
            until(project.loaded, "the code location is loaded")
            project.watching()
            yield project
            assert not [tick for sensor in SENSORS for tick in project.ticks(sensor) if tick["error"]]


def user(number: int) -> dict[str, Any]:
    """A row of `user_info`."""
    return {"data": {"user_id": number, "gender": "f"}, "op": "+I"}


def rate(rate: int, valid_from: str, op: str = "+I") -> dict[str, Any]:
    """One of `rate`."""
    return {"data": {"currency": "EUR", "rate": rate, "valid_from": valid_from}, "op": op}


def order(number: int, placed: str) -> dict[str, Any]:
    """One of `orders`."""
    return {"id": number, "currency": "EUR", "placed": placed}
