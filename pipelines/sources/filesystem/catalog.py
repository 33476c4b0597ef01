"""The files that a generation of a table has taken up, in the order in which it reads them.

They are rows of the lake's `splits` table: a file is taken up once, with its size and time, and keeps its number. As
long as nothing of it has landed it may be mended: it is read as it is when it is read, and its row says so before; one
that is gone by then is forgotten. Afterwards it must stay as it was.

A file of the same name, size and time can be another one all the same (tools that copy or unpack set the time): where
the file system says that it was touched since, a digest of its ends is compared. The other way round a copy of the
folder has other times and inodes: a file whose digest covers all of it is the same if that is, and its row is restated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from tidegate.pipelines.commands import or_else, resnapshot
from tidegate.pipelines.connectors.protocol import Json, SplitStore
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.filesystem.listing import File, Folder, in_future, settled


class Catalog:
    """The known files of one table. Reads the store once, and then tracks what it adds."""

    def __init__(
        self, folder: Folder, splits: SplitStore, settle_ms: int, now: Callable[[], float] = time.time
    ) -> None:
        self._folder, self._splits, self._settle_ms, self._now = folder, splits, settle_ms, now
        self._files: list[File] | None = None
        self._compared: dict[str, File] = {}
        self._as_they_were: set[tuple[int, int]] = set()
        self._is_copy = False

    def __len__(self) -> int:
        return len(self.files)

    @property
    def files(self) -> list[File]:
        """All files that were taken up, by their numbers from 0; FORGOTTEN where one was gone before it was read."""
        if self._files is None:
            found = {row["ordinal"]: _file(row["split"], row["detail"]) for row in self._splits.rows()}
            self._files = [found.get(number, FORGOTTEN) for number in range(max(found, default=-1) + 1)]
        return self._files

    def same_folder(self, before: Json | None, landed: int) -> None:
        """Raise SourceError if another folder lies at the path than the one that was read. `before`: that folder's id;
        of the first `landed` files the rows have landed. A copy has files that were read, and counts as the same."""
        if before is None or not any(file != FORGOTTEN for file in self.files[:landed]):
            return
        now = self._folder.id()
        if now is None or same_id(before, now):
            return
        if not self.has_what_was_read():
            raise self._folder.error(
                f"is another one than was read: none of the {len(self.files):,} files that were taken up is in it",
                or_else(
                    "put the old folder back, or one of its files; or read this one on another lake (--lake DIR)",
                    resnapshot(self._folder.table, "reads this folder instead"),
                ),
            )
        self._is_copy = True

    def has_what_was_read(self) -> bool:
        """Whether a file that was taken up lies in the folder, as it was."""
        return any(self._is_as_it_was(file, self._folder.now(file.name)) for file in self.files if file != FORGOTTEN)

    def _is_as_it_was(self, before: File, now: File | None) -> bool:
        """Whether a file is as it was, as far as its size and its time tell, or its size and its ends."""
        if now is None or before.size != now.size:
            return False
        return before.modified == now.modified or (before.size > 0 and before.sample == self._folder.sample(now))

    def same_pattern(self, landed: int) -> None:
        """Raise SourceError if the files that were read are there, and the pattern, which goes by whole paths, matches
        none of them where the folder lies now."""
        files = (file for file in self.files[:landed] if file != FORGOTTEN)
        there = [self._folder.full(file.name) for file in files if self._folder.now(file.name) is not None]
        if there and not any(map(self._folder.matches, there)):
            raise self._folder.error(
                "was moved, and 'source.path.regex-pattern', which goes by the whole path, matches none of the files "
                f"that were read, such as {there[0]}",
                "write the pattern for the new place (.*/NAME holds for any), and run again",
            )

    def take_up(self, landed: int) -> list[str]:
        """Take up the finished files that are new; returns the names of those that are not finished yet. Of the first
        `landed` files the rows have landed.

        Raises SourceError for one of these that has changed or was renamed since, and for a new one in a
        folder that is no partition of the table, or with a time in the future; then no file is taken up.
        """
        new: list[File] = []
        waiting: list[str] = []
        now = self._now()
        moved: dict[int, File] = {}
        for file in self._unknown(landed, moved):
            if in_future(file, now):
                raise self._ahead(file, now)
            if settled(file, self._settle_ms, now):
                self._folder.values(file.name)
                new.append(replace(file, sample=self._folder.sample(file)))
            else:
                waiting.append(file.name)
        self._restate(moved)
        if new:
            first = len(self.files)
            rows = [_row(file, first + place) for place, file in enumerate(new)]
            before = {row["split"] for row in self._splits.rows()}
            self._splits.add([row for row in rows if row["split"] not in before])
            # Of a file that was forgotten, and is there again.
            self._splits.restate([row for row in rows if row["split"] in before])
            self._files = [*self.files, *new]
        return waiting

    def _restate(self, moved: Mapping[int, File]) -> None:
        """Store landed files that are the same and lie elsewhere, or were touched, as they are now."""
        if moved:
            self._splits.restate([_row(file, number) for number, file in moved.items()])
            self._files = [moved.get(number, file) for number, file in enumerate(self.files)]

    def _unknown(self, landed: int, moved: dict[int, File] | None = None) -> Iterator[File]:
        """The files of the folder that were not taken up, in order, each by one name: links to a file that is there
        under another name are ignored. `moved` gets landed files that are the same and have another inode or time, by
        their numbers. Raises SourceError."""
        known = {file.name: file for file in self.files if file != FORGOTTEN}
        read = {file.name: number for number, file in enumerate(self.files[:landed]) if file != FORGOTTEN}
        listed = self._folder.files()
        there = {file.name for file in listed}
        names: dict[tuple[int, int], str] = {}
        for file in listed:
            if file.name in known:
                if file.name in read:
                    before = known[file.name]
                    self.check(before, file)
                    if moved is not None and not before.untouched(file):
                        moved[read[file.name]] = replace(file, sample=before.sample)
                names[file.device, file.inode] = file.name
        gone: dict[tuple[int, int], list[File]] = {}
        for name, file in known.items():
            if name in read and name not in there:
                gone.setdefault((file.size, 0 if self._is_copy else file.modified), []).append(file)
        for file in listed:
            if file.name in known:
                continue
            first = names.setdefault((file.device, file.inode), file.name)
            if first != file.name:
                self._check_link(first, file.name)
                continue
            alike = gone.get((file.size, 0 if self._is_copy else file.modified), ())
            before = next((other for other in alike if self._was_renamed(other, file)), None)
            if before is not None:
                raise self._folder.error(
                    f"is {before.name}, which was taken up already: it was renamed or moved, and is not read again",
                    f"mv {self._folder.full(file.name)} {self._folder.full(before.name)}   (or move it out of the "
                    "folder, or leave it out by 'source.path.regex-pattern')",
                    name=file.name,
                )
            yield file

    def _was_renamed(self, before: File, now: File) -> bool:
        """Whether a new file is one that was read, under another name. In a copy the bytes tell alone."""
        return before.is_still(now) or (
            self._is_copy and now.size > 0 and bool(before.sample) and before.sample == self._folder.sample(now)
        )

    def _check_link(self, first: str, second: str) -> None:
        """Two names of one file mean the same rows, unless their folders are of other partitions."""
        if self._folder.values(first) != self._folder.values(second):
            raise self._folder.error(
                f"is the same file as {first}, in the folders of another partition",
                "copy the file in place of the link, or leave it out by 'source.path.regex-pattern'",
                name=second,
            )

    def _ahead(self, file: File, now: float) -> SourceError:
        at = datetime.fromtimestamp(file.modified // 1_000_000_000, UTC)
        return self._folder.error(
            f"has a time in the future, {at:%Y-%m-%d %H:%M:%S} UTC: whether it is finished cannot be seen by that",
            f"touch {self._folder.full(file.name)}   (or set this machine's clock)",
            name=file.name,
        )

    def holds(self, file: File, stop: int) -> bool:
        """Whether one of the first `stop` files is `file`, by whatever name."""
        return any(known.name == file.name or known.is_still(file) for known in self.files[:stop])

    def left(self, stop: int) -> list[File]:
        """The finished files of the folder after the first `stop`, and those whose time is in the future; takes none
        up. Raises SourceError."""
        now = self._now()
        names = (file.name for file in self.files[stop:] if file != FORGOTTEN)
        taken = [file for file in map(self._folder.now, names) if file is not None]
        found = [file for file in self._unknown(stop) if settled(file, self._settle_ms, now) or in_future(file, now)]
        return [*taken, *found]

    def wait(self, names: Sequence[str], sleep: Callable[[float], None] = time.sleep) -> None:
        """Wait until the named files have not been written to for the settle time, but not longer than that time."""
        changed = [file.modified / 1e9 for name in names if (file := self._folder.now(name)) is not None]
        if changed:
            rest = max(changed) + self._settle_ms / 1000 - self._now()
            sleep(min(max(rest, 0), self._settle_ms / 1000) + 0.01)

    def check(self, before: File, now: File) -> None:
        """Raise SourceError unless a file is as it was when it was taken up."""
        other_time = before.modified != now.modified
        if before.size != now.size or (other_time and not before.sampled_whole):
            what = (
                f"changed after it was taken up: {before.size} bytes then, {now.size} now, "
                f"{(now.modified - before.modified) / 1e9:+.3f} s in its time"
            )
        elif self._has_other_bytes(before, now):
            time = "another time" if other_time else "the same time"
            what = f"changed after it was taken up: it has other bytes now, though as many, and {time}"
        else:
            return
        again = "put the old file back and write changes into a new one"
        if before.size == now.size and other_time and not before.sampled_whole:
            # Of a large file the digest leaves the middle out: that it is a copy, its reader has to say.
            at = f"{before.modified // 1_000_000_000}.{before.modified % 1_000_000_000:09d}"
            again = f"if it is a copy: touch -d @{at} {self._folder.full(now.name)}; if not, {again}"
        raise self._folder.error(
            what,
            or_else(
                again,
                resnapshot(self._folder.table, "reads all files anew"),
            ),
            name=before.name,
        )

    def _has_other_bytes(self, before: File, now: File) -> bool:
        """Whether the ends of a file are others, where it was touched since it was taken up, or compared."""
        if not before.sample or before.untouched(now) or self._compared.get(now.name, before).untouched(now):
            return False
        if self._folder.sample(now) not in ("", before.sample):
            return True
        self._compared[now.name] = now
        return False

    def as_they_are(self, start: int, stop: int) -> list[File]:
        """The files of a step of which nothing has landed, as they are at the first call: stored as such, before they
        are read. Raises SourceError for one that is written to."""
        files = self.files
        if (start, stop) in self._as_they_were:
            return files[start:stop]
        changed: list[Json] = []
        for number in range(start, stop):
            before = files[number]
            now = None if before == FORGOTTEN else self._now_finished(before.name)
            if before == FORGOTTEN or (now and before == now and not self._has_other_bytes(before, now)):
                continue
            file = FORGOTTEN if now is None else replace(now, sample=self._folder.sample(now))
            changed.append(_row(file, number, name=before.name))
            files[number] = file
        if changed:
            self._splits.restate(changed)
        self._as_they_were.add((start, stop))
        return files[start:stop]

    def _now_finished(self, name: str) -> File | None:
        """A file as it is now, nothing having been written to it for the settle time, which is waited for once."""
        now = self._folder.now(name)
        if now is not None and not settled(now, self._settle_ms, self._now()):
            self.wait([name])
            now = self._folder.now(name)
        if now is not None and not settled(now, self._settle_ms, self._now()):
            raise self._folder.error(
                "was taken up, and is written to again", "run again when it is finished", name=name
            )
        return now


def same_id(before: Json, now: Json) -> bool:
    """Whether two ids of folders are of one; what one of them lacks is not compared."""
    return all(before[name] == now[name] for name in before if None not in (before[name], now[name]))


FORGOTTEN = File("", 0, 0)
"""In the place of a file that was gone before it was read."""


def _file(name: str, detail: Json) -> File:
    if detail.get("gone"):
        return FORGOTTEN
    more = {key: detail[key] for key in ("inode", "touched", "sample") if key in detail}
    return File(name, detail["size"], detail["modified"], **more)


def _row(file: File, number: int, *, name: str = "") -> Json:
    """A file's row of the `splits` table; that of one that is FORGOTTEN has the `name` that it had."""
    detail: Json = {"kind": "file", "size": file.size, "modified": file.modified, "inode": file.inode}
    detail |= {"touched": file.touched, "sample": file.sample} if file != FORGOTTEN else {"gone": True}
    return {"split": file.name or name, "ordinal": number, "detail": detail}
