import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from tidegate.pipelines.connectors.table import Column
from tidegate.pipelines.frames import empty_frame
from tidegate.pipelines.sources.arrow_types import arrow_schema, arrow_type

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
