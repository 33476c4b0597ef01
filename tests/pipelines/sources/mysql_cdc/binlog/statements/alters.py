"""The ALTERs that docs/mysql-cdc.md lists, run on a server: what is read past each is what a new snapshot would be."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from tests.conftest import Database
from tests.pipelines.sources.mysql_cdc.binlog.recording import columns_of, position, read, wanted
from tidegate.pipelines.connectors.table import Column
from tidegate.pipelines.sources.mysql_cdc.binlog.model import WantedTable
from tidegate.pipelines.sources.mysql_cdc.errors import SchemaChanged
from tidegate.pipelines.sources.mysql_cdc.widening import followed

DOCS = Path(__file__).parents[6] / "docs" / "mysql-cdc.md"

DECLARED = {"id": "BIGINT", "name": "STRING", "n": "BIGINT", "kind": "STRING", "price": "DECIMAL(12, 2)"}
SCRIPT = tuple(Column(name, kind, kind) for name, kind in DECLARED.items())
ARROW = {"id": pa.int64(), "n": pa.int64(), "price": pa.decimal128(12, 2)}
BEFORE = (
    "INSERT INTO t VALUES (1, 'a  ', 7, 'b', 1.25, 0), (2, 'é', 1200, 'a', -99999999.99, 9)",
    "INSERT INTO t VALUES (3, '', 0, NULL, NULL, 5), (4, 'gone', NULL, 'a', 0, 1)",
)
BETWEEN = "UPDATE t SET price = 3, kind = 'b' WHERE id = 3"
AFTER = (
    "UPDATE t SET name = 'new' WHERE id = 2",
    "DELETE FROM t WHERE id = 4",
    "INSERT INTO t (id, name) VALUES (9, 'i')",
)
MORE = {
    " n BIGINT": "UPDATE t SET n = -5000000000 WHERE id = 1",
    "name VARCHAR(40)": "UPDATE t SET name = REPEAT('Ж', 40) WHERE id = 1",
    "TEXT": "UPDATE t SET name = REPEAT('Ж', 10000) WHERE id = 1",
    "utf8mb4": "UPDATE t SET name = 'Жы' WHERE id = 1",
    "'c'": "UPDATE t SET kind = 'c' WHERE id = 1",
    "(12, 2)": "UPDATE t SET price = 9999999999.99 WHERE id = 1",
}
"""What rows may hold after an ALTER that has these words."""


def listed() -> tuple[str, list[tuple[str, bool]]]:
    """The table of the docs, and its ALTERs, each with whether the table goes on."""
    text = DOCS.read_text()
    (table,) = re.findall(r"<!-- table -->\n```sql\n(.*?)\n```", text, re.DOTALL)
    (rows,) = re.findall(r"<!-- alters -->\n(.*?)<!-- /alters -->", text, re.DOTALL)
    cells = [[cell.strip() for cell in row.split("|")[1:3]] for row in rows.splitlines()[2:]]
    assert {state for _, state in cells} == {"goes on", "stops"}
    return table, [(action.strip("`"), state == "goes on") for action, state in cells]


def fault(database: Database, create: str, actions: str, goes_on: bool) -> str:
    """What is wrong with the reading of an ALTER; nothing where all is right."""
    database.execute("DROP TABLE IF EXISTS t, other, parent", create, *BEFORE)
    database.execute("CREATE TABLE parent (id INT PRIMARY KEY)", "INSERT INTO parent SELECT z FROM t")
    names = ", ".join(DECLARED)
    rows = {row[0]: row for row in database.execute(f"SELECT {names} FROM t")}
    table, start = declared(database), position(database)
    database.execute(BETWEEN, f"ALTER TABLE t {actions}")
    now = columns_of(database, "t")
    there = [name for name in DECLARED if name in {column.name for column in now}]
    if goes_on:
        database.execute(*AFTER, *(statement for word, statement in MORE.items() if word in actions))
    try:
        found = read(database, planned(database, table), start)
    except SchemaChanged as error:
        return f"{actions}: {error.what}" if goes_on else ""
    if not goes_on:
        return f"{actions}: goes on"
    for name, kind in ARROW.items():
        found = found.set_column(found.schema.get_field_index(name), name, found[name].cast(kind))
    for change in found.to_pylist():
        if change["_op"] == "d":
            del rows[change["id"]]
        else:
            rows[change["id"]] = tuple(change[name] for name in DECLARED)
    read_rows = sorted(tuple(dict(zip(DECLARED, row, strict=True))[name] for name in there) for row in rows.values())
    truth = sorted(database.execute(f"SELECT {', '.join(there)} FROM t"))
    return "" if read_rows == truth else f"{actions}: {read_rows} for {truth}"


CUT = "INSERT INTO t VALUES (1, CONCAT(REPEAT('é', 30000), SPACE(20000)))"
"""A text that a TEXT of latin1 has room for, and one of utf8mb4 only without some of the blanks at its end."""
RECODED = (
    ("latin1", ("MODIFY name TEXT NOT NULL",), False),
    ("latin1", ("MODIFY name TEXT CHARACTER SET latin1 NOT NULL",), True),
    ("utf8mb4", ("MODIFY name TEXT NOT NULL",), True),
    ("utf8mb4", ("MODIFY name TEXT", "MODIFY name TEXT CHARACTER SET utf8mb4"), False),  # another one in between?
    ("utf8mb3", ("MODIFY name TEXT",), True),  # the same bytes
)
"""The character set of a TEXT in a table of utf8mb4, what is done to it, and whether the table goes on."""


def faults_of_texts(database: Database) -> list[str]:
    """What is wrong with the reading past ALTERs of a TEXT that is nearly full."""
    wrong: list[str] = []
    for charset, actions, goes_on in RECODED:
        database.execute("DROP TABLE IF EXISTS t")
        create = f"CREATE TABLE t (id INT PRIMARY KEY, name TEXT CHARACTER SET {charset}) CHARACTER SET utf8mb4"
        database.execute(create, CUT if charset == "latin1" else "INSERT INTO t VALUES (1, 'é  ')")
        known, start = declared(database), position(database)
        truth = database.execute("SELECT name FROM t")
        database.execute(*(f"ALTER TABLE t {action}" for action in actions))
        cut = truth != database.execute("SELECT name FROM t")
        try:
            read(database, planned(database, known), start)
            went_on = True
        except SchemaChanged:
            went_on = False
        if went_on is not goes_on or (went_on and cut):
            wrong.append(f"{charset}, {actions}: {'goes on' if went_on else 'stops'}; {cut=}")
    return wrong


def declared(database: Database) -> WantedTable:
    """The table t, of which the script declares a part, as it is now."""
    whole = wanted(database, "t")
    return replace(whole, columns=tuple(column for column in whole.columns if column.name in DECLARED))


def planned(database: Database, table: WantedTable) -> WantedTable:
    """The table as a step follows it that is planned now; the step before followed `table`."""
    now = followed(table.columns, columns_of(database, "t"), SCRIPT)
    return replace(table, columns=now, before=table.columns)


def faults(database: Database, *, but: tuple[str, ...] = ()) -> list[str]:
    """What is wrong with any of the docs' ALTERs, but those that hold one of the words `but`."""
    create, alters = listed()
    run = [(actions, goes_on) for actions, goes_on in alters if not any(word in actions for word in but)]
    return [found for actions, goes_on in run if (found := fault(database, create, actions, goes_on))]
