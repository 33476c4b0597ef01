"""The jar of spark-avro and the Spark that is installed work together (docs/decisions/0022)."""

from __future__ import annotations

import json

import pytest

from tidegate.pipelines.spark_versions import spark_jars

SCHEMA = {
    "type": "record",
    "name": "r",
    "fields": [
        {"name": "n", "type": ["null", "long"]},
        {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}},
        {"name": "end", "type": {"type": "fixed", "name": "end", "size": 1}},
    ],
}
MEND = (
    "{jar} does not work with Spark {version}: {what}\n"
    "The format avro needs `from_avro` of that jar. Set `avro` in pipelines/spark_versions.py to the jar of this "
    "very Spark if it can be had, else to one whose calls into spark-sql this Spark still has: docs/decisions/0022 "
    "names them."
)


def test_the_jar_reads_records_with_this_spark(spark) -> None:
    written, reader = json.dumps(SCHEMA), json.dumps({**SCHEMA, "fields": SCHEMA["fields"][2:]})
    record = spark.sql("SELECT EXPLODE(array(X'0254020F7F', X'02', X'0002010A')) AS m").selectExpr(
        f"from_avro(m, '{written}', map('mode', 'PERMISSIVE')) AS whole",
        f"from_avro(m, '{written}', map('mode', 'PERMISSIVE', 'avroSchema', '{reader}')) AS passed",
    )
    try:
        found = [tuple(map(str, (row["n"], row["d"], row["w"], row["p"]))) for row in record.selectExpr(
            "whole.n", "whole.d", "hex(whole.end) AS w", "hex(passed.end) AS p").collect()]  # fmt: skip
    except Exception as error:
        pytest.fail(MEND.format(jar=spark_jars().avro, version=spark.version, what=error))
    expected = [("42", "0.15", "7F", "7F"), ("None",) * 4, ("None", "0.01", "0A", "0A")]
    assert found == expected, MEND.format(jar=spark_jars().avro, version=spark.version, what="it reads other values")
