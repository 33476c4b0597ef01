"""A pipeline among the other assets of a team's own project: what feeds it and reads it, a process that Dagster does
not own, a component with rules of the team's, a changed script, and how light all of it is.

The files are those of docs/dagster-project.md, as they stand there. `team` is the project that create-dagster makes by
the commands of that page, served by `dg dev` for all stories of this file. Each story says which sections the project
has, and loads it again.
"""

from __future__ import annotations

import configparser
import os
import shlex
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import pytest
from dagster import DagsterEventType

from tests.assets.test_project import JOB_ASSETS, section
from tests.assets.test_run import MOST_BYTES, MOST_EVENTS
from tests.orchestration.own_project import OwnProject, started
from tests.orchestration.services import until
from tests.stories.story import blocks
from tidegate.assets.jobs import NOTHING_NEW

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("jvm")]

ALWAYS = ("The executor", "An asset of your own reads a target", "An asset of your own feeds a source")
"""The sections whose files are there in every story; those of another one are laid over them."""
USER = '{"op": "+I", "data": {"user_id": %d, "gender": "f"}}\n'
CLICK = '{"user_id": %d, "item_id": 10}\n'
CLICKS, STAGED, PUBLISHED = (f"clicks/{name}" for name in ("click_event", "enriched_click_staged", "enriched_click"))
IN_ORDER = ("exported_clicks", CLICKS, STAGED, PUBLISHED, "items")


@dataclass(frozen=True)
class Team:
    """The project, with the assets of the page around the pipeline `clicks`. `service` is run by nobody in Dagster."""

    own: OwnProject

    @property
    def defs(self) -> Path:
        return self.own.folder / "src" / "my_project" / "defs"

    @property
    def script(self) -> Path:
        return self.defs / "shop" / "clicks.sql"

    def has(self, *titles: str) -> None:
        """Let the project have the files of these sections, and load it as the UI's button does."""
        self.write(*titles)
        self.own.reload()

    def write(self, *titles: str) -> None:
        (self.defs / "shop" / "component.py").unlink(missing_ok=True)
        files = {path: text for title in (*ALWAYS, *titles) for path, text in section(title).items()}
        for path, text in files.items():
            (self.own.folder / "src" / path).write_text(text)

    def nodes(self, fields: str) -> dict[str, dict[str, Any]]:
        """These fields of the assets that the graph shows, by key."""
        nodes = self.own.ask(f"{{ assetNodes {{ assetKey {{ path }} {fields} }} }}")["assetNodes"]
        return {"/".join(node["assetKey"]["path"]): node for node in nodes}

    def materialize_all(self) -> str:
        """A run of all that "Materialize all" takes, but for the pipeline that Dagster does not run; its id."""
        nodes = self.nodes("isMaterializable groupName")
        keys = [key for key, node in nodes.items() if node["isMaterializable"] and node["groupName"] != "service"]
        assert {*IN_ORDER, "users"} <= {*keys}
        return self.own.launch("__ASSET_JOB", assets=keys)

    def materialized(self, run_id: str) -> list[tuple[str, dict[str, Any]]]:
        """The assets that a run has made, in order, each with its metadata."""
        entries = self.own.events(run_id, DagsterEventType.ASSET_MATERIALIZATION)
        made = [entry.get_dagster_event().step_materialization_data.materialization for entry in entries]
        return [
            (item.asset_key.to_user_string(), {name: value.value for name, value in item.metadata.items()})
            for item in made
        ]


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    (sql,) = (text for path, text in section(ALWAYS[-1]).items() if path.endswith(".sql"))
    strict = sql.replace("'connector' = 'delta'", "'connector' = 'delta', 'gate.on-unmatched' = 'block'")
    assert strict != sql
    with started(tmp_path_factory.mktemp("own"), {"service": {"script": strict}}) as own:
        made = Team(own)
        for folder in ("shop/users", "shop/clicks", "service/users", "service/clicks"):
            (made.defs / folder).mkdir()
        (made.defs / "shop" / "users" / "1.json").write_text("".join(USER % user for user in (1, 2)))
        yield made


def test_assets_before_and_after_a_pipeline_are_made_with_it_in_one_run_in_their_order(team: Team) -> None:
    """Each run has what its own export wrote, not what the one before it did."""
    team.has()
    for exported in (1, 2):
        run_id = team.materialize_all()
        assert team.own.ended(run_id) == "SUCCESS"
        made = dict(team.materialized(run_id))
        assert [key for key in made if key in IN_ORDER] == list(IN_ORDER)
        files = len(list((team.defs / "shop" / "clicks").glob("[!.]*.json")))
        assert files >= exported
        assert made["items"]["items"] == [[10, files], [20, files]]
        assert made["users"]["users"] == 2
        assert not {"clicks/maintenance", "clicks/reconcile"} & {*made}


def test_a_run_with_nothing_new_writes_little_and_the_schedule_starts_none(team: Team) -> None:
    team.has()
    assert team.own.ended(team.own.launch("clicks")) == "SUCCESS"
    run_id = team.own.launch("clicks")
    assert team.own.ended(run_id) == "SUCCESS"
    with closing(sqlite3.connect(team.own.folder / "home" / "history" / "runs" / f"{run_id}.db")) as database:
        written = database.execute("SELECT length(event) FROM event_logs").fetchall()
    assert len(written) <= MOST_EVENTS
    assert sum(length for (length,) in written) <= MOST_BYTES
    assert {key for key, _ in team.materialized(run_id)} <= {"clicks/user_info", CLICKS, STAGED, PUBLISHED}

    runs = team.own.runs("clicks")
    with team.own.on("clicks_schedule"):
        ticks = lambda: team.own.ticks("clicks_schedule", kind="schedule")  # noqa: E731
        (tick, *_) = until(lambda: [tick for tick in ticks() if tick["status"] != "STARTED"], "the schedule has ticked")
        assert (tick["status"], tick["skipReason"]) == ("SKIPPED", NOTHING_NEW)
        assert team.own.runs("clicks") == runs
        (team.defs / "shop" / "clicks" / "more.json").write_text(CLICK % 1)
        (started_by_it, *_) = until(lambda: team.own.runs("clicks")[: -len(runs)], "the schedule starts a run")
    assert team.own.ended(started_by_it) == "SUCCESS"
    assert dict(team.materialized(started_by_it))[PUBLISHED]["rows published"] == 1


def test_a_process_that_is_not_dagsters_is_seen_and_its_held_gate_is_decided_beside_it(team: Team) -> None:
    """The unit of docs/cli.md, its line typed as it stands there but for its three paths."""
    own, folder, script = team.own, team.defs / "service", "src/my_project/defs/service/pipeline.sql"
    (unit,) = [block.text for block in blocks("docs/cli.md") if "ExecStart=" in block.text]
    service = configparser.ConfigParser()
    service.read_string(unit)
    line = service["Service"]["ExecStart"]
    here = {"/srv/tidegate/.venv/bin": own.made.bin, "/srv/clicks.sql": script, "/data/lake": "state/service"}
    for shown, path in here.items():
        assert shown in line
        line = line.replace(shown, str(path))
    (folder / "users" / "1.json").write_text(USER % 1)
    (folder / "clicks" / "1.json").write_text(CLICK % 1)
    process = subprocess.Popen(
        shlex.split(line),
        cwd=own.folder,
        env=own.made.environment(),
        stdout=subprocess.DEVNULL,
        stderr=(log := own.folder / "service.log").open("wb"),
        start_new_session=True,
    )
    published, staged = ("service", "enriched_click"), ("service", "enriched_click_staged")
    try:
        (shown,) = until(lambda: own.materializations(*published), "Dagster shows what the service has published")
        assert shown["summary"].startswith("epoch 1 is published: 1 row,")
        assert shown["summary"].endswith("outside of Dagster")
        assert not shown["run"]
        until(lambda: own.checked("rows", *staged) == ["SUCCEEDED"], "and the verdict")
        until(lambda: {*own.statuses("service").values()} == {"FRESH"}, "no asset is shown as out of date")
        (folder / "clicks" / "2.json").write_text(CLICK % 9)
        until(lambda: "FAILED" in own.checked("rows", *staged), "Dagster shows that the gate holds")
        until(lambda: own.alerted("gate-held", "service"), "the alert of the held gate")
        own.run("tidegate", "discard", script, "enriched_click", "--lake", "state/service")
        until(lambda: own.alerted("gate-held", "service") == ["open", "resolved"], "the alert is over")
        until(lambda: own.checked("rows", *staged)[0] == "SUCCEEDED", "its check is not failed any more")
        (folder / "clicks" / "3.json").write_text(CLICK % 1)
        until(lambda: own.rows("service") == 2, "the service goes on with what was held")
    finally:
        assert service["Service"]["KillMode"] == "mixed"
        os.kill(process.pid, signal.SIGTERM)
        status = process.wait(float(service["Service"]["TimeoutStopSec"]))
    assert status == 0, log.read_text()
    assert log.read_text().splitlines()[-1] == "Stopped between two steps. Nothing is half done."
    states = [
        state for state, _ in groupby(own.checked("rows", *staged))
    ]  # held, and then perhaps not judged again yet
    assert states[-3:] == ["SUCCEEDED", "FAILED", "SUCCEEDED"]
    assert own.runs("service") == []


def test_a_changed_script_is_out_of_date_until_it_has_run_and_a_comment_is_not(team: Team) -> None:
    def stale() -> set[str]:
        nodes = team.nodes("staleStatus staleCauses { category }")
        found = {key: node for key, node in nodes.items() if node["staleStatus"] == "STALE" and "service" not in key}
        assert all({"category": "CODE"} in node["staleCauses"] for key, node in found.items() if "/" in key), found
        return {*found}

    def changed(old: str, new: str) -> set[str]:
        text = team.script.read_text()
        assert old in text
        team.script.write_text(text.replace(old, new))
        team.own.reload()
        return stale()

    team.has()
    assert team.own.ended(team.materialize_all()) == "SUCCESS"
    assert stale() == set()
    assert changed("INSERT INTO", "-- Each click, with its user.\nINSERT INTO") == set()
    out_of_date = changed("item_id, gender FROM", "item_id, upper(gender) FROM")
    assert {STAGED, PUBLISHED} <= out_of_date
    assert CLICKS not in out_of_date
    assert team.own.ended(team.materialize_all()) == "SUCCESS"
    assert stale() == set()


def test_a_pipeline_has_one_job_and_one_schedule_and_says_in_a_sentence_what_it_did(team: Team) -> None:
    team.has()
    found = team.own.ask(
        "query($s: RepositorySelector!) { repositoryOrError(repositorySelector: $s) { ... on Repository {"
        " jobs { name } schedules { name } } } }",
        s={"repositoryLocationName": team.own.location, "repositoryName": "__repository__"},
    )["repositoryOrError"]
    jobs, schedules = ({item["name"] for item in found[kind]} for kind in ("jobs", "schedules"))
    assert {name for name in jobs if not name.startswith(("tidegate_", "__"))} == {"clicks", "service"}
    assert {name for name in schedules if not name.startswith("tidegate_")} == {"clicks_schedule", "service_schedule"}
    assert len(jobs) <= 2 + 9
    run_id = team.own.launch("clicks")
    assert team.own.ended(run_id) == "SUCCESS"
    for key, metadata in team.materialized(run_id):
        assert next(iter(metadata)) == "summary", key
        assert len(metadata) <= 1 + 5 + 3, f"a sentence, five facts, pictures, and the rest folded: {key}"
    assert not team.nodes("isMaterializable")["clicks/maintenance"]["isMaterializable"]


def test_dry_runs_and_the_quarantine_show_what_they_found_and_a_discard_is_a_dry_run(team: Team) -> None:
    def shown(operation: str, step: str) -> dict[str, Any]:
        run_id = team.own.launch(f"tidegate_{operation}", {"ops": {step: {"config": {"pipeline": "clicks"}}}})
        assert team.own.ended(run_id) == "SUCCESS"
        (output,) = team.own.events(run_id, DagsterEventType.STEP_OUTPUT)
        found = output.get_dagster_event().step_output_data.metadata.items()
        return {name: item.value for name, item in found if not isinstance(item, dg.MarkdownMetadataValue)}

    team.has()
    (team.defs / "shop" / "clicks" / "unknown.json").write_text(CLICK % 99)
    assert any("unknown.json" in str(text) for text in shown("dry_run", "plan_only").values())
    assert team.own.ended(team.own.launch("clicks")) == "SUCCESS"
    listed = shown("quarantine_list", "list_quarantined")
    assert listed["rows found"] == 1
    assert any('"user_id": 99' in str(text) for text in listed.values())
    asked = shown("quarantine_discard", "discard_quarantined")
    assert asked["summary"] == "enriched_click: this would discard 1 row."
    assert asked["details"]["dry run"]
    assert shown("quarantine_list", "list_quarantined")["rows found"] == 1, "it was a dry run"


def test_published_runs_without_its_check_and_no_epoch_without_its_gate(team: Team) -> None:
    team.has()
    (team.defs / "shop" / "clicks" / "alone.json").write_text(CLICK % 1)
    assert team.own.ended(team.own.launch("__ASSET_JOB", assets=["clicks/user_info", CLICKS])) == "SUCCESS"
    run_id = team.own.launch("__ASSET_JOB", assets=[STAGED, PUBLISHED], checks=[])
    assert team.own.ended(run_id) == "FAILURE"
    assert any("leaves out its checks" in text for text in team.own.failures(run_id))
    run_id = team.own.launch("__ASSET_JOB", assets=[STAGED, PUBLISHED], checks=[(STAGED, "proof")])
    assert team.own.ended(run_id) == "SUCCESS"
    assert dict(team.materialized(run_id))[PUBLISHED]["rows published"] == 1
    evaluations = team.own.events(run_id, DagsterEventType.ASSET_CHECK_EVALUATION)
    checked = [entry.get_dagster_event().asset_check_evaluation_data.check_name for entry in evaluations]
    assert checked == ["proof"]


def test_op_gives_every_step_its_pool_and_tags(team: Team) -> None:
    team.has("Steps: pool, retries, tags")
    nodes = team.nodes("pools opTags { key value }")
    for name in JOB_ASSETS:
        assert nodes[f"clicks/{name}"]["pools"] == ["spark"]
        assert {"key": "team", "value": "shop"} in nodes[f"clicks/{name}"]["opTags"]
    assert team.own.ended(team.own.launch("clicks")) == "SUCCESS"


def test_translation_gives_every_asset_its_key_and_a_run_makes_it_under_that(team: Team) -> None:
    team.has("Specs in YAML: `translation`")
    nodes = team.nodes("groupName owners { ... on TeamAssetOwner { team } } dependencyKeys { path } description")
    own = {name: nodes[f"mart/clicks/{name}"] for name in JOB_ASSETS}
    groups = {name: node["groupName"] for name, node in own.items()}
    assert groups == {name: "marts" if "enriched" in name else "raw" for name in JOB_ASSETS}
    for node in own.values():
        assert [owner["team"] for owner in node["owners"]] == ["shop"]
        assert node["description"].endswith("Ask the shop's team.")
    assert own["click_event"]["dependencyKeys"] == [{"path": ["exports", "clicks"]}]
    run_id = team.own.launch("clicks")
    assert team.own.ended(run_id) == "SUCCESS"
    made = {key for key, _ in team.materialized(run_id)}
    assert made
    assert made <= {f"mart/clicks/{name}" for name in JOB_ASSETS}


def test_get_asset_spec_of_a_subclass_is_what_the_graph_shows(team: Team) -> None:
    team.has("Specs in Python: `get_asset_spec`")
    nodes = team.nodes("tags { key value }")
    assert {"key": "connector", "value": "filesystem"} in nodes[CLICKS]["tags"]


def test_execute_of_a_subclass_is_around_the_steps_of_a_run(team: Team) -> None:
    team.has("Around a step: `execute`")
    run_id = team.own.launch("clicks")
    assert team.own.ended(run_id) == "SUCCESS"
    logged = [entry.user_message for entry in team.own.events(run_id)]
    for kind in ("source", "staged", "gate", "published"):
        assert f"{kind} begins, on {team.own.lake('lake')}" in logged
        assert f"{kind} is done" in logged


@pytest.mark.parametrize(
    "title",
    [
        "A component of your own",
        "Words of your own in YAML: template variables",
        "A part of a script: `select` and `exclude`",
        "One script on two lakes",
    ],
)
def test_the_other_sections_load(team: Team, title: str) -> None:
    team.has(title)
    assert f"clicks/{JOB_ASSETS[-1]}" in team.nodes("id")


MOST_MB = 36
"""What Tidegate may add to Dagster: 64 MB are Dagster's of the 100 that a process with both may have."""


def test_a_code_server_is_little_heavier_than_dagsters_alone(team: Team) -> None:
    """It has loaded two pipelines, and nobody has asked it for a tick of a sensor. An asset that reads targets loads
    DuckDB and Arrow, whether Tidegate does or not: so it is left out."""
    team.write()
    (team.defs / "reports.py").unlink()
    (team.own.folder / "src" / "alone.py").write_text("import dagster as dg\n\ndefs = dg.Definitions()\n")
    alone, whole = (resident_mb(team, module) for module in ("alone", "my_project.definitions"))
    assert whole - alone < MOST_MB


def resident_mb(team: Team, module: str) -> float:
    """What a code server of this module holds of memory, once it has loaded it and serves."""
    place = team.own.folder / module
    command = [team.own.made.bin / "dagster", "api", "grpc", "--socket", f"{place}.sock", "--module-name", module]
    with (log := Path(f"{place}.log")).open("wb") as out:
        process = subprocess.Popen(
            [*map(str, command), "--working-directory", str(team.own.folder / "src")],
            cwd=team.own.folder,
            env=team.own.made.environment(),
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        until(lambda: f"Started Dagster code server for module {module}" in log.read_text(), f"{module} is served")
        return psutil.Process(process.pid).memory_info().rss / 1e6
    finally:
        process.kill()
        process.wait()
