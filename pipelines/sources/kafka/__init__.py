"""kafka and upsert-kafka: topics of Apache Kafka, read in exact ranges of offsets."""

from tidegate.pipelines.sources.kafka.connector import CONNECTOR, UPSERT_CONNECTOR

__all__ = ["CONNECTOR", "UPSERT_CONNECTOR"]
