"""Every example runs as it is shipped, by the lines of its README, and prints what the README says.

Nothing is prepared and nothing is copied; the example's folder is only read, and the lake lies elsewhere.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.conftest import ACCOUNT, SECRET, Database
from tests.oracle.pins import rows_of
from tests.stories.story import EXAMPLES, Story, blocks, contents, other_way_round, printed

pytestmark = pytest.mark.long

PRINTED = {
    # A rate holds from its own moment on; order 3 came before the first rate, orders 4 and 5 wait.
    "rates": ["+I[1, 2026-01-02 09:30:00, EUR, 110.00]", "+I[2, 2026-01-02 10:00:00, EUR, 120.00]"],
    # User 3 was deleted: item 12 has no gender.
    "files": [
        "+I[10, f, 2026-01-02.json]",
        "+I[11, f, 2026-01-02.json]",
        "+I[12, NULL, 2026-01-02.json]",
        "+I[13, m, 2026-01-02.json]",
    ],
    # The second limit for water stands when the readings come; light has none.
    "limits": ["+I[boiler, 58, too high, 1]", "+I[boiler, 61, too high, 2]", "+I[roof, -25, too low, 1]"],
    # Order 4 still has time.
    "payments": ["+I[1, paid, 0, 1767225960000]", "+I[2, paid, 0, 1767225655000]", "+I[3, unpaid, 40, 1767226620000]"],
    # Clicks 1, 5, 10, 30 and 60 minutes after each of three releases.
    "news_clicks": [
        f"+I[{news}, {minutes * 60_000}, {count}]"
        for news, counts in {101: (5, 6, 7, 7, 8), 102: (2, 5, 6, 6, 8), 103: (3, 5, 6, 7, 8)}.items()
        for minutes, count in zip((1, 5, 10, 30, 60), counts, strict=True)
    ],
    # Users by 5 minutes and by visit, then items by 5 minutes.
    "click_windows": [
        "+I[ann, 1767225600000, 1767225900000, 3]",
        "+I[ann, 1767225601000, 1767226800000, {tea -> 2, cup -> 1, pot -> 1}]",
        "+I[ann, 1767226200000, 1767226500000, 1]",
        "+I[bob, 1767225600000, 1767225900000, 1]",
        "+I[bob, 1767225899999, 1767226501000, {tea -> 1, pot -> 1}]",
        "+I[bob, 1767225900000, 1767226200000, 1]",
        "items> +I[cup, 2026-01-01 00:00:00, 1]",
        "items> +I[pot, 2026-01-01 00:05:00, 1]",
        "items> +I[pot, 2026-01-01 00:10:00, 1]",
        "items> +I[tea, 2026-01-01 00:00:00, 3]",
    ],
}
"""What the first run of an example prints: all that its README promises."""

RATES_KNOWN_UNTIL = datetime(2026, 1, 2, 10, tzinfo=UTC)
THOROUGH = pytest.mark.thorough


def read_me(name: str) -> str:
    return f"examples/{name}/README.md"


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_runs_as_it_is_shipped(name: str, story: Story) -> None:
    before = contents(EXAMPLES / name)
    shown = "".join(story.follow(block) for block in blocks(read_me(name)))
    assert printed(shown) == sorted(PRINTED[name])
    assert contents(EXAMPLES / name) == before, "an example's folder is only read"
    complete = rows_of(str(story.lake / "completeness"))
    targets = {row["name"]: row for row in complete if row["insert"]}
    assert {row["verdict"] for row in targets.values()} == {"passed"}
    if name == "rates":
        found = targets["converted_order"]
        assert (found["complete_until"], found["waiting"], found["quarantined"]) == (RATES_KNOWN_UNTIL, 2, 1)


@pytest.mark.parametrize(
    "name",
    # A process takes the rows of payments' two inputs in the order in which they have landed.
    [pytest.param(name, marks=() if name == "limits" else THOROUGH) for name in PRINTED if name != "payments"],
)
def test_the_order_of_the_tables_in_a_script_means_nothing(name: str, story: Story) -> None:
    shutil.copytree(EXAMPLES / name, story.folder / "examples" / name)
    for script in (story.folder / "examples" / name).glob("*.sql"):
        script.write_text(other_way_round(script.read_text()))
    story.type(f"cd {story.folder}")
    assert printed("".join(story.follow(block) for block in blocks(read_me(name)))) == sorted(PRINTED[name])


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name == "rates" else THOROUGH) for name in PRINTED])
def test_the_working_directory_does_not_matter(name: str, story: Story) -> None:
    (script,) = (EXAMPLES / name).glob("pipeline.*")
    story.type(f"cd {story.folder}")
    assert printed(story.type(f"tidegate run {script}")) == sorted(PRINTED[name])


@pytest.mark.thorough
@pytest.mark.usefixtures("jvm")
def test_the_installed_command_runs_an_example_in_a_process_of_its_own(tmp_path: Path) -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("tidegate"), "run", "pipeline.sql", "--lake", tmp_path / "lake"],
        cwd=EXAMPLES / "rates",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, printed(done.stdout)) == (0, PRINTED["rates"]), done.stderr


def test_clicks_meet_the_users_of_a_database(story: Story, example_database: Database) -> None:
    """A table of a MariaDB, and 100,000 clicks, of which most name a user who is not in it."""
    example_database.execute(
        "CREATE TABLE user_info (user_id INT PRIMARY KEY, gender VARCHAR(8))",
        "INSERT INTO user_info SELECT seq * 20, IF(seq % 2, 'f', 'm') FROM seq_1_to_50000",
    )
    server = example_database.server
    placeholders = {
        "localhost": server.host,
        "3306": server.port,
        "=tidegate": f"={ACCOUNT}",
        "…": f"'{SECRET}'",
    }
    run, look, read = (block for block in blocks(read_me("clicks")) if block.commands or block.language == "python")
    story.follow(run, placeholders)
    shown = story.follow(look, placeholders)
    assert "enriched_click" in shown
    target = str(story.lake / "targets" / "enriched_click")
    rows = rows_of(target)
    assert rows
    assert all(row["gender"] == ("m" if row["user_id"] % 40 == 0 else "f") for row in rows)
    exec(read.text.replace("examples/clicks/.tidegate/lake", str(story.lake)), {})
