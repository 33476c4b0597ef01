"""Publishing without writing again: one commit adds Parquet files that already lie in the table's folder."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction

from tidegate.pipelines.clock import system_clock
from tidegate.pipelines.commands import STATUS, NextCommand
from tidegate.pipelines.errors import ConcurrentRun, LakeError
from tidegate.pipelines.lake.by_name import DataFile, TableState
from tidegate.pipelines.lake.commits import Removal, commit, until_committed
from tidegate.pipelines.lake.delta_log import damage_reported, data_files, opened
from tidegate.pipelines.lake.publishers import refuse_other_publisher, refuse_swapped
from tidegate.pipelines.lake.records import StagedFile
from tidegate.pipelines.lake.statistics import Skipping, of_footer
from tidegate.pipelines.location import Address, Location, durable
from tidegate.pipelines.parquet import write_file
from tidegate.pipelines.text import counted

REWRITES = 5
"""How often a commit that replaces files is tried when other writers change the table meanwhile."""

TRIES = 50
"""How often a commit that only adds files is tried when other writers are faster."""


WHEN_QUIET = "run the same command again when nothing else writes to the table (OPTIMIZE above all)"


def survey(folder: Address, names: Sequence[str] | None = None) -> list[StagedFile]:
    """The Parquet files of one write, with row counts and statistics from their footers: all files in the folder, or
    `names` if others may lie beside them that must not be adopted. They are durable then, so that a commit may name
    them.

    `disposition` is what the files were partitioned by; empty where they were not.
    """
    return synced(folder, surveyed(folder, footers_of(folder, names)))


def synced(folder: Address, files: Sequence[StagedFile]) -> list[StagedFile]:
    """`files` of `folder`, made durable."""
    places = [Location(folder) / file.path for file in files]
    for place in places:  # Spark's sum of a file is not synced: cut short by a power cut, Spark would not read the file
        (place.parent / f".{place.name}.crc").delete()
    durable(places)
    return list(files)


def footers_of(folder: Address, names: Sequence[str] | None = None) -> dict[str, pq.FileMetaData]:
    """The footers of the files that `survey` takes, by path in the folder."""
    place = Location(folder)
    if names is None:
        names = [file.below(place) for file in place.files(".parquet")]
    return {name: (place / name).footer() for name in names}


def surveyed(folder: Address, footers: Mapping[str, pq.FileMetaData]) -> list[StagedFile]:
    """What `survey` returns, for footers that were read before. The files are not durable yet (see `synced`)."""
    return [
        StagedFile(
            path=path,
            disposition=path.partition("/")[0].partition("=")[2] if "/" in path else "",
            size=(Location(folder) / path).size(),
            rows=footer.num_rows,
            stats=of_footer(footer),
        )
        for path, footer in footers.items()
    ]


@dataclass(frozen=True)
class Epochs:
    """Epochs of one generation, as the first and last of each run of consecutive ones. `rows`: how many rows of them
    are in the table, by what was staged; None if that is not known."""

    generation: int
    spans: Sequence[tuple[int, int]]
    rows: int | None = None

    def holds(self) -> pc.Expression:
        """Whether a row belongs to one of them, as an Arrow expression."""
        found = pc.scalar(False)
        for first, last in self.spans:
            found = found | ((pc.field("_epoch") >= first) & (pc.field("_epoch") <= last))
        return found & (pc.field("_generation") == self.generation)


def adopt(
    table: Address,
    folder: Address,
    files: Sequence[StagedFile],
    *,
    application: str,
    epoch: int,
    instead_of: Epochs | None = None,
) -> int:
    """Commit `files` (paths relative to `folder`, which lies inside `table`) to the table, once. The same commit takes
    out the rows of the epochs that they come `instead_of`.

    Returns the rows added; 0 when this very epoch was committed before. Raises LakeError when a staged file is gone, or
    of another size than it was, ConcurrentRun when a later epoch is there.
    """
    if instead_of is not None and not instead_of.spans:
        instead_of = None
    tries = TRIES if instead_of is None else REWRITES
    try:
        return until_committed(_adopted, table, folder, files, application, epoch, instead_of, attempts=tries)
    except CommitFailedError as error:
        raise ConcurrentRun(
            f"the table changed {counted(tries, 'time')} while epoch {epoch} was being "
            + ("added to it" if instead_of is None else "put in the place of others"),
            where=str(table),
            state="it is staged and judged, and not in this table",
            next_command=WHEN_QUIET,
        ) from error


def _adopted(
    table: Address,
    folder: Address,
    files: Sequence[StagedFile],
    application: str,
    epoch: int,
    instead_of: Epochs | None,
) -> int:
    delta = there(table)
    refuse_swapped(delta, application)
    last = delta.committed(application)
    if last > epoch:
        raise ConcurrentRun(
            f"epoch {last} was published while epoch {epoch} was being published",
            where=str(table),
            state="the later epoch stands, this one was not added",
            next_command=STATUS,
        )
    if last == epoch:
        return 0
    refuse_other_publisher(delta, application)
    require_whole(folder, files, epoch)
    actions: list[AddAction | Removal] = [*additions(delta, folder, files)]
    if instead_of is not None:
        old, remaining = without(delta, folder, instead_of)
        actions += [*additions(delta, folder, remaining), *map(Removal, old)]
    commit(delta, actions, marks={application: epoch}, note=f"epoch {epoch}")
    found = there(table).committed(application)
    if found != epoch:
        raise ConcurrentRun(
            f"epoch {epoch} was committed, but the table now stands at {found}",
            where=str(table),
            state="another runner wrote at the same time",
            next_command=STATUS,
        )
    return sum(file.rows for file in files)


def there(path: Address) -> TableState:
    """The table at `path` as it is now. Raises LakeError where there is none."""
    table = opened(path)
    if table is None:
        raise LakeError(
            "there is no table",
            where=str(path),
            state="nothing was committed",
            next_command=f"bring {path} back from a backup, then run the same command again",
        )
    return table


def require_whole(folder: Address, files: Sequence[StagedFile], epoch: int) -> None:
    """Raise LakeError unless each of `files` is in `folder` with the size that was written: what was judged is what is
    published."""
    place = Location(folder)
    missing = [file.path for file in files if not (place / file.path).is_there()]
    changed = [file.path for file in files if not missing and (place / file.path).size() != file.size]
    for paths, what in ((missing, "are gone"), (changed, "are not as long as they were written")):
        if paths:
            raise LakeError(
                f"{len(paths)} staged files of epoch {epoch} {what} ({paths[0]})",
                where=str(folder),
                state="nothing of this epoch was published",
                next_command="bring the files back from a backup, then run the same command again",
            )


def replace(
    table: Address,
    folder: Address,
    files: Sequence[StagedFile],
    old: Sequence[DataFile],
    *,
    note: str,
    marks: Mapping[str, int] | None = None,
    same_rows: bool = False,
    later: Sequence[Mapping[str, Any]] = (),
) -> None:
    """One commit that replaces the table's files `old` by `files`, and stores `marks` (application -> version). The
    caller makes sure that nobody else writes to the table. `same_rows`: the new files hold the very rows of the old
    ones, so a reader that follows the table has nothing new to read. `later`: columns that the new files have, and the
    table gets next (as its log will have them)."""
    delta = there(table)
    removals = [Removal(file, news=not same_rows) for file in old]
    added = additions(delta, folder, files, news=not same_rows, later=later)
    commit(delta, [*added, *removals], marks=marks, note=note)


def without(delta: TableState, folder: Address, epochs: Epochs) -> tuple[list[DataFile], list[StagedFile]]:
    """The table's files that hold rows of these epochs; and files with their other rows, written in `folder`. (OPTIMIZE
    puts rows of several epochs into one file.)"""
    require_plain(delta, "nothing of this epoch was published")
    spans = [data_files(delta, epochs.generation, first - 1, last).files for first, last in epochs.spans]
    found = dict.fromkeys(file for files in spans for file in files)
    rest, taken, old, there = Location(folder) / f"kept-{uuid.uuid4().hex[:8]}", epochs.holds(), list[DataFile](), 0
    with damage_reported(delta.root, "bring the table's files back from a backup, then run the same command again"):
        for number, file in enumerate(found):
            rows = delta.rows([file])
            going = rows.count_rows(filter=taken)
            there += going
            if going:
                old.append(file)
                write_file(rest / f"{number}.parquet", rows.to_batches(filter=~taken))
    if epochs.rows is not None and there != epochs.rows:
        raise LakeError(
            f"the table has {counted(there, 'row')} of epochs that published {epochs.rows:,}, not all this INSERT's",
            where=str(delta.root),
            state="nothing of this epoch was published; no row was taken out",
            next_command=NextCommand("verify", does="an INSERT that once had another 'insert.id' cannot be backfilled"),
        )
    remaining = survey(rest) if rest.is_there() else []
    return old, [dataclasses.replace(file, path=f"{rest.name}/{file.path}") for file in remaining]


def require_plain(table: TableState, state: str) -> None:
    """Raise LakeError where a table's files alone do not give its rows; `state` is what the error says of the state."""
    if not table.plain:
        raise LakeError(
            "the table's files are not plain Parquet any more (deletion vectors or column mapping)",
            where=str(table.root),
            state=state,
            next_command="REORG TABLE … APPLY (PURGE) in Spark, then run the same command again",
        )


def additions(
    delta: TableState,
    folder: Address,
    files: Sequence[StagedFile],
    *,
    news: bool = True,
    later: Sequence[Mapping[str, Any]] = (),
) -> list[AddAction]:
    """The `add` actions for files in `folder`, which lies inside the table's own. `news`: their rows are new to it;
    `later`: see `replace`."""
    skipping, now = Skipping.of(delta, later), system_clock()
    return [
        AddAction(
            path=(Location(folder) / file.path).below(delta.root),
            size=file.size,
            partition_values={},
            modification_time=now,
            data_change=news,
            stats=skipping.statistics(file.stats, (Location(folder) / file.path).parquet),
        )
        for file in files
        if file.rows
    ]
