"""What to do about causes outside of Tidegate, by the texts that libraries and systems give them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.pipelines.commands import Commands
from tidegate.pipelines.remedies import MEND, remedy, unsaid


@pytest.mark.parametrize(
    ("text", "do"),
    [
        ("[Errno 28] No space left on device", "make room on the disk"),
        ("Generic LocalFileSystem error: … (os error 28)", "make room on the disk"),
        ("java.io.IOException: Disk quota exceeded", "make room on the disk"),
        ("[Errno 24] Too many open files: '/data'", "allow more open files"),
        ("java.lang.OutOfMemoryError: Java heap space", "give it more memory"),
        ("[Errno 12] Cannot allocate memory", "give it more memory"),
        ("[Errno 30] Read-only file system", "make the disk writable"),
        ("[Errno 5] Input/output error", "see to the disk"),
        ("[Errno 13] Permission denied: '/data/lake'", "let the user that it runs as"),
        ("An error occurred while trying to connect to the Java server: [Errno 111] Connection refused",
         "find out why Spark's process ended"),
        ("java.net.UnknownHostException: db", "correct the host's name"),
        ("[Errno -3] Temporary failure in name resolution", "correct the host's name"),
        ("[Errno 111] Connection refused", "see that the server is up"),
        ("user_info: the file is gone", MEND),
    ],
)  # fmt: skip
def test_a_known_cause_comes_with_what_to_do(text: str, do: str) -> None:
    assert str(remedy(text)).startswith(do)


def test_it_is_said_once() -> None:
    text = "user_info: [Errno 28] No space left on device"
    (found,) = unsaid(text)
    assert unsaid(text, Commands(Path("/srv/clicks.sql")).shown(found + ", then run it again")) == ()
    assert unsaid("user_info: the file is gone") == ()
