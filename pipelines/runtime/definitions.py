"""How the lake defines its tables and INSERTs, compared with a script: no change of meaning goes unnoticed.

Every owner (a source table, an INSERT, a process) has a row in the `definitions` table from its first plan on, and
every plan names the row that it was made under. A script that defines it otherwise is either taken up, reported in one
line and valid from the next epoch on, or refused with both versions; a refused script has written nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from tidegate.pipelines.clock import Clock, system_clock
from tidegate.pipelines.commands import STATUS, Advised, NextCommand, advice, both
from tidegate.pipelines.connectors.options import field_option
from tidegate.pipelines.connectors.table import BOTH, Table, require_variables
from tidegate.pipelines.errors import ConcurrentRun, LeaseHeld, TidegateError
from tidegate.pipelines.generations import insert_of, insert_owner, statement_name
from tidegate.pipelines.lake import DefinitionRow, Lake
from tidegate.pipelines.lake.delta_log import committed
from tidegate.pipelines.lake.leases import Leases
from tidegate.pipelines.lake.stream import Stream
from tidegate.pipelines.runtime.both_roles import keys_of_probe, retention_of, why_not_both, with_roles_of
from tidegate.pipelines.runtime.differences import (
    ELSEWHERE,
    NOT_THERE,
    Difference,
    changed,
    compared,
    holds_more,
    may_change,
    named,
    not_null,
    read_back,
    reordered,
    unlike,
)
from tidegate.pipelines.runtime.epochs import ReleasePlan, stored_plan
from tidegate.pipelines.runtime.epochs.generations import is_over, like, on_lake
from tidegate.pipelines.runtime.epochs.history import newest_plans
from tidegate.pipelines.runtime.epochs.target_log import refuse_turned
from tidegate.pipelines.runtime.lost_commits import refuse_other_lake
from tidegate.pipelines.runtime.missing_fields import MissingFields
from tidegate.pipelines.runtime.places import another_table, same_place, same_source
from tidegate.pipelines.runtime.stored_definitions import (
    as_given,
    compiled,
    covered,
    from_variables,
    home_of,
    seen_from,
    stored_table,
)
from tidegate.pipelines.sql import compile_script
from tidegate.pipelines.sql.canonical import READ_FROM, digest_of, insert_form, statement_of, statements_of, table_form
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.sql.model import Insert


@dataclass
class Definitions:
    """A pipeline's definitions, compared with those of a lake. `pipeline` has all columns of the lake, also of a table
    for which the script declares fewer, since all of them land. `say` gets one line for each change that is taken up.
    `resnapshot`, in methods: the tables that begin a new generation just now."""

    lake: Lake
    pipeline: Pipeline
    environment: Mapping[str, str]
    clock: Clock
    say: Callable[[str], None] = lambda line: None
    _forms: dict[str, dict[str, Any]] = field(default_factory=dict, init=False)
    _numbers: dict[str, int] = field(default_factory=dict, init=False)
    _anew: dict[str, int] = field(default_factory=dict, init=False)
    _passed: tuple[list[str], frozenset[str]] | None = field(default=None, init=False)
    _seen: dict[str, frozenset[str]] = field(default_factory=dict, init=False)
    _undeclared: dict[str, dict[str, str]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.pipeline, self._undeclared = covered(self.lake, on_lake(self.lake, self.pipeline), self.environment)

    # --- asking --------------------------------------------------------------------------------------------------

    def differences(self, resnapshot: Collection[str] = ()) -> list[Difference]:
        """All differences between the lake and the script. Changes nothing."""
        found: list[Difference] = []
        for table in self.pipeline.sources:
            for name, column in self._undeclared.get(table.name, {}).items():
                found.append(Difference(table.name, name, column, NOT_THERE, False))
            found += self._of_table(table, table.name in resnapshot)
        for insert in self.pipeline.inserts:
            found += self._of_insert(insert)
        return found

    def require(self, resnapshot: Collection[str] = (), owner: str | None = None) -> None:
        """Refuse a script that cannot go on with the lake's definitions. Writes nothing. Raises DefinitionChanged,
        PlanningError where a table that differs lacks a variable, and LakeError where a target is another lake's.

        The result is cached until a definition of the lake changes: of those that a step of `owner` follows, if that
        is named. A tick calls this for each of its steps.
        """
        owners, stamp = self.lake.logs.owners(), self.lake.definitions.stamp
        as_of = (owners, frozenset(resnapshot))
        insert = None if owner is None else self._insert(owner)
        followed = owners if owner is None else [owner, *(insert.inputs if insert else ())]
        if as_of == self._passed and all(stamp(each) == self._seen.get(each, frozenset()) for each in followed):
            return
        self._passed, self._seen = None, {each: stamp(each) for each in owners}
        if with_roles_of(self.lake, self.pipeline) is not self.pipeline:  # by this one's, it would lose that role again
            raise ConcurrentRun(
                "another runner has given a table of this script its other role since this one began",
                where=str(self.lake.root),
                state="its definition holds; this run planned nothing more",
                next_command="run the same command again: it goes on with the table in both roles",
            )
        found = self.differences(resnapshot)
        refused = {item.owner for item in found if item.refused}
        if refused:  # otherwise each difference is listed: a column that is renamed is one less, and one more
            tables = {table.name: table.options for table in self.pipeline.sources if table.name in refused}
            require_variables(tables, self.environment)  # without their values no table is the lake's
            raise changed([item for item in found if item.owner in refused], self.lake, self._ways(found, resnapshot))
        refuse_other_lake(self.lake, self.pipeline)
        refuse_turned(self.lake, self.pipeline)
        self._passed = as_of

    def _ways(self, found: Collection[Difference], resnapshot: Collection[str]) -> list[Advised]:
        """How refused tables of which nothing is released may be read anew, as the script has them now."""
        owners = {item.owner for item in found if item.refused}
        released = {item.table for plan in newest_plans(self.lake) for item in plan.takes}
        anew = [name for name in self.pipeline.tables if name in owners and name not in {*released, *resnapshot}]
        if not owners or set(anew) != owners:
            both_roles = dict.fromkeys(item.owner for item in found if item.refused and item.what == "role")
            return [advice(f"declare {name} once more under another name, and use that one") for name in both_roles]
        left = [item for item in self.differences([*resnapshot, *anew]) if item.refused]
        command = NextCommand("run", tuple(word for name in anew for word in ("--resnapshot", name)))
        if not left:
            return [advice(f"read {' and '.join(anew)} anew, as the script has it now: ", command)]
        if all(item.undeclared and self._is_missing(item) for item in left):
            columns = [item.what.removeprefix("columns ") for item in left]
            named = " and ".join(f"'{field_option(column)}'" for column in columns)
            kept = (
                f"keep {' and '.join(columns)}, whose field no record has, with the name of its field in WITH ({named})"
            )
            return [both(kept, command)]
        return []

    def _is_missing(self, item: Difference) -> bool:
        """Whether it is a column of which no record had the field, so that it is NULL in every row."""
        missing = MissingFields.of(Stream(self.lake, item.owner).newest)
        return item.of_column and missing is not None and item.what.removeprefix("columns ") in missing.columns

    def _of_table(self, table: Table, anew: bool) -> Iterator[Difference]:
        owner, stored = table.name, self.lake.definitions.last(table.name)
        form = self._form(owner)
        if stored is None or self.lake.epochs.last(owner) is None:
            return
        found = compared(owner, stored.form, form)
        if (option := retention_of(table)) is not None:
            found.append(Difference(owner, f"option {option}", f"{BOTH}: no row may go", table.options[option], True))
        fresh = bool(found) and self.never_landed(owner)
        for item in self._judged(table, found, anew):
            yield replace(item, refused=item.refused and not fresh)

    def _judged(self, table: Table, found: Collection[Difference], anew: bool) -> Iterator[Difference]:
        """The differences of a table, as a lake takes them in which rows of it may have landed."""
        owner = table.name
        empty = anew or (bool(found) and self._stores_nothing(owner))
        untouched = empty and not anew and self._committed(owner) <= 0
        first = bool(found) and self._committed(owner) < 0 and self.never_landed(owner)
        keyed = frozenset[str]()
        if {(item.what, item.lake) for item in found} >= {("role", "probe"), ("primary key", NOT_THERE)}:
            keyed = keys_of_probe(self.lake, table)
        for item in found:
            new_column = item.of_column and item.lake == NOT_THERE
            # Of a format whose columns go by their place, a new column is another order as well.
            goes_on = (new_column or item.what == "order of columns") and empty
            if item.of_column and (
                untouched or (anew and self._is_missing(item))
            ):  # an expression that fails at the first row, a field of another name
                stored_as = [re.split(f" AS |{READ_FROM}", column)[0] for column in (item.lake, item.script)]
                goes_on = goes_on or stored_as[0] == stored_as[1]
            goes_on = goes_on or (first and (item.of_column or item.what == "order of columns"))
            goes_on = goes_on or (item.what == "watermark" and untouched) or holds_more(item, table)
            goes_on = goes_on or (item.what == "source path" and self._is_there(item, table))
            goes_on = goes_on or (item.of_start and anew)
            goes_on = goes_on or (item.what == "primary key" and bool(keyed))
            goes_on = goes_on or (item.of_column and item.what.removeprefix("columns ") in keyed and not_null(item))
            if item.what == "role":
                why = why_not_both(self.lake, table, item.lake, anew=anew)
                goes_on, item = why is None, replace(item, script=", and ".join(filter(None, [item.script, why])))
            yield replace(item, refused=not (goes_on or item.changeable))

    def _is_there(self, item: Difference, table: Table) -> bool:
        """Whether another path of a source leads to the same place, or to what was read so far."""
        same = NOT_THERE not in (item.lake, item.script) and same_place(item.lake, item.script, table.home)
        return same or same_source(self.lake, table, self.environment, self.clock)

    def never_landed(self, table: str) -> bool:
        """Whether no row of a planned table was ever stored, and nothing has read it: it may be declared anew."""
        if self.lake.epochs.last(table) is None or not self._stores_nothing(table):
            return False
        return not any(item.table == table for plan in newest_plans(self.lake) for item in (*plan.takes, *plan.pins))

    def begins_anew(self, owner: str) -> bool:
        """Whether a source table is declared otherwise than its steps are planned, so that it begins a new generation:
        of the old one nothing was ever stored."""
        stored = self.lake.definitions.last(owner)
        if stored is None or stored.digest == digest_of(self._form(owner)) or not self.never_landed(owner):
            return False
        found = compared(owner, stored.form, self._form(owner))
        return any(item.refused for item in self._judged(self.pipeline.table(owner), found, False))

    def _stores_nothing(self, table: str) -> bool:
        return Stream(self.lake, table).empty

    def _counted(self, table: str) -> int:
        """The newest epoch of a table's newest generation that is in the watermark log; 0 for none."""
        planned = self.lake.epochs.last(table)
        last = Stream(self.lake, table).generation(planned.generation).last if planned else None
        return last.epoch if last else 0

    def _committed(self, table: str) -> int:
        """The newest epoch of a table's newest generation whose rows are committed; -1 for none."""
        planned = self.lake.epochs.last(table)
        return -1 if planned is None else Stream(self.lake, table).generation(planned.generation).committed

    def _of_insert(self, insert: Insert) -> Iterator[Difference]:
        owner = insert_owner(insert.id)
        row, stored = self.lake.epochs.last(owner), self.lake.definitions.last(owner)
        if row is None or stored is None:
            yield from self._taking_over(insert)
            target = self.pipeline.table(insert.target)
            yield from unlike(owner, self.lake.target_path(target), target)
            return
        form, plan = self._form(owner), stored_plan(row)
        found = compared(owner, stored.form, form)
        failed = bool(found) and not self._staged(plan)
        # Nothing was ever staged: nothing is published, quarantined or held. Another kind has plans of its own.
        fresh = failed and self.lake.staged.last(owner) is None and all(item.what != "kind" for item in found)
        swapped = reordered(stored.form, form)
        for item in found:
            moved = item.what in _paths(insert) and self._moved(item, insert, plan)
            fine = may_change(item, form, failed) and not (swapped and item.what.startswith("branches "))
            yield replace(item, refused=not (fresh or moved or fine))
        if not any(item.what in _paths(insert) for item in found):
            yield from self._not_where_published(insert, plan)
        yield from _mistaken(insert, _aliases(stored, insert))

    def _not_where_published(self, insert: Insert, plan: ReleasePlan) -> Iterator[Difference]:
        """The outputs with a 'path' at which their table is not: it was left behind when the script was moved, or
        another one lies there."""
        for what, name in _paths(insert).items():
            target = self.pipeline.table(name)
            if "path" in target.options and another_table(self.lake, target, insert, plan):
                path = str(self.lake.target_path(target))
                there = f"the table that {insert.id} has published to"
                yield Difference(insert_owner(insert.id), what, there, f"{path}{ELSEWHERE}", True)

    def _moved(self, item: Difference, insert: Insert, plan: ReleasePlan) -> bool:
        """Whether an output at another path is the same table: it has everything that the INSERT has published, or both
        paths lead to one place."""
        target = self.pipeline.table(_paths(insert)[item.what])
        if NOT_THERE not in (item.lake, item.script) and same_place(item.lake, item.script, target.home):
            return True
        passed, there = self._published(insert, plan, target)
        return there >= (max(passed, 1) if target.name == insert.target else 1)

    def _published(self, insert: Insert, plan: ReleasePlan, target: Table) -> tuple[int, int]:
        """The last epoch before the newest `plan` that has passed, 0 for none; and the last one that is in a target of
        the script, -1 for none."""
        path, owner = self.lake.target_path(target), insert_owner(insert.id)
        earlier = self.lake.verdicts.newest_first(owner, generation=plan.generation, upto=plan.epoch - 1)
        passed = next((row.epoch for row in earlier if row.passed), 0)
        return passed, committed(path, self.lake.application(owner, "publish", plan.generation))

    def _staged(self, plan: ReleasePlan) -> bool:
        owner = insert_owner(plan.insert)
        rows = self.lake.staged.rows(owner, generation=plan.generation, epoch=plan.epoch)
        return any(row.plan_digest == plan.digest for row in rows)

    def _taking_over(self, insert: Insert) -> Iterator[Difference]:
        """The difference of a new INSERT into a target that an INSERT which is not in the script has published to:
        nobody could tell whose rows are whose, and of the same probe the same rows would be there twice."""
        own = {item.statement for item in self.pipeline.inserts}
        path = self.lake.target_path(self.pipeline.table(insert.target))
        if not path.is_there():
            return
        for plan in newest_plans(self.lake):
            owner, other = plan.owner, statement_name(plan.insert) not in own
            if other and committed(path, self.lake.application(owner, "publish", plan.generation)) > 0:
                there = f"'{plan.insert}', which has rows in {insert.target}"
                yield Difference(owner, "id", there, f"'{insert.id}'", True)

    # --- taking up -----------------------------------------------------------------------------------------------

    def take_up(self, owner: str, *, resnapshot: bool = False) -> bool:
        """Store what the script has changed of `owner`, whose lease this runner holds; it is valid from the next epoch
        on. Returns whether a source begins a new generation. Raises DefinitionChanged, and ConcurrentRun if another
        runner has changed it meanwhile."""
        self._refuse_overtaken(owner)
        plan, stored = self.lake.epochs.last(owner), self.lake.definitions.last(owner)
        if plan is None or stored is None:
            return resnapshot
        insert = self._insert(owner)
        same = stored.digest == digest_of(self._form(owner)) and not stored.left_out
        # Reasons name builds by their aliases: an epoch keeps those that it was made with.
        if same and (insert is None or self._same_beside(stored, insert)):
            self._numbers[owner] = stored.epoch
            return resnapshot
        self.require([owner] if resnapshot else ())
        resnapshot = resnapshot or (insert is None and self.begins_anew(owner))
        if resnapshot:
            self._anew[owner] = plan.generation + 1
            return True
        landing = insert is None and max(self._committed(owner), self._counted(owner)) < plan.epoch
        self._take_up(owner, plan.generation, plan.epoch if landing else plan.epoch + 1)
        return resnapshot

    def _same_beside(self, stored: DefinitionRow, insert: Insert) -> bool:
        """Whether what a stored definition has beside its digest is the script's: aliases, and the script's folder."""
        return _same_aliases(stored, insert) and stored.home == seen_from(self.lake, home_of(self.pipeline))

    def _take_up(self, owner: str, generation: int, since: int) -> None:
        """Store the script's definition of `owner`, and report it."""
        stored, form = self.lake.definitions.last(owner), self._form(owner)
        self._store(owner, generation, since)
        name = named(owner)
        changes = "; ".join(str(item) for item in compared(owner, stored.form, form)) if stored else ""
        if stored is not None and stored.left_out:
            self.say(f"{name} is in the script again, and goes on from epoch {since}")
        if changes:
            self.say(f"{name} changes from epoch {since} on: {changes}")

    def say_undeclared(self) -> None:
        """Report, once, which columns land though the script does not declare them."""
        for table, columns in self._undeclared.items():
            names = " and ".join(name.removeprefix("columns ") for name in columns)
            self.say(
                f"table {table} is landed with {names}, as the lake keeps it: the script does not declare all of it"
            )
        self._undeclared = {}

    def leave_out(self, leases: Leases) -> None:
        """Store which INSERTs have left the script, but for those that another runner works on."""
        own = {insert.statement for insert in self.pipeline.inserts}
        for owner in self.lake.definitions.owners():
            insert, stored = insert_of(owner), self.lake.definitions.last(owner)
            if insert is None or statement_name(insert) in own or stored is None or stored.left_out:
                continue
            if is_over(self.lake, insert):
                continue
            if stored.pipeline != self.pipeline.name:
                continue
            try:
                leases.acquire(owner)
            except LeaseHeld:
                continue
            try:
                row = replace(stored, epoch=stored.epoch + 1, defined_at=self.clock(), left_out=True)
                application = self.lake.application(owner, "definition", 1)
                self.lake.definitions.append([row], application=application, version=row.epoch)
            finally:
                leases.release(owner)
            self.say(f"{owner} is left out of the script: what it has published stays, and no more comes")

    def number(self, owner: str) -> int:
        """The number of the definition that a plan of `owner` is made under now; stored where there is none yet.

        Raises ConcurrentRun where another runner has changed it since this one began.
        """
        self._refuse_overtaken(owner)
        if owner in self._anew:  # only now is it sure that the new generation begins
            self._take_up(owner, self._anew.pop(owner), 1)
        stored = self.lake.definitions.last(owner)
        if stored is None or (owner not in self._numbers and stored.digest != digest_of(self._form(owner))):
            insert = self._insert(owner)
            if insert is not None:
                self._say_new(owner)
            return self._store(owner, insert.generation if insert is not None else 1, 1)
        self._numbers[owner] = stored.epoch
        return stored.epoch

    def _say_new(self, owner: str) -> None:
        """Report that an INSERT is new, if the pipeline had other INSERTs before this runner."""
        if any(insert_of(other) and other not in self._numbers for other in self.lake.definitions.owners()):
            self.say(f"{owner} is new: it begins at the first row of {self._form(owner)['probe']}")

    def _refuse_overtaken(self, owner: str) -> None:
        stored, known = self.lake.definitions.last(owner), self._numbers.get(owner)
        if known is None or stored is None or stored.epoch == known:
            return
        if stored.digest != digest_of(self._form(owner)):
            raise ConcurrentRun(
                f"another runner has changed the definition of {owner} since this one began",
                where=str(self.lake.root),
                state="its definition holds; this run planned nothing more",
                next_command=STATUS,
            )

    def _store(self, owner: str, generation: int, since: int) -> int:
        last, form = self.lake.definitions.last(owner), self._form(owner)
        number = last.epoch + 1 if last else 1
        insert = self._insert(owner)
        row = DefinitionRow(
            owner=owner,
            generation=generation,
            epoch=number,
            since=since,
            defined_at=self.clock(),
            digest=digest_of(form),
            form=form,
            script=statements_of(self.pipeline, insert) if insert else statement_of(self.pipeline, owner),
            pipeline=self.pipeline.name,
            home=seen_from(self.lake, home_of(self.pipeline)),
        )
        application = self.lake.application(owner, "definition", 1)
        from tidegate.pipelines.runtime.failures import explained  # loads Spark, which who only asks does without

        with explained(owner, f"its definition {number}", "its definition is not stored, nothing is planned under it"):
            self.lake.definitions.append([row], application=application, version=number)
            stored = self.lake.definitions.last(owner)
        if stored is None or (stored.epoch, stored.digest) != (number, row.digest):
            raise ConcurrentRun(
                f"another runner has defined {owner} meanwhile",
                where=str(self.lake.root),
                state="its definition holds; this run planned nothing",
                next_command=STATUS,
            )
        self._numbers[owner] = number
        return number

    def _insert(self, owner: str) -> Insert | None:
        return next((item for item in self.pipeline.inserts if item.id == insert_of(owner)), None)

    def _form(self, owner: str) -> dict[str, Any]:
        """The script's definition of an owner, in the form in which it is read back from the lake."""
        if owner not in self._forms:
            pipeline, insert = self.pipeline, self._insert(owner)
            self._forms[owner] = read_back(
                insert_form(pipeline, insert)
                if insert is not None
                else table_form(pipeline, pipeline.table(owner), self.environment)
            )
        return self._forms[owner]

    # --- columns that came later ---------------------------------------------------------------------------------

    def added(self, owner: str) -> frozenset[str]:
        """The columns that later definitions of `owner` have added, and its table may lack."""
        rows = self.lake.definitions.rows(owner)
        if len(rows) < 2:
            return frozenset()
        first, last = rows[0].form, rows[-1].form
        names: set[str] = set()
        for part, columns in last.items():
            if part == "columns" or part == "target columns" or part.startswith("columns of "):
                names |= set(columns) - set(first.get(part, ()))
        if last.get("policy", {}).get("gate.proof") != first.get("policy", {}).get("gate.proof"):
            insert = self._insert(owner)
            names |= set(insert.proof_columns) if insert else set()
        return frozenset(names)


def as_defined(lake: Lake, pipeline: Pipeline, insert: str, number: int | None = None) -> Pipeline | None:
    """A pipeline with the INSERT called `insert` as the lake defines it, by its newest definition or by that `number`.
    It is `pipeline` itself where the two are the same, or nothing was planned yet. None where that INSERT cannot be
    made any more: a function of the user's own computes something else now, or the number is unknown."""
    found = pipeline.insert(insert)
    owner, insert = insert_owner(found.id), found.statement
    rows = lake.definitions.rows(owner)
    if number is None and not rows:
        return pipeline
    row = next((row for row in reversed(rows) if number is None or row.epoch == number), None)
    if row is None:
        return None
    same = row.digest == digest_of(read_back(insert_form(pipeline, found))) and _same_aliases(row, found)
    if not row.script or (same and not _tables_differ(lake, pipeline, found)):
        return pipeline
    made = compiled(row, pipeline.name, home_of(pipeline))
    form = read_back(insert_form(made, made.insert(insert))) if made is not None else {}
    if made is None or form.get("functions") != row.form.get("functions"):
        return None
    return like(made, pipeline, found)


def _paths(insert: Insert) -> dict[str, str]:
    """How differences call the paths of an INSERT's outputs, each with its output's name."""
    return {"target path" if name == insert.target else f"path of {name}": name for name in insert.outputs}


def _aliases(row: DefinitionRow, insert: Insert) -> list[str]:
    """The aliases of the builds in a stored definition; those of `insert` where it stores none."""
    same = all(text in row.script for text in (*insert.views, insert.sql))
    found = None if same else _aliases_in(row.script, insert.id)
    return [join.alias for join in insert.joins] if found is None else found


def _same_aliases(row: DefinitionRow, insert: Insert) -> bool:
    """Whether a stored definition has the builds' aliases of the script, which are no part of its digest."""
    return _aliases(row, insert) == [join.alias for join in insert.joins]


@lru_cache(maxsize=256)
def _aliases_in(script: str, insert: str) -> list[str] | None:
    try:
        return [join.alias for join in compile_script(script).insert(insert).joins] if script else None
    except (TidegateError, KeyError):
        return None


def _mistaken(insert: Insert, stored: Sequence[str]) -> Iterator[Difference]:
    """The aliases that mean another build in the script than in stored rows; where the target has columns named after
    aliases, all aliases that differ."""
    there = {alias: place for place, alias in enumerate(stored)}
    in_columns = insert.proof and len(insert.joins) > 1
    for place, join in enumerate(insert.joins[: len(stored)]):
        if join.alias != stored[place] and (in_columns or there.get(join.alias, place) != place):
            yield Difference(insert_owner(insert.id), f"alias of {join.build}", stored[place], join.alias, True)


def _tables_differ(lake: Lake, pipeline: Pipeline, insert: Insert) -> bool:
    """Whether a script changes a table that an INSERT reads in a way that the lake would refuse. Options whose values
    come from variables may differ, as for `declares`."""
    definitions = Definitions(lake, pipeline, os.environ, system_clock)
    variable = {name: from_variables(pipeline.table(name)) for name in insert.inputs}
    return any(
        item.refused and item.owner in variable and not item.what.endswith(variable[item.owner])
        for item in definitions.differences()
    )


def as_stored(lake: Lake, pipeline: Pipeline) -> tuple[Pipeline, list[str]]:
    """For commands that only read: the pipeline, with the lake's definition of each table and INSERT whose change is
    refused; and one line for each of them."""
    changes: list[str] = []
    pipeline, _ = covered(lake, pipeline)
    script = pipeline
    differing = Definitions(lake, pipeline, os.environ, system_clock).differences()
    owners = dict.fromkeys(item.owner for item in differing if item.refused)
    for owner in sorted(owners, key=lambda owner: insert_of(owner) is None):
        name = insert_of(owner)
        if name is None:
            table = stored_table(lake, script, owner)
            if table is None:
                continue
            pipeline = replace(pipeline, tables={**pipeline.tables, owner: table})
        else:
            stored = as_defined(lake, pipeline, name) if any(item.id == name for item in pipeline.inserts) else None
            if stored is None or stored is pipeline:
                continue
            inserts = tuple(stored.insert(name) if insert.id == name else insert for insert in pipeline.inserts)
            own = {table.name: as_given(table, script.tables.get(table.name)) for table in stored.tables.values()}
            read = {table.name: table for table in pipeline.sources}
            pipeline = replace(pipeline, tables={**pipeline.tables, **own, **read}, inserts=inserts)
        changes.append(f"{named(owner)} is read as the lake defines it: the script defines it differently")
    return pipeline, changes
