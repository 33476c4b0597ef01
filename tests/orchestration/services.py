"""What these tests start: a webhook that remembers what it got, and Dagster itself, as a person starts it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

import psutil
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import Envelope

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 300.0
"""How long to wait for something that will happen; a machine under load takes its time."""
SENSOR = "tidegate_alerts"

T = TypeVar("T")


def until(found: Callable[[], T | None], what: str, patience: float = PATIENCE_S) -> T:
    """What `found` gives, once it gives something. Fails saying what did not happen."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        value = found()
        if value:
            return value
        time.sleep(0.5)
    raise AssertionError(f"{what}: not within {patience:.0f} s")


class Webhook:
    """A local HTTP server. `messages` are the JSON bodies it got; it answers with `status`, and says that it has moved
    to `moved`, if it has."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.status = 200
        self.moved = ""
        webhook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if webhook.status < 300:
                    webhook.messages.append(json.loads(body))
                self.send_response(webhook.status)
                if webhook.moved:
                    self.send_header("Location", webhook.moved)
                self.end_headers()

            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/hooks/T0KEN"

    def kinds(self) -> list[str]:
        return [message["kind"] for message in self.messages]

    def alerts(self, kind: str, **details: Any) -> list[dict[str, Any]]:
        """The messages of one kind with these details."""
        found = (message for message in self.messages if message["kind"] == kind)
        return [message for message in found if all(message.get(name) == value for name, value in details.items())]

    def __enter__(self) -> Webhook:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class MailServer:
    """A local SMTP server. `mails` are what it took."""

    def __init__(self) -> None:
        self.mails: list[EmailMessage] = []
        self._controller = Controller(self, hostname="127.0.0.1", port=free_port())

    async def handle_DATA(self, server: Any, session: Any, envelope: Envelope) -> str:  # noqa: N802 aiosmtpd's name
        content = envelope.content
        assert isinstance(content, bytes)
        self.mails.append(message_from_bytes(content, policy=policy.default))
        return "250 taken"

    @property
    def url(self) -> str:
        """As Apprise spells it."""
        return f"mailto://127.0.0.1:{self._controller.port}?from=tidegate@example.com&to=ops@example.com"

    def subjects(self) -> list[str]:
        return [str(mail["Subject"]) for mail in self.mails]

    def text(self, subject: str) -> str:
        """The whole text of the first mail whose subject has `subject` in it; empty while there is none."""
        found = next((mail for mail in self.mails if subject in str(mail["Subject"])), None)
        if found is None:
            return ""
        return "\n".join(part.get_content() for part in found.walk() if part.get_content_maintype() == "text")

    def __enter__(self) -> MailServer:
        self._controller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._controller.stop()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def dagster_home(folder: Path, settings: str = "") -> Path:
    """An instance of its own, which tells nobody anything. `settings`: further lines of its `dagster.yaml`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "dagster.yaml").write_text(f"telemetry:\n  enabled: false\n{settings}")
    return folder


def environment(home: Path, **more: str) -> dict[str, str]:
    """The environment of a Dagster process: this Python's commands, one small Spark."""
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "DAGSTER_HOME": str(home),
        "DAGSTER_DISABLE_TELEMETRY": "true",
        "TIDEGATE_MASTER": "local[2]",
        "TIDEGATE_DRIVER_MEMORY": "1g",
        **more,
    }


def command(name: str, *arguments: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run one of this environment's commands in the repository's root."""
    return subprocess.run(
        [str(Path(sys.executable).parent / name), *arguments],
        cwd=ROOT,
        env=dict(env),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@contextmanager
def running(log: Path, env: Mapping[str, str], *command: str, folder: Path = ROOT) -> Iterator[str]:
    """A command that serves Dagster's UI: webserver, daemon and code server. Gives the address; ends every process of
    it. `folder`: where it is typed."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(Path(sys.executable).parent / command[0]), *command[1:], "--host", "127.0.0.1", "--port", str(port)],
            cwd=folder,
            env=dict(env),
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            until(lambda: _answers(process, address, log), f"{' '.join(command)} answers")
            yield address
        finally:
            _end(process)


def _answers(process: subprocess.Popen[bytes], address: str, log: Path) -> bool:
    if process.poll() is not None:
        raise AssertionError(f"it ended with {process.returncode}:\n{log.read_text()[-4000:]}")
    try:
        with urllib.request.urlopen(f"{address}/server_info", timeout=5):
            return True
    except OSError:
        return False


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask the leader, then end what is left: code servers and runs are children of children, in sessions of their
    own."""
    children: list[psutil.Process] = []
    with suppress(psutil.NoSuchProcess):
        children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        process.wait(20)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for child in children:
        with suppress(psutil.NoSuchProcess):
            child.kill()
    process.wait()


@dataclass(frozen=True)
class Ui:
    """A running Dagster, asked as the UI asks it. `location`: the code location whose jobs and sensors are meant."""

    address: str
    location: str = field(default="tidegate", kw_only=True)

    @property
    def _repository(self) -> dict[str, str]:
        return {"repositoryLocationName": self.location, "repositoryName": "__repository__"}

    def ask(self, query: str, **variables: Any) -> dict[str, Any]:
        """A GraphQL query's data."""
        request = urllib.request.Request(
            f"{self.address}/graphql",
            json.dumps({"query": query, "variables": variables}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            found = json.load(answer)
        assert "errors" not in found, found
        return found["data"]

    def loaded(self) -> bool:
        """Whether all code locations are. One that cannot be loaded fails."""
        try:
            entries = self.ask(
                "{ workspaceOrError { ... on Workspace { locationEntries {"
                " locationOrLoadError { __typename ... on PythonError { message } } } } } }"
            )["workspaceOrError"]["locationEntries"]
        except OSError:
            return False
        states = [entry["locationOrLoadError"] for entry in entries]
        assert not [state for state in states if state and state["__typename"] == "PythonError"], states
        return bool(states) and all(state and state["__typename"] == "RepositoryLocation" for state in states)

    def launch(
        self,
        job: str,
        config: Mapping[str, Any] | None = None,
        assets: Iterable[str] | None = None,
        checks: Iterable[tuple[str, str]] | None = None,
    ) -> str:
        """Start a job's run as the UI's button does; its id. `assets`: the keys of those that it is of, if not all;
        `checks` (asset, name): the same."""
        selector: dict[str, Any] = {**self._repository, "jobName": job}
        if assets is not None:
            selector["assetSelection"] = [{"path": key.split("/")} for key in assets]
        if checks is not None:
            chosen = [{"assetKey": {"path": key.split("/")}, "name": name} for key, name in checks]
            selector["assetCheckSelection"] = chosen
        data = self.ask(
            "mutation($p: ExecutionParams!) { launchRun(executionParams: $p) {"
            " __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }",
            p={"selector": selector, "runConfigData": json.dumps(config or {})},
        )
        assert data["launchRun"]["__typename"] == "LaunchRunSuccess", data
        return data["launchRun"]["run"]["runId"]

    def cancel(self, run_id: str, *, at_once: bool = True) -> None:
        """End a run as the UI's button does: recorded `at_once`, where nobody waits for its process, else when that has
        ended."""
        data = self.ask(
            "mutation($i: String!, $p: TerminateRunPolicy!) { terminateRun(runId: $i, terminatePolicy: $p) {"
            " __typename } }",
            i=run_id,
            p="MARK_AS_CANCELED_IMMEDIATELY" if at_once else "SAFE_TERMINATE",
        )
        assert data["terminateRun"]["__typename"] == "TerminateRunSuccess", data

    def status(self, run_id: str) -> str:
        data = self.ask("query($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }", id=run_id)
        return data["runOrError"]["status"]

    def ended(self, run_id: str) -> str:
        """The status of a run, once it is over."""
        return until(
            lambda: status if (status := self.status(run_id)) in ("SUCCESS", "FAILURE", "CANCELED") else None,
            f"run {run_id} is over",
        )

    def runs(self, job: str) -> list[str]:
        """The ids of a job's runs, the newest first."""
        return self._runs(pipelineName=job)

    def retries(self, run_id: str) -> list[str]:
        """The ids of the runs that Dagster, or a person, has started in its place."""
        return self._runs(tags=[{"key": "dagster/parent_run_id", "value": run_id}])

    def _runs(self, **chosen: Any) -> list[str]:
        data = self.ask(
            "query($f: RunsFilter!) { runsOrError(filter: $f) { ... on Runs { results { runId } } } }", f=chosen
        )
        return [run["runId"] for run in data["runsOrError"]["results"]]

    def ticks(self, name: str, location: str = "", kind: str = "sensor") -> list[dict[str, Any]]:
        """The ticks of a `sensor` or a `schedule`, the newest first."""
        return self._queried_state(
            kind, name, "ticks(limit: 100) { status timestamp skipReason error { message } }", location
        )["ticks"]

    def watching(self) -> None:
        """Wait until the daemon has ticked the sensor: runs that end from now on are reported."""
        until(lambda: self.ticks(SENSOR), f"the daemon ticks {SENSOR}")

    def ticked(self) -> None:
        """Wait for two more ticks of the sensor."""
        before = self.ticks(SENSOR)[0]["timestamp"]
        later = lambda: [tick for tick in self.ticks(SENSOR) if tick["timestamp"] > before]  # noqa: E731
        until(lambda: len(later()) >= 2, f"{SENSOR} ticks twice more")

    def checked(self, check: str, *key: str) -> list[str]:
        """The states of an asset's check, the newest first."""
        data = self.ask(
            "query($k: AssetKeyInput!, $c: String!) {"
            " assetCheckExecutions(assetKey: $k, checkName: $c, limit: 50) { status } }",
            k={"path": list(key)},
            c=check,
        )
        return [execution["status"] for execution in data["assetCheckExecutions"]]

    def materializations(self, *key: str) -> list[dict[str, str]]:
        """The numbers and words of an asset's materialisations, the newest first, by label."""
        data = self.ask(
            "query($k: AssetKeyInput!) { assetOrError(assetKey: $k) { ... on Asset { assetMaterializations(limit: 50) {"
            " runId metadataEntries { label ... on IntMetadataEntry { intRepr } ... on TextMetadataEntry { text } }"
            " } } } }",
            k={"path": list(key)},
        )
        return [
            {entry["label"]: entry.get("intRepr") or entry.get("text", "") for entry in event["metadataEntries"]}
            | {"run": event["runId"]}
            for event in data["assetOrError"].get("assetMaterializations", [])
        ]

    def statuses(self, group: str) -> dict[str, str]:
        """What the UI says of each asset of a group, by the last part of its key: its status, and why it is stale."""
        data = self.ask(
            "query($g: AssetGroupSelector!) { assetNodes(group: $g) {"
            " assetKey { path } staleStatus staleCauses { reason } } }",
            g={**self._repository, "groupName": group},
        )
        return {
            node["assetKey"]["path"][-1]: ": ".join(
                [node["staleStatus"], *(cause["reason"] for cause in node["staleCauses"])]
            )
            for node in data["assetNodes"]
        }

    def state_of(self, kind: str, name: str) -> str:
        """Whether a `schedule` or a `sensor` is RUNNING or STOPPED."""
        return self._queried_state(kind, name, "status")["status"]

    def _queried_state(self, kind: str, name: str, fields: str, location: str = "") -> dict[str, Any]:
        whole = kind.capitalize()
        data = self.ask(
            f"query($s: {whole}Selector!) {{ {kind}OrError({kind}Selector: $s)"
            f" {{ ... on {whole} {{ {kind}State {{ {fields} }} }} }} }}",
            s={**self._repository, "repositoryLocationName": location or self.location, f"{kind}Name": name},
        )
        return data[f"{kind}OrError"][f"{kind}State"]

    @contextmanager
    def on(self, schedule: str) -> Iterator[None]:
        """A schedule that is turned on, and then off again."""
        self.ask(
            "mutation($s: ScheduleSelector!) { startSchedule(scheduleSelector: $s) { __typename } }",
            s={**self._repository, "scheduleName": schedule},
        )
        assert self.state_of("schedule", schedule) == "RUNNING"
        try:
            yield
        finally:
            found = self._queried_state("schedule", schedule, "id")
            self.ask("mutation($i: String!) { stopRunningSchedule(id: $i) { __typename } }", i=found["id"])
