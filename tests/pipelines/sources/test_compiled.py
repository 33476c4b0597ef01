"""The connectors as a script names them: found where they are installed, and refused at their place in the script."""

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from tidegate.pipelines.connectors.table import Column
from tidegate.pipelines.frames import empty_frame
from tidegate.pipelines.sources.arrow_types import arrow_schema, arrow_type
from tidegate.pipelines.sql import SqlError, compile_script

ROOT = Path(__file__).parents[3]

SCRIPT = """
CREATE TABLE users (id INT PRIMARY KEY NOT ENFORCED, name STRING) WITH ({users});
CREATE TABLE clicks (id INT, p AS PROCTIME()) WITH ('connector' = 'datagen'{clicks});
CREATE TABLE shown (id INT, name STRING) WITH ({shown});
INSERT INTO shown SELECT c.id, u.name FROM clicks AS c
JOIN users FOR SYSTEM_TIME AS OF c.p AS u ON c.id = u.id;
"""


SEQUENCE = "'connector' = 'datagen', 'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '9'"


def script(users="'connector' = 'scripted'", clicks="", shown="'connector' = 'print'"):
    return SCRIPT.format(users=users, clicks=clicks, shown=shown)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"users": "'connector' = 'scripted', 'phases' = 'true', 'signals' = 'true'"},
        {"users": "'connector' = 'delta', 'path' = '/data/users'"},
        {"users": "'connector' = 'delta', 'path' = '${USERS}'"},
        {"users": SEQUENCE},
        {"clicks": ", 'rows-per-second' = '5', 'fields.id.min' = '0', 'rows-at-start' = '500000', 'seed' = '7'"},
        {"shown": "'connector' = 'delta'"},
        {"shown": "'connector' = 'scripted'"},
        {"shown": "'connector' = 'print', 'print-identifier' = 'clicks'"},
    ],
)
def test_it_compiles(options):
    pipeline = compile_script(script(**options))
    assert pipeline.table("users").role == "build"


@pytest.mark.parametrize(
    ("options", "line", "words"),
    [
        ({"users": "'connector' = 'scripted', 'phases' = 'true'"}, 5, "signals"),
        ({"users": "'connector' = 'delta'"}, 2, "no INSERT of this script writes users: write one"),
        ({"users": "'connector' = 'print'"}, 5, "print"),
        ({"clicks": ", 'fields.id.min' = '7', 'fields.id.max' = '6'"}, 3, "greater than its max"),
        ({"clicks": ", 'fields.id.min' = 'x'"}, 3, "no number"),
        ({"clicks": ", 'fields.p.null-rate' = '1'"}, 3, "p"),
        ({"clicks": ", 'fields.id.length' = '6'"}, 3, "does not go with"),
        ({"shown": "'connector' = 'datagen'"}, 5, "datagen"),
    ],
)
def test_it_is_refused_where_it_stands(options, line, words):
    with pytest.raises(SqlError, match=words) as error:
        compile_script(script(**options))
    assert error.value.line in (line, line + 1)


@pytest.mark.parametrize(
    "path", ["tests/fixtures/sql/flip_66.sql", "tests/fixtures/sql/flip_326.sql", "examples/clicks/pipeline.sql"]
)
def test_what_the_flips_show_compiles_with_the_connectors_that_are_installed(path: str) -> None:
    assert compile_script((ROOT / path).read_text()).inserts


def test_topics_and_files_have_a_watermark_of_their_own() -> None:
    pipeline = compile_script((ROOT / "tests/fixtures/sql/flip_66.sql").read_text())
    found = [pipeline.table(name).watermark for name in ("preserved", "preserved_since", "behind_the_source")]
    clocks = [(spec.source, spec.delay) for spec in found if spec is not None]
    assert clocks == [(True, timedelta(0)), (True, timedelta(0)), (True, timedelta(minutes=1))]


SPARK_TYPES = [
    "BOOLEAN",
    "TINYINT",
    "SMALLINT",
    "INT",
    "BIGINT",
    "FLOAT",
    "DOUBLE",
    "DECIMAL(38, 10)",
    "STRING",
    "BINARY",
    "DATE",
    "TIMESTAMP",
    "TIMESTAMP_NTZ",
    "ARRAY<DECIMAL(5, 2)>",
    "MAP<STRING, TIMESTAMP_NTZ>",
    "STRUCT<`a b`: INT, `c`: STRUCT<`d`: ARRAY<DATE>>>",
]


def test_spark_agrees(spark):
    ddl = ", ".join(f"c{number} {spark_type}" for number, spark_type in enumerate(SPARK_TYPES))
    fields = [pa.field(f"c{number}", arrow_type(spark_type)) for number, spark_type in enumerate(SPARK_TYPES)]
    assert empty_frame(spark, StructType.fromDDL(ddl)).toArrow().schema == pa.schema(fields)


def test_a_schema_has_the_columns_as_named():
    columns = [Column("a b", "INT", "INT", nullable=False), Column("c", "STRING", "STRING")]
    assert arrow_schema(columns) == pa.schema([("a b", pa.int32()), ("c", pa.string())])


@pytest.mark.parametrize("spark_type", ["INTERVAL YEAR TO MONTH", "VARIANT"])
def test_a_type_that_arrow_does_not_have(spark_type):
    with pytest.raises(ValueError, match="no Arrow type"):
        arrow_type(spark_type)
