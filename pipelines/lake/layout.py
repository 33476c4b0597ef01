"""Where everything of a lake lies.

    <lake>/_control/{lake,table.<table>,insert.<insert>}                  one log an owner (`owner_log`)
    <lake>/_control/runners/<runner>                                      heartbeats
    <lake>/completeness                                                   how far all is complete, for any reader
    <lake>/tables/<table>                                                 landed rows, adopted by a commit
    <lake>/tables/<table>/_quarantine                                     what a source could not read as rows
    <lake>/targets/<target>                                               published rows, adopted by a commit
    <lake>/targets/<target>/_data/<insert>/<attempt>                      files of the target, once a commit names them
    <lake>/targets/<target>/_quarantine/<insert>                          quarantined rows, adopted by a commit
    <lake>/targets/<target>/_quarantine/<insert>/_staged/<attempt>        files of it, once a commit names them
    <lake>/targets/<target>/_generations/<n>                              the same of generation n of the INSERT, which
                                                                          publishes there until it is swapped in
    <lake>/state/<insert>                                                 the state of a process, adopted by a commit

An attempt at an epoch is staged inside of the tables that will adopt its files, in folders whose names start with `_`:
VACUUM of any engine passes over them, so that it deletes no file that waits for its verdict.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.pipelines.generations import FIRST, generation_of
from tidegate.pipelines.location import Address, Location
from tidegate.pipelines.paths import local, roots

if TYPE_CHECKING:
    from tidegate.pipelines.connectors.table import Table
    from tidegate.pipelines.sql.model import Insert

GENERATIONS = "_generations"
"""The folder of a target with the folders of its INSERTs' later generations."""

PUBLISHED = "_data"
"""The folder of a target with the folders of its INSERTs' published files."""


def beside(target: Location, generation: int) -> Location:
    """Where a generation publishes until it is swapped in. Its staged files and its quarantine lie there for good."""
    return target / GENERATIONS / str(generation)


@dataclass(frozen=True)
class Places:
    """Where the rows of one INSERT lie inside of its target's folder. `insert`: its id."""

    target: Location
    insert: str

    @classmethod
    def of_published(cls, path: Location) -> Places:
        """The places of the INSERT whose `published` is known."""
        own = path.parent.parent
        return cls(own if own.parent.name != GENERATIONS else own.parent.parent, path.name)

    @property
    def own(self) -> Location:
        """The folder of its generation: of the first one the target's."""
        number = generation_of(self.insert)
        return self.target if number == FIRST else beside(self.target, number)

    @property
    def published(self) -> Location:
        """Where its epochs stage the rows that they publish: their files stay there."""
        return self.own / PUBLISHED / self.insert

    @property
    def quarantine(self) -> Location:
        """The rows that its gate quarantined of the target."""
        return self.own / "_quarantine" / self.insert

    @property
    def staged(self) -> Location:
        """Where its epochs stage the rows that they quarantine."""
        return self.quarantine / "_staged"


class Layout:
    """Where a lake's tables lie. Makes and reads nothing. Raises PlanningError for a place that is no folder here."""

    def __init__(self, root: Address) -> None:
        self.root = Location(local(root, "the lake"))

    @property
    def completeness_path(self) -> Location:
        """How far each table and target is complete, for readers without Tidegate."""
        return self.root / "completeness"

    def table_path(self, table: str) -> Location:
        """The changelog of a build side, or the landed rows of a probe."""
        return self.root / "tables" / table

    def rejected_path(self, table: str) -> Location:
        """What the source of `table` could not read as rows."""
        return self.table_path(table) / "_quarantine"

    def target_path(self, target: Table) -> Location:
        """The table that is published to: the target's own or, for a generation beside it, one in a folder of it."""
        path = self.readers_path(target)
        return path if target.beside is None else beside(path, target.beside)

    def readers_path(self, target: Table) -> Location:
        """The target's table: its own 'path' option where a delta target has one, relative to the script's folder."""
        if path := target.options.get("path"):
            return Location(local(path, f"'path' of {target.name}", roots(target.home)[0]))
        return self.root / "targets" / target.name

    def quarantine_path(self, target: Table, insert: Insert) -> Location:
        """The rows that were quarantined of `target` by this INSERT's gate."""
        return Places(self.readers_path(target), insert.id).quarantine

    def staged_paths(self, target: Table, insert: Insert) -> dict[str, Location]:
        """Where this INSERT's epochs stage their rows, by the rows' disposition."""
        places = Places(self.readers_path(target), insert.id)
        return {"publish": places.published, "quarantine": places.staged}

    def new_attempt(self, target: Table, insert: Insert, attempt: str) -> dict[str, Location]:
        """The folders that an attempt at an epoch stages its rows in, by disposition."""
        return {disposition: path / attempt for disposition, path in self.staged_paths(target, insert).items()}

    def state_path(self, insert: Insert) -> Location:
        """The state of a process."""
        return self.root / "state" / insert.id

    def scratch(self, table: str) -> Path:
        """What belongs to a source table, or a file of a run: local, and lost at no cost."""
        return Path(self.root / "_scratch" / table)
