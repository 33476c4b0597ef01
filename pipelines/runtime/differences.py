"""How two definitions of a table or an INSERT differ, and which of the differences a lake can go on with."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidegate.pipelines.commands import Advised, NextCommand, advice
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import DefinitionChanged
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.lake.delta_log import opened
from tidegate.pipelines.location import Location
from tidegate.pipelines.runtime.epochs import insert_of
from tidegate.pipelines.sql.canonical import READ_FROM
from tidegate.pipelines.syntax.dialect import parse_type
from tidegate.pipelines.syntax.errors import SqlError
from tidegate.pipelines.syntax.types import MAX_FRACTION, TIMESTAMPS, FlinkType, Kind

_TAKEN_UP = frozenset({"translator", "watermark options", "policy"})
"""Parts of any definition that may change from one epoch to the next."""

_OF_INSERTS = frozenset({"select", "where", "branches", "having", "constraints", "suite"})
"""The parts of an INSERT that may change: they decide what its next epochs publish, and nothing that is stored."""

_PARTS = (*_OF_INSERTS, *_TAKEN_UP, "functions", "function")

NOT_THERE = "nothing"
ELSEWHERE = ", where it is not"
"""How a difference ends whose table was published to and does not lie at the script's path."""

NOT_NULL = " NOT NULL"

_SPARK = {
    "integer": "INT", "long": "BIGINT", "short": "SMALLINT", "byte": "TINYINT", "string": "STRING", "double": "DOUBLE",
    "float": "FLOAT", "boolean": "BOOLEAN", "date": "DATE", "timestamp": "TIMESTAMP", "timestamp_ntz": "TIMESTAMP_NTZ",
}  # fmt: skip
"""Delta's plain types in Spark's spelling."""


@dataclass(frozen=True)
class Difference:
    """One difference between the lake's and the script's definition of an owner. `refused`: the script may not run with
    it."""

    owner: str
    what: str
    lake: str
    script: str
    refused: bool

    def __str__(self) -> str:
        return f"{self.what}: {self.lake} -> {self.script}"

    @property
    def of_column(self) -> bool:
        """Whether it is a column of a source table."""
        return self.what.startswith("columns ")

    @property
    def of_start(self) -> bool:
        """Whether it is where a source's generation begins."""
        return self.what.startswith("start ")

    @property
    def undeclared(self) -> bool:
        """Whether it is a column of the lake that the script does not declare."""
        return self.of_column and self.script == NOT_THERE

    @property
    def changeable(self) -> bool:
        """Whether it is in a part that may change from one epoch to the next."""
        return self.what.startswith(tuple(_TAKEN_UP))


def named(owner: str) -> str:
    """How a message names a table or an INSERT."""
    return owner if insert_of(owner) else f"table {owner}"


def read_back(form: Mapping[str, Any]) -> dict[str, Any]:
    """A form as it is read back from the lake."""
    return json.loads(json.dumps(form))


def compared(owner: str, lake: Mapping[str, Any], script: Mapping[str, Any]) -> list[Difference]:
    """All differences between two forms, each at its place. All of them are marked as refused; the caller lets some
    pass."""
    found = []
    for name in dict.fromkeys([*lake, *script]):
        one, other = lake.get(name) or None, script.get(name) or None
        if one == other:
            continue
        if isinstance(one or other, dict) and isinstance(one or {}, dict) and isinstance(other or {}, dict):
            found += [
                Difference(owner, f"{name} {key}", _shown((one or {}).get(key)), _shown((other or {}).get(key)), True)
                for key in dict.fromkeys([*(one or {}), *(other or {})])
                if (one or {}).get(key) != (other or {}).get(key)
            ]
        else:
            found.append(Difference(owner, name, _shown(one), _shown(other), True))
    return found


def _shown(value: Any) -> str:
    if value is None or value in ("", [], {}):
        return NOT_THERE
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return f"({', '.join(value)})"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def not_null(item: Difference) -> bool:
    """Whether a column of a source is declared NOT NULL, and nothing else of it is another."""
    return item.script.replace(NOT_NULL, "", 1) == item.lake


def of_values(form: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of a table's form that decide the values which are stored for the same input. By what path the input is
    reached decides none: another path is taken up only if it leads to what was read. Nor do the role, a key and
    NOT NULL: they are taken up only if the rows are stored alike, and fit."""
    parts = {name: part for name, part in form.items() if name not in (*_TAKEN_UP, "role", "primary key")}
    parts["columns"] = {name: written.replace(NOT_NULL, "") for name, written in parts.get("columns", {}).items()}
    parts["source"] = {name: value for name, value in (parts.get("source") or {}).items() if name != "path"}
    types = {name: _plain_type(written) for name, written in parts["columns"].items()}
    longest = {name: f"{_unlimited(of)}{field}" for name, (of, field) in types.items() if of is not None}
    return {**parts, "columns": {**parts["columns"], **longest}} if longest else parts


def unlike(owner: str, path: Location, table: Table) -> Iterator[Difference]:
    """The columns of `table`, a target, that the Delta table at `path` has otherwise, or lacks."""
    stored = opened(path)
    if stored is None:
        return
    fields = stored.schema().fields
    there = {item.name: _SPARK.get(str(getattr(item.type, "type", ""))) for item in fields}
    given = {column.name: column for column in table.stored_columns}
    for name, column in given.items():
        if name not in there:
            yield Difference(owner, f"target columns {name}", NOT_THERE, "declared", True)
        elif there[name] and column.spark_type in _SPARK.values() and there[name] != column.spark_type:
            yield Difference(owner, f"target columns {name}", str(there[name]), column.type, True)


def may_change(item: Difference, form: Mapping[str, Any], failed: bool) -> bool:
    """Whether an INSERT may be changed like this. `failed`: its newest epoch is planned, and could not be staged
    yet."""
    part = next((name for name in _PARTS if item.what == name or item.what.startswith(f"{name} ")), "")
    if part in _TAKEN_UP or part in _OF_INSERTS or item.what.startswith("constraints of "):
        return True
    if part == "functions":
        # Of another one whatever was published can still be recomputed, but not of one that now computes otherwise.
        call, where = f"{item.what.removeprefix('functions ')}(", json.dumps([form.get("joins"), form.get("windows")])
        return NOT_THERE in (item.lake, item.script) and call not in where
    if item.what.startswith("states "):
        return NOT_THERE in (item.lake, item.script) or _grown(parse_type(item.lake), parse_type(item.script))
    if part == "function":
        return failed  # one that fails at a record must be mendable
    if item.what.startswith(("target columns ", "columns of ")):
        return item.lake == NOT_THERE and not item.script.endswith("NOT NULL")
    return False


def reordered(lake: Mapping[str, Any], script: Mapping[str, Any]) -> bool:
    """Whether the branches of a UNION ALL are the same in another order: rows in quarantine know theirs by its
    number."""
    one, other = (
        [json.dumps(item, sort_keys=True) for item in (form.get("branches") or {}).values()] for form in (lake, script)
    )
    return one != other and sorted(one) == sorted(other)


def _grown(one: FlinkType, other: FlinkType) -> bool:
    """Whether values stored as one type can be read as the other: the same type, but for fields that a ROW has gained
    or lost."""
    if one.kind is Kind.ROW and other.kind is Kind.ROW:
        fields = {field.name: field.type for field in other.fields}
        return all(_grown(field.type, fields[field.name]) for field in one.fields if field.name in fields)
    if one.kind is other.kind and one.arguments and len(one.arguments) == len(other.arguments):
        return all(map(_grown, one.arguments, other.arguments))
    return one == other


def holds_more(item: Difference, table: Table) -> bool:
    """Whether a column of a source is declared longer, or with more digits of a second, than in the lake: what is
    stored stays as it is. More digits are another value for a computed column."""
    (lake, field), (script, other) = _plain_type(item.lake), _plain_type(item.script)
    if not item.of_column or lake is None or script is None or _unlimited(lake) != _unlimited(script) or field != other:
        return False
    if lake.kind in TIMESTAMPS and any(column.expression and not column.proctime for column in table.columns):
        return False
    least, most = (math.inf if of.precision is None else of.precision for of in (lake, script))
    return least < most


def _plain_type(text: str) -> tuple[FlinkType | None, str]:
    """The type of a column that is one of the source, as a form has it, None for any other; and what names its
    field."""
    written, named, field = text.partition(READ_FROM)
    try:
        return parse_type(written), named + field
    except SqlError:
        return None, ""


def _unlimited(of: FlinkType) -> FlinkType:
    """The longest type of which every value of `of` is one, stored in the same way."""
    if of.kind is Kind.VARCHAR:
        return replace(of, kind=Kind.STRING, precision=None)
    if of.kind is Kind.VARBINARY:
        return replace(of, kind=Kind.BYTES, precision=None)
    return replace(of, precision=MAX_FRACTION) if of.kind in TIMESTAMPS else of


def not_where_published(refused: Collection[Difference]) -> bool:
    """Whether all that is refused is that targets do not lie where the script has them: no declaration differs."""
    return bool(refused) and all(item.script.endswith(ELSEWHERE) for item in refused)


def left_elsewhere(owners: Collection[str]) -> str:
    """What is wrong where `not_where_published`."""
    names = " and ".join(map(named, owners))
    return f"what {names} published to is not at the script's 'path': another folder is there, or none"


BRING_BACK = (
    "bring that table to this place, with all that is in its folder; or let 'path' name the place where it is; or give "
    "this script another lake, and its target another 'path': "
)
"""What to do about it; a run on another lake stands behind it."""


def changed(refused: Collection[Difference], lake: Lake, ways: Sequence[Advised] = ()) -> DefinitionChanged:
    """The error for a script that may not run: both versions side by side, and the ways out; `ways`: further ones."""
    owners = list(dict.fromkeys(item.owner for item in refused))
    lines = []
    for owner in owners:
        lines.append(named(owner))
        for item in refused:
            if item.owner == owner:
                lines += [f"  {item.what}", f"    lake:   {item.lake}", f"    script: {item.script}"]
    if not_where_published(refused):
        return DefinitionChanged(
            left_elsewhere(owners),
            where="\n         ".join(lines),
            state="nothing was changed; what is published stays where it is",
            next_command=BRING_BACK + NextCommand("run", ("--lake", "DIR")),
            differences=tuple(refused),
        )
    return DefinitionChanged(
        f"the script defines {' and '.join(map(named, owners))} differently than the lake {lake.root}",
        where="\n         ".join(lines),
        state="nothing was changed; the script as it was goes on",
        next_command=advice(
            "put the old declaration back; or ",
            *(part for way in ways for part in (way, "; or ")),
            "leave the old one as it is and write a new INSERT into a new target; or give this script another lake: ",
            NextCommand("run", ("--lake", "DIR")),
        ),
        differences=tuple(refused),
    )
