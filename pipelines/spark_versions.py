"""The installed version of Spark, the jars that go with it, and what older versions need done another way.

No other module reads the version. Docs: docs/spark.md, docs/decisions/0037.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.pipelines.errors import TidegateError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class SparkJars:
    """The jars of a session that Tidegate starts, each as "group:artifact:version".

    Attributes:
        delta: Delta Lake; with what it depends on.
        kafka: Spark's Kafka source and what it needs, one by one: not every repository has the token provider in the
            version that the source names, and that of 4.0.0 works as well.
        avro: Spark's `from_avro`; what it needs is in Spark. That of 4.2.0 is not published: docs/decisions/0022 says
            why that of 4.1.1 works, and tests/pipelines/runtime/test_avro_jar.py that it does.
    """

    delta: str
    kafka: tuple[str, ...]
    avro: str

    @property
    def all(self) -> tuple[str, ...]:
        return (self.delta, *self.kafka, self.avro)


def _jars(spark: str, kafka: str, client: str, avro: str) -> SparkJars:
    return SparkJars(
        f"io.delta:delta-spark_{spark}_2.13:4.4.0",
        (
            f"org.apache.spark:spark-sql-kafka-0-10_2.13:{kafka}",
            "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
            f"org.apache.kafka:kafka-clients:{client}",
            "org.apache.commons:commons-pool2:2.13.1",
        ),
        f"org.apache.spark:spark-avro_2.13:{avro}",
    )


JARS = {
    "4.0": _jars("4.0", kafka="4.0.0", client="3.9.0", avro="4.0.0"),
    "4.1": _jars("4.1", kafka="4.1.1", client="3.9.1", avro="4.1.1"),
    "4.2": _jars("4.2", kafka="4.2.0", client="3.9.2", avro="4.1.1"),
}
"""The versions of Spark that Tidegate works with, oldest first. pyproject.toml has the same range."""


class SparkNotSupported(TidegateError):
    """A Spark of another version than those of `JARS`, or two of different versions."""

    def __init__(self, what: str, where: str) -> None:
        super().__init__(
            what,
            where=where,
            state="nothing was started, read or written",
            next_command="pip install 'pyspark>=4.0.1,<=4.2.0'   (and let $SPARK_HOME name that version, or none); "
            "docs/spark.md lists the platforms that have one",
        )


def supported(version: str, where: str) -> str:
    """ "4.2" of a full version such as "4.2.0" or "4.0.2-amzn-0". Raises SparkNotSupported."""
    found = re.match(r"\d+\.\d+", version)
    if found is None or found.group() not in JARS:
        *others, last = JARS
        raise SparkNotSupported(f"Tidegate runs on Spark {', '.join(others)} and {last}, and this is {version}", where)
    return found.group()


def spark_version() -> str:
    """ "4.2" of the Spark that a session is started with, without importing pyspark. Raises SparkNotSupported."""
    return _version(pyspark_home(), spark_home())


def spark_jars() -> SparkJars:
    """The jars for the installed Spark. Raises SparkNotSupported."""
    return JARS[spark_version()]


@cache
def _version(pyspark: Path, home: Path) -> str:
    text = (pyspark / "version.py").read_text()
    named = re.search(r"""__version__.*=\s*["']([^"']+)""", text)
    version = supported(named.group(1) if named else "one without a version", str(pyspark))
    for jar in (home / "jars").glob("spark-core_2.13-*.jar") if home != pyspark else ():
        of_engine = supported(jar.stem.removeprefix("spark-core_2.13-"), str(jar))
        if of_engine != version:
            raise SparkNotSupported(f"pyspark is {version}, and $SPARK_HOME has Spark {of_engine}", f"{pyspark}, {jar}")
    return version


def pyspark_home() -> Path:
    """The folder of the package pyspark, which is not imported for it. Raises SparkNotSupported."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise SparkNotSupported("pyspark is not installed", sys.prefix)
    return Path(found.origin).parent


def spark_home() -> Path:
    """Where Spark lies: $SPARK_HOME, else in the package pyspark."""
    named = os.environ.get("SPARK_HOME")
    return Path(named) if named else pyspark_home()


def newest_java() -> int | None:
    """The last version of Java that this Spark runs on; None if it has none. Raises SparkNotSupported.

    Before 4.2 its Hadoop asks Java for the user by `Subject.getSubject`, which Java 23 and later refuse.
    """
    return 22 if spark_version() in ("4.0", "4.1") else None


def has_arrow_udf() -> bool:
    """Whether Spark hands Arrow arrays to Python functions: since 4.1."""
    return spark_version() != "4.0"


def over_arrays(call: Callable[..., pa.Array], arguments: Sequence[pa.DataType], returns: str) -> Any:
    """A function of Spark SQL, to be registered: `call` takes an array for each argument and returns one of equal
    length, of the Spark type `returns`. A call may leave out the last of its `arguments`.

    In 4.0 it is called with one row at a time. The two ways that 4.0 has for more rows go through pandas, which makes
    whole numbers among NULLs floats.
    """
    from pyspark.sql import functions as F

    if has_arrow_udf():
        # Spark's stub wants the kind of function said, Spark itself warns where it is; its default is the right one.
        return F.arrow_udf(returns)(call)  # type: ignore[call-overload]
    kinds = tuple(arguments)

    def one_row(*values):  # without annotations: Spark would read them
        import pyarrow as pa

        return call(*[pa.array([value], kind) for value, kind in zip(values, kinds, strict=False)])[0].as_py()

    return F.udf(one_row, returns, useArrow=False)


def place_by_id(rows: DataFrame, tasks: int, task: str) -> DataFrame:
    """`rows` in `tasks` partitions; `task`: the partition of a row, 0 up to `tasks`, as Spark SQL of type INT."""
    from pyspark.sql import functions as F

    if spark_version() != "4.0":
        return rows.repartitionById(tasks, F.expr(task))
    return rows.repartition(tasks, F.expr(f"element_at(array({', '.join(map(str, _hashed_to(tasks)))}), {task} + 1)"))


@cache
def _hashed_to(tasks: int) -> tuple[int, ...]:
    """For each partition an INT that Spark's hash puts there, since 4.0 places rows by a hash alone."""
    found: dict[int, int] = {}
    number = 0
    while len(found) < tasks:
        found.setdefault(spark_hash(number) % tasks, number)
        number += 1
    return tuple(found[task] for task in range(tasks))


def spark_hash(number: int) -> int:
    """Spark SQL's `hash` of an INT >= 0: Murmur3 (32 bits, x86) of its four bytes with the seed 42, signed."""
    mask = 0xFFFFFFFF

    def rotated(word: int, bits: int) -> int:
        return (word << bits | word >> 32 - bits) & mask

    mixed = rotated(number * 0xCC9E2D51 & mask, 15) * 0x1B873593 & mask
    state = rotated(42 ^ mixed, 13) * 5 + 0xE6546B64 & mask
    state ^= 4
    state = (state ^ state >> 16) * 0x85EBCA6B & mask
    state = (state ^ state >> 13) * 0xC2B2AE35 & mask
    state ^= state >> 16
    return state - (1 << 32) if state >> 31 else state
