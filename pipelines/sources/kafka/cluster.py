"""A Kafka cluster's topics: partitions, ids and offsets, through the Java client that Spark reads with.

Using the same client means one configuration: the `properties.*` that make Spark's readers connect make this connect,
with the same names and the same code (docs/decisions/0010-kafkas-own-client.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from py4j.protocol import Py4JJavaError

from tidegate.pipelines.errors import SourceError, SourceUnreachable
from tidegate.pipelines.syntax.secrets import is_secret

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Isolation = Literal["read_committed", "read_uncommitted"]
API_TIMEOUT_MS = "20000"
"""How long one request may take, including retries; Kafka's own default is a minute."""

DELETE_RETENTION_MS = 24 * 60 * 60 * 1000
"""Kafka's default of `delete.retention.ms`."""

_ANSWERS: Mapping[str, tuple[str, str]] = {
    "TimeoutException": (
        "the Kafka cluster does not answer",
        "check that the brokers run and that 'properties.bootstrap.servers' and 'properties.security.protocol' are "
        "theirs, then run again",
    ),
    "BrokerNotAvailableException": ("the Kafka cluster does not answer", "check that the brokers run, then run again"),
    "SslAuthenticationException": (
        "the TLS handshake with the Kafka cluster failed",
        "check 'properties.ssl.truststore.location' and the broker's certificate, then run again",
    ),
    "SaslAuthenticationException": (
        "the Kafka cluster refused the user",
        "check 'properties.sasl.mechanism' and 'properties.sasl.jaas.config', then run again",
    ),
    "UnsupportedSaslMechanismException": (
        "the Kafka cluster does not know the SASL mechanism",
        "correct 'properties.sasl.mechanism', then run again",
    ),
    "TopicAuthorizationException": (
        "the user may not read the topic",
        "give the user DESCRIBE and READ on the topic, then run again",
    ),
    "GroupAuthorizationException": (
        "the user may not use the consumer group",
        "give the user READ on the group of 'properties.group.id', then run again",
    ),
    "ClusterAuthorizationException": ("the user may not ask the cluster", "give the user DESCRIBE, then run again"),
}

_SILENT = ("TimeoutException", "BrokerNotAvailableException", "DisconnectException", "NetworkException")
"""Java exceptions that may be gone at the next try."""


_NOT_ALLOWED = ("TopicAuthorizationException", "ClusterAuthorizationException", "UnknownTopicOrPartitionException")


@dataclass(frozen=True, order=True)
class Partition:
    """One partition of a topic. Its name, `topic-number`, is the split that it is read by."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


@dataclass(frozen=True)
class Topic:
    """A topic as it is now. `id` distinguishes it from one of the same name that was there before."""

    name: str
    id: str
    partitions: tuple[Partition, ...]


class Cluster:
    """The cluster behind one table's `properties.*`. Connects when it is first asked.

    Args:
        spark: Gives the session, whose JVM holds the client.
        properties: The Java client's, as the script has them, less the prefix; may be secret.
        table: For errors.
    """

    def __init__(self, spark: Callable[[], SparkSession], properties: Mapping[str, str], table: str) -> None:
        self._spark = spark
        self._properties = dict(properties)
        self._table = table
        self._admin: Any = None

    @property
    def where(self) -> str:
        return f"Kafka at {self._properties.get('bootstrap.servers', '')}"

    @property
    def isolation(self) -> Isolation:
        """Messages of open and aborted transactions are no rows, unless the script says `read_uncommitted`."""
        level = self._properties.get("isolation.level", "read_committed")
        return "read_uncommitted" if level == "read_uncommitted" else "read_committed"

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """Those of `names` that exist. Raises SourceError."""
        wanted = sorted(set(names))
        if not wanted:
            return {}
        futures = self._ask(lambda admin: admin.describeTopics(self._list(wanted)).topicNameValues())
        found: dict[str, Topic] = {}
        for name in wanted:
            described = self._result(
                futures.get(name), missing=("UnknownTopicOrPartitionException", "InvalidTopicException")
            )
            if described is not None:
                numbers = sorted(int(item.partition()) for item in described.partitions())
                partitions = tuple(Partition(name, number) for number in numbers)
                found[name] = Topic(name, str(described.topicId().toString()), partitions)
        return found

    def matching(self, pattern: str) -> list[str]:
        """The names of all topics that the regular expression fits as a whole; Kafka's internal ones left out."""
        names = self._ask(lambda admin: admin.listTopics().names().get())
        return sorted(str(name) for name in names if re.fullmatch(pattern, str(name)))

    def earliest(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The first offset of each partition that is still there. Raises SourceError."""
        return {partition: max(offset, 0) for partition, (offset, _) in self._listed(partitions, "earliest").items()}

    def ends(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The end of each partition: behind what is readable at the isolation level. Raises SourceError."""
        return {partition: max(offset, 0) for partition, (offset, _) in self._listed(partitions, "latest").items()}

    def offsets(self, partitions: Iterable[Partition], time: int) -> dict[Partition, int | None]:
        """The offset of each partition's first record at or after `time` (ms, UTC); None where there is none. Raises
        SourceError."""
        listed = self._listed(partitions, time)
        return {partition: offset if offset >= 0 else None for partition, (offset, _) in listed.items()}

    def first_after(self, partitions: Iterable[Partition], time: int) -> dict[Partition, tuple[int, int]]:
        """The offset and the time (ms, UTC) of each partition's first record that is later than `time`; those that have
        none are left out. Raises SourceError."""
        listed = self._listed(partitions, time + 1)
        return {partition: record for partition, record in listed.items() if record[0] >= 0}

    def _listed(
        self, partitions: Iterable[Partition], at: Literal["earliest", "latest"] | int
    ) -> dict[Partition, tuple[int, int]]:
        wanted = list(partitions)
        if not wanted:
            return {}
        jvm = self._jvm
        spec = jvm.org.apache.kafka.clients.admin.OffsetSpec
        # Below 0 a time has other meanings to a broker (-1 is the end), and no record is older.
        asked = getattr(spec, at)() if isinstance(at, str) else spec.forTimestamp(max(at, 0))
        level = getattr(jvm.org.apache.kafka.common.IsolationLevel, self.isolation.upper())
        options = jvm.org.apache.kafka.clients.admin.ListOffsetsOptions(level)
        keys = {partition: self._key(partition) for partition in wanted}
        question = jvm.java.util.HashMap()
        for key in keys.values():
            question.put(key, asked)
        answer = self._ask(lambda admin: admin.listOffsets(question, options).all().get())
        answers = {partition: answer.get(key) for partition, key in keys.items()}
        return {partition: (int(one.offset()), int(one.timestamp())) for partition, one in answers.items()}

    def retentions(self, names: Iterable[str]) -> dict[str, int]:
        """How long each topic keeps a record, in ms. Left out: those that do not delete by age or are gone, and those
        whose settings the user may not see (DESCRIBE_CONFIGS). Raises SourceError."""
        found: dict[str, int] = {}
        for name, settings in self._settings(names).items():
            if settings is None or "delete" not in str(settings.get("cleanup.policy").value()):
                continue
            lasts = int(settings.get("retention.ms").value())
            if lasts >= 0:
                found[name] = lasts
        return found

    def tombstones(self, names: Iterable[str]) -> dict[str, int]:
        """How long each topic keeps a tombstone once compaction has met it, in ms: those that are compacted. Where the
        user may not see the settings (DESCRIBE_CONFIGS), Kafka's default is taken. Raises SourceError."""
        found: dict[str, int] = {}
        for name, settings in self._settings(names).items():
            if settings is None:
                found[name] = DELETE_RETENTION_MS
            elif "compact" in str(settings.get("cleanup.policy").value()):
                found[name] = int(settings.get("delete.retention.ms").value())
        return found

    def _settings(self, names: Iterable[str]) -> dict[str, Any]:
        """The settings of each topic; None where they cannot be seen."""
        config = self._jvm.org.apache.kafka.common.config.ConfigResource
        asked = {name: config(config.Type.TOPIC, name) for name in names}
        if not asked:
            return {}
        futures = self._ask(lambda admin: admin.describeConfigs(self._list(asked.values())).values())
        return {name: self._result(futures.get(key), missing=_NOT_ALLOWED) for name, key in asked.items()}

    def group_offsets(self, group: str, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """What a consumer group has committed; partitions without a commit are left out. Raises SourceError."""
        answer = self._ask(
            lambda admin: admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get(), absent={}
        )
        commits = {partition: answer.get(self._key(partition)) for partition in partitions} if answer else {}
        return {partition: int(commit.offset()) for partition, commit in commits.items() if commit is not None}

    def close(self) -> None:
        """Let go of the connections."""
        if self._admin is not None:
            self._admin.close(self._jvm.java.time.Duration.ofSeconds(1))
            self._admin = None

    # --- the Java client -----------------------------------------------------------------------------------------

    @property
    def _jvm(self) -> Any:
        return self._spark()._jvm

    def _key(self, partition: Partition) -> Any:
        return self._jvm.org.apache.kafka.common.TopicPartition(partition.topic, partition.number)

    def _list(self, values: Iterable[Any]) -> Any:
        made = self._jvm.java.util.ArrayList()
        for value in values:
            made.add(value)
        return made

    def _ask(self, question: Callable[[Any], Any], absent: Any = None) -> Any:
        try:
            if self._admin is None:
                self._admin = self._connected()
            return question(self._admin)
        except Py4JJavaError as error:
            if absent is not None and _cause(error)[0] == "GroupIdNotFoundException":
                return absent
            raise self.explained(error) from error

    def _result(self, future: Any, missing: tuple[str, ...]) -> Any:
        try:
            return future.get()
        except Py4JJavaError as error:
            if _cause(error)[0] in missing:
                return None
            raise self.explained(error) from error

    def _connected(self) -> Any:
        settings = self._jvm.java.util.HashMap()
        # Kafka refuses requests that may take longer than the whole call.
        whole = self._properties.get("request.timeout.ms", API_TIMEOUT_MS)
        given = {"default.api.timeout.ms": whole, "request.timeout.ms": whole, **self._properties}
        for key, value in given.items():
            settings.put(key, value)
        return self._jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)

    def explained(self, error: Py4JJavaError) -> SourceError:
        """The typed error of what the Java client threw. Never shows a secret property's value."""
        kind, message = _cause(error)
        what, next_command = _ANSWERS.get(
            kind,
            (
                f"the Kafka cluster could not be asked: {kind}",
                "correct the 'properties.*' of the table, then run again",
            ),
        )
        for key, value in self._properties.items():
            if is_secret(key) and value:
                message = message.replace(value, "***")
        raised = SourceUnreachable if kind in _SILENT else SourceError
        return raised(
            f"{self._table}: {what}: {message}",
            where=self.where,
            state="nothing was read by this run; what was read before stands",
            next_command=next_command,
        )


def _cause(error: Py4JJavaError) -> tuple[str, str]:
    """The innermost Java exception: the name of its class, and its first line."""
    current: Any = error.java_exception
    while current.getCause() is not None:
        current = current.getCause()
    message = str(current.getMessage() or "").strip().splitlines()
    return str(current.getClass().getSimpleName()), (message[0] if message else str(current.getClass().getName()))[:300]
