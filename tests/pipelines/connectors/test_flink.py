"""Every option that Flink and flink-cdc document has a meaning here, is taken without effect, or is refused by name."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tidegate.pipelines.connectors.flink import CONNECTORS, FORMATS, REFUSED_FORMATS, of_formats
from tidegate.pipelines.connectors.options import common_options, find_option
from tidegate.pipelines.connectors.registry import InstalledConnectors, connector
from tidegate.pipelines.sources.formats import FORMATS as OWN_FORMATS
from tidegate.pipelines.sql import SqlError, compile_script
from tidegate.pipelines.sql.canonical import table_form
from tidegate.pipelines.sql.explanation import explain

KAFKA = """
connector properties.bootstrap.servers properties.group.id properties.any.thing key.format value.format
key.fields-prefix value.fields-include scan.startup.mode scan.startup.specific-offsets scan.startup.timestamp-millis
scan.topic-partition-discovery.interval- scan.parallelism- scan.bounded.mode! scan.bounded.specific-offsets!
scan.bounded.timestamp-millis! sink.partitioner- sink.semantic- sink.delivery-guarantee- sink.transactional-id-prefix-
sink.parallelism- sink.buffer-flush.max-rows- sink.buffer-flush.interval- value.json.fail-on-missing-field
value.json.ignore-parse-errors value.json.timestamp-format.standard value.json.map-null-key.mode-
value.json.map-null-key.literal- value.json.encode.decimal-as-plain-number- value.json.encode.ignore-null-fields-
value.json.decode.json-parser.enabled- key.csv.field-delimiter key.csv.disable-quote-character key.csv.quote-character
key.csv.allow-comments key.csv.ignore-parse-errors key.csv.array-element-delimiter key.csv.escape-character
key.csv.null-literal key.csv.write-bigdecimal-in-scientific-notation- value.avro.encoding
value.avro.timestamp_mapping.legacy value.avro.open.fastread- value.avro.codec- value.raw.charset value.raw.endianness
value.avro-confluent.url! key.avro-confluent.url! value.avro-confluent.subject! value.avro-confluent.properties.a!
value.avro-confluent.basic-auth.user-info! value.protobuf.message-class-name!
"""
DOCUMENTED = {
    "kafka": f"""{KAFKA} topic topic-pattern format key.fields json.ignore-parse-errors avro-confluent.url!
        debezium-json.schema-include debezium-json.ignore-parse-errors debezium-json.timestamp-format.standard
        debezium-json.map-null-key.mode- debezium-json.map-null-key.literal- debezium-json.encode.ignore-null-fields-
        debezium-json.encode.decimal-as-plain-number- debezium-avro-confluent.url! canal-json.ignore-parse-errors
        canal-json.timestamp-format.standard canal-json.map-null-key.mode- canal-json.map-null-key.literal-
        canal-json.encode.decimal-as-plain-number- canal-json.database.include canal-json.table.include
        maxwell-json.ignore-parse-errors! ogg-json.ignore-parse-errors!""",
    "upsert-kafka": f"{KAFKA} topic",
    "filesystem": """connector path format source.monitor-interval- source.report-statistics- source.path.regex-pattern
        partition.default-name partition.time-extractor.kind- partition.time-extractor.class-
        partition.time-extractor.timestamp-pattern- partition.time-extractor.timestamp-formatter- auto-compaction-
        compaction.file-size- sink.rolling-policy.file-size- sink.rolling-policy.rollover-interval-
        sink.rolling-policy.check-interval- sink.partition-commit.trigger- sink.partition-commit.delay-
        sink.partition-commit.watermark-time-zone- sink.partition-commit.policy.kind- sink.parallelism-
        sink.shuffle-by-partition.enable- scan.parallelism- json.ignore-parse-errors json.encode.ignore-null-fields-
        parquet.utc-timezone! parquet.compression- parquet.write.int64.timestamp- orc.compress!""",
    "datagen": "connector rows-per-second number-of-rows scan.parallelism- fields.a.kind fields.a.min fields.a.max "
    "fields.a.max-past fields.a.length fields.a.var-len fields.a.start fields.a.end fields.a.null-rate",
    "print": "connector print-identifier standard-error- sink.parallelism-",
    "mysql-cdc": """connector hostname username password database-name table-name port server-id
        scan.incremental.snapshot.enabled! scan.incremental.snapshot.chunk.size scan.snapshot.fetch.size-
        scan.incremental.snapshot.chunk.key-column- scan.startup.mode scan.startup.specific-offset.file
        scan.startup.specific-offset.pos scan.startup.specific-offset.gtid-set! scan.startup.timestamp-millis
        scan.startup.specific-offset.skip-events! scan.startup.specific-offset.skip-rows! server-time-zone
        debezium.min.row.count.to.stream.result- connect.timeout connect.max-retries- connection.pool.size-
        jdbc.properties.useSSL heartbeat.interval- debezium.snapshot.mode!
        debezium.event.processing.failure.handling.mode!
        scan.incremental.close-idle-reader.enabled- debezium.binary.handling.mode!
        scan.parse.online.schema.changes.enabled! use.legacy.json.format!
        scan.incremental.snapshot.unbounded-chunk-first.enabled- scan.incremental.snapshot.backfill.skip-
        chunk-key.even-distribution.factor.upper-bound- chunk-key.even-distribution.factor.lower-bound-
        chunk-meta.group.size- scan.read-changelog-as-append-only.enabled! scan.newly-added-table.enabled!""",
}
"""By connector, the names on Flink's pages: with `-` behind it one has no effect here, with `!` it is refused."""
EFFECTS = {"-": "none", "!": "refused"}


@pytest.mark.parametrize("name", DOCUMENTED)
def test_every_documented_option_is_known(name: str) -> None:
    spec = connector(name).spec
    known = (*spec.options, *common_options(spec))
    for written in DOCUMENTED[name].split():
        key, effect = written.rstrip("-!"), EFFECTS.get(written[-1], "own")
        option = find_option(key, known)
        assert option is not None, key
        assert option.effect == effect, key


def test_the_table_names_what_is_there_and_says_what_to_do() -> None:
    assert set(CONNECTORS) <= set(InstalledConnectors())
    assert set(FORMATS) <= set(OWN_FORMATS)
    assert not set(REFUSED_FORMATS) & set(OWN_FORMATS)
    foreign = [option for options in (*CONNECTORS.values(), of_formats(list(FORMATS))) for option in options]
    assert all(option.doc and not option.doc.endswith(".") for option in foreign)
    assert {option.changes for option in foreign} == {"neither"}
    assert {option.effect for option in foreign} == {"none", "refused"}


SCRIPTS = {
    "mysql-cdc": "CREATE TABLE t (id INT PRIMARY KEY NOT ENFORCED, v STRING) WITH ('connector' = 'mysql-cdc', "
    "'hostname' = 'h', 'username' = 'u', 'password' = '${{P}}', 'database-name' = 'd', 'table-name' = 't'{more})",
    "kafka": "CREATE TABLE t (id INT, v STRING) WITH ('connector' = 'kafka', 'topic' = 't', "
    "'properties.bootstrap.servers' = 'b:1'{more})",
    "filesystem": "CREATE TABLE t (id INT, v STRING) WITH ('connector' = 'filesystem', 'path' = '/in'{more})",
}


def compiled(name: str, **more: str) -> Any:
    options = "".join(f", '{key}' = '{value}'" for key, value in more.items())
    return compile_script(SCRIPTS[name].format(more=options))


REFUSED = [
    ("mysql-cdc", {"scan.incremental.snapshot.enabled": "false"}, "scan.incremental.snapshot.enabled", "in chunks"),
    ("mysql-cdc", {"debezium.snapshot.mode": "never"}, "debezium.snapshot.mode", "'scan.startup.mode'"),
    ("mysql-cdc", {"debezium.x": "1"}, "debezium.x", "without Debezium"),
    ("mysql-cdc", {"use.legacy.json.format": "${LEGACY}"}, "use.legacy.json.format", "as the server prints it"),
    ("kafka", {"format": "json", "scan.bounded.mode": "latest-offset"}, "scan.bounded.mode", "where the topic ends"),
    ("kafka", {"avro-confluent.url": "http://u:p@r", "format": "avro-confluent"}, "avro-confluent.url", "registry"),
    ("kafka", {"value.avro-confluent.url": "http://r"}, "value.avro-confluent.url", "as avro"),
    ("filesystem", {"format": "parquet", "parquet.utc-timezone": "false"}, "parquet.utc-timezone", "in UTC"),
]


@pytest.mark.parametrize(("name", "more", "key", "instead"), REFUSED, ids=[key for _, _, key, _ in REFUSED])
def test_what_is_not_done_here_is_refused_with_what_to_do(
    name: str, more: dict[str, str], key: str, instead: str
) -> None:
    with pytest.raises(SqlError) as refused:
        compiled(name, **more)
    assert f"'{key}'" in refused.value.what
    assert "asks for what is not done here" in refused.value.what
    assert instead in (refused.value.hint or "")
    assert "u:p" not in refused.value.what


def test_the_same_of_a_format_without_its_options() -> None:
    with pytest.raises(SqlError, match=r"'avro-confluent' cannot be read: .* registry"):
        compiled("kafka", format="avro-confluent")


TAKEN = [
    ("mysql-cdc", {"heartbeat.interval": "30 s", "scan.incremental.snapshot.enabled": "true"}, 2),
    ("mysql-cdc", {"debezium.snapshot.mode": "INITIAL", "connect.timeout": "1 min", "connection.pool.size": "3"}, 2),
    ("kafka", {"format": "json", "scan.bounded.mode": "unbounded", "json.encode.ignore-null-fields": "true"}, 2),
    ("kafka", {"value.format": "csv", "value.csv.null-literal": "", "scan.parallelism": "2", "sink.x": "y"}, 2),
    ("filesystem", {"format": "parquet", "parquet.utc-timezone": "true", "parquet.compression": "ZSTD"}, 2),
]


@pytest.mark.parametrize(("name", "more", "noted"), TAKEN)
def test_what_has_no_effect_is_taken_with_a_note_and_is_no_part_of_the_table(
    name: str, more: dict[str, str], noted: int
) -> None:
    pipeline = compiled(name, **more)
    shown = explain(pipeline)
    assert shown.count(" has no effect here. ") == noted
    table, spec = pipeline.table("t"), connector(name).spec
    own = {
        key for key in more if (option := find_option(key, (*spec.options, *spec.foreign))) and option.effect == "own"
    }
    plain = compiled(name, **{key: value for key, value in more.items() if key in own})
    assert table_form(pipeline, table) == table_form(plain, plain.table("t"))


def test_one_that_has_no_effect_still_has_its_kind() -> None:
    with pytest.raises(SqlError, match="is no duration"):
        compiled("mysql-cdc", **{"heartbeat.interval": "often"})


JOB = """SET 'execution.checkpointing.interval' = '3s'; SET 'parallelism.default' = '4';
SET 'table.local-time-zone' = 'UTC'; SET 'execution.runtime-mode' = 'STREAMING'; SET 'pipeline.name' = 'n';
SET 'pipeline.auto-watermark-interval' = '0 ms';
SET 'table.exec.mini-batch.enabled' = 'true'; SET 'table.exec.state.ttl' = '0 ms'; SET 'state.backend.type' = 'rocksdb';
"""


def test_settings_of_a_job_are_taken_with_a_note() -> None:
    table = SCRIPTS["filesystem"].format(more=", 'format' = 'json'")
    pipeline = compile_script(JOB + table)
    assert explain(pipeline).count(" has no effect here. ") == JOB.count("SET") - 1
    assert pipeline.auto_watermark_interval is not None
    assert pipeline == replace(compile_script(table), script=pipeline.script, auto_watermark_interval=timedelta(0))


@pytest.mark.parametrize(
    ("key", "value", "instead"),
    [
        ("table.exec.state.ttl", "1 d", "'changelog.retention'"),
        ("table.exec.source.idle-timeout", "5 s", "'scan.watermark.idle-timeout'"),
        ("table.local-time-zone", "Europe/Berlin", "in UTC"),
        ("execution.runtime-mode", "batch", "every run is bounded"),
        ("table.sql-dialect", "hive", "Flink's SQL"),
    ],
)
def test_settings_that_ask_for_other_rows_are_refused_with_what_to_do(key: str, value: str, instead: str) -> None:
    with pytest.raises(SqlError, match="asks for what is not done here") as refused:
        compile_script(f"SET '{key}' = '{value}'; {SCRIPTS['kafka'].format(more='')}")
    assert instead in (refused.value.hint or "")
