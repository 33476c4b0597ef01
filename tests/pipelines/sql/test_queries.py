"""Views, WITH, queries in brackets, hints, LIKE: each script means the same as a plain one, and has its definition."""

from __future__ import annotations

import pytest

from tests.pipelines.sql.connectors import CONNECTORS
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.sql import Pipeline, SqlError, compile_script
from tidegate.pipelines.sql.canonical import computes, insert_form, statements_of, table_form
from tidegate.pipelines.sql.tree import TemporalJoin
from tidegate.pipelines.watermarks import WatermarkStrategy

TABLES = """
CREATE TABLE users (id INT PRIMARY KEY NOT ENFORCED, name STRING, age INT, at TIMESTAMP(3), WATERMARK FOR at AS at)
    WITH ('connector' = 'delta', 'path' = '/users');
CREATE TABLE items (id INT PRIMARY KEY NOT ENFORCED, label STRING) WITH ('connector' = 'delta', 'path' = '/items');
CREATE TABLE clicks (id INT, item INT, n BIGINT, r ROW<at TIMESTAMP(3), k INT>, p AS PROCTIME(),
    WATERMARK FOR r.at AS r.at - INTERVAL '5' SECOND) WITH ('connector' = 'delta', 'path' = '/clicks');
CREATE TABLE plain (id INT, item INT) WITH ('connector' = 'delta', 'path' = '/plain');
CREATE TABLE made (id INT, a STRING, n BIGINT) WITH ('connector' = 'delta', 'path' = '/made');
"""
SETS = """CREATE TABLE sets (id INT, tags ARRAY<ROW<name STRING, y BIGINT>>, m MAP<STRING, INT>, r ROW<at TIMESTAMP(3)>,
    WATERMARK FOR r.at AS r.at) WITH ('connector' = 'delta', 'path' = '/sets');"""
NOW = "FOR SYSTEM_TIME AS OF c.p"
INTO = "INSERT INTO made SELECT c.id, u.name, c.n FROM"

SAME: dict[str, tuple[str, str]] = {
    "a view over the probe": (
        "CREATE VIEW v AS SELECT id, item, n + 1 AS n, p FROM clicks WHERE item > 3;"
        f"{INTO} v AS c JOIN users {NOW} AS u ON c.id = u.id WHERE u.age > 1",
        "INSERT INTO made SELECT c.id, u.name, c.n + 1 FROM clicks AS c"
        f" JOIN users {NOW} AS u ON c.id = u.id WHERE c.item > 3 AND u.age > 1",
    ),
    "a view over a view, with other names": (
        "CREATE VIEW v (k, m, q) AS SELECT id, n, p FROM clicks WHERE item > 3;"
        "CREATE TEMPORARY VIEW w AS SELECT q, k + 1 AS k, m FROM v WHERE k > 4;"
        "INSERT INTO made SELECT k, u.name, m FROM w JOIN users FOR SYSTEM_TIME AS OF q AS u ON w.k = u.id",
        "INSERT INTO made SELECT c.id + 1, u.name, c.n FROM clicks AS c"
        f" JOIN users {NOW} AS u ON c.id + 1 = u.id WHERE c.item > 3 AND c.id > 4",
    ),
    "WITH": (
        "INSERT INTO made WITH a AS (SELECT * FROM clicks WHERE item > 3), b (i, m, q) AS (SELECT id, n, p FROM a) "
        "SELECT i, u.name, m FROM b JOIN users FOR SYSTEM_TIME AS OF b.q AS u ON b.i = u.id",
        f"{INTO} clicks AS c JOIN users {NOW} AS u ON c.id = u.id WHERE c.item > 3",
    ),
    "a query in brackets, in another": (
        f"{INTO} (SELECT id, n, p FROM (SELECT * FROM clicks WHERE item > 3)) AS c"
        f" LEFT JOIN users {NOW} AS u ON c.id = u.id",
        f"{INTO} clicks AS c LEFT JOIN users {NOW} AS u ON c.id = u.id WHERE c.item > 3",
    ),
    "a name of WITH hides a table": (
        "INSERT INTO made WITH plain AS (SELECT id, n FROM clicks) SELECT id, 'a', n FROM plain",
        "INSERT INTO made SELECT id, 'a', n FROM clicks",
    ),
    "event time, in a field that a view takes out": (
        "CREATE VIEW v AS SELECT id, r.at AS t, n FROM clicks;"
        f"{INTO} v AS c JOIN users FOR SYSTEM_TIME AS OF c.t AS u ON c.id = u.id",
        f"{INTO} clicks AS c JOIN users FOR SYSTEM_TIME AS OF c.r.at AS u ON c.id = u.id",
    ),
    "event time, in a row that a view names anew": (
        "CREATE VIEW v AS SELECT id, r AS s, n FROM clicks;"
        f"{INTO} v AS c JOIN users FOR SYSTEM_TIME AS OF c.s.at AS u ON c.id = u.id",
        f"{INTO} clicks AS c JOIN users FOR SYSTEM_TIME AS OF c.r.at AS u ON c.id = u.id",
    ),
    "a view with a join, and another join": (
        f"CREATE VIEW v AS SELECT u.name AS a, c.* FROM clicks AS c JOIN users {NOW} AS u ON c.id = u.id"
        " WHERE u.age > 1;"
        f"INSERT INTO made SELECT c.id, c.a || u.label, n FROM v AS c JOIN items {NOW} AS u ON c.item = u.id",
        "INSERT INTO made SELECT c.id, x.name || u.label, n FROM clicks AS c"
        f" JOIN users {NOW} AS x ON c.id = x.id JOIN items {NOW} AS u ON c.item = u.id WHERE x.age > 1",
    ),
    "UNION ALL in a view, in brackets, in WITH": (
        "CREATE VIEW v AS SELECT id, n, p FROM clicks WHERE n > 1 UNION ALL SELECT id + 1, 1, PROCTIME() FROM plain;"
        f"{INTO} v AS c JOIN users {NOW} AS u ON c.id = u.id WHERE c.n > 2",
        "INSERT INTO made WITH x (a, b, q) AS ((SELECT w.id, w.n, w.p FROM clicks AS w WHERE n > 1) UNION ALL "
        "(SELECT id + 1, 1, PROCTIME() FROM plain)) SELECT c.id, u.name, c.n FROM (SELECT a AS id, b AS n, q AS p"
        f" FROM x) AS c JOIN users {NOW} AS u ON c.id = u.id WHERE c.n > 2",
    ),
    "a view over a build: WHERE is tested on the chosen version": (
        "CREATE VIEW v AS SELECT name, id AS k FROM users WHERE age > 17;"
        f"{INTO} clicks AS c LEFT JOIN v {NOW} AS u ON c.id = u.k AND u.name <> ''",
        f"{INTO} clicks AS c LEFT JOIN users {NOW} AS u ON c.id = u.id AND u.name <> '' AND u.age > 17",
    ),
    "what a view over a build computes is NULL where LEFT JOIN has no match": (
        "CREATE VIEW v AS SELECT id, COALESCE(name, 'none') AS name FROM users;"
        f"{INTO} clicks AS c LEFT JOIN v {NOW} AS u ON c.id = u.id AND u.name <> 'a'",
        "INSERT INTO made SELECT c.id, CASE WHEN u.id IS NOT NULL THEN COALESCE(u.name, 'none') END, c.n"
        f" FROM clicks AS c LEFT JOIN users {NOW} AS u ON c.id = u.id AND COALESCE(u.name, 'none') <> 'a'",
    ),
    "UNNEST as a list, its array in a view": (
        f"{SETS}CREATE VIEW v AS SELECT id AS k, tags AS t, r.at AS at FROM sets WHERE id > 3;"
        "INSERT INTO made SELECT i, x.name, x.y FROM (SELECT c.k AS i, c.at, x.name, x.y FROM v AS c, UNNEST(c.t) AS x)"
        " AS x JOIN users FOR SYSTEM_TIME AS OF x.at AS u ON u.id = x.i",
        f"{SETS}INSERT INTO made WITH v AS (SELECT id AS k, tags AS t, r.at AS at FROM sets WHERE id > 3)"
        " SELECT c.k, x.name, x.y FROM v AS c CROSS JOIN UNNEST(c.t) AS x (name, y)"
        " JOIN users FOR SYSTEM_TIME AS OF c.at AS u ON c.k = u.id",
    ),
    "two minus signs of a number are no comment": (
        "CREATE VIEW v AS SELECT id, -1.5 AS n FROM clicks; INSERT INTO made SELECT id, 'a', CAST(-n AS BIGINT) FROM v",
        "INSERT INTO made SELECT id, 'a', CAST(1.5 AS BIGINT) FROM clicks",
    ),
    "a reader above all that its target's INSERT reads": (
        "CREATE TABLE one (id INT) WITH ('connector' = 'delta', 'path' = '/one');"
        "INSERT INTO made SELECT id, 'a', 1 FROM one; CREATE TABLE late (id INT)"
        " WITH ('connector' = 'delta', 'path' = '/late'); INSERT INTO one SELECT id FROM late",
        "CREATE TABLE one (id INT) WITH ('connector' = 'delta', 'path' = '/one');"
        "CREATE TABLE late (id INT) WITH ('connector' = 'delta', 'path' = '/late');"
        "INSERT INTO one SELECT id FROM late; INSERT INTO made SELECT id, 'a', 1 FROM one",
    ),
    "a hint": (
        "INSERT INTO made /*+ OPTIONS('gate.on-unmatched' = 'block') */"
        f" SELECT c.id, u.name, c.n FROM clicks AS c JOIN users {NOW} AS u ON c.id = u.id",
        f"{INTO} clicks AS c JOIN users {NOW} AS u ON c.id = u.id",
    ),
}


def compiled(script: str, tables: str = TABLES) -> Pipeline:
    return compile_script(tables + script, connectors=CONNECTORS)


@pytest.mark.parametrize("what", SAME)
def test_a_script_with_views_means_the_same_as_the_plain_one(what: str) -> None:
    written, plain = SAME[what]
    made = compiled(written)
    hinted = TABLES.replace("'path' = '/made'", "'path' = '/made', 'gate.on-unmatched' = 'block'")
    same = compiled(plain, hinted if what == "a hint" else TABLES)
    insert = made.insert("made")
    assert insert_form(made, insert) == insert_form(same, same.insert("made"))
    again = compile_script(statements_of(made, insert), connectors=CONNECTORS)
    assert computes(again, again.insert("made")) == computes(made, insert)


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        (
            "CREATE VIEW v AS SELECT id AS k, r AS s, n + 1 AS m FROM clicks WHERE item > 3;"
            "INSERT INTO made SELECT k, 'a', SUM(m) FROM TABLE(HOP(TABLE v, DESCRIPTOR(s.at), INTERVAL '1' MINUTE,"
            " INTERVAL '1' HOUR)) WHERE m > 1 GROUP BY window_start, window_end, k HAVING COUNT(*) > 1",
            "INSERT INTO made SELECT id, 'a', SUM(n + 1) FROM TABLE(HOP(TABLE clicks, DESCRIPTOR(r.at), INTERVAL '1'"
            " MINUTE, INTERVAL '1' HOUR)) WHERE item > 3 AND n + 1 > 1 GROUP BY window_start, window_end, id"
            " HAVING COUNT(*) > 1",
        ),
        (
            "INSERT INTO made WITH v (a, b) AS (SELECT PROCTIME(), id FROM plain), w AS (SELECT * FROM v WHERE b > 1)"
            " SELECT w.b, 'a', COUNT(*) FROM TUMBLE(TABLE w, DESCRIPTOR(a), INTERVAL '1' HOUR) AS w"
            " GROUP BY window_start, window_end, b",
            "INSERT INTO made SELECT id, 'a', COUNT(*) FROM TUMBLE(TABLE plain, DESCRIPTOR(p), INTERVAL '1' HOUR)"
            " WHERE id > 1 GROUP BY window_start, window_end, id",
        ),
    ],
)
def test_windows_of_a_view_are_those_of_its_table(written: str, plain: str) -> None:
    timed = TABLES.replace("plain (id INT, item INT)", "plain (id INT, item INT, p AS PROCTIME())")
    forms = []
    for script in (written, plain):
        made = compiled(script, timed)
        form = insert_form(made, made.insert("made"))
        form["windows"]["time"] = form["windows"]["time"].replace("PROCTIME()", "p")
        forms.append(form)
    assert forms[0] == forms[1]


def test_a_call_of_proctime_in_a_view_is_a_time_attribute() -> None:
    view = "CREATE VIEW c AS SELECT *, PROCTIME() AS p, CURRENT_TIMESTAMP AS now FROM plain;"
    script = f"{view} INSERT INTO made SELECT c.id, u.name, 1 FROM c JOIN users {NOW} AS u ON c.id = u.id"
    assert compiled(script).insert("made").time == "processing"
    with pytest.raises(SqlError, match="`now` is no time attribute of c"):
        compiled(script.replace("OF c.p", "OF c.now"))


def test_a_column_with_a_dot_in_its_name_is_no_field_of_a_row() -> None:
    view = "CREATE VIEW v (id, `r.at`, r) AS SELECT id, CURRENT_TIMESTAMP, r FROM clicks;"
    script = f"{view} INSERT INTO made SELECT v.id, u.name, 1 FROM v JOIN users {NOW} AS u ON v.id = u.id"
    assert compiled(script.replace("c.p", "v.r.at")).insert("made").time == "event"
    with pytest.raises(SqlError, match=r"`r\.at` is no time attribute of v"):
        compiled(script.replace("c.p", "v.`r.at`"))


def test_the_tree_has_types_times_and_when_a_row_is_final() -> None:
    tree = compiled(SAME["event time, in a field that a view takes out"][0]).insert("made").tree
    assert tree is not None
    assert [f"{column.name} {column.type}" for column in tree.columns] == ["id INT", "name STRING", "n BIGINT"]
    assert (tree.emission, tree.scan.emission, tree.times) == ("rowtime", "as landed", {})
    (join,) = [node for node in tree.nodes if isinstance(node, TemporalJoin)]
    assert (join.input.times, join.build.alias) == ({"t": "event"}, "u")
    assert [type(node).__name__ for node in tree.nodes] == ["Project", "TemporalJoin", "Project", "Scan"]


def test_a_hint_overrides_the_options_of_a_table_and_hides_what_is_secret() -> None:
    tables = """CREATE TABLE s (id INT PRIMARY KEY NOT ENFORCED) WITH ('connector' = 'mysql-cdc', 'hostname' = 'a',
        'username' = 'u', 'password' = '${P}', 'database-name' = 'd', 'table-name' = 't');"""
    query = (
        " AS c JOIN s /*+ OPTIONS('hostname' = 'b', 'password' = 'hidden') */ FOR SYSTEM_TIME AS OF c.p ON c.id = s.id"
    )
    made = compiled(f"{tables} INSERT INTO made SELECT c.id, '', 1 FROM clicks{query}")
    assert table_form(made, made.table("s"))["source"]["hostname"] == "b"
    assert "hidden" not in statements_of(made, made.insert("made"))
    with pytest.raises(SqlError) as raised:
        compiled(f"{tables} INSERT INTO made SELECT c.id, '', 1 FROM clicks{query.replace('hostname', 'hostnam')}")
    assert "hidden" not in str(raised.value)
    copied = compiled(f"{tables} CREATE TABLE u LIKE s; INSERT INTO made SELECT c.id, '', 1 FROM clicks{query}").table(
        "u"
    )
    assert (copied.options["hostname"], copied.options["password"]) == ("a", "${P}"), "LIKE takes over no hint"


def test_an_error_shows_the_view_beside_the_place_that_reads_it() -> None:
    with pytest.raises(SqlError) as raised:
        compiled("CREATE VIEW v AS SELECT id, item FROM clicks;\nINSERT INTO made (id, a) SELECT * FROM v")
    assert str(raised.value).splitlines() == [
        "script:10:33: type clash: column `a` of made is STRING, `item` is INT",
        "  10 | INSERT INTO made (id, a) SELECT * FROM v",
        "     |                                 ^",
        "script:9:29: see also",
        "  9 | CREATE VIEW v AS SELECT id, item FROM clicks;",
        "    |                             ^^^^",
        "  hint:  write the columns out, with CAST(item AS STRING)",
        "  state: nothing was run",
        "  next:  correct the script, then: tidegate explain SCRIPT",
    ]


LIKE = """
CREATE TABLE base (id INT PRIMARY KEY NOT ENFORCED, at TIMESTAMP(3), v AS id + 1, WATERMARK FOR at AS at)
    WITH ('connector' = 'delta', 'path' = '/base');
"""
LIKES = {
    "CREATE TABLE t (w INT) WITH ('path' = '/t') LIKE base": (
        "CREATE TABLE t (id INT PRIMARY KEY NOT ENFORCED, at TIMESTAMP(3), v AS id + 1, w INT, WATERMARK FOR at AS at)"
        " WITH ('connector' = 'delta', 'path' = '/t')"
    ),
    "CREATE TEMPORARY TABLE t WITH ('connector' = 'scripted') LIKE base (EXCLUDING OPTIONS EXCLUDING GENERATED)": (
        "CREATE TABLE t (id INT PRIMARY KEY NOT ENFORCED, at TIMESTAMP(3), WATERMARK FOR at AS at)"
        " WITH ('connector' = 'scripted')"
    ),
    "CREATE TABLE t LIKE base (EXCLUDING ALL INCLUDING OPTIONS)": (
        "CREATE TABLE t (id INT, at TIMESTAMP(3)) WITH ('connector' = 'delta', 'path' = '/base')"
    ),
    "CREATE TABLE t (v AS id + 2, WATERMARK FOR at AS at - INTERVAL '1' SECOND)"
    " LIKE base (OVERWRITING GENERATED OVERWRITING WATERMARKS EXCLUDING CONSTRAINTS)": (
        "CREATE TABLE t (id INT, at TIMESTAMP(3), v AS id + 2, WATERMARK FOR at AS at - INTERVAL '1' SECOND)"
        " WITH ('connector' = 'delta', 'path' = '/base')"
    ),
}


@pytest.mark.parametrize("written", LIKES)
def test_like_declares_what_flink_s_rules_say(written: str) -> None:
    assert compiled(written, LIKE).table("t") == compiled(LIKES[written], LIKE).table("t")


def test_like_takes_no_partitions_beside_those_of_the_table_itself() -> None:
    base = """CREATE TABLE base (id INT, d STRING, e STRING) PARTITIONED BY (d)
        WITH ('connector' = 'filesystem', 'path' = '/f', 'format' = 'json');"""
    own = "CREATE TABLE t (w INT) PARTITIONED BY (e) WITH ('path' = '/t') LIKE base"
    with pytest.raises(SqlError, match="t has partitions of its own, and those of base") as raised:
        compile_script(base + own)
    assert "EXCLUDING PARTITIONS" in (raised.value.hint or "")
    assert compile_script(f"{base}{own} (EXCLUDING PARTITIONS)").table("t").partition_columns == ("e",)


def test_only_what_a_source_gives_takes_a_strategy_of_python() -> None:
    chain = (
        "CREATE TABLE one (id INT) WITH ('connector' = 'delta', 'path' = '/one'); INSERT INTO one SELECT id FROM plain;"
    )
    made = compiled(f"{chain} INSERT INTO made SELECT id, 'a', 1 FROM one")
    with pytest.raises(PlanningError, match="one is written by one, whose watermark it has: give plain the strategy"):
        made.with_strategy("one", WatermarkStrategy.no_watermarks())


J = f"{NOW} AS u ON c.id = u.id"
WINDOWS = "TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(r.at), INTERVAL '1' SECOND))"
FOREIGN = [
    "SELECT c.id, u.name, 1 FROM clicks AS c ⟦SEMI⟧ JOIN users " + J,
    "SELECT c.id, u.name, 1 FROM clicks ⟦SEMI⟧ JOIN users FOR SYSTEM_TIME AS OF p AS u ON item = u.id",
    "SELECT c.id, u.name, 1 FROM clicks AS c LEFT ⟦SEMI⟧ JOIN users " + J,
    "SELECT c.id, u.name, 1 FROM clicks AS c LEFT ⟦ANTI⟧ JOIN users " + J,
    "SELECT c.id, u.name, 1 FROM clicks ⟦ANTI⟧ JOIN users " + J,
    "SELECT c.id, u.name, 1 FROM clicks ⟦ASOF⟧ JOIN users " + J,
    "SELECT c.id, u.name, 1 FROM clicks AS c ⟦RIGHT⟧ JOIN users " + J,
    "SELECT c.id, u.name, 1 FROM clicks AS c ⟦FULL⟧ OUTER JOIN users " + J,
    "SELECT c.id, u.name, 1 FROM clicks AS c ⟦NATURAL⟧ JOIN users " + NOW,
    "SELECT c.id, u.name, 1 FROM clicks AS c ⟦CROSS⟧ JOIN users",
    "SELECT c.id, '', 1 FROM clicks AS c⟦,⟧ users",
    "SELECT c.id, '', 1 FROM clicks AS c ⟦JOIN users⟧ AS u ON c.id = u.id",
    "SELECT c.id, u.name, 1 FROM clicks AS c JOIN users FOR SYSTEM_TIME AS OF c.p AS u ⟦USING⟧ (id)",
    "SELECT id, '', 1 ⟦INTO⟧ made FROM clicks",
    "⟦FROM⟧ clicks SELECT id, '', 1",
    "⟦TABLE⟧ clicks",
    "SELECT ⟦DISTINCT⟧ id, '', 1 FROM clicks",
    "SELECT TOP ⟦5⟧ id FROM clicks",
    "SELECT * ⟦EXCEPT⟧ (id) FROM clicks",
    "SELECT id, '', SUM(n) ⟦OVER⟧ (PARTITION BY id) FROM clicks",
    "SELECT id, '', ⟦SUM(n)⟧ FROM clicks",
    "SELECT id, '', 1 FROM clicks ⟦QUALIFY⟧ n = 1",
    "SELECT id, '', 1 FROM clicks WHERE n > 1 ⟦QUALIFY⟧ n = 1",
    "SELECT id, '', 1 FROM clicks ⟦MATCH_RECOGNIZE⟧ (PATTERN (a))",
    "SELECT id, '', 1 FROM clicks ⟦PIVOT⟧ (SUM(n) FOR id IN (1))",
    "SELECT id, '', 1 FROM clicks ⟦TABLESAMPLE⟧ (10 PERCENT)",
    "SELECT id, '', 1 FROM clicks ⟦LATERAL⟧ VIEW explode(x)",
    "SELECT id, '', 1 FROM ⟦UNNEST⟧(ARRAY[1])",
    "SELECT id, '', 1 FROM clicks CROSS JOIN ⟦UNNEST(ARRAY[1])⟧",
    "SELECT id, '', 1 FROM clicks ⟦RIGHT⟧ JOIN UNNEST(ARRAY[1]) AS x (n) ON TRUE",
    "SELECT id, '', 1 FROM clicks ⟦GROUP⟧ BY id",
    "SELECT id, '', 1 FROM clicks ⟦HAVING⟧ id > 1",
    "SELECT id, '', 1 FROM clicks ⟦WINDOW⟧ w AS (PARTITION BY id)",
    "SELECT id, '', 1 FROM clicks ⟦ORDER⟧ BY id",
    "SELECT id, '', 1 FROM clicks ⟦LIMIT⟧ 1",
    "SELECT id, '', 1 FROM clicks ⟦OFFSET⟧ 1 ROW",
    "SELECT id, '', 1 FROM clicks ⟦FETCH⟧ FIRST ROW ONLY",
    "SELECT id, '', 1 FROM clicks ⟦UNION⟧ SELECT id, '', 1 FROM plain",
    "SELECT id, '', 1 FROM clicks UNION ALL SELECT id, '', 1 FROM plain ⟦UNION⟧ DISTINCT SELECT id, '', 1 FROM plain",
    "SELECT id, '', 1 FROM clicks ⟦INTERSECT⟧ SELECT id, '', 1 FROM plain",
    "SELECT id, '', 1 FROM clicks ⟦MINUS⟧ SELECT id, '', 1 FROM plain",
    f"SELECT item, '', COUNT(id) FROM {WINDOWS} AS c ⟦(⟧id, item) GROUP BY window_start, window_end, item",
    "SELECT id, '', 1 FROM clicks WHERE ⟦EXISTS⟧ (SELECT 1 FROM plain)",
    "SELECT id, '', 1 FROM clicks WHERE id IN ( ⟦SELECT⟧ id FROM plain)",
    "SELECT id, '', 1 FROM clicks ⟦FOR⟧ UPDATE",
    "SELECT id, '', 1 FROM clicks AS c ⟦CLUSTER⟧ BY id",
    "SELECT id, '', 1 FROM clicks AS c WHERE n > 1 ⟦CONNECT⟧ BY id",
]


@pytest.mark.parametrize("query", FOREIGN)
@pytest.mark.parametrize(
    "where", ["INSERT INTO made {}", "CREATE VIEW w AS {}", "INSERT INTO made SELECT * FROM ({}) x"]
)
def test_what_nobody_reads_is_refused_at_its_place(query: str, where: str) -> None:
    script = where.format(query)
    if "(⟦" in script:  # a bracket that no SELECT follows is refused itself
        script = script.replace("(⟦", "⟦(")
    with pytest.raises(SqlError) as raised:
        compiled(script.replace("⟦", "").replace("⟧", ""))
    marked = TABLES + script
    assert raised.value.line == marked[: marked.index("⟦")].count("\n") + 1
    assert raised.value.column == script.index("⟦") + 1, str(raised.value)


def test_what_unnest_gives() -> None:
    """Its columns, by their own names or new ones; the time attribute is a field of a ROW still."""
    pipeline = compiled(
        f"{SETS}CREATE TABLE all_of (id INT, name STRING, y BIGINT, place INT NOT NULL, k STRING, v INT, o INT)"
        " WITH ('connector' = 'delta', 'path' = '/all_of');"
        "INSERT INTO all_of SELECT s.id, x.*, y.* FROM sets AS s JOIN UNNEST(tags) WITH ORDINALITY AS x ON TRUE"
        " LEFT OUTER JOIN UNNEST(m) WITH ORDINALITY AS y (k, v, o) ON TRUE"
        " JOIN users FOR SYSTEM_TIME AS OF s.r.at AS u ON u.name = x.name AND u.id = y.v"
    )
    (insert,) = pipeline.inserts
    (branch,) = insert.branches
    assert (insert.probe, insert.time, insert.where) == ("sets", "event", "`s`.`_kept`")
    assert [item.expression for item in insert.projections] == [
        f"`s`.`{name}`" for name in ("id", "name", "y", "ORDINALITY", "k", "v", "o")
    ]
    inner, outer = (step.elements for step in branch.steps)
    assert (inner and (inner.sql, inner.outer), outer and (outer.sql, outer.outer)) == (
        ("`s`.`tags`", False),
        ("`s`.`m`", True),
    )
    assert [name for name, _ in branch.steps[1].columns] == ["id", "r", "name", "y", "ORDINALITY", "k", "v", "o"]
    assert dict(branch.steps[0].columns)["name"] == "_element.`name`"
    assert dict(branch.steps[1].columns)["v"] == "_value"


def test_proctime_of_a_build_is_null_where_left_join_has_no_match() -> None:
    pipeline = compile_script(
        "CREATE TABLE clicks (id INT, p AS PROCTIME()) WITH ('connector' = 'scripted');"
        "CREATE TABLE users (id INT PRIMARY KEY NOT ENFORCED, seen AS PROCTIME()) WITH ('connector' = 'scripted');"
        "CREATE TABLE made (id INT, seen TIMESTAMP_LTZ(3)) WITH ('connector' = 'scripted');"
        f"INSERT INTO made SELECT c.id, u.seen FROM clicks AS c LEFT JOIN users {NOW} AS u ON u.id = c.id"
    )
    assert "(NOT (`u`.`id` IS NULL)) THEN _instant" in pipeline.inserts[0].projections[1].expression


UNITED = (
    ("INT", "BIGINT", "BIGINT"),
    ("TINYINT", "SMALLINT", "SMALLINT"),
    ("BIGINT", "DECIMAL(10, 2)", "DECIMAL(21, 2)"),
    ("INT", "DECIMAL(38, 10)", "DECIMAL(38, 10)"),
    ("DECIMAL(10, 2)", "DECIMAL(12, 6)", "DECIMAL(14, 6)"),
    ("DECIMAL(38, 10)", "DECIMAL(38, 0)", None),  # Flink cuts the digits behind the point
    ("DECIMAL(10, 2)", "DOUBLE", "DOUBLE"),
    ("DECIMAL(10, 2)", "FLOAT", "DOUBLE"),
    ("FLOAT", "DOUBLE", "DOUBLE"),
    ("BIGINT", "FLOAT", "FLOAT"),
    ("CHAR(3)", "CHAR(3)", "CHAR(3)"),
    ("CHAR(3)", "CHAR(5)", "STRING"),  # in Flink VARCHAR(5), which has the same values
    ("CHAR(3)", "VARCHAR(5)", "STRING"),
    ("VARCHAR(5)", "STRING", "STRING"),
    ("BINARY(3)", "BYTES", "BYTES"),
    ("TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(6)"),
    ("TIMESTAMP(3)", "TIMESTAMP_LTZ(3)", None),
    ("DATE", "TIMESTAMP(3)", None),
    ("INT", "STRING", None),
    ("INT", "BOOLEAN", None),
)


def test_the_type_of_a_column_of_a_union_is_calcite_s_or_none_where_a_value_would_be_cut() -> None:
    for one, other, common in UNITED:
        for left, right in ((one, other), (other, one)):
            tables = "".join(
                f"CREATE TABLE {name} (x {of}, n INT) WITH ('connector' = 'delta', 'path' = '/{name}');"
                for name, of in (("a", left), ("b", right))
            )
            tables += "CREATE TABLE t (n INT) WITH ('connector' = 'delta', 'path' = '/t');"
            query = "INSERT INTO t SELECT n FROM (SELECT x, n FROM a UNION ALL SELECT x, n FROM b{}) AS u"
            if common is None:
                with pytest.raises(SqlError, match="type clash"):
                    compiled(query.format(""), tables)
                continue
            for more in ("", " UNION ALL SELECT NULL, n FROM a"):
                (insert,) = compiled(query.format(more), tables).inserts
                assert insert.united is not None
                assert insert.united.columns[0].type == common, (left, right)


def test_a_query_of_a_union_joins_for_its_own_rows_alone() -> None:
    script = (
        f"INSERT INTO made SELECT c.id, u.label, c.n FROM clicks AS c JOIN items {NOW} AS u ON u.id = c.item AND "
        f"u.label <> '' WHERE c.n > 1 AND u.label <> 'x' UNION ALL SELECT id, 'a', item FROM plain"
    )
    (insert,) = compiled(script).inserts
    (join,) = insert.joins
    assert (join.of, join.keys[0].probe) == ("c", "`c`.`item`")
    assert insert.terms[0] == ["`union`.`_kept`"]
    assert [text.count("`_here`") for text in insert.terms[1]] == [1]
    assert [branch.steps[0].kept is None for branch in insert.branches] == [False, True]
    assert {(entry.column, entry.stored) for entry in insert.entries} >= {("item", "item"), ("_here", "_in")}
    renamed = script.replace("c.", "d.").replace("AS c ", "AS d ").replace("u.", "v.").replace("AS u ", "AS v ")
    assert insert_form(compiled(script), insert) == insert_form(compiled(renamed), compiled(renamed).inserts[0])
