"""Connectors of the tests' own: specs are all that a compiler asks for."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.pipelines.connectors.spec import ConnectorSpec, OptionSpec
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.sources.hybrid import CONNECTOR as HYBRID


def _check(table: Table) -> Sequence[str]:
    low, high = table.options.get("fields.id.min"), table.options.get("fields.id.max")
    return ["'fields.id.min' is greater than 'fields.id.max'"] if low and high and int(low) > int(high) else []


_OPTIONS = {
    "mysql-cdc": (
        OptionSpec("hostname", required=True, doc="The server's host name."),
        OptionSpec("port", "integer", default="3306"),
        OptionSpec("username", required=True),
        OptionSpec("password", required=True),
        OptionSpec("database-name", required=True),
        OptionSpec("table-name", required=True),
        OptionSpec("connect.timeout", "duration", default="30 s"),
        OptionSpec(
            "scan.startup.mode",
            "choice",
            default="initial",
            choices=("initial", "snapshot", "latest-offset", "specific-offset", "timestamp"),
        ),
        OptionSpec("jdbc.properties.*"),
    ),
    "datagen": (
        OptionSpec("rows-per-second", "integer", default="10000"),
        OptionSpec("number-of-rows", "integer"),
        OptionSpec("fields.#.kind", "choice", choices=("random", "sequence")),
        OptionSpec("fields.#.min"),
        OptionSpec("fields.#.max"),
        OptionSpec("fields.#.null-rate", "float"),
    ),
    "scripted": (OptionSpec("phases", "boolean"), OptionSpec("signals", "boolean")),
}


def _is(name: str):
    return lambda options: options.get(name, "false").lower() == "true"


CONNECTORS: dict[str, ConnectorSpec] = {
    "hybrid": HYBRID.spec,
    "mysql-cdc": ConnectorSpec(
        "mysql-cdc",
        _OPTIONS["mysql-cdc"],
        "A table of a database and its changes.",
        append_only=False,
        by_name=True,
        phases=lambda options: options.get("scan.startup.mode", "initial") in ("initial", "snapshot"),
        signals=lambda options: True,
    ),
    "datagen": ConnectorSpec("datagen", _OPTIONS["datagen"], "Generated rows.", check=_check),
    "scripted": ConnectorSpec(
        "scripted", _OPTIONS["scripted"], "Rows of a test.", sink=True, phases=_is("phases"), signals=_is("signals")
    ),
    "print": ConnectorSpec("print", (), "Shows rows.", source=False, sink=True),
    "delta": ConnectorSpec("delta", (OptionSpec("path", required=True),), "A Delta table.", sink=True, by_name=True),
    "kafka": ConnectorSpec(
        "kafka",
        (OptionSpec("topic", required=True), OptionSpec("properties.bootstrap.servers"), OptionSpec("format")),
        "A topic.",
        by_name=True,
        system_time=True,
        system_watermark=True,
        metadata={"timestamp": "TIMESTAMP_LTZ(3)", "partition": "INT", "offset": "BIGINT"},
    ),
    "filesystem": ConnectorSpec(
        "filesystem",
        (OptionSpec("path"), OptionSpec("format")),
        "Files.",
        by_name=True,
        system_time=True,
        system_watermark=True,
    ),
    "queue": ConnectorSpec("queue", (), "Messages with a time, in any order.", system_time=True),
    "upsert-kafka": ConnectorSpec(
        "upsert-kafka", (OptionSpec("topic", required=True),), "A topic.", append_only=False, needs_primary_key=True
    ),
    "moded": ConnectorSpec(
        "moded",
        (OptionSpec("mode", "choice", default="both", choices=("both", "stream")),),
        "Files, then a topic; nobody says when.",
        phases=lambda options: options.get("mode", "both") == "both",
    ),
}
