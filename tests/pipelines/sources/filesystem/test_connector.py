"""What is wrong with a filesystem table is said at planning, at its place in the script."""

from __future__ import annotations

import pytest

from tidegate.pipelines.sql import SqlError, compile_script, show_create_table


def table(columns: str, **options: str) -> str:
    given = {
        "connector": "filesystem",
        "path": "x",
        **{name.replace("_", "."): value for name, value in options.items()},
    }
    written = ", ".join(f"'{name}' = '{value}'" for name, value in given.items())
    return f"CREATE TABLE t ({columns}) WITH ({written})"


def test_in_quotes_elements_may_stand_apart_as_fields_do() -> None:
    options = {"format": "csv", "csv_field-delimiter": ";"}
    assert compile_script(table("a ARRAY<INT>, b INT", **options)).table("t").options["csv.field-delimiter"] == ";"


@pytest.mark.parametrize(
    ("columns", "options", "place", "words"),
    [
        ("a INT", {}, "t", "t lacks the option 'format'"),
        ("a INT", {"format": "jsn"}, "'format'", "there is no format 'jsn' here: did you mean 'json'?"),
        ("a INT", {"format": "orc"}, "'format'", "the format 'orc' cannot be read: write the files as parquet"),
        ("a INT", {"format": "raw"}, "'format'", "there is no format 'raw' here"),
        ("a INT", {"format": "avro"}, "'format'", "files of Avro's own kind are not read: write them as parquet"),
        ("a INT", {"format": "debezium-avro-confluent"}, "'format'", "cannot be read"),
        ("a INT", {"format": "${F}"}, "'format'", "cannot come from the environment"),
        ("a INT", {"format": "json", "csv_null-literal": ""}, "'csv.null", "an option of csv, and the format is json"),
        ("a INT", {"format": "parquet", "csv_null-literal": ""}, "'csv.null", "the format is parquet"),
        ("a INT", {"format": "parquet", "json_ignore-parse-errors": "true"}, "'json.ign", "the format is parquet"),
        ("a INT", {"format": "json", "format_on-error": "pass"}, "'pass'", "is none of the choices"),
        ("a INT", {"format": "csv", "csv_field-delimiter": ";;"}, "'csv.field", "is one character, not ';;'"),
        ("a INT", {"format": "csv", "csv_field-delimiter": '"'}, "'csv.field", "is the character of 'csv.quote-char"),
        ("a INT", {"format": "csv", "csv_quote-character": ","}, "'csv.quote", "is the character of 'csv.field-delim"),
        ("a INT", {"format": "csv", "csv_escape-character": ","}, "'csv.escape", "is the character of 'csv.field-del"),
        ("a INT", {"format": "csv", "csv_field-delimiter": r"\n"}, "'csv.field", "is a line break"),
        (
            "a ARRAY<INT>, b INT",
            {"format": "csv", "csv_field-delimiter": ";", "csv_disable-quote-character": "true"},
            "'csv.field",
            "is the character of 'csv.array-element-delimiter', ';'",
        ),
        (
            "a INT",
            {"format": "csv", "csv_disable-quote-character": "true", "csv_escape-character": "x"},
            "'csv.disable-quote",
            "has no meaning with 'csv.disable-quote-character'",
        ),
        (
            "a INT",
            {"format": "json", "json_fail-on-missing-field": "true", "json_ignore-parse-errors": "true"},
            "'json.fail",
            "cannot both be true",
        ),
        ("a INT, m MAP<INT, INT>", {"format": "json"}, "t", "column m is MAP<INT, INT>: the keys"),
        ("a INT, r ROW<x INT>", {"format": "csv"}, "t", "column r is ROW<`x` INT>: a field is a scalar"),
        ("a ARRAY<INT>", {"format": "canal-json"}, "t", "column a is ARRAY<INT>: Canal writes scalars only"),
        ("n STRING METADATA FROM 'file.name'", {"format": "json"}, "t", "t has no column that is in the files"),
        ("n INT METADATA FROM 'file.name'", {"format": "json"}, "INT", "metadata `file.name` of filesystem is STRING"),
        ("n STRING METADATA FROM 'name'", {"format": "json"}, "'name'", "unknown metadata `name`"),
        ("a INT, n STRING METADATA FROM 'database'", {"format": "json"}, "'database'", "unknown metadata `database`"),
        ("a INT, n STRING METADATA FROM 'pk-names'", {"format": "canal-json"}, "STRING METADATA", "is ARRAY<STRING>"),
        ("a INT", {"format": "json", "source_path_regex-pattern": "("}, "'source.path", "is no regular expression"),
        ("a INT", {"format": "json", "source_settle-time": "soon"}, "'soon'", "is no duration"),
        (
            "a INT, at AS SYSTEM_ROWTIME(), WATERMARK FOR at AS at - INTERVAL '1' SECOND",
            {"format": "json"},
            "at - INT",
            "whose watermark is SYSTEM_WATERMARK()",
        ),
    ],
)
def test_it_is_refused_where_it_stands(columns: str, options: dict[str, str], place: str, words: str) -> None:
    script = table(columns, **options)
    with pytest.raises(SqlError) as caught:
        compile_script(script)
    assert words in caught.value.what
    start = script.index(f" {place}", 0 if place != "t" else len("CREATE TABLE") - 1) + 1
    assert caught.value.column - 1 == start, (script[caught.value.column - 1 :], script[start:])


@pytest.mark.parametrize(
    ("by", "place", "words"),
    [
        ("dy", "dy", "unknown column `dy` in t"),
        ("d, d", "d", "`d` is twice in PARTITIONED BY"),
        ("n", "n", "`n` is not delivered as a column"),
        ("c", "c", "`c` is not delivered as a column"),
        ("f", "f", "a folder's name cannot be DOUBLE"),
        ("z", "z", "a folder's name cannot be TIMESTAMP_LTZ(3)"),
        ("d, a, f, z", "f", "a folder's name cannot be DOUBLE"),
    ],
)
def test_partitions_are_refused_where_they_stand(by: str, place: str, words: str) -> None:
    columns = "d DATE, a INT, f DOUBLE, z TIMESTAMP_LTZ(3), n STRING METADATA FROM 'file.name', c AS a + 1"
    script = table(columns, format="json").replace(" WITH", f" PARTITIONED BY ({by}) WITH")
    with pytest.raises(SqlError) as caught:
        compile_script(script)
    assert words in caught.value.what
    start = script.index("BY (") + len("BY (") + (by.rindex(place) if by != place else 0)
    assert caught.value.column - 1 == start


def test_partitions_leave_a_column_for_the_files() -> None:
    with pytest.raises(SqlError, match="t has no column that is in the files"):
        compile_script(table("d DATE", format="json").replace(" WITH", " PARTITIONED BY (d) WITH"))
    with pytest.raises(SqlError, match="has no meaning without PARTITIONED BY"):
        compile_script(table("d DATE", format="json", **{"partition_default-name": "x"}))


def test_partitions_compile_and_are_shown_as_they_were_declared() -> None:
    script = table("d DATE, a INT, h INT", format="json").replace(" WITH", " COMMENT 'c' PARTITIONED BY (d, h) WITH")
    made = compile_script(script).table("t")
    assert made.partition_columns == ("d", "h")
    assert [column.name for column in made.message_columns] == ["a"]
    assert compile_script(show_create_table(made)).table("t") == made


@pytest.mark.parametrize(
    ("columns", "options"),
    [
        ("a INT, f STRING METADATA FROM 'file.name', b BIGINT METADATA FROM 'file.size'", {"format": "json"}),
        ("a INT", {"format": "csv", "csv_field-delimiter": "\\t", "source_settle-time": "2 min"}),
        ("a INT, m MAP<INT, INT>", {"format": "parquet", "path": "${FOLDER}", "source_monitor-interval": "10 s"}),
        (
            "a INT, at AS SYSTEM_ROWTIME(), WATERMARK FOR at AS SYSTEM_WATERMARK() - INTERVAL '1' SECOND",
            {"format": "debezium-json"},
        ),
        (
            "at TIMESTAMP_LTZ(3) METADATA FROM 'file.modification-time', a INT, WATERMARK FOR at AS at - '1' SECOND",
            {"format": "json"},
        ),
    ],
)
def test_it_compiles(columns: str, options: dict[str, str]) -> None:
    assert compile_script(table(columns, **options)).table("t").connector == "filesystem"
