"""The role of each table, by the INSERTs of the whole script, and roles that exclude one another."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidegate.pipelines.connectors.options import (
    CHANGELOG_RETENTION,
    LANDED_RETENTION,
    QUARANTINE_RETENTION,
    SINK_OPTIONS,
    SOURCE_OPTIONS,
    find_option,
)
from tidegate.pipelines.connectors.registry import connector, only_grows
from tidegate.pipelines.connectors.spec import ConnectorSpec
from tidegate.pipelines.connectors.table import Role, Table
from tidegate.pipelines.paths import placed
from tidegate.pipelines.sql.model import Insert, ProcessInsert
from tidegate.pipelines.sql.tables.constraints import refused
from tidegate.pipelines.sql.tables.with_options import check_connector, with_role
from tidegate.pipelines.sql.tree import Declared
from tidegate.pipelines.syntax.source import Source, Span
from tidegate.pipelines.syntax.statements import InsertInto, Name

PROCESS_TARGET = "written by a process"
OF_A_PROCESS = "leave it out: rows that a process quarantines are its own, and nobody decides about them"

_ROLE_NAMES: dict[Role, str] = {
    "build": "a build side",
    "probe": "a probe",
    "sink": "a target",
    "part": "a part of another",
    "unused": "unused",
}


@dataclass(frozen=True)
class Use:
    """A table that an INSERT names; `of`: where the view names it that the INSERT reads."""

    name: Name
    role: Role
    of: Span | None = None


def roles(
    source: Source,
    inserts: Sequence[tuple[InsertInto, Insert]],
    uses: Sequence[Use],
    declared: Mapping[str, Declared],
) -> tuple[dict[str, Role], set[str]]:
    """The role of every table of `uses`: what the INSERTs name, in order; and which build sides are probes, too. Raises
    SqlError if a table would have two roles that exclude one another. A target stays one, whoever reads it."""
    found, both = dict[str, Role](), set[str]()
    written = {insert.target for _, insert in inserts}
    for use in uses:
        name, role = use.name, use.role
        if name.text in written:
            role = "sink"
        known = found.setdefault(name.text, role)
        if {known, role} == {"build", "probe"} and serves_both(declared[name.text].table):
            found[name.text] = "build"
            both.add(name.text)
        elif known != role:
            what = f"{name.text} is {_ROLE_NAMES[known]} already, it cannot be {_ROLE_NAMES[role]} as well"
            raise source.error(name.span, what, _both(declared[name.text], {known, role}), use.of)
    _unique(source, inserts)
    _places_of_their_own(source, inserts, declared)
    for name, role in found.items():
        _fitting_options(source, declared[name], role)
        # The connector's own checks once more: some only matter for a table that is read, or written.
        owner, table = declared[name], with_role(declared[name].table, role)
        unwritten = role in ("build", "probe") and not _problems(owner.spec, table, ("sink",))
        hint = f"no INSERT of this script writes {name}: write one, or name the table that {name} reads"
        check_connector(source, owner.statement, owner.spec, table, hint if unwritten else None)
        for part in table.parts:
            owner, hint = declared[part.name], f"{part.name} is a part of {name}"
            check_connector(source, owner.statement, owner.spec, part, hint)
        if name in both:
            hint = f"declare {name} twice, under two names: versions may go that are rows to be released"
            what = f"{_ROLE_NAMES['build']} and {_ROLE_NAMES['probe']}"
            _refuse(source, declared[name], CHANGELOG_RETENTION, what, hint)
        for part in declared[name].table.parts:
            _no_constraints(source, declared[part.name], "part")
            hint = "write it in the table that this one is a part of"
            _refuse(source, declared[part.name], LANDED_RETENTION, _ROLE_NAMES["part"], hint)
    for _, insert in inserts:
        if isinstance(insert, ProcessInsert):
            _refuse(source, declared[insert.target], QUARANTINE_RETENTION, PROCESS_TARGET, OF_A_PROCESS)
    return found, both


def serves_both(table: Table) -> bool:
    """Whether a source's table can be a build side and a probe at once: it only grows, and its connector has it as
    either."""
    spec = connector(table.connector).spec
    return only_grows(table) and not _problems(spec, table, ("build", "probe"))


def _problems(spec: ConnectorSpec, table: Table, roles: Iterable[Role]) -> bool:
    """Whether the connector cannot have a table in one of these roles."""
    return any(spec.check(with_role(table, role)) for role in roles)


def _both(declared: Declared, wanted: set[Role]) -> str | None:
    """How one table's rows could be had in both roles; None if its connector cannot have both."""
    if "sink" in wanted:
        return read_back(declared.table.name)
    neither = _problems(declared.spec, declared.table, wanted)
    return None if neither else "it has updates: declare it twice, under two names"


def read_back(target: str) -> str:
    """How a script reads what it writes into a target."""
    shown = f"'connector' = 'delta', 'path' = '/data/{target}'"
    return f"write {target} WITH ({shown}), and read it by a second table WITH the same connector and path"


def _unique(source: Source, inserts: Sequence[tuple[InsertInto, Insert]]) -> None:
    """Every INSERT has an id and a target of its own."""
    ids: dict[str, Insert] = {}
    for statement, insert in inserts:
        other = ids.setdefault(insert.id.casefold(), insert)
        if other is insert:
            continue
        line = other.location.line
        if other.target == insert.target:
            what = f"a second INSERT INTO {insert.target} (the first is in line {line})"
            hint = "declare the target once more, under another name (and with a path of its own if it has one)"
            raise source.error(statement.target.span, what, hint)
        what = f"two INSERTs have the id '{insert.id}' (the other is in line {line})"
        raise source.error(statement.target.span, what, "give one of the targets another 'insert.id'")


def _places_of_their_own(
    source: Source, inserts: Sequence[tuple[InsertInto, Insert]], declared: Mapping[str, Declared]
) -> None:
    """No two targets lie in one folder, or one inside of the other, however their paths are written."""
    known: dict[str, str] = {}
    for statement, insert in inserts:
        table = declared[insert.target].table
        if path := table.options.get("path"):
            place = os.path.normpath(placed(path, table.home).absolute())
            for other, name in known.items():
                if os.path.commonpath([place, other]) in (place, other):
                    what = f"'path' of {table.name} is that of {name}"
                    if place != other:
                        what = f"{place} and {other}, the paths of {table.name} and {name}, lie one inside the other"
                    hint = "a target is of one INSERT: give one another 'path'"
                    raise source.error(statement.target.span, what, hint)
            known[place] = table.name


def _fitting_options(source: Source, declared: Declared, role: Role) -> None:
    if role != "sink":
        _no_constraints(source, declared, role)
    if role == "build":
        hint = f"write '{CHANGELOG_RETENTION}': a row may meet any version"
        _refuse(source, declared, LANDED_RETENTION, _ROLE_NAMES[role], hint)
    others = SOURCE_OPTIONS if role == "sink" else SINK_OPTIONS
    for option in declared.statement.options:
        if find_option(option.key.text, others) is not None:
            _refuse(source, declared, option.key.text, _ROLE_NAMES[role], "leave it out")


def _refuse(source: Source, declared: Declared, name: str, what: str, hint: str) -> None:
    """Refuse one option of a table that is for something else."""
    for option in declared.statement.options:
        if option.key.text == name:
            raise source.error(option.key.span, f"'{name}' has no meaning here: {declared.table.name} is {what}", hint)


def _no_constraints(source: Source, declared: Declared, role: Role) -> None:
    for expect in declared.statement.constraints:
        raise source.error(expect.span, *refused(expect, f"{declared.table.name} is {_ROLE_NAMES[role]}"))
