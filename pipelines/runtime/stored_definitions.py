"""A script's tables and INSERTs as a lake has stored their definitions."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from tidegate.pipelines.connectors.options import CHANGELOG_RETENTION, LANDED_RETENTION
from tidegate.pipelines.connectors.table import Options, Table
from tidegate.pipelines.errors import TidegateError
from tidegate.pipelines.generations import insert_of, insert_owner
from tidegate.pipelines.lake import DefinitionRow, Lake
from tidegate.pipelines.lake.stream import Stream
from tidegate.pipelines.runtime.both_roles import with_roles_of
from tidegate.pipelines.runtime.differences import compared, of_values, read_back
from tidegate.pipelines.runtime.epochs import ReleasePlan
from tidegate.pipelines.runtime.epochs.generations import in_its_place, is_over
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.sql.canonical import defines, digest_of, table_form
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.sql.tables.with_options import with_role
from tidegate.pipelines.syntax.secrets import needs_variables


def covered(
    lake: Lake, pipeline: Pipeline, environment: Mapping[str, str] | None = None
) -> tuple[Pipeline, dict[str, dict[str, str]]]:
    """A pipeline whose source tables have the roles that they have in the lake, too, and all columns of the lake, where
    the script declares fewer and changes nothing else; and by table, the columns that the script does not declare."""
    lacking: dict[str, dict[str, str]] = {}
    pipeline = with_roles_of(lake, pipeline)
    for table in pipeline.sources:
        stored = lake.definitions.last(table.name)
        if stored is None or stored.digest == digest_of(form := read_back(table_form(pipeline, table, environment))):
            continue
        found = compared(table.name, stored.form, form)
        if not found or not all(item.undeclared for item in found):
            continue
        whole = stored_table(lake, pipeline, table.name)
        if whole is not None:
            lacking[table.name] = {item.what: item.lake for item in found}
            pipeline = replace(pipeline, tables={**pipeline.tables, table.name: whole})
    return pipeline, lacking


def stored_table(lake: Lake, pipeline: Pipeline, name: str) -> Table | None:
    """A source table as the lake defines it, with the script's values of options that are no part of the definition;
    None if its stored statement does not compile any more."""
    stored, given = lake.definitions.last(name), pipeline.tables.get(name)
    if stored is None or given is None:
        return None
    made = compiled(stored, pipeline.name, given.home)
    if made is None or name not in made.tables:
        return None
    table = with_role(as_given(made.table(name), given), given.role, also_probe=given.also_probe)
    form = read_back(table_form(made, table))
    same = all(item.changeable for item in compared(name, stored.form, form))
    return table if same else None


def as_given(table: Table, given: Table | None) -> Table:
    """A stored table with the script's values of options that are no part of a definition, such as passwords."""
    if given is None or table.connector != given.connector or table.role == "sink":
        return table
    own = {key: value for key, value in given.options.items() if not defines(given, key)}
    stored = {key: value for key, value in table.options.items() if defines(table, key)}
    return at_home(replace(table, options=Options({**stored, **own})), given.home)


def compiled(row: DefinitionRow, name: str, home: str | None) -> Pipeline | None:
    """The pipeline of a definition's stored statements, whose relative paths begin in `home`, the script's folder; None
    if they do not compile any more."""
    try:
        found = compile_script(row.script, name=name)
    except TidegateError:
        return None
    return replace(found, tables={name: at_home(table, home) for name, table in found.tables.items()})


def at_home(table: Table, home: str | None) -> Table:
    """A table whose relative paths, and those of its parts, begin in `home`."""
    return replace(table, home=home, parts=tuple(at_home(part, home) for part in table.parts))


def home_of(pipeline: Pipeline) -> str | None:
    """The folder of a pipeline's script; None for one of no file."""
    return next((table.home for table in pipeline.tables.values() if table.home), None)


def seen_from(lake: Lake, home: str | None) -> str:
    """A script's folder as the lake stores it, so that both may be moved together: its way from the lake."""
    return "" if home is None else os.path.relpath(os.path.realpath(home), os.path.realpath(str(lake.root)))


def _own_home(lake: Lake, row: DefinitionRow) -> str | None:
    return os.path.normpath(os.path.join(os.path.realpath(str(lake.root)), row.home)) if row.home else None


def from_variables(table: Table) -> tuple[str, ...]:
    """How the differences end that are in an option whose value comes from a variable."""
    given = [item for part in (table, *table.parts) for item in part.options.items()]
    return tuple(f" {name}" for name, value in given if needs_variables(value))


def inserts_beside(lake: Lake, pipeline: Pipeline, build: str) -> dict[str, Pipeline | None]:
    """The INSERTs of a lake that join `build` and are not in a pipeline (another script's, or left out of this one), by
    id: each in a pipeline as the lake defines it, or None where it cannot be made any more."""
    found: dict[str, Pipeline | None] = {}
    own = {insert_owner(insert.id) for insert in pipeline.inserts}
    for owner in lake.definitions.owners():
        insert, row = insert_of(owner), lake.definitions.last(owner)
        if insert is None or owner in own or row is None or lake.epochs.last(owner) is None or is_over(lake, insert):
            continue
        if any(join["build"] == build for join in row.form.get("joins") or ()):
            made = compiled(row, row.pipeline or pipeline.name, _own_home(lake, row))
            found[insert] = None if made is None else in_its_place(lake, made, insert)
    return found


def left_behind(lake: Lake, pipeline: Pipeline | None) -> dict[str, tuple[str, ...]]:
    """The INSERTs that were left out of their script, each with the tables whose retention it holds back."""
    found: dict[str, tuple[str, ...]] = {}
    for owner in lake.definitions.owners():
        insert, row = insert_of(owner), lake.definitions.last(owner)
        if insert is None or row is None or not row.left_out or is_over(lake, insert):
            continue
        builds = dict.fromkeys(join["build"] for join in row.form.get("joins") or ())
        probes = str(row.form.get("probe") or "").split(" and ")  # no table's name has a space
        made = compiled(row, row.pipeline or "left out", _own_home(lake, row))
        tables = {name: table for each in (made, pipeline) if each is not None for name, table in each.tables.items()}
        # What a function that is gone still needs cannot be known: everything is held back for it.
        held = tuple(name for name in builds if name not in tables or CHANGELOG_RETENTION in tables[name].options)
        held += tuple(name for name in probes if name in tables and LANDED_RETENTION in tables[name].options)
        if held:
            found[insert] = held
    return found


def mixed_definitions(lake: Lake, plan: ReleasePlan) -> list[str]:
    """The tables whose rows, as far as a plan reads them, were stored under definitions with different values for the
    same input: such a change needs a new generation."""
    reads = [(item.table, item.generation, plan.reads_of(item)[1]) for item in plan.takes]
    reads += [(pin.table, pin.generation, pin.epoch) for pin in plan.pins]
    return [table for table, generation, upto in reads if len(_stored_under(lake, table, generation, upto)) > 1]


def _stored_under(lake: Lake, table: str, generation: int, upto: int) -> set[str]:
    """The definitions under which rows of a generation were stored, reduced to the parts that decide values."""
    rows = [row for row in lake.definitions.rows(table) if row.generation <= generation]
    found = [row for row in rows if row.generation < generation or row.since == 1][-1:]
    for row in rows:
        if row.generation == generation and 1 < row.since <= upto:
            before = Stream(lake, table).generation(generation).landed(0, row.since - 1) if found else 0
            found = [*(found if before else []), row]
    return {digest_of(of_values(row.form)) for row in found}
