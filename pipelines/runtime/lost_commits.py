"""Tables that came back from an older backup, and rows that another writer has taken out. An epoch is committed to
several tables, one after the other, so a later commit shows that an earlier one is missing:

    a source     plan (epochs) -> rows (its table) -> watermark log
    an INSERT    plan (epochs) -> staged -> verdict -> quarantine, second output, state -> target

Without this check a plan would be made again over rows that are there already, and a build would be joined without the
rows that are gone. They have to come back from a backup: nothing is guessed. A power cut takes no commit
(`pipelines/location.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from tidegate.pipelines.commands import NextCommand, either, resnapshot
from tidegate.pipelines.connectors.table import Table
from tidegate.pipelines.errors import LakeError
from tidegate.pipelines.generations import generation_of, insert_of, insert_owner
from tidegate.pipelines.lake import Lake, delta_log
from tidegate.pipelines.lake.delta_log import committed
from tidegate.pipelines.lake.lake import Layout
from tidegate.pipelines.lake.publishers import applications
from tidegate.pipelines.lake.stream import Generation, Stream
from tidegate.pipelines.location import Address, Location
from tidegate.pipelines.runtime.epochs import ReleasePlan, Taken
from tidegate.pipelines.runtime.ledger import all_done, removed_rows
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.sql.model import Insert, ProcessInsert
from tidegate.pipelines.text import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def refuse_lost_source(lake: Lake, table: str, generation: int) -> None:
    """Raise LakeError if a commit of a source table's generation is missing on which later ones depend; called before
    anything new is planned."""
    if _new(lake):
        return
    stream, planned = Stream(lake, table), lake.epochs.last(table, generation)
    own, known = stream.generation(generation), planned.epoch if planned else 0
    landed, rows = own.last, own.committed
    log = lake.logs.of(table)
    if rows > known:
        raise _lost(log.path, f"the plan of epoch {rows} of {table}", "its rows are there")
    # Where there is no table at all, no single commit was lost: the counts of rows show it, once they are released.
    if landed is not None and landed.rows and rows < landed.epoch and stream.table is not None:
        what = f"{counted(landed.rows, 'row')} of {table}, of epoch {landed.epoch}"
        raise _lost(stream.path, what, "the watermark log has them", _anew(table))


def refuse_other_lake(lake: Lake, pipeline: Pipeline) -> None:
    """Raise LakeError if this lake has no plan of a table or an INSERT, and another lake has committed rows of that
    table, or of whichever INSERT to that target.

    It would begin at the first row, so that every row were there twice, and would remove the other lake's files as
    those of a crashed attempt.
    """
    own = "" if _new(lake) else lake.id
    for table in pipeline.sources:
        path = Stream(lake, table.name).path
        made = applications(delta_log.opened(path)) if lake.epochs.last(table.name) is None else ()
        if any(by != own and (owner, role) == (table.name, "data") for by, owner, role in made):
            raise _other_lake(lake, table.name, path, "landed")
    for insert in pipeline.inserts:
        for name in insert.outputs if lake.epochs.last(insert_owner(insert.id)) is None else ():
            path = lake.target_path(pipeline.table(name))
            made = applications(delta_log.opened(path))
            if others := [owner for by, owner, role in made if by != own and role == "publish"]:
                raise _other_lake(lake, name, path, f"published by {insert_of(others[0])}")


def _other_lake(lake: Lake, name: str, path: Location, how: str) -> LakeError:
    inside = str(path).startswith(f"{lake.root}/")
    return LakeError(
        f"{name} holds rows {how} under another lake's name, and {lake.root} has no plan of them: it would begin at "
        "the first row, so that rows were there twice",
        where=str(path),
        state="nothing was changed",
        next_command=f"bring {lake.control} back from a backup, then run the same command again"
        if inside
        else either(
            NextCommand("run", ("--lake", "DIR"), "on the lake that has published them"),
            f"give {name} another 'path'",
        ),
    )


def refuse_lost_insert(lake: Lake, insert: str, target: Location) -> None:
    """Raise LakeError if a commit of the INSERT called `insert` is missing on which later ones depend, or one of its
    target that cannot be made again from the newest epoch's files; called before anything new is planned."""
    if _new(lake):
        return
    owner = insert_owner(insert)
    plan, generation, log = lake.epochs.last(owner), generation_of(insert), lake.logs.of(owner)
    steps = [
        (plan.epoch if plan else -1, log.path, "plan"),
        (log.version(lake.application(owner, "stage", generation)), log.path, "row of staged files"),
        (log.version(lake.application(owner, "verdict", generation)), log.path, "verdict"),
        (committed(target, lake.application(owner, "publish", generation)), target, "publishing"),
    ]
    for place, (epoch, path, what) in enumerate(steps):
        later = max(steps[place + 1 :], default=(-1, path, ""), key=lambda step: step[0])
        if later[0] > epoch:
            raise _lost(path, f"the {what} of epoch {later[0]} of {insert}", f"the {later[2]} of that epoch is there")
    published = steps[-1][0]
    if plan is None or published >= plan.epoch - 1:
        return
    # The newest plan is made only once every epoch before it that passed is published.
    earlier = lake.verdicts.newest_first(owner, generation=generation, upto=plan.epoch - 1)
    passed = next((row.epoch for row in earlier if row.passed), -1)
    if published < passed:
        raise _lost(
            target, f"the rows of epoch {passed} of {insert}", "later epochs were planned after it was published"
        )


def refuse_restored(lake: Lake, pipeline: Pipeline, insert: Insert, targets: Sequence[Table]) -> None:
    """Raise LakeError where the quarantine of an output has fewer rows than published epochs have put there, and
    retention has left: RESTORE takes rows out and leaves the transactions, so no commit is missing."""
    done = all_done(lake, insert.id, lake.target_path(targets[0]))
    if isinstance(insert, ProcessInsert):
        kept = [each.quarantined for each in done.processed.given]
    else:
        all_rows = sum(done.quarantined.values()) + sum(done.released_again.values())
        kept = [all_rows - removed_rows(lake, pipeline, insert, done)]
    for target, rows in zip(targets, kept, strict=False):
        path = lake.quarantine_path(target, insert)
        there = delta_log.logged_rows(path)
        if there is not None and there < rows:
            raise LakeError(
                f"the quarantine of {insert.id} lacks {counted(rows - there, 'row')} that published epochs have put "
                "there: another writer has taken them out (RESTORE or DELETE)",
                where=str(path),
                state="nothing was planned or released; what is published stays",
                next_command=f"in Spark: DESCRIBE HISTORY delta.`{path}`, then RESTORE it to the last version before "
                "that; or bring it back from a backup",
            )


def lost_part(insert: str, path: Location, epoch: int) -> LakeError:
    """The error for a table beside a target (a quarantine, a second output, the state of a process) that lacks what its
    last published epoch had committed to it before the target."""
    return _lost(path, f"what epoch {epoch} of {insert} had put there", "that epoch is published")


def refuse_lost_files(lake: Layout, target: Table, insert: Insert) -> None:
    """Raise LakeError if somebody has removed the folder where files of a target are staged, and stay."""
    path, folder = lake.target_path(target), lake.staged_paths(target, insert)["publish"]
    table = None if folder.is_there() else delta_log.opened(path)
    if table is None:
        return
    own = [file for path, file in table.files.items() if path.startswith(f"{folder.below(table.root)}/")]
    if gone := [file for file in own if not table.place(file).is_there()]:
        raise LakeError(
            f"the folder of its data was removed, and {len(gone):,} of the {len(table.files):,} files of the published "
            "table with it",
            where=str(folder),
            state="nothing was planned or released",
            next_command=f"bring {folder} back from a backup, then run the same command again",
        )


def refuse_lost_rows(lake: Lake, spark: Callable[[], SparkSession], plan: ReleasePlan, pipeline: Pipeline) -> None:
    """Raise LakeError if rows of a build that landed up to the plan's pin are not in its table, though retention has
    not removed them. A discard is exempt, as it joins nothing."""
    for pin in plan.pins if not plan.discards else ():
        build = Stream.of(lake, pipeline, pin.table)
        missing = lost_rows(build.generation(pin.generation), spark, pin.epoch)
        if missing:
            what = f"{counted(missing, 'row')} of {pin.table} up to epoch {pin.epoch}"
            or_else = _anew(pin.table) if build.output is None else None
            raise _lost(build.path, what, "the watermark log has them", or_else)


def refuse_lost_waiting(
    insert: str, probe: Stream, spark: Callable[[], SparkSession], everything: Taken, waiting: int
) -> None:
    """Raise LakeError if the table of a probe lacks rows that landed up to an epoch and that `insert` never released.

    Args:
        everything: All that is left of them, whatever its time; `waiting` rows by the counts of the control tables.

    An event-time release counts its rows in that table, so nothing else would show that some are gone.
    """
    if not lost_rows(probe.generation(everything.generation), spark, everything.upto):
        return
    there, _ = everything.releasable.measured(probe.path, spark)
    if there < waiting:
        what = f"{counted(waiting - there, 'row')} of {probe.name} that {insert} has not released"
        raise _lost(probe.path, what, "the watermark log has them")


def lost_rows(own: Generation, spark: Callable[[], SparkSession], upto: int) -> int:
    """How many rows of a table landed up to an epoch by the watermark log, and are neither in its table nor removed by
    retention."""
    table, removed = own.stream.table, own.removed
    landed = own.landed(0, upto)
    if landed == 0:
        return 0
    if table is None:
        there = 0
    else:
        there = _there(own, table.version, upto)
        if there is None:
            there = own.at(spark(), upto).count()
    return max(landed - there - removed.rows, 0)


@lru_cache(maxsize=256)
def _there(own: Generation, version: int, upto: int) -> int | None:
    """The rows of a pin in a table whose newest version is `version`; None if its files alone do not give them."""
    return own.there(upto)


def _new(lake: Lake) -> bool:
    """Whether nothing was ever planned in a lake; reading it does not create it."""
    return lake.logs.lake.refresh() is None


def _anew(table: str) -> NextCommand:
    return resnapshot(table, "reads it anew")


def _lost(path: Address, what: str, known: str, or_else: NextCommand | None = None) -> LakeError:
    restored = f"bring {path}/_delta_log back from a backup"
    table = delta_log.opened(path)
    cause = (
        "the last commits of a table are gone (it came back from an older backup, or its disk lost what was synced)"
        if table is None or table.plain
        else "another writer has deleted or changed rows of a table (it has deletion vectors or column mapping)"
    )
    return LakeError(
        f"the lake has lost {what}, though {known}: {cause}",
        where=str(path),
        state="nothing was planned or released; what is published stays",
        next_command=restored if or_else is None else either(restored, or_else),
    )
