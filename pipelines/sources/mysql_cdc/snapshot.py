"""Reads a batch of chunks in parallel with Spark's JDBC source; every row carries the cut of its own read view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.sources.mysql_cdc.binlog.model import ServerOptions
from pipelines.sources.mysql_cdc.chunks import Chunk, SnapshotKey
from pipelines.sources.mysql_cdc.cut import SESSION_STATEMENT
from pipelines.sources.mysql_cdc.key import KeyColumn
from pipelines.sources.mysql_cdc.types import SourceColumn, quote, snapshot_expression, snapshot_to_canonical
from pipelines.sources.protocol import SEQ_TYPE

SNAPSHOT_PHASE = 0
FETCH_ROWS = 10_000
_DRIVER = "org.mariadb.jdbc.Driver"
_SOCKET_TIMEOUT_MS = 900_000
_BEGAN = "@tidegate_began"
"""A variable of the session: when it began, in whole seconds as most servers date a commit."""

WHOLE = Chunk(0)
"""All of a table, in one read view."""


@dataclass(frozen=True)
class SnapshotQuery:
    """What is read of a table, whatever the chunk. `columns` are named as the script names them.

    `cut_columns` are the SQL of the cut's file number and position. `log` is the log epoch.
    """

    database: str
    table: str
    columns: Sequence[SourceColumn]
    key: SnapshotKey
    cut_columns: tuple[str, str]
    log: int = 0

    def relations(self, chunks: Sequence[Chunk]) -> list[tuple[str, list[str]]]:
        """What Spark reads: FROM clauses, and for each the WHERE of every partition.

        All chunks share one FROM. A key of a type that Spark has no type for can not stand in it: then each chunk has
        one of its own, with its bounds inside, and no WHERE but its number.
        """
        if all(column.kind != "address" for column in self.key.columns):
            return [(self._from(chunks), [self._where(chunk) for chunk in chunks])]
        return [(self._from([chunk], chunk.predicate(self.key)), [f"`_chunk` = {chunk.ordinal}"]) for chunk in chunks]

    def one_view(self, condition: str) -> tuple[str, list[str]]:
        """What Spark reads for the rows that `condition` (the server's SQL) holds for, all in one read view."""
        return self._from([WHOLE], condition), [f"`_chunk` = {WHOLE.ordinal}"]

    def _from(self, chunks: Sequence[Chunk], inside: str | None = None) -> str:
        """The rows, the chunks' numbers and the cut. `inside`: the bounds, where no key column may be seen outside."""
        keys = [] if inside is not None else [f"{quote(column.name)} AS {quote(name)}" for column, name in self._keys()]
        values = [f"{snapshot_expression(column)} AS {quote(column.name)}" for column in self.columns]
        source = f"{quote(self.database)}.{quote(self.table)}{self.key.force}" + (f" WHERE {inside}" if inside else "")
        numbers = " UNION ALL ".join(f"SELECT {chunk.ordinal} AS `_chunk`" for chunk in chunks)
        file, position = self.cut_columns
        cut = f"SELECT {file} AS `_cut_file`, {position} AS `_cut_position`, {_BEGAN} AS `_cut_time`"
        return (
            f"(SELECT {', '.join([*keys, *values])} FROM {source}) AS `_rows`"  # noqa: S608 quoted identifiers
            f" CROSS JOIN ({numbers}) AS `_chunks`"
            f" CROSS JOIN ({cut}) AS `_cut`"
        )

    def _where(self, chunk: Chunk) -> str:
        """The chunk's number, which every row so carries wherever it is computed, and its bounds."""
        bounds = chunk.predicate(self.key, [quote(name) for name in self.key_names])
        return f"`_chunk` = {chunk.ordinal}" + (f" AND {bounds}" if bounds else "")

    @property
    def key_names(self) -> list[str]:
        """What the key's columns are called beside the values, for the WHERE alone."""
        return [name for _, name in self._keys()]

    def _keys(self) -> list[tuple[KeyColumn, str]]:
        return [(column, f"_key_{number}") for number, column in enumerate(self.key.columns)]


def jdbc_properties(server: ServerOptions, isolation_variable: str, extra: Mapping[str, str]) -> dict[str, str]:
    """The driver's properties. The password is among them, never in the URL, which plans and errors may show."""
    own = {
        "driver": _DRIVER,
        "user": server.username,
        "password": server.password,
        "fetchsize": str(FETCH_ROWS),
        "sessionInitStatement": SESSION_STATEMENT,
        "connectTimeout": str(round(server.connect_timeout * 1000)),
        "socketTimeout": str(_SOCKET_TIMEOUT_MS),
        # A MySQL 8 user of caching_sha2_password sends the password encrypted by the server's key.
        "allowPublicKeyRetrieval": "true",
    }
    session = [
        f"{isolation_variable}='REPEATABLE-READ'",
        "time_zone='+00:00'",
        "sql_mode=''",
        f"{_BEGAN}=UNIX_TIMESTAMP()",
        # The server waits this long for a reader that writes Parquet in between.
        "net_write_timeout=900",
    ]
    given = extra.get("sessionVariables")
    merged = {**{key: value for key, value in extra.items() if key not in _OWNED}, **own}
    for key in ("connectTimeout", "socketTimeout", "fetchsize", "allowPublicKeyRetrieval"):
        if key in extra:
            merged[key] = extra[key]
    merged["sessionVariables"] = ",".join([*([given] if given else []), *session])
    return merged


_OWNED = frozenset(
    {"driver", "user", "password", "sessionInitStatement", "sessionVariables", "url", "dbtable", "query"}
)


def jdbc_url(server: ServerOptions) -> str:
    """`jdbc:mysql` and the driver by name, so that Spark speaks its MySQL dialect."""
    host = f"[{server.hostname}]" if ":" in server.hostname else server.hostname
    return f"jdbc:mysql://{host}:{server.port}/?permitMysqlScheme=true"


def read_chunks(
    spark: SparkSession, query: SnapshotQuery, chunks: Sequence[Chunk], url: str, properties: Mapping[str, str]
) -> DataFrame:
    """The rows of `chunks`, one Spark task each: the columns in their canonical types, and the source's own columns.

    Reading happens when the rows are written; the read view of a chunk is opened by its own task.
    """
    return _read(spark, query, chunks, query.relations(chunks), url, properties)


def read_one_view(
    spark: SparkSession, query: SnapshotQuery, condition: str, url: str, properties: Mapping[str, str]
) -> DataFrame:
    """The same of the rows that `condition` (the server's SQL) holds for, in one task and one read view."""
    return _read(spark, query, [WHOLE], [query.one_view(condition)], url, properties)


def _read(
    spark: SparkSession,
    query: SnapshotQuery,
    chunks: Sequence[Chunk],
    relations: Sequence[tuple[str, list[str]]],
    url: str,
    properties: Mapping[str, str],
) -> DataFrame:
    read = [
        spark.read.jdbc(url, relation, predicates=predicates, properties=dict(properties))
        for relation, predicates in relations
    ]
    rows = reduce(DataFrame.unionByName, [frame.drop(*query.key_names) for frame in read])
    values = [F.expr(snapshot_to_canonical(column)).alias(column.name) for column in query.columns]
    return rows.select(*snapshot_columns(query.log, chunks), *values)


def snapshot_columns(log: int, chunks: Sequence[Chunk]) -> list[SparkColumn]:
    """The source's own columns of rows of `chunks`, which follow one another.

    `_rowtime` is the second in which the chunk's connection was made, just before its read view was opened: the row was
    like this at that time, nobody knows since when. `_seq` holds the cut. `_offset` numbers a chunk's rows, with gaps.
    """
    seq = (
        f"named_struct('phase', {SNAPSHOT_PHASE}, 'log', {int(log)}, 'file', CAST(_cut_file AS BIGINT),"
        " 'position', CAST(_cut_position AS BIGINT), 'row', 0)"
    )
    # A list of names to choose from: to put each row's together again would cost more than to read it.
    names = ", ".join(f"'{chunk.name}'" for chunk in chunks)
    columns = {
        "_op": "'r'",
        "_seq": f"CAST({seq} AS {SEQ_TYPE})",
        "_rowtime": "timestamp_seconds(CAST(_cut_time AS BIGINT))",
        "_split": f"get(array({names}), CAST(_chunk AS INT) - {chunks[0].ordinal})",
        "_offset": "monotonically_increasing_id()",
    }
    return [F.expr(expression).alias(name) for name, expression in columns.items()]
