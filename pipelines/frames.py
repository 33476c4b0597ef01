"""Small things about DataFrames that Spark makes dearer than they need be."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType


def empty_frame(spark: SparkSession, schema: DataType) -> DataFrame:
    """No rows of `schema`. Unlike createDataFrame([], …) it starts no Python worker."""
    assert isinstance(schema, StructType)
    return spark.range(0).select(*[F.lit(None).cast(field.dataType).alias(field.name) for field in schema])
