"""Makes and fills topics, by the same Java client that reads them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

_numbers = itertools.count(1)
_BYTES = "org.apache.kafka.common.serialization.ByteArraySerializer"


def encoded(value: Any) -> bytes | None:
    """bytes and None as they are, text in UTF-8, everything else as JSON."""
    if value is None or isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else json.dumps(value)).encode()


class Topics:
    """The topics of one broker. What is sent is acknowledged before a call returns."""

    def __init__(self, spark: SparkSession, bootstrap: str) -> None:
        self.jvm: Any = spark._jvm
        self.gateway: Any = spark.sparkContext._gateway
        self.bootstrap = bootstrap
        self.admin = self.jvm.org.apache.kafka.clients.admin.AdminClient.create(
            self.map({"bootstrap.servers": bootstrap})
        )
        self.producer = self._producer({})

    def map(self, values: Mapping[Any, Any]) -> Any:
        made = self.jvm.java.util.HashMap()
        for key, value in values.items():
            made.put(key, value)
        return made

    def list(self, *values: Any) -> Any:
        made = self.jvm.java.util.ArrayList()
        for value in values:
            made.add(value)
        return made

    def _producer(self, settings: Mapping[str, str]) -> Any:
        given = {
            "bootstrap.servers": self.bootstrap,
            "key.serializer": _BYTES,
            "value.serializer": _BYTES,
            "linger.ms": "0",
            "max.block.ms": "240000",  # a new topic may take its time on a busy machine
            **settings,
        }
        return self.jvm.org.apache.kafka.clients.producer.KafkaProducer(self.map(given))

    # --- topics --------------------------------------------------------------------------------------------------

    def create(self, name: str | None = None, partitions: int = 1, **config: str) -> str:
        """A new topic; `_` stands for `.` in `config`. Its name."""
        name = name or f"topic-{next(_numbers)}"
        short = self.jvm.java.util.Optional.of
        new = self.jvm.org.apache.kafka.clients.admin.NewTopic(
            name, short(partitions), self.jvm.java.util.Optional.empty()
        )
        new.configs(self.map({key.replace("_", "."): value for key, value in config.items()}))
        self.admin.createTopics(self.list(new)).all().get()
        return name

    def delete(self, name: str) -> None:
        self.admin.deleteTopics(self.list(name)).all().get()

    def grow(self, name: str, partitions: int) -> None:
        """Give a topic more partitions."""
        more = self.jvm.org.apache.kafka.clients.admin.NewPartitions.increaseTo(partitions)
        self.admin.createPartitions(self.map({name: more})).all().get()

    def truncate(self, name: str, offset: int, partition: int = 0) -> None:
        """Take away what is before `offset`, as retention does."""
        # A static method of the same name as one of its objects': py4j finds neither, reflection does.
        loader = self.admin.getClass().getClassLoader()
        types = self._array(self.jvm.java.lang.Class, self.jvm.java.lang.Long.TYPE)
        method = loader.loadClass("org.apache.kafka.clients.admin.RecordsToDelete").getMethod("beforeOffset", types)
        before = method.invoke(None, self._array(self.jvm.java.lang.Object, self.jvm.java.lang.Long(offset)))
        self.admin.deleteRecords(self.map({self.partition(name, partition): before})).all().get()

    def _array(self, of: Any, value: Any) -> Any:
        made = self.gateway.new_array(of, 1)
        made[0] = value
        return made

    def partition(self, name: str, number: int) -> Any:
        return self.jvm.org.apache.kafka.common.TopicPartition(name, number)

    def commit_offsets(self, group: str, name: str, offsets: Mapping[int, int]) -> None:
        """What a consumer group would have committed."""
        at = self.jvm.org.apache.kafka.clients.consumer.OffsetAndMetadata
        committed = {self.partition(name, number): at(offset) for number, offset in offsets.items()}
        self.admin.alterConsumerGroupOffsets(group, self.map(committed)).all().get()

    # --- messages ------------------------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        *values: Any,
        key: Any = None,
        partition: int | None = None,
        at: int | None = None,
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> None:
        """One message a value. `at` is the record's time, ms."""
        self._acknowledged(
            self.producer, [self._send(self.producer, topic, value, key, partition, at, headers) for value in values]
        )

    def send_rows(self, topic: str, rows: Mapping[Any, Any], partition: int | None = None) -> None:
        """One message a pair of key and value."""
        sent = [self._send(self.producer, topic, value, key, partition, None, ()) for key, value in rows.items()]
        self._acknowledged(self.producer, sent)

    def transaction(self, topic: str, *values: Any, commit: bool = True, partition: int = 0, key: Any = None) -> None:
        """Messages of one transaction, committed or aborted."""
        producer = self._producer({"transactional.id": f"tx-{next(_numbers)}"})
        producer.initTransactions()
        producer.beginTransaction()
        self._acknowledged(producer, [self._send(producer, topic, value, key, partition, None, ()) for value in values])
        if commit:
            producer.commitTransaction()
        else:
            producer.abortTransaction()
        producer.close()

    def _send(self, producer: Any, topic: str, value: Any, key: Any, partition: Any, at: Any, headers: Any) -> Any:
        header = self.jvm.org.apache.kafka.common.header.internals.RecordHeader
        record = self.jvm.org.apache.kafka.clients.producer.ProducerRecord(
            topic,
            partition,
            None if at is None else self.jvm.java.lang.Long(at),
            encoded(key),
            encoded(value),
            self.list(*[header(name, content) for name, content in headers]),
        )
        return producer.send(record)

    def _acknowledged(self, producer: Any, sent: Sequence[Any]) -> None:
        """Wait for the broker's word on each; flush alone says nothing of those that failed."""
        producer.flush()
        for answer in sent:
            answer.get()

    def close(self) -> None:
        self.producer.close()
        self.admin.close()
