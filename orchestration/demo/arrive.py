"""What a run of the demo will download, make and reuse, said before it begins."""

from __future__ import annotations

from collections.abc import Callable

from tidegate.orchestration.demo.site import Site
from tidegate.pipelines.jars import home, is_cached
from tidegate.pipelines.sources.mysql_cdc.server_install import needs_download
from tidegate.pipelines.spark_versions import spark_jars

_SERVER_BYTES = 149_000_000
_JAR_BYTES = (95_000_000, 500_000, 100_000, 9_200_000, 200_000, 100_000)
"""What is downloaded for each of `SparkJars.all`, with what it depends on."""
_JAR_NAMES = ("Delta Lake", *["Spark's Kafka source"] * 4, "Spark's Avro")
_BYTES_PER_MINUTE = 120_000_000
"""What a connection of 16 Mbit/s brings."""


def announce(site: Site, say: Callable[[str], None]) -> None:
    """Say it. Raises ServerUnavailable where $TIDEGATE_MARIADBD names no server."""
    of_jars = zip(spark_jars().all, _JAR_NAMES, _JAR_BYTES, strict=True)
    jars = [(name, size) for coordinate, name, size in of_jars if not is_cached(coordinate)]
    missing = list(dict.fromkeys(name for name, _ in jars))
    needed = sum(size for _, size in jars)
    if needs_download():
        missing.append("a MariaDB server")
        needed += _SERVER_BYTES
    if missing:
        say(
            f"The first run downloads {', '.join(missing)} into {home()}: {_megabytes(needed)}, "
            f"{_minutes(needed)}, once."
        )
    if site.database.exists():
        say(f"Using the database server in {site.database} again; user_info, the lake and its history are made anew.")
    say(f"Everything of the demo lies in {site.root}; remove that folder to be rid of it.")


def _megabytes(needed: int) -> str:
    return f"about {max(round(needed / 1_000_000), 1)} MB"


def _minutes(needed: int) -> str:
    minutes = needed / _BYTES_PER_MINUTE
    return "less than a minute" if minutes < 1 else f"1 to {round(minutes) + 1} minutes"
