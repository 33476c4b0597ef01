"""The format `csv`: a message is one record, and adds one row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidegate.pipelines.connectors.spec import OptionSpec
from tidegate.pipelines.sources.formats import shape
from tidegate.pipelines.sources.formats.format import VALUE, FormatSpec, Wanted, added, ignore_option, other_columns
from tidegate.pipelines.sources.formats.records import CsvRecords, Lines, Records
from tidegate.pipelines.syntax.dialect import parse_type
from tidegate.pipelines.syntax.secrets import needs_variables
from tidegate.pipelines.syntax.types import NESTED, STRINGS, FlinkType, Kind, quoted, spark_string

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DELIMITER = OptionSpec(
    "csv.field-delimiter", default=",", doc=r"The character between two fields: one character, or \t.", changes="rows"
)
NO_QUOTES = OptionSpec(
    "csv.disable-quote-character", "boolean", default="false", doc="Quotes are ordinary characters.", changes="rows"
)
QUOTE = OptionSpec(
    "csv.quote-character",
    default='"',
    doc="The quote: the character around a field that holds a delimiter or a line break.",
    changes="rows",
)
COMMENTS = OptionSpec(
    "csv.allow-comments", "boolean", default="false", doc="Lines that begin with # are skipped.", changes="rows"
)
IGNORE = "csv.ignore-parse-errors"
ELEMENTS = OptionSpec(
    "csv.array-element-delimiter", default=";", doc="The text between two elements of an ARRAY.", changes="rows"
)
ESCAPE = OptionSpec(
    "csv.escape-character",
    doc="The character before a quote inside quotes, and before itself. Default: none; a quote inside quotes is "
    "doubled.",
    changes="rows",
)
NULL = OptionSpec("csv.null-literal", doc="A field with this text is NULL. Default: no field is NULL.", changes="rows")


class CsvFormat:
    """`'format' = 'csv'`."""

    spec = FormatSpec(
        "csv",
        (DELIMITER, NO_QUOTES, QUOTE, COMMENTS, ignore_option(IGNORE, by_column=True), ELEMENTS, ESCAPE, NULL),
        "A message is one record of fields, in the order of the table's columns.",
        records=lambda wanted: _records(wanted),
    )

    def check(self, wanted: Wanted) -> Sequence[str]:
        problems = [
            f"column {column.name} is {column.type}: a field is a scalar, or an ARRAY of scalars"
            for column in wanted.columns
            if not _is_field(parse_type(column.type))
        ]
        for option in (DELIMITER, QUOTE, ESCAPE):
            value = wanted.options.get(option.name)
            if value is not None and not needs_variables(value) and len(_character(value)) != 1:
                problems.append(f"'{option.name}' is one character, not {value!r}")
        problems += [] if problems else _meaning_two_things(wanted)
        problems += [
            f"'{option.name}' has no meaning with '{NO_QUOTES.name}'"
            for option in (QUOTE, ESCAPE)
            if wanted.flag(NO_QUOTES.name) and option.name in wanted.options
        ]
        return problems

    def decode(self, messages: DataFrame, wanted: Wanted) -> DataFrame:
        others, columns = other_columns(messages), wanted.columns
        row = shape.Row(columns, lambda column: _leaf)
        utf8 = f"IF(is_valid_utf8(CAST({VALUE} AS STRING)), CAST({VALUE} AS STRING), NULL)"
        line = messages.selectExpr(
            *others, f"{VALUE} IS NULL AS _null", f"regexp_replace({utf8}, '\\\\r?\\\\n?$', '') AS _text"
        )
        if wanted.flag(COMMENTS.name):
            line = line.where("_text IS NULL OR NOT startswith(_text, '#')")
        parsed = line.selectExpr(*others, "_null", "_text", f"{_parse(wanted)} AS _parsed")
        wire = ", ".join(
            part
            for column in columns
            for part in (spark_string(column.name), _wire(column.name, parse_type(column.type), wanted))
        )
        lenient = wanted.flag(IGNORE)
        read = parsed.selectExpr(
            *others,
            "_null",
            f"CASE WHEN NOT _null THEN {_broken(wanted)} END AS _broken",
            f"named_struct({wire}) AS _wire",
        )
        fields = f"IF(_null OR _broken IS NOT NULL, NULL, {row.fields('_wire', lenient=lenient)}) AS _fields"
        valued = read.selectExpr(*others, "_null", "_broken", "_wire", fields)
        misfit = row.missing("_fields") if lenient else row.error("_wire", "_fields")
        error = f"IF(_null, NULL, coalesce(_broken, {misfit})) AS _error"
        return added(valued.selectExpr(*others, "_null", "_fields", error), others, wanted, IGNORE)


def _records(wanted: Wanted) -> Records:
    """How records stand in a file."""
    quote, escape = _quote(wanted), wanted.options.get(ESCAPE.name)
    if quote is None:
        return Lines()
    return CsvRecords(
        _character(wanted.option(DELIMITER)).encode(),
        quote.encode(),
        _character(escape).encode() if escape else None,
        wanted.flag(COMMENTS.name),
    )


def _meaning_two_things(wanted: Wanted) -> list[str]:
    """Characters that would be ambiguous: between fields, around them, before a quote, between elements."""
    quotes = [] if wanted.flag(NO_QUOTES.name) else [QUOTE, ESCAPE]
    read = [DELIMITER, *quotes]
    read += [ELEMENTS] if any(parse_type(column.type).kind is Kind.ARRAY for column in wanted.columns) else []
    # A quote that escapes itself is doubled. In quotes, elements may stand apart as fields do: quotes come off first.
    same = [(QUOTE, ESCAPE), *([(DELIMITER, ELEMENTS)] if quotes else [])]
    found: dict[str, OptionSpec] = {}
    problems: list[str] = []
    for option in read:
        value = wanted.options.get(option.name, option.default)
        if value is None or needs_variables(value):
            continue
        character = _character(value)
        other = found.setdefault(character, option)
        if character in ("\n", "\r"):
            problems.append(f"'{option.name}' is a line break: a message is one line")
        elif other is not option and (other, option) not in same:
            given = option if option.name in wanted.options else other
            rest = other if given is option else option
            problems.append(f"'{given.name}' is the character of '{rest.name}', {value!r}")
    return problems


def _is_field(of: FlinkType) -> bool:
    return of.kind not in NESTED or (of.kind is Kind.ARRAY and of.element.kind not in NESTED)


def _character(value: str) -> str:
    r"""An option's character, which may be written as an escape such as \t."""
    return (
        value.encode("latin-1", "backslashreplace").decode("unicode_escape")
        if value.startswith("\\") and len(value) > 1
        else value
    )


def _quote(wanted: Wanted) -> str | None:
    return None if wanted.flag(NO_QUOTES.name) else _character(wanted.option(QUOTE))


NEVER = "\uffff"
"""No character, for Spark's parser where quotes mean nothing: of no quote it makes U+0000, which is a character."""


def _parse(wanted: Wanted) -> str:
    """SQL of the line as a STRUCT of texts: a field without a character is NULL, whether it has quotes or not.

    No other text is: what Spark's parser takes for NULL is the empty text, which no field with a character has.
    """
    quote = _quote(wanted)
    escape = wanted.options.get(ESCAPE.name)
    options = {
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": "_bad",
        "sep": _character(wanted.option(DELIMITER)),
        "quote": quote or NEVER,
        "escape": _character(escape) if escape else quote or "\\",
        "nullValue": "",
        "emptyValue": "",
    }
    schema = ", ".join(f"{quoted(column.name)} STRING" for column in wanted.columns)
    return f"from_csv(_text, {spark_string(f'{schema}, _bad STRING')}, {shape.map_literal(options)})"


def _broken(wanted: Wanted) -> str:
    """SQL of the sentence about a line that does not have the shape of the table, or NULL."""
    count = len(wanted.columns)
    cases = ["WHEN _text IS NULL THEN 'the message is no UTF-8 text'"]
    quote, escape = _quote(wanted), wanted.options.get(ESCAPE.name)
    if not quote:
        sentence = "the message holds U+FFFF, which is no character"
        cases.append(f"WHEN contains(_text, {spark_string(NEVER)}) THEN '{sentence}'")
    if quote:
        _, doubled = _patterns(wanted)
        rest = f"regexp_replace(_text, {spark_string(f'^{_fields(wanted)}*+')}, '')"
        cases.append(f"WHEN startswith({rest}, '\\n') THEN {spark_string(_SEVERAL)}")
        if doubled:
            sentence = "a quote inside of quotes is doubled, and not behind an escape"
            cases.append(f"WHEN {shape.matches(rest, doubled)} THEN '{sentence}'")
        if escape:
            sentence = "an escape stands outside of quotes, or before what is no quote"
            cases.append(f"WHEN contains({rest}, {spark_string(_character(escape))}) THEN '{sentence}'")
        sentence = "a quote is opened and not closed: a message is one record"
        cases.append(f"WHEN {rest} <> '' THEN '{sentence}'")
    else:
        cases.append(f"WHEN contains(_text, '\\n') THEN {spark_string(_SEVERAL)}")
    wrong = _has_fields(wanted, count + 1) if wanted.flag(IGNORE) else "_parsed._bad IS NOT NULL"
    wrong = wrong if count == 1 else f"({wrong} OR _text = '')"
    cases.append(f"WHEN {wrong} THEN 'the message has not {count} field{'s' if count > 1 else ''}'")
    return f"CASE {' '.join(cases)} END"


_SEVERAL = "the message has several lines"


def _has_fields(wanted: Wanted, count: int) -> str:
    """SQL of whether a line has at least `count` fields."""
    return shape.matches("_text", f"^{_fields(wanted)}{{{count - 1}}}")


def _fields(wanted: Wanted) -> str:
    """A regular expression of a line's fields, which a quantifier follows: how many there are behind the first."""
    field, _ = _patterns(wanted)
    return f"{field}(?:{_literal(_character(wanted.option(DELIMITER)))}{field})"


def _patterns(wanted: Wanted) -> tuple[str, str]:
    """Regular expressions of a field: only its first character opens quotes. And of one whose quote is doubled where an
    escape stands before a quote; empty where none does."""
    quote, escape = _quote(wanted), wanted.options.get(ESCAPE.name)
    between, escape = _literal(_character(wanted.option(DELIMITER))), escape and _character(escape)
    if quote is None:
        return f"[^{between}]*+", ""
    mark = _literal(quote)
    if escape in (None, quote):
        text, within, doubled = f"[^{between}\\n]*+", f"[^{mark}]*+(?:{mark}{mark}[^{mark}]*+)*+", ""
    else:
        before = _literal(escape)
        text, within = f"[^{between}{before}\\n]*+", f"(?:[^{mark}{before}]|{before}[{mark}{before}])*+"
        doubled = f"^{mark}{within}{mark}{mark}"
    return f"(?:{mark}{within}{mark}(?!{mark}){text}|(?!{mark}){text})", doubled


def _literal(character: str) -> str:
    """A character in a regular expression."""
    return character if character.isalnum() else f"\\{character}"


def _wire(name: str, of: FlinkType, wanted: Wanted) -> str:
    """SQL of a field's wire value."""
    field = f"coalesce(_parsed.{quoted(name)}, '')"
    if wanted.flag(IGNORE):  # a line may have fewer fields
        place = next(place for place, column in enumerate(wanted.columns) if column.name == name)
        field = f"IF(_parsed._bad IS NULL OR {_has_fields(wanted, place + 1)}, {field}, NULL)"
    literal = wanted.options.get(NULL.name)
    sql = field if literal is None else f"nullif({field}, {spark_string(literal)})"
    if of.kind is not Kind.ARRAY:
        return sql
    between = spark_string("".join(map(_literal, _character(wanted.option(ELEMENTS)))))
    return f"IF({sql} = '', array(), split({sql}, {between}))"


def _leaf(sql: str, of: FlinkType) -> str:
    return shape.scalar(sql if of.kind in STRINGS else f"trim({sql})", of)


FORMAT = CsvFormat()
