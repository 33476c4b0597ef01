"""`tidegate quarantine`: what a person and a program see of rows that were quarantined, and what they do with them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from tests.orchestration.test_cli import SCRIPT
from tidegate.orchestration.commands.app import app
from tidegate.orchestration.console.shown import shown
from tidegate.pipelines.facts.quarantine import ReasonSums
from tidegate.pipelines.runtime.quarantine import QuarantinedSum
from tidegate.pipelines.testing import Harness


class Quarantine:
    """The command on a lake: user 1 is known, clicks of 7, 8 and (in a second epoch) 9 are not, one has no user."""

    def __init__(self, folder: Path, spark: SparkSession) -> None:
        self.script = folder / "clicks.sql"
        self.script.write_text(SCRIPT.format(policy="quarantine"))
        self.lake = folder / "lake"
        self.sources = Harness(self.script.read_text(), spark, folder)
        self.users(1)
        self.sources.end_of_snapshot("user_info")
        self.clicks(1, 7, 8, None)
        self.clicks(9)
        self.sources.runner.close()

    def users(self, *numbers: int) -> None:
        self.sources.push("user_info", [{"user_id": number, "gender": "f"} for number in numbers])

    def clicks(self, *numbers: int | None) -> None:
        self.sources.push("click_event", [{"user_id": number, "item_id": 1} for number in numbers])
        self.sources.advance()

    def __call__(self, verb: str, *arguments: object, answer: str | None = None) -> Result:
        line = ["quarantine", verb, str(self.script), *map(str, arguments), "--lake", str(self.lake)]
        return CliRunner().invoke(app, line, input=answer)

    def json(self, verb: str, *arguments: object) -> Any:
        result = self(verb, *arguments, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)


@pytest.fixture(scope="module")
def quarantine(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Quarantine:
    return Quarantine(tmp_path_factory.mktemp("quarantine"), spark)


def plain(result: Result) -> str:
    return " ".join(result.output.replace("│", " ").split())


def test_rows_are_listed_shown_discarded_and_released(quarantine: Quarantine) -> None:
    [listed] = quarantine.json("list")["inserts"]
    assert (listed["insert"], listed["open"], listed["released"], listed["discarded"]) == ("enriched", 4, 0, 0)
    kept = {(item["epoch"], item["reason"]): item["rows"] for item in listed["kept"]}
    absent, null = "unmatched:key-absent@user_info", "unmatched:key-null@user_info"
    assert kept == {(1, absent): 2, (1, null): 1, (2, absent): 1}
    printed = plain(quarantine("list", "enriched"))
    assert "enriched: 4 rows in quarantine" in printed
    assert "key-absent@user_info 3 1 to 2 (2)" in printed
    assert f"tidegate quarantine show {quarantine.script} enriched --lake {quarantine.lake}" in printed

    shown = quarantine.json("show", "enriched", "--reason", "key-absent", "--limit", "2")
    assert [row["values"]["user_id"] for row in shown["rows"]] == [7, 8]
    assert (shown["of"], shown["rows"][0]["key"]) == (3, {"user_id": 7})
    assert shown["rows"][0]["nearest"] == "none up to epoch 1, nor since"
    printed = plain(quarantine("show", "enriched", "--epoch", "2"))
    assert "epoch 2, " in printed
    assert "joined to user_info 1/1: the key is not in the table (user_info)" in printed
    assert re.search(
        "user_id item_id .*joined by nearest version 9 1 .*user_id = 9 none up to epoch 1, nor since", printed
    )
    printed = plain(quarantine("show", "enriched", "--epoch", "1", "--limit", "1"))
    assert "… and 2 more: --limit, or --json" in printed

    # Nothing is done before somebody says yes.
    because = ("--because", "no user, no click")
    dry = quarantine.json("discard", "enriched", "--reason", "key-null", *because, "--dry-run")
    assert (dry["dry_run"], dry["taken"], dry["epochs"]) == (True, 1, [])
    refused = quarantine("discard", "enriched", "--reason", "key-null", *because, answer="n\n")
    assert refused.exit_code == 1
    assert "this would discard 1 row" in plain(refused)
    assert quarantine.json("list")["inserts"][0]["open"] == 4
    done = quarantine("discard", "enriched", "--reason", "key-null", *because, answer="y\n")
    assert done.exit_code == 0, done.output
    assert "1 row of enriched discarded (epoch 3)" in plain(done)
    again = quarantine("discard", "enriched", "--reason", "key-null", *because, "--yes")
    assert again.exit_code == 0
    assert "There is nothing to discard" in plain(again)

    quarantine.users(7, 9)
    quarantine.sources.runner.advance("user_info")
    quarantine.sources.runner.close()
    assert "this would join again 3 rows" in plain(quarantine("release", "enriched", "--dry-run"))
    released = quarantine.json("release", "enriched")
    assert (released["taken"], released["published"], released["quarantined"]) == (3, 2, 1)
    assert released["epochs"] == [4]
    assert sorted(row["user_id"] for row in quarantine.sources.published("enriched")) == [1, 7, 9]
    assert quarantine.json("release", "enriched", "--epoch", "2")["taken"] == 0
    [listed] = quarantine.json("list", "enriched")["inserts"]
    assert (listed["open"], listed["released"], listed["discarded"]) == (1, 3, 1)
    [given_up] = [item["taken"] for item in listed["kept"] if item["state"] == "discarded"]
    assert given_up["because"] == "no user, no click"
    assert "@" in given_up["by"]
    printed = plain(quarantine("list"))
    assert "1 row in quarantine, 3 rows released since, 1 row discarded" in printed
    assert "no user, no click" in printed
    verified = CliRunner().invoke(app, ["verify", str(quarantine.script), "--lake", str(quarantine.lake), "--json"])
    assert verified.exit_code == 0, verified.output


@pytest.mark.parametrize(
    ("arguments", "status", "expected"),
    [
        (("show", "riched"), 2, "the script has no INSERT riched; it has enriched"),
        (("release", "enriched", "--reason", "deleted"), 1, "was ever quarantined for the reason deleted"),
        (("release", "enriched", "--epoch", "99"), 1, "was ever quarantined in epoch 99"),
        (("discard", "enriched"), 2, "--because"),
        (("discard", "enriched", "--because", " "), 2, "--because must say why"),
        (("discard", "enriched", "--because", "x", "--json"), 2, "add --yes or --dry-run"),
        (("show", "enriched", "--limit", "0"), 2, "--limit"),
    ],
)
def test_what_cannot_be_done_says_why(
    quarantine: Quarantine, arguments: tuple[str, ...], status: int, expected: str
) -> None:
    found = quarantine(*arguments)
    assert found.exit_code == status
    assert expected in plain(found)


@pytest.mark.parametrize("verb", ["list", "show", "release", "discard"])
def test_each_explains_itself_with_examples(verb: str) -> None:
    result = CliRunner().invoke(app, ["quarantine", verb, "--help"])
    assert result.exit_code == 0
    assert f"tidegate quarantine {verb}" in result.stdout.partition("Examples")[2]


def test_a_reason_is_listed_though_nobody_gave_a_name() -> None:
    """As a program may discard rows."""
    found = QuarantinedSum("discarded", "unmatched:key-absent@u", 1, 1, (1, 0), (1, 0), (2, 0), because="test orders")
    lines = "\n".join(map(str, shown(ReasonSums.of("enriched", "", [found])))).splitlines()
    [line] = [line for line in lines if "key-absent" in line]
    assert line.split()[-4:] == ["1970-01-01", "00:00:00:", "test", "orders"]


TWO_OUTPUTS = """
from tests.pipelines.runtime.processes import functions as fn
from tests.pipelines.runtime.processes.test_processes import SCRIPT, wrapped
from tidegate.pipelines.sql import compile_script

columns = "k STRING, number BIGINT, total BIGINT, CONSTRAINT known EXPECT (k <> 'b') ON VIOLATION QUARANTINE"
pipeline = compile_script(SCRIPT).process(
    ["evens", "odds"], "events", "k", wrapped(fn.Tallied()), [columns, columns], buckets=2
)
"""


def test_rows_of_a_processs_second_output_are_listed_and_shown(tmp_path: Path, spark: SparkSession) -> None:
    script, lake = tmp_path / "pipeline.py", tmp_path / "lake"
    script.write_text(TWO_OUTPUTS)
    harness = Harness(script, spark, tmp_path)
    harness.push("events", [{"k": k, "number": number} for k, number in (("a", 1), ("b", 2), ("b", 3), ("b", 5))])
    harness.advance()
    harness.runner.close()

    def run(*line: object) -> Result:
        done = CliRunner().invoke(app, ["quarantine", *map(str, line), "--lake", str(lake)])
        assert done.exit_code == 0, done.output
        return done

    [listed] = json.loads(run("list", script, "--json").stdout)["inserts"]
    assert [(item.get("output"), item["rows"]) for item in listed["kept"]] == [(None, 1), ("odds", 2)]
    printed = plain(run("list", script))
    assert "evens: 1 row in quarantine" in printed
    assert "evens, second output odds: 2 rows in quarantine" in printed
    shown = json.loads(run("show", script, "evens", "--json").stdout)["rows"]
    assert [(row.get("output"), row["values"]["number"]) for row in shown] == [(None, 2), ("odds", 3), ("odds", 5)]
    assert "UTC, second output odds: violates known" in plain(run("show", script, "evens"))
