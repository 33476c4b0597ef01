"""Every next command works when it is typed: errors are brought about through the real command line, and what they say
is followed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from tests.advised import Person, commands_in
from tests.stories.changes.bases import rows_of

pytestmark = pytest.mark.long

RUN = "tidegate run pipeline.sql"
COPY = """
CREATE TABLE src ({columns}) WITH ({options});
CREATE TABLE copied ({target}) WITH ('connector' = 'delta'{more});
INSERT INTO copied SELECT {select} FROM src;
"""


def copy(
    columns: str = "id INT, name STRING",
    options: str = "'connector' = 'filesystem', 'path' = 'in', 'format' = 'csv'",
    target: str = "id INT, name STRING",
    select: str = "id, name",
    more: str = "",
) -> str:
    return COPY.format(columns=columns, options=options, target=target, select=select, more=more)


@pytest.fixture
def person(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Person:
    monkeypatch.setenv("TIDEGATE_FILES_ROOT", str(tmp_path))
    return Person(tmp_path, monkeypatch)


def copied(person: Person, lake: str = ".tidegate/lake") -> list[tuple[object, ...]]:
    return rows_of(person.folder / lake / "targets" / "copied")


def test_what_has_never_landed_is_declared_anew(person: Person) -> None:
    """A first run is no history: its columns, its path, its format, its key and what the INSERT reads may all have been
    wrong."""
    person.put("in/1", "id,name\n1,a\n")
    person.put("right/1", '{"id": 1, "name": "a"}\n')
    person.write(copy())
    advice = person.refused(RUN, "'id' does not fit INT")
    assert "or correct the columns" in advice
    right = "'connector' = 'filesystem', 'path' = 'right', 'format' = 'json'"
    # The INSERT reads a table that it does not join yet, and fails at a value before anything is staged.
    person.write(copy(options=right, target="id INT", select="CAST(name AS INT)"))
    person.type(f"{RUN} --dry-run")
    person.refused(RUN, "CAST_INVALID_INPUT")
    keyed = copy("id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED", right).replace("src", "users")
    json = "'connector' = 'filesystem', 'path' = 'in', 'format' = 'json'"
    clicks = f"CREATE TABLE clicks (id BIGINT, p AS PROCTIME()) WITH ({json});"
    join = keyed.replace("SELECT id, name FROM users", "SELECT c.id, name FROM clicks AS c JOIN users FOR SYSTEM_TIME "
                         "AS OF c.p AS u ON c.id = u.id").replace("(id INT,", "(id BIGINT,")  # fmt: skip
    (person.folder / "in" / "1").unlink()
    person.put("in/2", '{"id": 1}\n')
    person.write(clicks + join)
    person.type(RUN)
    assert copied(person) == [(1, "a")]
    person.type("tidegate verify pipeline.sql")
    person.type(RUN)
    assert copied(person) == [(1, "a")]


def test_a_key_and_a_path_of_a_table_that_never_landed(person: Person) -> None:
    person.put("in/1", "x,a\n")
    options = "'connector' = 'filesystem', 'path' = 'in', 'format' = 'csv'"
    person.write(copy("id INT, name STRING", options))
    person.refused(RUN, "'x' does not fit INT")
    person.put("out/1", "7,b\n7,c\n8,d\n")
    key = "id INT, name STRING, PRIMARY KEY (id) NOT ENFORCED"
    person.write(copy("id INT, name STRING", options.replace("'in'", "'out'"), target=key))
    shown = " ".join(person.type(RUN).output.split())
    assert "table src changes from epoch 1 on" in shown
    # The key of a target is a hint: both rows of it are published, and said.
    assert copied(person) == [(7, "b"), (7, "c"), (8, "d")]
    assert "PRIMARY KEY (id) is NOT ENFORCED, as in Flink: a hint" in shown
    assert "1 row of this run came with a key that the epoch had already" in shown
    assert "PRIMARY KEY (id) is NOT ENFORCED" in person.type("tidegate explain pipeline.sql").output
    person.write(copy(key, options, target=key))
    advice = person.refused(RUN, "primary key", "source path")
    person.follow(advice, "--lake DIR", status=1)  # the other lake has its own first run


def test_a_value_that_does_not_fit_once_rows_have_landed(person: Person) -> None:
    person.put("in/1", "1,a\n")
    person.write(copy())
    person.type(RUN)
    person.put("in/2", "x,b\n", 2)
    advice = person.refused(RUN, "'x' does not fit INT")
    assert "(or correct the columns)" not in advice
    person.write(copy("id STRING, name STRING", target="id STRING, name STRING"))
    person.follow(advice, "--lake DIR")
    assert copied(person, "DIR") == [("1", "a"), ("x", "b")]
    person.write(
        copy(options="'connector' = 'filesystem', 'path' = 'in', 'format' = 'csv', 'format.on-error' = 'quarantine'")
    )
    person.type(RUN)
    assert copied(person) == [(1, "a")]


DELTA = "'connector' = 'delta', 'path' = 'source'"
JOINED = """
CREATE TABLE b ({columns}, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'delta', 'path' = 'source');
CREATE TABLE c (id INT, p AS PROCTIME()) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'csv');
CREATE TABLE copied (id INT, v BIGINT) WITH ('connector' = 'delta');
INSERT INTO copied SELECT c.id, v FROM c JOIN b FOR SYSTEM_TIME AS OF c.p ON c.id = b.id;
"""


def put_table(person: Person, values: list[int], kind: str = "int32", mode: str = "append", **more: object) -> None:
    import pyarrow as pa

    table = pa.table({"id": pa.array(range(len(values)), pa.int32()), "v": pa.array(values, kind)})
    write_deltalake(str(person.folder / "source"), table, mode=mode, **more)  # type: ignore[arg-type]


@pytest.mark.thorough
def test_a_delta_table_of_other_columns(person: Person) -> None:
    put_table(person, [10, 20])
    person.put("in/1", "1\n")
    person.write(JOINED.format(columns="id INT, v INT"))
    person.type(RUN)
    put_table(person, [30, 40], "int64", "overwrite", schema_mode="overwrite")
    advice = person.refused(RUN, "column v is bigint in the Delta table")
    person.write(JOINED.format(columns="id INT, v BIGINT"))
    person.follow(advice)
    assert copied(person, "DIR") == [(1, 40)]
    # And back: what changed rows without a feed is read anew, under the table's name.
    put_table(person, [50, 60], "int32", "overwrite", schema_mode="overwrite")
    person.write(JOINED.format(columns="id INT, v INT"))
    advice = person.refused(RUN, "without a change data feed")
    person.follow(advice, "--resnapshot b")
    person.put("in/2", "0\n", 2)
    person.type(RUN)
    assert copied(person) == [(0, 50), (1, 20)]
    # A declared column that is gone at the source.
    (person.folder / "source").rename(person.folder / "old")
    put_table(person, [1])
    advice = person.refused(RUN, "another Delta table lies here")
    person.follow(advice, "--resnapshot b")


def test_a_file_that_has_changed_is_read_anew_under_the_tables_own_name(person: Person) -> None:
    """Of a part of a hybrid table the command has the hybrid table's name: the part is no source of its own."""
    parts = """
        CREATE TABLE old (id INT, name STRING) WITH ('connector' = 'filesystem', 'path' = 'old', 'format' = 'csv');
        CREATE TABLE new (id INT, name STRING) WITH ('connector' = 'filesystem', 'path' = 'new', 'format' = 'csv');
        CREATE TABLE b (id INT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
            'connector' = 'hybrid', 'hybrid.sources' = 'old, new');
        CREATE TABLE c (id INT, p AS PROCTIME()) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'csv');
        CREATE TABLE copied (id INT, name STRING) WITH ('connector' = 'delta');
        INSERT INTO copied SELECT c.id, name FROM c JOIN b FOR SYSTEM_TIME AS OF c.p ON c.id = b.id;
    """
    person.put("old/1", "1,a\n")
    person.put("new/1", "2,b\n")
    person.put("in/1", "1\n")
    person.write(parts)
    person.type(RUN)
    person.put("new/1", "2,bbb\n", 9)
    advice = person.refused(RUN, "changed after it was taken up")
    assert [line for line in commands_in(advice) if "--resnapshot" in line] == [f"{RUN} --resnapshot b"]
    person.put("in/2", "2\n", 2)
    person.follow(advice)
    person.type(RUN)
    assert copied(person) == [(1, "a"), (2, "bbb")]
    # Of a table whose rows are published there is no new generation, and the advice has none.
    person.put("in/2", "222\n", 9)
    advice = person.refused(RUN, "changed after it was taken up")
    assert commands_in(advice) == []
    os.utime(person.folder / "in" / "2", (1e9 + 2, 1e9 + 2))
    (person.folder / "in" / "2").write_text("2\n")
    os.utime(person.folder / "in" / "2", (1e9 + 2, 1e9 + 2))
    person.type(RUN)


def test_what_a_person_asks_for_and_cannot_have(person: Person) -> None:
    """Each refusal of a command names one that works."""
    advice = person.refused("tidegate status --lake nowhere", "no lake")
    person.put("in/1", "1,a\n2,b\n")
    held = copy(target="id INT, name STRING, CONSTRAINT low EXPECT (id < 2) ON VIOLATION FAIL")
    person.write(held.replace("SELECT", "SELEKT"))
    advice = person.refused(RUN)
    person.write(held)
    person.follow(advice, "explain")
    advice = person.refused(RUN, "holds epoch 1 of copied")
    person.type("tidegate verify pipeline.sql")
    assert "nothing" in person.follow(advice, "release", status=1)
    # Over another table: what is held is of the old one, and is given up by the script that has it.
    beside = (
        held.replace("FROM src", "FROM beside").replace(" src ", " beside ") + held.partition("CREATE TABLE copied")[0]
    )
    for line in (RUN, "tidegate discard pipeline.sql copied"):
        person.write(beside)
        assert "put the old declaration back" in person.refused(line, "differently than the lake")
    person.write(held)
    person.follow(advice, "discard")
    advice = person.refused("tidegate release pipeline.sql copied", "no epoch of copied is held")
    person.follow(advice, "status")
    advice = person.refused(f"{RUN} --from 2024-01-01", "no span of time")
    person.follow(advice, "run")
    advice = person.refused("tidegate quarantine release pipeline.sql copied --reason nothing-like-it")
    person.follow(advice, "quarantine list")
    advice = person.refused(f"{RUN} --resnapshot src", "published a second time")
    person.follow(advice, "run")
    person.write(held.replace("id INT", "id BIGINT"))
    advice = person.refused(RUN, "differently than the lake")
    person.type(commands_in(advice)[-1], 1)  # another lake holds the same row
    assert "holds epoch 1 of copied" in person.shown
