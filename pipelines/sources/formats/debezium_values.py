"""How Debezium writes values in JSON: times as numbers since 1970, decimals as text or as the bytes of a number.

The encoding follows from the message's schema where it comes with one, else from the declared type. Source: Debezium's
documentation of its connectors, "Data type mappings".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.pipelines.connectors.spec import OptionSpec
from tidegate.pipelines.sources.formats import json_text, literals, shape, text
from tidegate.pipelines.syntax.types import STRINGS, TIMESTAMPS, FlinkType, Kind

DECIMALS = OptionSpec(
    "debezium-json.decimal.handling.mode",
    "choice",
    default="string",
    choices=("string", "double", "precise"),
    doc="How the connector writes decimals: its own decimal.handling.mode. Without a schema in the message nothing "
    "else tells: `precise` writes the number's bytes.",
    changes="rows",
)

UNAVAILABLE = "__debezium_unavailable_value"
"""What Debezium writes where the database did not give the value (an unchanged TOAST column)."""

_DIGITS: Mapping[str, int] = {
    "io.debezium.time.Timestamp": 3,
    "io.debezium.time.MicroTimestamp": 6,
    "io.debezium.time.NanoTimestamp": 9,
    "org.apache.kafka.connect.data.Timestamp": 3,
}
_DECIMAL = "org.apache.kafka.connect.data.Decimal"


@dataclass(frozen=True)
class Encoding:
    """Reads scalars. `plain` reads those that Debezium writes as any JSON; `decimals` is the option's value."""

    plain: shape.Leaf
    standard: str
    decimals: str

    def leaf(self, schema: str | None, column: str) -> shape.Leaf:
        """The reader of a column's scalars. `schema`: SQL of the ARRAY of the row's fields in the message's schema."""
        field = None
        if schema is not None:
            field = f"get(filter({schema}, f -> f.field = {literals.text(column)}), 0)"
        return lambda sql, of: self.read(sql, of, field)

    def read(self, sql: str, of: FlinkType, field: str | None) -> str:
        """A scalar; `field` is SQL of its field in the schema."""
        clean = json_text.plain(sql)
        if of.kind in STRINGS:
            return self.plain(f"nullif({sql}, {literals.text(UNAVAILABLE)})", of)
        if of.kind is Kind.BOOLEAN:
            return f"CASE {sql} WHEN '1' THEN true WHEN '0' THEN false ELSE {self.plain(sql, of)} END"
        if of.kind is Kind.DATE:
            days = text.matched(sql, r"^-?\d{1,7}$", f"date_from_unix_date(CAST({sql} AS INT))")
            return f"coalesce({days}, {self.plain(sql, of)})"
        if of.kind in TIMESTAMPS:
            return f"coalesce({self._number(sql, of, field)}, {self.plain(sql, of)})"
        if of.kind is Kind.DECIMAL:
            return self._decimal(clean, of, field)
        return self.plain(sql, of)

    def _number(self, sql: str, of: FlinkType, field: str | None) -> str:
        """A timestamp that is a number: ms up to three digits of a second, else us, unless the schema says so."""
        usual = text.since_epoch(sql, of, 3 if text.precision(of) <= 3 else 6)
        if field is None:
            return usual
        cases = " ".join(
            f"WHEN {literals.text(name)} THEN {text.since_epoch(sql, of, digits)}" for name, digits in _DIGITS.items()
        )
        return f"CASE {field}.name {cases} ELSE {usual} END"

    def _decimal(self, sql: str, of: FlinkType, field: str | None) -> str:
        if field is not None:
            scale = f"{field}.parameters['scale']"
            return f"IF({field}.name <=> '{_DECIMAL}', {unscaled(sql, of, scale)}, {text.decimal(sql, of)})"
        if self.decimals == "precise":
            return unscaled(sql, of, str(of.scale or 0))
        return text.decimal(sql, of)


def unscaled(sql: str, of: FlinkType, scale: str) -> str:
    """SQL of a DECIMAL whose unscaled number's bytes (two's complement, the greatest first) are base64 in `sql`.

    `scale` is SQL of the digits after its point; those that the type has not must be zero.
    """
    digits = f"hex(try_to_binary({sql}, 'base64'))"
    # 16 bytes hold 38 digits, in two halves. A negative number n has the bytes of -n - 1, each bit turned over.
    negative = f"{digits} >= '8'"
    size = f"lpad(IF({negative}, translate({digits}, '0123456789ABCDEF', 'FEDCBA9876543210'), {digits}), 32, '0')"
    upper, lower = (f"CAST(conv(substring({size}, {start}, 16), 16, 10) AS DECIMAL(20, 0))" for start in (1, 17))
    number = f"try_add(try_multiply({upper}, CAST('{2**64}' AS DECIMAL(20, 0))), {lower})"
    # The sign as text: Spark's unary minus rounds to 34 digits.
    number = f"try_add({number}, CAST(IF({negative}, 1, 0) AS DECIMAL(38, 0)))"
    written = f"concat(IF({negative}, '-', ''), CAST({number} AS STRING), 'E-', {scale})"
    return f"IF(length({digits}) BETWEEN 2 AND 32, {text.decimal(written, of)}, NULL)"
