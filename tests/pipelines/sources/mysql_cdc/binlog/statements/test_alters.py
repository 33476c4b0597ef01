"""ALTERs on a real MariaDB: the docs' table holds, and what the log does not show stops the reader."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.conftest import Database
from tests.pipelines.sources.mysql_cdc.binlog.recording import changes, position, read
from tests.pipelines.sources.mysql_cdc.binlog.statements.alters import (
    BEFORE,
    declared,
    faults,
    faults_of_texts,
    listed,
    planned,
)
from tidegate.pipelines.sources.mysql_cdc.errors import SchemaChanged


def test_the_docs_say_which_alters_are_followed(database: Database) -> None:
    wrong = faults(database, but=("BLACKHOLE",))  # an engine that this server has not
    assert not wrong, "\n".join(wrong)


def test_a_text_that_has_lost_the_blanks_at_its_end_stops_the_table(database: Database) -> None:
    assert faults_of_texts(database) == []


LOOSE = "SET sql_mode = ''"


@pytest.mark.parametrize(
    ("statements", "reason"),
    [
        ((LOOSE, "ALTER TABLE t MODIFY name VARCHAR(40)"), "MODIFY name VARCHAR"),  # its character set may be another
        ((LOOSE, "ALTER TABLE t MODIFY name VARCHAR(40) CHARACTER SET utf8mb4"), ""),
        ((LOOSE, "ALTER TABLE t MODIFY n INT NOT NULL"), "MODIFY n INT"),  # a NULL becomes 0
        ((LOOSE, "ALTER TABLE t MODIFY n BIGINT"), ""),
        # Longer, then shorter: blanks at a text's end go without a word, in any mode.
        (("ALTER TABLE t MODIFY name VARCHAR(40)", "ALTER TABLE t MODIFY name VARCHAR(30)"), "MODIFY name VARCHAR"),
        (("ALTER TABLE t MODIFY name VARCHAR(30)", "ALTER TABLE t MODIFY name VARCHAR(40)"), ""),
        (("ALTER TABLE t MODIFY name TEXT", "ALTER TABLE t MODIFY name VARCHAR(20)"), "MODIFY name TEXT"),
        # Gone, and there again.
        (("ALTER TABLE t DROP n", "ALTER TABLE t ADD IF NOT EXISTS n INT DEFAULT 5"), "dropped and added anew"),
        (("ALTER TABLE t MODIFY n INT AUTO_INCREMENT, ADD UNIQUE (n)",), "MODIFY n INT"),  # a NULL, if not a 0
    ],
)
def test_an_alter_is_followed_whatever_the_column_was_before(
    database: Database, statements: tuple[str, ...], reason: str
) -> None:
    database.execute(listed()[0], "INSERT INTO t VALUES (1, 'a', 1, 'a', 1, 1)")
    known, start = declared(database), position(database)
    database.execute(*statements, "UPDATE t SET price = 2")
    in_one = planned(database, known)
    if reason:
        with pytest.raises(SchemaChanged, match=reason):
            read(database, in_one, start)
    else:
        assert changes(read(database, in_one, start), "id", "name") == [("u", 1, "a")]


def test_what_an_earlier_step_has_seen_counts(database: Database) -> None:
    database.execute(listed()[0], *BEFORE)
    known = declared(database)
    database.execute("ALTER TABLE t MODIFY name VARCHAR(40), DROP n")
    known, start = planned(database, known), position(database)
    database.execute("ALTER TABLE t MODIFY name VARCHAR(30)")
    with pytest.raises(SchemaChanged, match="MODIFY name"):
        read(database, planned(database, known), start)
    start = position(database)
    database.execute("ALTER TABLE t MODIFY name VARCHAR(40)", "ALTER TABLE t ADD IF NOT EXISTS n INT DEFAULT 5")
    with pytest.raises(SchemaChanged, match="declared column n was added"):
        read(database, planned(database, known), start)


def test_a_part_of_a_step_goes_on_past_the_last_type_alone(database: Database) -> None:
    database.execute(listed()[0], *BEFORE)
    known, start = declared(database), position(database)
    database.execute("ALTER TABLE t MODIFY name VARCHAR(30)")
    middle = position(database)
    database.execute("ALTER TABLE t MODIFY name VARCHAR(40)", "DELETE FROM t WHERE id = 1")
    table = replace(planned(database, known), before=())
    assert changes(read(database, table, middle), "id") == [("d", 1)]
    with pytest.raises(SchemaChanged, match="MODIFY name"):  # a part before may have had a longer one
        read(database, table, start)


def test_a_computed_column_may_follow_from_any_other(database: Database) -> None:
    create = (
        "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(9), z VARCHAR(9) COLLATE utf8mb4_bin, n INT AS (z = 'a'))"
    )
    for actions in (
        "MODIFY z VARCHAR(9) COLLATE utf8mb4_general_ci",
        "MODIFY name VARCHAR(9)",
        "CHANGE z y VARCHAR(9)",
    ):
        database.execute("DROP TABLE IF EXISTS t", create, "INSERT INTO t (id, z) VALUES (1, 'A')")
        known, start = declared(database), position(database)
        database.execute(
            f"ALTER TABLE t DROP n, ADD n INT, {actions}" if "CHANGE" in actions else f"ALTER TABLE t {actions}"
        )
        with pytest.raises(SchemaChanged):
            read(database, planned(database, known), start)


def test_a_column_that_becomes_auto_increment_has_no_zero(database: Database) -> None:
    database.execute(listed()[0], "INSERT INTO t VALUES (5, 'a', 1, 'a', 1, 1)")
    known, start = declared(database), position(database)
    database.execute("INSERT INTO t (id) VALUES (0)", "ALTER TABLE t MODIFY id INT AUTO_INCREMENT")
    assert sorted(database.execute("SELECT id FROM t")) == [(1,), (5,)]
    with pytest.raises(SchemaChanged, match="has 0 in id, which has become AUTO_INCREMENT"):
        read(database, planned(database, known), start)


def test_only_the_end_of_a_two_phase_alter_counts(database: Database) -> None:
    database.execute(listed()[0], "INSERT INTO t VALUES (1, 'a', 1, 'a', 1, 1), (2, 'b', 1, 'a', 1, 1)")
    known, start = declared(database), position(database)
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET binlog_alter_two_phase = 1")
        for actions in ("DROP COLUMN n, ADD UNIQUE u (kind)", "MODIFY n SMALLINT, ADD UNIQUE u (z)"):
            with pytest.raises(Exception, match="Duplicate entry"):
                cursor.execute(f"ALTER TABLE t {actions}")
        cursor.execute("UPDATE t SET n = 40000 WHERE id = 1")
        assert changes(read(database, planned(database, known), start), "id", "n") == [("u", 1, 40000)]
        cursor.execute("ALTER TABLE t DROP COLUMN n")
        cursor.execute("UPDATE t SET name = 'c' WHERE id = 2")
        found = changes(read(database, planned(database, known), start), "id", "n")
        assert found == [("u", 1, 40000), ("u", 2, None)]
        cursor.execute("ALTER TABLE t MODIFY kind INT, ALGORITHM = COPY")
    with pytest.raises(SchemaChanged, match="MODIFY kind INT"):
        read(database, planned(database, known), start)
