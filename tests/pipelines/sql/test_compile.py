"""Valid scripts by fixture (`*.sql` beside `*.explain`), and what the model says of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipelines.sql.connectors import CONNECTORS
from tidegate.pipelines.errors import PlanningError
from tidegate.pipelines.sql import Condition, Insert, Key, Pipeline, SqlError, compile_script, explain
from tidegate.pipelines.sql.canonical import computes
from tidegate.pipelines.watermarks import WatermarkStrategy

FIXTURES = Path(__file__).parents[2] / "fixtures" / "sql"


def compiled(*parts: str) -> Pipeline:
    return compile_script("".join(parts), connectors=CONNECTORS)


def fixture(name: str) -> Pipeline:
    path = FIXTURES / f"{name}.sql"
    return compile_script(path.read_text(), name=name, path=path.name, connectors=CONNECTORS)


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.sql")), ids=lambda path: path.stem)
def test_a_script_compiles_to_what_its_explanation_says(path: Path) -> None:
    assert explain(fixture(path.stem)) == path.with_suffix(".explain").read_text()


def test_the_example_of_flip_326_compiles_word_for_word() -> None:
    pipeline = fixture("flip_326")
    [insert] = pipeline.inserts
    [join] = insert.joins
    assert (insert.id, insert.probe, insert.builds, insert.time) == (
        "print_sink",
        "click_event",
        ("user_info",),
        "processing",
    )
    assert (join.kind, join.time, join.time_column) == ("LEFT", "processing", "proctime")
    assert join.keys == (Key("`click_event`.`user_id`", "user_id"),)
    assert join.predicate is None
    assert [table.name for table in pipeline.sources] == ["user_info", "click_event"]
    assert {table.name: table.role for table in pipeline.tables.values()} == {
        "user_info": "build",
        "click_event": "probe",
        "print_sink": "sink",
    }
    proctime = pipeline.table("click_event").column("proctime")
    assert proctime.proctime
    assert not proctime.physical
    assert proctime not in pipeline.table("click_event").stored_columns
    assert not pipeline.table("user_info").column("user_id").nullable


CLICKS = """
CREATE TABLE users (id INT PRIMARY KEY NOT ENFORCED, name STRING, country STRING) WITH ('connector' = 'scripted');
CREATE TABLE clicks (user_id INT, country STRING, at TIMESTAMP(3), pt AS PROCTIME()) WITH ('connector' = 'scripted');
CREATE TABLE sink (user_id INT, name STRING) WITH ('connector' = 'print');
"""


def insert_of(text: str) -> Insert:
    return compiled(CLICKS, text).inserts[0]


def test_comments_and_layout_do_not_change_what_an_insert_is() -> None:
    plain = "INSERT INTO sink SELECT user_id, country FROM clicks WHERE user_id > 0;"
    spaced = plain.replace("FROM clicks WHERE", "-- why\n   FROM   clicks\n/* so */ WHERE").replace("0;", "0 ;")
    one, two = compiled(CLICKS, plain), compiled("\n\n", CLICKS.replace("(user", "( -- x\n user"), spaced)
    assert one.inserts[0].sql == two.inserts[0].sql
    assert computes(one, one.inserts[0]) == computes(two, two.inserts[0])
    assert one.tables == two.tables
    other = compiled(CLICKS, plain.replace("> 0", "> 1"))
    assert computes(other, other.inserts[0]) != computes(one, one.inserts[0])


def test_where_is_kept_whole_and_term_by_term() -> None:
    insert = insert_of(
        "INSERT INTO sink SELECT user_id, name FROM clicks AS c JOIN users FOR SYSTEM_TIME AS OF c.pt AS u "
        "ON c.user_id = u.id WHERE (c.user_id > 0 AND u.name <> c.country) AND (u.name = 'a' OR c.user_id = 1) AND TRUE"
    )
    assert insert.conditions == (
        Condition("(`c`.`user_id` > 0)", frozenset({"c"})),
        Condition("(`u`.`name` <> `c`.`country`)", frozenset({"c", "u"})),
        Condition("((`u`.`name` = 'a') OR (`c`.`user_id` = 1))", frozenset({"c", "u"})),
        Condition("TRUE", frozenset()),
    )
    assert insert.where == " AND ".join(condition.expression for condition in insert.conditions)


def test_an_equality_beside_the_key_is_tested_on_the_chosen_version_only() -> None:
    insert = insert_of(
        "INSERT INTO sink SELECT user_id, name FROM clicks AS c JOIN users FOR SYSTEM_TIME AS OF c.pt AS u "
        "ON u.country = c.country AND u.id = c.user_id AND u.id = 5 AND (c.user_id IS NOT NULL)"
    )
    [join] = insert.joins
    assert join.keys == (Key("`c`.`user_id`", "id"),)
    assert join.predicate == ("(`u`.`country` = `c`.`country`) AND (`u`.`id` = 5) AND (NOT (`c`.`user_id` IS NULL))")


def test_a_key_is_brought_to_the_builds_type_where_nothing_is_lost() -> None:
    script = """
        CREATE TABLE b (id BIGINT PRIMARY KEY NOT ENFORCED) WITH ('connector' = 'scripted');
        CREATE TABLE p (small SMALLINT, wide DECIMAL(20, 0), pt AS PROCTIME()) WITH ('connector' = 'scripted');
        CREATE TABLE s (id BIGINT) WITH ('connector' = 'print');
        INSERT INTO s SELECT id FROM p JOIN b FOR SYSTEM_TIME AS OF p.pt ON b.id = {};
    """
    assert compiled(script.format("small")).inserts[0].joins[0].keys == (Key("CAST(`p`.`small` AS BIGINT)", "id"),)
    assert compiled(script.format("wide")).inserts[0].joins[0].keys == (Key("`p`.`wide`", "id"),)


def test_names_may_be_words_of_the_grammar_and_reserved_words_in_backquotes() -> None:
    pipeline = compiled(
        """
        CREATE TABLE `select` (`from` INT PRIMARY KEY NOT ENFORCED, `where` STRING) WITH ('connector' = 'scripted');
        CREATE TABLE watermark (metadata INT, comment STRING, `date` DATE, row INT, time TIMESTAMP(3), pt AS PROCTIME(),
            WATERMARK FOR time AS time) WITH ('connector' = 'scripted');
        CREATE TABLE sink (a INT, b STRING) WITH ('connector' = 'print');
        INSERT INTO sink SELECT metadata, `where` FROM watermark
        JOIN `select` FOR SYSTEM_TIME AS OF watermark.pt ON metadata = `from`;
        """
    )
    assert pipeline.inserts[0].joins[0].keys == (Key("`watermark`.`metadata`", "from"),)


def test_a_name_of_two_parts_is_a_tables_column_first_and_a_rows_field_else() -> None:
    insert = compiled(
        """
        CREATE TABLE a (a ROW<x INT>, x INT) WITH ('connector' = 'scripted');
        CREATE TABLE s (one INT, two INT) WITH ('connector' = 'print');
        INSERT INTO s SELECT a.x, a.a.x FROM a;
        """
    ).inserts[0]
    assert [item.expression for item in insert.projections] == ["`a`.`x`", "CAST(`a`.`a`.`x` AS INT)"]


def test_a_computed_column_is_read_as_stored_and_proctime_as_the_instant() -> None:
    insert = compiled(
        """
        CREATE TABLE p (a INT, double AS a * 2, pt AS PROCTIME()) WITH ('connector' = 'scripted');
        CREATE TABLE s (d INT, at TIMESTAMP_LTZ(3), y BIGINT) WITH ('connector' = 'print');
        INSERT INTO s SELECT double, pt, YEAR(p.pt) FROM p;
        """
    ).inserts[0]
    assert [item.expression for item in insert.projections] == [
        "`p`.`double`",
        "_instant",
        "CAST(CAST(year(_instant) AS BIGINT) AS BIGINT)",
    ]


def test_columns_that_an_insert_does_not_name_are_null() -> None:
    insert = insert_of("INSERT INTO sink (name) SELECT country FROM clicks")
    assert [(item.name, item.expression) for item in insert.projections] == [
        ("user_id", "CAST(NULL AS INT)"),
        ("name", "`clicks`.`country`"),
    ]


def test_an_insert_has_the_id_that_its_target_says() -> None:
    script = CLICKS.replace("'print'", "'print', 'insert.id' = 'v2'")
    assert compiled(script, "INSERT INTO sink SELECT user_id, country FROM clicks").insert("v2").target == "sink"


def test_an_event_time_join_names_the_rowtime() -> None:
    join = fixture("event_time").inserts[0].joins[0]
    assert (join.time, join.time_column) == ("event", "event.at")
    watermark = fixture("event_time").table("orders").watermark
    assert (watermark.column, watermark.type) == ("event.at", "TIMESTAMP(3)")
    assert watermark.expression == "(`event`.`at` - INTERVAL '5' SECOND)"


def test_system_rowtime_is_the_sources_own_time() -> None:
    assert fixture("flip_66").table("preserved").column("rowtime").expression == "_rowtime"


def test_a_statement_set_may_begin_with_begin() -> None:
    script = "BEGIN STATEMENT SET; INSERT INTO sink SELECT user_id, country FROM clicks; END;"
    assert [insert.id for insert in compiled(CLICKS, script).inserts] == ["sink"]


def test_a_script_without_insert_is_a_pipeline_of_unused_tables() -> None:
    assert {table.role for table in compiled(CLICKS).tables.values()} == {"unused"}


def test_a_probe_with_updates_is_welcome_in_event_time() -> None:
    pipeline = compiled(
        """
        CREATE TABLE p (id INT PRIMARY KEY NOT ENFORCED, k INT, at TIMESTAMP(3), WATERMARK FOR at AS at) WITH (
            'connector' = 'upsert-kafka', 'topic' = 'p');
        CREATE TABLE b (k INT PRIMARY KEY NOT ENFORCED, v INT, at TIMESTAMP(3), WATERMARK FOR at AS at) WITH (
            'connector' = 'scripted', 'phases' = 'true', 'signals' = 'true');
        CREATE TABLE s (id INT, v INT) WITH ('connector' = 'print');
        INSERT INTO s SELECT p.id, v FROM p JOIN b FOR SYSTEM_TIME AS OF p.at ON p.k = b.k;
        """
    )
    assert pipeline.inserts[0].time == "event"


def test_windows_by_processing_time_take_no_strategy() -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    with pytest.raises(PlanningError, match="windows of 'views' are in processing time"):
        fixture("windows").with_strategy("views", strategy)
    assert "clicks" in fixture("windows").with_strategy("clicks", strategy).strategies


def test_aggregates_have_flinks_types() -> None:
    table = """
    CREATE TABLE t (tiny TINYINT, n INT NOT NULL, big BIGINT, d DECIMAL(10, 2), f FLOAT, x DOUBLE, s VARCHAR(9),
        p AS PROCTIME()) WITH ('connector' = 'scripted');
    """
    columns = {
        "SUM(tiny)": "TINYINT",
        "SUM(n)": "INT",
        "SUM(big)": "BIGINT",
        "SUM(d)": "DECIMAL(38, 2)",
        "SUM(f)": "FLOAT",
        "AVG(tiny)": "TINYINT",
        "AVG(big)": "BIGINT",
        "AVG(d)": "DECIMAL(38, 6)",
        "AVG(CAST(d AS DECIMAL(20, 9)))": "DECIMAL(38, 9)",
        "AVG(x)": "DOUBLE",
        "MIN(s)": "VARCHAR(9)",
        "MAX(p)": "TIMESTAMP_LTZ(3)",
        "COUNT(DISTINCT s)": "BIGINT",
        "window_time": "TIMESTAMP_LTZ(3)",
    }
    for written, kind in columns.items():
        with pytest.raises(SqlError) as raised:
            compile_script(
                f"""{table} CREATE TABLE o (b BOOLEAN) WITH ('connector' = 'scripted');
                INSERT INTO o SELECT {written} FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(p), INTERVAL '1' DAY))
                GROUP BY window_start, window_end, window_time""",
                connectors=CONNECTORS,
            )
        assert raised.value.what == f"type clash: column `b` of o is BOOLEAN, `{written}` is {kind}"
