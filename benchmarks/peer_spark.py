"""An as-of join that others made for Spark, Parquet to Parquet. Run by benchmarks.peers in an environment of its own:
`peer_spark.py HOW PROBES BUILD OUT` prints the seconds of the second of two runs.

HOW is `tempo` (dbl-tempo's TSDF.asofJoin) or `asof` (Spark 4.3's own ASOF JOIN). The session has the memory of
Tidegate's and as many partitions as a release of ten million rows; the rest is as Spark has it.
"""

import glob
import sys
import time

from pyspark.sql import DataFrame, SparkSession

ASOF = """
SELECT p.id, p.amount, v.rate, v.label FROM orders p LEFT ASOF JOIN rates v
MATCH_CONDITION (p._rowtime >= v._rowtime) ON p.currency = v.currency
"""


def main(how: str, orders: str, rates: str, out: str) -> float:
    """As the other peers: id, amount, rate and label of every probe row."""
    settings = {
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "12",
        "spark.sql.join.asofJoin.enabled": "true",
    }
    builder = SparkSession.builder.master("local[*]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    probes = spark.read.parquet(*glob.glob(orders, recursive=True)).select("id", "currency", "amount", "_rowtime")
    versions = spark.read.parquet(*glob.glob(rates, recursive=True)).select("currency", "rate", "label", "_rowtime")
    took = 0.0
    for _ in range(2):
        start = time.perf_counter()
        _joined(how, probes, versions).write.mode("overwrite").parquet(out)
        took = time.perf_counter() - start
    return took


def _joined(how: str, probes: DataFrame, versions: DataFrame) -> DataFrame:
    if how == "asof":
        probes.createOrReplaceTempView("orders")
        versions.createOrReplaceTempView("rates")
        return probes.sparkSession.sql(ASOF)
    from tempo import TSDF  # pyright: ignore[reportMissingImports]

    left, right = (TSDF(side, ts_col="_rowtime", partition_cols=["currency"]) for side in (probes, versions))
    found = left.asofJoin(right, right_prefix="v")
    return found.df.selectExpr("id", "amount", "v_rate AS rate", "v_label AS label")


if __name__ == "__main__":
    print(main(*sys.argv[1:]))
