"""What is shown of a table compiles to the table again."""

from __future__ import annotations

import string
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import searched
from tests.pipelines.sql.connectors import CONNECTORS
from tests.pipelines.sql.test_compile import FIXTURES, fixture
from tidegate.pipelines.sql import (
    Table,
    compile_script,
    describe,
    show_create_function,
    show_create_table,
    show_statements,
)
from tidegate.pipelines.sql.explanation import show_settings


def table_of(script: str) -> Table:
    [table] = compile_script(script, connectors=CONNECTORS).tables.values()
    return table


def test_what_a_script_sets_is_shown_and_comes_back() -> None:
    table = "CREATE TABLE t (a INT) WITH ('connector' = 'scripted')"
    for written, interval in (("0 ms", timedelta(0)), ("PT0.2S", timedelta(milliseconds=200))):
        made = compile_script(f"SET 'pipeline.auto-watermark-interval' = '{written}'; {table}", connectors=CONNECTORS)
        assert made.auto_watermark_interval == interval
        shown = show_statements(made).partition("\n\n")[0]
        again = compile_script(shown.removeprefix("SET\n") + table, connectors=CONNECTORS)
        assert again.auto_watermark_interval == interval
    assert show_statements(compile_script(table, connectors=CONNECTORS)).startswith("DESCRIBE t")


@pytest.mark.parametrize("name", sorted(path.stem for path in FIXTURES.glob("*.sql")))
def test_the_tables_of_the_fixtures_come_back(name: str) -> None:
    functions = "".join(map(show_create_function, fixture(name).functions.values()))
    for table in fixture(name).tables.values():
        if "password" in table.options and not table.options["password"].startswith("$"):
            continue
        shown = show_create_table(table)
        assert table_of(functions + shown) == table
        assert show_create_table(table_of(functions + shown)) == shown


NAMES = st.text(alphabet=string.ascii_letters + string.digits + "_-éß値$", min_size=1, max_size=8).filter(
    lambda name: not name.startswith("_")
)
TEXTS = st.text(alphabet=st.characters(exclude_categories=("Cs", "Cc")), max_size=12) | st.sampled_from(
    ["it's", "a''b", "line\nbreak", "-- no comment", "/* neither */", "`", '"', "${VAR}", "\\", ";"]
)
SCALARS = st.sampled_from(
    [
        "BOOLEAN",
        "TINYINT",
        "INT",
        "BIGINT",
        "DOUBLE",
        "DECIMAL(38, 10)",
        "CHAR(3)",
        "VARCHAR(9)",
        "STRING",
        "BYTES",
        "BINARY(2)",
        "DATE",
        "TIMESTAMP(3)",
        "TIMESTAMP(0)",
        "TIMESTAMP_LTZ(6)",
    ]
)


def _quoted(name: str) -> str:
    return f"`{name}`"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _row(fields: dict[str, tuple[str, str | None]]) -> str:
    parts = [
        f"{_quoted(name)} {kind}{'' if text is None else ' ' + _text(text)}" for name, (kind, text) in fields.items()
    ]
    return f"ROW<{', '.join(parts)}>"


def _nested(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    element = st.builds(lambda kind, null: kind + null, inner, st.sampled_from(["", " NOT NULL", " NULL"]))
    fields = st.dictionaries(NAMES.map(str.lower), st.tuples(element, st.none() | TEXTS), min_size=1, max_size=3)
    return (
        element.map(lambda kind: f"ARRAY<{kind}>")
        | st.builds(lambda key, value: f"MAP<{key}, {value}>", inner, element)
        | fields.map(_row)
    )


TYPES = st.recursive(SCALARS, _nested, max_leaves=4)


@st.composite
def create_tables(draw: st.DrawFn) -> str:
    """A CREATE TABLE with whatever may stand in one."""
    names = draw(st.lists(NAMES, min_size=1, max_size=6, unique_by=str.casefold))
    parts: list[str] = []
    keys: list[str] = []
    for name in names:
        kind = draw(TYPES)
        null = draw(st.sampled_from(["", " NOT NULL", " NULL"]))
        comment = draw(st.none() | TEXTS)
        if kind.split("<")[0] not in ("ROW", "ARRAY", "MAP") and null != " NULL" and draw(st.booleans()):
            keys.append(name)
        parts.append(f"{_quoted(name)} {kind}{null}{'' if comment is None else ' COMMENT ' + _text(comment)}")
    computed = ["ROWTIME", "CPU_TIME"]
    if not {name.casefold() for name in names} & {name.casefold() for name in computed}:
        parts.append(f"{computed[0]} AS TO_TIMESTAMP( 'x'  ,  'yyyy''T''' ) COMMENT 'computed'")
        if draw(st.booleans()):
            parts.append(f"{computed[1]}  AS\n PROCTIME ( )")
        if draw(st.booleans()):
            parts.append(f"WATERMARK FOR {computed[0]} AS {computed[0]}\n - INTERVAL '5' -- late\n SECOND")
    if keys:
        parts.insert(draw(st.integers(0, len(parts))), f"PRIMARY KEY ({', '.join(map(_quoted, keys))}) NOT ENFORCED")
    plain = draw(st.lists(st.sampled_from(names), max_size=3))
    actions = st.sampled_from(["", " ON VIOLATION FAIL UPDATE", "  ON\n VIOLATION quarantine", " ON VIOLATION WARN"])
    parts += [
        f"CONSTRAINT c{number} EXPECT ( {_quoted(name)} IS /* or */ NOT  NULL ){draw(actions)}"
        for number, name in enumerate(plain)
    ]
    comment = draw(st.none() | TEXTS)
    options = draw(st.dictionaries(st.sampled_from(["topic", "password", "changelog.retention"]), TEXTS, max_size=3))
    values = {"connector": "any", **options}
    if "changelog.retention" in values:
        values["changelog.retention"] = draw(st.sampled_from(["7 d", "PT1H", "${RETENTION}"]))
    if "password" in values:
        values["password"] = "${PASSWORD}"
    clause = ", ".join(f"{_text(key)} = {_text(value)}" for key, value in values.items())
    name = draw(st.text(alphabet=string.ascii_letters + "é-", min_size=1, max_size=8))
    text = "" if comment is None else f" COMMENT {_text(comment)}"
    return f"CREATE TEMPORARY TABLE {_quoted(name)} (\n {', '.join(parts)}\n){text} WITH ({clause});"


ANY = {
    "any": type(CONNECTORS["kafka"])(
        "any",
        tuple(type(CONNECTORS["kafka"].options[0])(name) for name in ("topic", "password")),
        "Anything.",
        sink=True,
    )
}


@searched(150)
@given(create_tables())
def test_whatever_table_is_declared_comes_back(script: str) -> None:
    [table] = compile_script(script, connectors=ANY).tables.values()
    shown = show_create_table(table)
    [again] = compile_script(shown, connectors=ANY).tables.values()
    assert again == table
    assert show_create_table(again) == shown


def test_a_table_is_described_as_a_table() -> None:
    assert describe(fixture("event_time").table("rates")) == (
        "name        type              null   key            extras\n"
        "currency    STRING            FALSE  PRI(currency)\n"
        "rate        DECIMAL(10, 6)    TRUE\n"
        "millis      BIGINT            TRUE\n"
        "valid_from  TIMESTAMP_LTZ(3)  TRUE                  computed: TO_TIMESTAMP_LTZ(millis, 3)\n"
        "watermark for valid_from: millis - 1 (BIGINT)\n"
    )


def test_constraints_are_described_with_what_they_do() -> None:
    assert describe(fixture("constraints").table("enriched")).splitlines()[-4:] == [
        "constraint known_item: item_id IS NOT NULL (on violation fail)",
        "constraint positive: price > 0 (on violation quarantine)",
        "constraint short_name: CHAR_LENGTH(name) <= 20 (on violation warn)",
        "constraint not_from_the_future: seen_at <= CURRENT_TIMESTAMP (on violation warn)",
    ]


def test_the_sources_own_watermark_is_described_as_such() -> None:
    assert describe(fixture("flip_66").table("preserved")) == (
        "name     type              null  key  extras\n"
        "user_id  STRING            TRUE\n"
        "rowtime  TIMESTAMP_LTZ(3)  TRUE       computed: SYSTEM_ROWTIME()\n"
        "watermark for rowtime: SYSTEM_WATERMARK() (TIMESTAMP_LTZ(3), the source's own)\n"
    )
    assert describe(fixture("flip_66").table("behind_the_source")).splitlines()[-1] == (
        "watermark for rowtime: SYSTEM_WATERMARK() - '1' MINUTE (TIMESTAMP_LTZ(3), the source's own, delayed by 1 min)"
    )


@pytest.mark.parametrize("name", ["flip_66", "event_time"])
def test_the_statements_of_a_script_are_shown_under_their_headings_and_compile_to_it_again(name: str) -> None:
    pipeline = fixture(name)
    shown = show_statements(pipeline)
    sections = [part.split("\n", 1) for part in f"\n\n{shown}".split("\n\n")[1:]]
    headings = [heading for heading, _ in sections]
    assert headings == [
        *(f"SHOW CREATE FUNCTION {name}" for name in pipeline.functions),
        *(f"{word} {name}" for name in pipeline.tables for word in ("DESCRIBE", "SHOW CREATE TABLE")),
    ]
    script = "".join(f"{text}\n" for heading, text in sections if heading.startswith("SHOW"))
    again = compile_script(script, connectors=CONNECTORS)
    assert (again.tables, again.functions) == (pipeline.tables, pipeline.functions)


ENFORCED = """SET 'table.exec.sink.not-null-enforcer' = '{}';
CREATE TABLE clicks (id BIGINT NOT NULL, n INT) WITH ('connector' = 'scripted');
CREATE TABLE enriched (
    id BIGINT PRIMARY KEY NOT ENFORCED, `price$` INT NOT NULL, n INT,
    CONSTRAINT `not-null-id` EXPECT (n > 0)
) WITH ('connector' = 'scripted');
INSERT INTO enriched SELECT id, n, n FROM clicks;
"""


def test_nulls_of_not_null_columns_are_quarantined_by_constraints_where_the_script_drops_them() -> None:
    made = compile_script(ENFORCED.format("drop"))
    assert made.not_null_enforcer == "DROP"
    found = [(each.name, each.condition, each.action) for each in made.table("enriched").constraints]
    assert found == [
        ("not-null-id", "(`n` > 0)", "warn"),
        ("not-null-id_2", "(NOT (`id` IS NULL))", "quarantine"),
        ("not-null-price_", "(NOT (`price$` IS NULL))", "quarantine"),
    ]
    assert [each.action for each in made.insert("enriched").constraints] == ["quarantine", "quarantine", "warn"]
    assert made.table("clicks").constraints == ()
    shown = show_settings(made) + "".join(map(show_create_table, made.tables.values())) + f"{made.inserts[0].sql};"
    again = compile_script(shown)
    assert again.tables == made.tables
    (error,) = [each for each in compile_script(ENFORCED.format("ERROR")).tables.values() if each.role == "sink"]
    assert [each.name for each in error.constraints] == ["not-null-id"]


def test_columns_that_are_too_many_share_a_constraint() -> None:
    columns = ", ".join(f"c{number} INT NOT NULL" for number in range(70))
    made = compile_script(
        "SET 'table.exec.sink.not-null-enforcer' = 'DROP'; CREATE TABLE s (c INT) WITH ('connector' = 'scripted');"
        f"CREATE TABLE t ({columns}) WITH ('connector' = 'scripted');"
        f"INSERT INTO t SELECT {', '.join(['c'] * 70)} FROM s;"
    )
    found = made.table("t").constraints
    assert (len(found), found[-1].name, found[-1].condition.count("IS NULL")) == (61, "not-null-others", 10)
