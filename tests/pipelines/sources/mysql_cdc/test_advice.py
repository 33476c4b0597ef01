"""What the errors of a server's table advise, typed into the real command line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tests.advised import Person, advice_in, commands_in
from tests.cases import at_length
from tests.conftest import Database
from tests.stories.changes.bases import rows_of
from tidegate.orchestration.commands.app import app

RUN = "tidegate run pipeline.sql"
RENAMED = ("RENAME TABLE t TO u", "RENAME TABLE u TO t")
SCRIPT = """
CREATE TABLE b (k INT, v INT, PRIMARY KEY (k) NOT ENFORCED) WITH ({options}{more});
CREATE TABLE c (k INT, p AS PROCTIME()) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'csv');
CREATE TABLE copied (k INT, v BIGINT) WITH ('connector' = 'delta');
INSERT INTO copied SELECT c.k, v FROM c JOIN b FOR SYSTEM_TIME AS OF c.p ON c.k = b.k;
"""


def copied(person: Person, lake: str = ".tidegate/lake") -> list[tuple[object, ...]]:
    return rows_of(person.folder / lake / "targets" / "copied")


@pytest.mark.parametrize("widens", at_length([False, True]))
def test_what_the_log_of_a_table_advises(
    spark: SparkSession, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, widens: bool
) -> None:
    monkeypatch.setenv("TIDEGATE_FILES_ROOT", str(tmp_path))
    person, clause = Person(tmp_path, monkeypatch), database.clause("t", 10)
    person.put("in/1", "1\n")

    def begin_at(advice: str) -> str:
        """The script with the options of its start that an advice names."""
        later = re.findall(r"'scan\.startup\.[a-z.-]+' = '[^']+'", advice)
        assert len(later) == 3
        return SCRIPT.format(options=clause, more="".join(f", {option}" for option in later))

    # A table that begins where a dump began: the log drops the table there, and would again for ever.
    database.execute("CREATE TABLE t (k INT PRIMARY KEY, v INT)")
    [(file, place, *_)] = database.execute("SHOW MASTER STATUS")
    database.execute(
        "DROP TABLE IF EXISTS t", "CREATE TABLE t (k INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 10)"
    )
    begins = (
        f", 'scan.startup.mode' = 'specific-offset', 'scan.startup.specific-offset.file' = '{file}', "
        f"'scan.startup.specific-offset.pos' = '{place}'"
    )
    person.write(SCRIPT.format(options=clause, more=begins))
    start = person.refused(RUN, "the table was dropped")
    person.write(begin_at(start))
    person.follow(start, "--resnapshot b")
    assert copied(person) == [(1, 10)]

    if widens:
        follow_another_type(person, database, begin_at, start)

    # A table that begins with a snapshot needs no more than a new one, under the table's name.
    before = [(1, 10), (2, 20)] if widens else [(1, 10)]
    person.write(SCRIPT.format(options=clause, more=""))
    person.type(f"{RUN} --lake snapshot")
    database.execute(*RENAMED)
    advice = person.refused(f"{RUN} --lake snapshot", "cannot be followed further")
    assert commands_in(advice) == [f"{RUN} --resnapshot b --lake snapshot"]
    person.follow(advice)
    assert copied(person, "snapshot") == before


def follow_another_type(person: Person, database: Database, begin_at: Callable[[str], str], start: str) -> None:
    """`start`: the advice that the table began by.

    The server's column is of another type: in this lake its rows have landed as INT, so only another one can take it.
    There the log, from the same place on, cannot be followed either, and the next place is one behind that.
    """
    database.execute("ALTER TABLE t MODIFY v BIGINT", *RENAMED, "INSERT INTO t VALUES (2, 20)")
    person.put("in/2", "2\n", 2)
    advice = person.refused(RUN, "column v is INT in the script and bigint")
    person.write(begin_at(start).replace("v INT", "v BIGINT"))
    person.follow(advice, "--lake DIR", status=1)
    advice = advice_in(person.shown)
    while "scan.startup" in advice:
        person.write(begin_at(advice).replace("v INT", "v BIGINT"))
        found = CliRunner().invoke(app, shlex.split(commands_in(advice)[0])[1:])
        advice = advice_in(found.stderr) if found.exit_code else ""
    assert copied(person, "DIR") == [(2, 20)]
    database.execute("ALTER TABLE t MODIFY v INT")
