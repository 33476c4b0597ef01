"""PyFlink's event-time temporal join, Parquet to Parquet, on its local cluster. Run by benchmarks.peers in an
environment of its own: `peer_flink_join.py PARALLELISM PROBES BUILD OUT JAR…` prints the seconds of the job.

PROBES and BUILD are files in the order of `at` and `valid_from`, which are TIMESTAMP(3): it would take rows behind its
watermark for late. State is on the heap, and there are no checkpoints: the least that it can do. No Python is run.
"""

import sys
import time

from pyflink.table import EnvironmentSettings, TableEnvironment  # pyright: ignore[reportMissingImports]

TABLES = """
CREATE TABLE rates (currency BIGINT, rate INT, label STRING, valid_from TIMESTAMP(3),
    WATERMARK FOR valid_from AS valid_from, PRIMARY KEY (currency) NOT ENFORCED
) WITH ('connector' = 'filesystem', 'path' = '{rates}', 'format' = 'parquet');
CREATE TABLE orders (id BIGINT, currency BIGINT, amount INT, `at` TIMESTAMP(3), WATERMARK FOR `at` AS `at`)
WITH ('connector' = 'filesystem', 'path' = '{orders}', 'format' = 'parquet');
CREATE TABLE converted (id BIGINT, amount INT, rate INT, label STRING)
WITH ('connector' = 'filesystem', 'path' = '{out}', 'format' = 'parquet')
"""
JOIN = """
INSERT INTO converted SELECT o.id, o.amount, r.rate, r.label FROM orders AS o
LEFT JOIN rates FOR SYSTEM_TIME AS OF o.`at` AS r ON o.currency = r.currency
"""


def main(parallelism: str, orders: str, rates: str, out: str, *jars: str) -> float:
    """The seconds from the job's submission to its end: id, amount, rate and label of every probe row."""
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    settings = {
        "pipeline.jars": ";".join(f"file://{jar}" for jar in jars),
        "parallelism.default": parallelism,
        "table.local-time-zone": "UTC",
    }
    for name, value in settings.items():
        tables.get_config().set(name, value)
    for statement in TABLES.format(orders=orders, rates=rates, out=out).split(";"):
        tables.execute_sql(statement)
    start = time.perf_counter()
    tables.execute_sql(JOIN).wait()
    return time.perf_counter() - start


if __name__ == "__main__":
    print(main(*sys.argv[1:]))
