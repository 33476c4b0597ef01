"""The option tables of docs/sources.md, made from the connectors' specs so that they can't drift.

    .venv/bin/python scripts/options.py docs/sources.md docs/mysql-cdc.md

rewrites what stands between `<!-- options: NAME -->` and `<!-- /options -->`; NAME is a connector, `format` and the
name of a format, `every source` or `every target`. The options of formats stand with the format only. `flink` and the
name of a connector or a format: Flink's options that are none here.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from tidegate.pipelines.connectors import flink
from tidegate.pipelines.connectors.options import SINK_OPTIONS, SOURCE_OPTIONS
from tidegate.pipelines.connectors.registry import connector
from tidegate.pipelines.connectors.spec import OptionSpec
from tidegate.pipelines.sources.formats import FORMATS

_COMMON = {"every source": SOURCE_OPTIONS, "every target": SINK_OPTIONS}
_OF_A_FORMAT = re.compile(rf"((key|value)\.)?({'|'.join(FORMATS)})\.")
_BLOCK = re.compile(r"(<!-- options: (.+?) -->\n).*?(<!-- /options -->)", re.DOTALL)


def options_table(options: Sequence[OptionSpec]) -> str:
    """A Markdown table: option, type, default, what it does."""
    rows = [(f"`{option.name}`", _kind(option), _default(option), option.doc) for option in options]
    head = [("option", "type", "default", ""), ("---", "---", "---", "---")]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |\n" for row in [*head, *rows])


def filled(text: str) -> str:
    """`text` with every block of options as the specs have it now. Raises KeyError for an unknown name."""
    return _BLOCK.sub(lambda block: f"{block[1]}{_table(block[2])}{block[3]}", text)


def _table(name: str) -> str:
    if not name.startswith("flink "):
        return options_table(_options(name))
    name = name.removeprefix("flink ")
    return foreign_table(flink.CONNECTORS[name] if name in flink.CONNECTORS else flink.FORMATS[name])


def foreign_table(options: Sequence[OptionSpec]) -> str:
    """A Markdown table: option, what becomes of it."""
    rows = ["| option | here |", "| --- | --- |"]
    for option in options:
        spares = f", except for {' and '.join(f'`{value}`' for value in option.spares)}" if option.spares else ""
        what = "no effect" if option.effect == "none" else f"refused{spares}"
        rows.append(f"| `{option.name}` | {what}. {option.doc} |")
    return "".join(f"{row}\n" for row in rows)


def _options(name: str) -> Sequence[OptionSpec]:
    if name in _COMMON:
        return _COMMON[name]
    if name.startswith("format "):
        return FORMATS[name.removeprefix("format ")].spec.options
    return [option for option in connector(name).spec.options if not _OF_A_FORMAT.match(option.name)]


def _kind(option: OptionSpec) -> str:
    return " or ".join(f"`{choice}`" for choice in option.choices) if option.choices else option.kind


def _default(option: OptionSpec) -> str:
    return "required" if option.required else f"`{option.default}`" if option.default is not None else ""


if __name__ == "__main__":
    for page in map(Path, sys.argv[1:]):
        page.write_text(filled(page.read_text()))
