"""A place in a lake: a table's folder, its log, a file. Everything in a lake is opened, listed and written here.

There is one implementation, files of this machine. It offers only what an object store has too: whole files that are
written once, a put that fails if the name is taken, a listing with sizes and the storage's own times, a tag that
changes with the content. Scratch (spooled logs, version indexes) is no part of a lake: it is local and
memory-mapped.

What is put is durable: its content is synced before it gets its name, its folder and the folders above before the call
returns. What others write (Spark, Arrow, a task) is made `durable` before a commit names it. A commit is seen before
its folder is synced, and its writer may die in between: so whatever commit was found (`note_found`) is synced before
this process puts or deletes anything. On an object store a put that was answered is durable.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import threading
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:  # what only looks at a log does without
    import pyarrow as pa
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

Tag = tuple[int, int]
"""Changes whenever the file does: an object store's ETag; here inode and time of the last change (ns). It is compared,
never stored."""

UNFINISHED = "_commit_"
"""Prefix of a file that `put_new` has not given its final name yet. Readers of Delta Lake ignore such names."""

LISTED = 2_000
"""Names that are listed in one piece."""


SYNCED_AT_ONCE = 8
"""Files that are synced at the same time: a disk writes them together."""

AT_WORKING_DIRECTORY, RENAME_NOREPLACE = -100, 1
"""Constants of Linux for `renameat2`."""

NO_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EROFS}
"""The errors of a file system whose folders need no sync, or cannot be written at all."""

NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
"""The errors of a file system that has no hard links."""

Address: TypeAlias = "str | os.PathLike[str]"
"""What a Location can be made from; a Location itself is one."""


class Entry:
    """What a listing has of a file, or of a folder."""

    __slots__ = ("_found",)

    def __init__(self, found: os.DirEntry[str]) -> None:
        self._found = found

    @property
    def name(self) -> str:
        return self._found.name

    @property
    def location(self) -> Location:
        return Location(self._found.path)

    @property
    def is_folder(self) -> bool:
        return self._found.is_dir(follow_symlinks=False)


class Location:
    """A place in a lake. `str` is its address, for Spark and delta-rs. Raises OSError."""

    __slots__ = ("_at",)

    def __init__(self, address: Address) -> None:
        self._at = os.fspath(address)

    def __str__(self) -> str:
        return self._at

    def __repr__(self) -> str:
        return f"Location({self._at!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Location) and other._at == self._at

    def __hash__(self) -> int:
        return hash(self._at)

    def __fspath__(self) -> str:
        return self._at

    def __truediv__(self, below: str) -> Location:
        return Location(os.path.join(self._at, below))

    def shown(self) -> str:
        """As a person reads it: relative to the working directory where it lies in that."""
        return self._at.removeprefix(f"{os.getcwd()}/")

    @property
    def name(self) -> str:
        """The last part of the address."""
        return os.path.basename(self._at)

    def below(self, root: Location) -> str:
        """Its name relative to `root`, which it lies in. Raises ValueError where it does not."""
        if not self._at.startswith(root._at + "/"):
            raise ValueError(f"{self} does not lie in {root}")
        return self._at[len(root._at) + 1 :]

    @property
    def parent(self) -> Location:
        """The folder that it lies in."""
        return Location(os.path.dirname(self._at))

    # --- a file --------------------------------------------------------------------------------------------------

    def is_there(self) -> bool:
        """Whether the file exists, or the folder holds anything. Raises OSError if the storage does not say."""
        try:
            os.stat(self._at)
            return True
        except (FileNotFoundError, NotADirectoryError):
            return False

    def size(self) -> int:
        """Bytes."""
        return os.stat(self._at).st_size

    def tag(self) -> Tag | None:
        """See Tag; None where there is no file."""
        try:
            return _tag(os.stat(self._at))
        except FileNotFoundError:
            return None

    def written_before(self, moment: float) -> bool:
        """Whether the storage wrote it before `moment` (s, UTC); False if it is gone. Only meaningful for a file that
        no log names: a file that belonged to a table is as old as the commit that removed it."""
        with suppress(FileNotFoundError):
            return os.stat(self._at).st_mtime < moment
        return False

    def written_at(self) -> int | None:
        """When the storage wrote it (ms, UTC, by the storage's own clock); None where it is not there."""
        with suppress(FileNotFoundError):
            return os.stat(self._at).st_mtime_ns // 1_000_000
        return None

    def read(self) -> bytes:
        return self.read_tagged()[0]

    def read_tagged(self) -> tuple[bytes, Tag]:
        """The content, and the tag that it had."""
        with open(self._at, "rb") as file:
            return file.read(), _tag(os.fstat(file.fileno()))

    def write_now(self) -> int:
        """Write a file for its time, and return that (ms, UTC, by the storage's own clock). It is not durable: after a
        power cut nobody asks for it."""
        with open(self._at, "wb") as file:
            file.write(b".")
        return os.stat(self._at).st_mtime_ns // 1_000_000

    def put(self, content: bytes) -> None:
        """Write a file, whole or not at all, whatever was there before. It is durable then."""
        settle()
        with self._written_beside(content) as unfinished:
            os.replace(unfinished, self._at)
        _sync_folder(os.path.dirname(self._at))

    def put_new(self, content: bytes) -> None:
        """Write a file, whole or not at all. It is durable then. Raises FileExistsError if there is one."""
        settle()
        with self._written_beside(content) as unfinished:
            tag = _tag(os.stat(unfinished))
            try:
                os.link(unfinished, self._at)
            except OSError as error:
                if error.errno not in NO_LINKS:
                    raise
                _rename_new(unfinished, self._at)
        folder = os.path.dirname(self._at)
        _sync_folder(folder)
        with _lock:
            _synced[folder] = tag

    def put_instead(self, content: bytes, tag: Tag | None) -> bool:
        """Write a file, whole or not at all, in place of the one that had this tag (None: of none). False, and nothing
        is written, where another writer was faster or is at it now."""
        folder = os.open(os.path.dirname(self._at), os.O_RDONLY)
        try:
            with suppress(OSError):  # a file system without locks: a writer that pauses below may come late
                try:
                    fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    return False
            if self.tag() != tag:
                return False
            self.put(content)
            return True
        finally:
            os.close(folder)

    @contextmanager
    def _written_beside(self, content: bytes) -> Iterator[str]:
        """A file with this content in the same folder, under a temporary name that is gone after the block."""
        unfinished = os.path.join(os.path.dirname(self._at), f"{UNFINISHED}{uuid.uuid4().hex}.json.tmp")
        try:
            with open(unfinished, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            yield unfinished
        finally:
            with suppress(FileNotFoundError):
                os.unlink(unfinished)

    def fetched_to(self, folder: Address) -> None:
        """Give the file a name in a local folder, to be read only. The storage is local, so this is a hard link."""
        os.symlink(os.path.abspath(self._at), os.path.join(folder, self.name))

    def delete(self) -> bool:
        """Delete a file; False where there was none."""
        settle()
        with suppress(FileNotFoundError):
            os.unlink(self._at)
            return True
        return False

    def move(self, to: Location) -> Location:
        """Rename a file that no commit names yet, or a folder of such files; an object store would copy. An existing
        file of that name is replaced."""
        os.replace(self._at, to._at)
        return to

    # --- a Parquet file ------------------------------------------------------------------------------------------

    def parquet(self, footer: pq.FileMetaData | None = None) -> pq.ParquetFile:
        """The file, opened; with its `footer` where that is known."""
        import pyarrow.parquet as pq

        return pq.ParquetFile(self._at, metadata=footer)

    def footer(self) -> pq.FileMetaData:
        import pyarrow.parquet as pq

        return pq.read_metadata(self._at)

    def dataset(self) -> ds.Dataset:
        """Its rows, which are read batch by batch."""
        return dataset_of([str(self)])

    def row_groups(self, numbers: Sequence[int], dictionaries: Collection[str] = ()) -> ds.ParquetFileFragment:
        """Some of its row groups, which are read batch by batch; `dictionaries`: columns that come as such."""
        from pyarrow.fs import LocalFileSystem

        return _format(dictionaries).make_fragment(self._at, LocalFileSystem()).subset(row_group_ids=list(numbers))

    def write_parquet(self, rows: pa.Table, **options: Any) -> int:
        """Write a file that no commit names yet; its size (bytes). It is durable then."""
        import pyarrow.parquet as pq

        pq.write_table(rows, self._at, **options)
        durable([self])
        return self.size()

    def parquet_writer(self, schema: pa.Schema, **options: Any) -> pq.ParquetWriter:
        """Writes such a file, batch by batch; it is not durable (see `durable`)."""
        import pyarrow.parquet as pq

        return pq.ParquetWriter(self._at, schema, **options)

    # --- a folder ------------------------------------------------------------------------------------------------

    def make(self, mode: int = 0o777) -> None:
        """Make a folder and its parents if missing; nothing to do on an object store."""
        try:
            _anchored.pop(os.path.abspath(self._at), None)
            with suppress(FileNotFoundError):
                return os.mkdir(self._at, mode)
            _anchored.clear()
            os.makedirs(os.path.dirname(self._at), exist_ok=True)
            os.mkdir(self._at, mode)
        except OSError:  # it is there, perhaps by another process just now, or the disk may only be read
            if not os.path.isdir(self._at):
                raise

    def listed(self) -> Iterator[list[Entry]]:
        """What lies in a folder, LISTED names at a time; nothing, where it is gone."""
        try:
            with os.scandir(self._at) as entries:
                piece: list[Entry] = []
                for entry in entries:
                    piece.append(Entry(entry))
                    if len(piece) == LISTED:
                        yield piece
                        piece = []
            if piece:
                yield piece
        except FileNotFoundError:
            return

    def files(self, suffix: str = "") -> list[Location]:
        """All files below a folder whose names end so, by name; hidden ones too."""
        found = [os.path.join(folder, name) for folder, _, names in os.walk(self._at) for name in names]
        return [Location(path) for path in sorted(found, key=lambda path: path.split("/")) if path.endswith(suffix)]

    def delete_all(self, *, where_it_can: bool = False) -> None:
        """Delete a folder and its content. `where_it_can`: errors are ignored, for what nobody needs."""
        settle()
        _anchored.clear()
        shutil.rmtree(self._at, ignore_errors=where_it_can)

    def delete_if_empty(self) -> None:
        """Delete a folder if it is empty; an object store has no empty folders."""
        with suppress(OSError):
            os.rmdir(self._at)


# --- what outlives a power cut -----------------------------------------------------------------------------------

_synced: dict[str, Tag] = {}
"""By log: the tag of a commit that is durable, and those before it with it; the last that this process knows of."""
_found: dict[str, tuple[str, Tag]] = {}
"""By log: the file of the last commit that was found, and may not be durable yet."""
_anchored: dict[str, tuple[int, int]] = {}
"""Folders whose names are durable, with all folders above them, each with its device and inode."""
_lock = threading.Lock()


def durable(files: Iterable[Location]) -> None:
    """Sync files that were written by whomever, and the names of the folders that lead to them. Raises OSError."""
    paths = [file._at for file in files]
    if len(paths) > 1:
        with ThreadPoolExecutor(min(len(paths), SYNCED_AT_ONCE)) as pool:
            list(pool.map(_sync, paths))
    else:
        for path in paths:
            _sync(path)
    for folder in dict.fromkeys(map(os.path.dirname, paths)):
        _sync_folder(folder)


def note_found(commit: Location, tag: Tag) -> None:
    """Note that a commit was found in a log, by its file: it is durable before anything is put or deleted."""
    folder = os.path.dirname(commit._at)
    if _synced.get(folder) != tag:
        with _lock:
            _found[folder] = commit._at, tag


def settle() -> None:
    """Make durable what was found. Raises OSError."""
    while True:
        with _lock:
            first = next(iter(_found.items()), None)
        if first is None:
            return
        folder, (commit, tag) = first
        with suppress(FileNotFoundError, NotADirectoryError):  # it has left its log meanwhile
            _sync(commit)
            _sync_folder(folder)
        with _lock:
            _synced[folder] = tag
            if _found.get(folder) == (commit, tag):
                del _found[folder]


def _rename_new(path: str, name: str) -> None:
    """Give a file a name if no file has it, on a file system without hard links. Raises OSError."""
    renamed = ctypes.CDLL(None, use_errno=True).renameat2(
        AT_WORKING_DIRECTORY, os.fsencode(path), AT_WORKING_DIRECTORY, os.fsencode(name), RENAME_NOREPLACE
    )
    if renamed != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), name)


def _sync_folder(folder: str) -> None:
    """Sync the names in a folder; and its own and those of the folders above it, where that was not done before."""
    _sync(folder)
    here = os.path.abspath(folder)
    while (above := os.path.dirname(here)) != here:
        status = os.stat(here)
        if _anchored.get(here) == (status.st_dev, status.st_ino):
            return
        try:
            _sync(above)
        except PermissionError:  # it is somebody else's, and was there before
            return
        _anchored[here] = status.st_dev, status.st_ino
        here = above


def _sync(path: str) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno not in NO_SYNC:
            raise
    finally:
        os.close(opened)


def folders_in(place: Address) -> Iterator[Location]:
    """The folders in a folder, in no order."""
    for entries in Location(place).listed():
        yield from (entry.location for entry in entries if entry.is_folder)


def dataset_of(files: Sequence[str], schema: pa.Schema | None = None, dictionaries: Collection[str] = ()) -> ds.Dataset:
    """The rows of Parquet files of one schema, by their addresses, which are read batch by batch; `dictionaries`:
    columns that come as such."""
    import pyarrow.dataset as ds

    return ds.dataset(files, schema=schema, format=_format(dictionaries))


def parquet_of(rows: pa.Table) -> bytes:
    """The content of a Parquet file with these rows, which is put."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = pa.BufferOutputStream()
    pq.write_table(rows, file)
    return file.getvalue().to_pybytes()


def _format(dictionaries: Collection[str] = ()) -> ds.ParquetFileFormat:
    """How files are read batch by batch. Arrow would read ahead all row groups of a file that are wanted, undecoded, so
    that memory grew with the file; on a local disk that is no faster."""
    import pyarrow.dataset as ds

    return ds.ParquetFileFormat(
        read_options=ds.ParquetReadOptions(dictionary_columns=set(dictionaries)),
        default_fragment_scan_options=ds.ParquetFragmentScanOptions(pre_buffer=False),
    )


def _tag(status: os.stat_result) -> Tag:
    return status.st_ino, status.st_mtime_ns
