r"""JSON text as wire rows (shape.py), without loss; and the format `json`: a message is one object, and adds one row.

Spark's parser reads a number with a point or an exponent through a DOUBLE when it is asked for text, and -0 as 0. So
such numbers are put in quotes first, behind a mark that distinguishes them from strings; `plain` and `document` take
the mark away again.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tidegate.pipelines.connectors.spec import OptionSpec
from tidegate.pipelines.connectors.table import Column
from tidegate.pipelines.sources.formats import shape
from tidegate.pipelines.sources.formats.format import (
    QUICK,
    VALUE,
    FormatSpec,
    Quick,
    Wanted,
    added,
    ignore_option,
    map_keys,
    other_columns,
    timestamp_option,
)
from tidegate.pipelines.syntax.types import STRINGS, FlinkType, quoted, spark_string

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TEXT = "_text"

_MARK = f"\ue0a1{secrets.token_hex(8)}\ue0a2"
"""Every process draws its own, so no message holds it."""

HAS_MARKED = r"[:,\[]\s*-?(?:[0-9]+[.eE]|(?<=-)0)"
"""Whether a text may hold a number that is put in quotes."""

_NEGATIVE_ZERO = r"-0(?![0-9.eE])"
_FLOAT = rf"(?:{_NEGATIVE_ZERO}|-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++(?:[eE][-+]?[0-9]++)?+|[eE][-+]?[0-9]++)(?![0-9.eE]))"
# Strings, whole numbers and everything else are passed over; all quantifiers are possessive, so a long string is no
# deep recursion. \G: each match begins where the one before ended, so that none begins inside a string.
_BETWEEN = rf'(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"|(?!{_NEGATIVE_ZERO})-?[0-9]++(?![0-9.eE])|-(?![0-9])|[^"0-9\-]++)*+'
_FLOATS = rf"(?s)\G({_BETWEEN})({_FLOAT})"
_MARKED = rf'"{_MARK}([^"]*)"'

_SURROGATE = r"\\u[dD][89a-fA-F]"
_WHOLE = r"\\[^u]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
"""An escape that is not of a code unit, and the two halves of a surrogate pair."""

_ANY = "MAP<STRING, STRING>"
"""The DDL of every object."""

_NO_TEXT = r"the message is no UTF-8 text, or has half of a character alone (\ud800)"

_OPTIONS = shape.map_literal(
    {
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": "_bad",
        "allowNonNumericNumbers": "false",
        "allowSingleQuotes": "false",
    }
)


def parsed(messages: DataFrame, wire: str, quick: Quick | None = None) -> DataFrame:
    """`messages` with `_null` (the message is), TEXT, `_broken` (it is not one object of the DDL `wire`) and `_wire`
    (that object) in place of VALUE. With `quick` also QUICK; where that is not null the others have no meaning."""
    others = other_columns(messages)
    text = f"CAST({VALUE} AS STRING)"
    # Half of a character is no text: it would become a ?, and two strings one.
    rest = f"regexp_replace({text}, {spark_string(_WHOLE)}, ' ')"
    half = f"({text} RLIKE {spark_string(_SURROGATE)} AND {rest} RLIKE {spark_string(_SURROGATE)})"
    utf8 = f"IF(is_valid_utf8({text}) AND NOT {half}, {text}, NULL)"
    marked = f"regexp_replace({TEXT}, {spark_string(_FLOATS)}, {spark_string(f'$1{chr(34)}{_MARK}$2{chr(34)}')})"
    exact = f"IF({TEXT} RLIKE {spark_string(HAS_MARKED)}, {marked}, {TEXT})"
    broken = f"NOT _null AND ({TEXT} IS NULL OR {_broken('_parsed')})"
    if quick is not None:
        messages = messages.select("*", quick.column().alias(QUICK))
        messages = messages.selectExpr(*others, VALUE, f"{quick.row} AS {QUICK}")
        others = [*others, QUICK]
        utf8 = f"IF({QUICK} IS NULL, {utf8}, NULL)"
        broken = f"{QUICK} IS NULL AND {broken}"
    texts = messages.selectExpr(*others, f"{VALUE} IS NULL AS _null", f"{utf8} AS {TEXT}")
    texts = texts.selectExpr(*others, "_null", f"{exact} AS {TEXT}")
    read = texts.selectExpr(*others, "_null", TEXT, f"{parse(wire)} AS _parsed")
    return read.selectExpr(*others, "_null", TEXT, f"{broken} AS _broken", "get(_parsed.v, 0) AS _wire")


def leaf(standard: str) -> shape.Leaf:
    """How a scalar is read from a wire text."""

    def read(sql: str, of: FlinkType) -> str:
        clean = document(sql) if of.kind in STRINGS else plain(sql)
        return shape.scalar(clean, of, standard)

    return read


def plain(text: str) -> str:
    """SQL of a wire text that is a number, or a string, as the message has it."""
    return f"replace({text}, {spark_string(_MARK)})"


def shown(text: str, of: FlinkType) -> str:
    """`shape.Show` of wire texts."""
    return plain(text)


def document(text: str) -> str:
    """SQL of a wire text that may also be a whole JSON value, where the table has STRING."""
    bare = f"regexp_replace({text}, {spark_string(_MARKED)}, '$1')"
    return f"IF(contains({text}, {spark_string(_MARK)}), {plain(bare)}, {text})"


def suspects(
    columns: Sequence[Column], message: Callable[[Sequence[Column]], str] = shape.wire_row
) -> list[tuple[str, str]]:
    """The columns that can make a text broken, for `blame`. `message`: the DDL of a message of some columns."""
    return [(f"column {column.name} does not fit {column.type}", message([column])) for column in shape.nested(columns)]


def blame(suspected: Sequence[tuple[str, str]]) -> str:
    """SQL of the sentence about a broken text. `suspected`: what is wrong, where the text does not fit the DDL beside
    it, tried in this order."""
    cases = [f"WHEN {TEXT} IS NULL THEN {spark_string(_NO_TEXT)}"]
    for sentence, wire in [("the message is no JSON object", _ANY), *suspected]:
        cases.append(f"WHEN {_broken(parse(wire))} THEN {spark_string(sentence)}")
    return f"CASE {' '.join(cases)} ELSE 'the message does not have the shape of the table' END"


def parse(wire: str) -> str:
    """SQL of TEXT as STRUCT<v ARRAY<wire>, _bad STRING>: in brackets, so that what follows the object is not unseen."""
    schema = spark_string(f"v ARRAY<{wire}>, _bad STRING")
    return f"from_json(concat('{{\"v\":[', {TEXT}, ']}}'), {schema}, {_OPTIONS})"


def _broken(parsed: str) -> str:
    return f"({parsed}._bad IS NOT NULL OR size({parsed}.v) <> 1 OR get({parsed}.v, 0) IS NULL)"


MISSING = "json.fail-on-missing-field"
IGNORE = "json.ignore-parse-errors"
STANDARD = timestamp_option("json.timestamp-format.standard")


class JsonFormat:
    """`'format' = 'json'`."""

    spec = FormatSpec(
        "json",
        (
            OptionSpec(
                MISSING,
                "boolean",
                default="false",
                doc="true: a column that is missing in a message is an error. false: it is NULL.",
                changes="rows",
            ),
            ignore_option(IGNORE, by_column=True),
            STANDARD,
        ),
        "A message is one JSON object.",
        rows=lambda message: [message],
    )

    def check(self, wanted: Wanted) -> Sequence[str]:
        problems = map_keys(wanted.columns)
        if wanted.flag(MISSING) and wanted.flag(IGNORE):
            problems.append(f"'{MISSING}' and '{IGNORE}' cannot both be true")
        return problems

    def decode(self, messages: DataFrame, wanted: Wanted) -> DataFrame:
        from tidegate.pipelines.sources.formats.json_arrow import quick

        others = other_columns(messages)
        scalars = leaf(wanted.option(STANDARD))
        row = shape.Row(wanted.columns, lambda column: scalars, shown)
        # Which columns a message names is seen on the long way only.
        short = None if wanted.flag(MISSING) else quick(wanted, scalars)
        lenient = wanted.flag(IGNORE)
        beside, done = [], "_null"
        fields = f"IF(_null OR _broken, NULL, {row.fields('_wire', lenient=lenient)})"
        if short is not None:
            beside, done = [QUICK], f"_null OR {QUICK} IS NOT NULL"
            fields = f"coalesce({QUICK}, {fields})"
        wire = parsed(messages, shape.wire_row(wanted.columns), short)
        if lenient and shape.nested(wanted.columns):
            partly = f"_broken AND NOT {_broken(parse(_ANY))}"
            whole = wire.selectExpr(*others, *beside, "_null", "_broken", TEXT, "_wire", f"{partly} AS _partly")
            read = f"IF(_partly, {_by_column(wanted.columns)}, _wire) AS _wire"
            wire = whole.selectExpr(*others, *beside, "_null", "_broken AND NOT _partly AS _broken", TEXT, read)
        read = wire.selectExpr(*others, *beside, "_null", "_broken", TEXT, "_wire", f"{fields} AS _fields")
        misfit = f"coalesce({_missing(wanted)}, {row.error('_wire', '_fields')})"
        if lenient:
            misfit = row.missing("_fields")
        error = (
            f"CASE WHEN {done} THEN NULL WHEN _broken THEN {blame(suspects(wanted.columns))} "
            f"ELSE {misfit} END AS _error"
        )
        return added(read.selectExpr(*others, "_null", "_fields", error), others, wanted, IGNORE)


def _by_column(columns: Sequence[Column]) -> str:
    """SQL of the wire row of an object some of whose columns do not have their shape: those are NULL."""
    scalars = [column for column in columns if column not in shape.nested(columns)]
    fields = []
    for column in columns:
        found = parse(shape.wire_row(scalars if column in scalars else [column]))
        read = f"get({found}.v, 0).{quoted(column.source_name)}"
        fields += [
            spark_string(column.source_name),
            read if column in scalars else f"IF({_broken(found)}, NULL, {read})",
        ]
    return f"named_struct({', '.join(fields)})"


def _missing(wanted: Wanted) -> str:
    """SQL of the sentence about a column that the message does not name."""
    if not wanted.flag(MISSING):
        return "NULL"
    names = ", ".join(spark_string(column.source_name) for column in wanted.columns)
    absent = f"get(array_except(array({names}), json_object_keys({TEXT})), 0)"
    return f"concat('the message has no column ', {absent})"


FORMAT = JsonFormat()
