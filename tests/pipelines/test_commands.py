"""Commands to run next, as each surface shows them: with its own script and its own lake, to be pasted as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.pipelines.commands import (
    MEND,
    RUN,
    STATUS,
    Advice,
    Advised,
    Commands,
    NextCommand,
    advice,
    both,
    default_lake,
    either,
    or_else,
    remedy,
    resnapshot,
    resolving,
    then,
    unsaid,
)
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.text import counted

HERE = Commands(Path("/s/a b.sql"), Path("/lake"))
WAYS_OUT = resolving("e", "joins again", "quarantines them")


@pytest.mark.parametrize(
    ("what", "shown"),
    [
        (
            either(*WAYS_OUT),
            "tidegate release '/s/a b.sql' e --lake /lake   (joins again)   or   "
            "tidegate discard '/s/a b.sql' e --lake /lake   (quarantines them)",
        ),
        (STATUS, "tidegate status --lake /lake"),
        (resnapshot("u", "it"), "tidegate run '/s/a b.sql' --resnapshot u --lake /lake   (it)"),
        (or_else("put it back", RUN), "put it back, or: tidegate run '/s/a b.sql' --lake /lake"),
        (both("put it back", RUN), "put it back and tidegate run '/s/a b.sql' --lake /lake"),
        (NextCommand("run", ("--lake", "DIR"), "or so"), "tidegate run '/s/a b.sql' --lake DIR   (or so)"),
        (NextCommand("discard", ("my clicks",)), "tidegate discard '/s/a b.sql' 'my clicks' --lake /lake"),
        ("let it load (" + STATUS + ")", "let it load (tidegate status --lake /lake)"),
        (then("correct it", NextCommand("explain")), "correct it, then: tidegate explain '/s/a b.sql'"),
        (remedy("No space left on device"), "tidegate maintain '/s/a b.sql' --lake /lake)"),
        ("set what a SCRIPT reads, or tidegate run SCRIPT", "set what a SCRIPT reads, or tidegate run SCRIPT"),
    ],
)  # fmt: skip
def test_commands_can_be_pasted_and_plain_text_stays_as_it_is(what: Advised, shown: str) -> None:
    assert HERE.shown(what).endswith(shown)


def test_a_command_names_the_lake_that_it_would_not_take_by_itself() -> None:
    beside = Commands(Path("s/p.sql"), default_lake(Path("s/p.sql")))
    assert beside.shown(RUN) == "tidegate run s/p.sql"
    assert beside.shown(STATUS) == "tidegate status --lake s/.tidegate/lake"  # it is typed beside `s`
    here = Commands(Path("p.sql"), default_lake(Path("p.sql")))
    assert [here.shown(RUN), here.shown(STATUS)] == ["tidegate run p.sql", "tidegate status"]


def test_what_is_not_known_stays_open() -> None:
    assert str(either(*resolving("e"))) == "tidegate release SCRIPT e   or   tidegate discard SCRIPT e"


def test_an_error_carries_its_command_and_every_surface_shows_it_in_its_own_way() -> None:
    ways = or_else("put it back", resnapshot("u"))
    error = SourceError("it is gone", where="SCRIPT", state="kept", next_command=ways)
    assert error.next_command == "put it back, or: tidegate run SCRIPT --resnapshot u"
    assert str(error).endswith(f"where: SCRIPT\n  state: kept\n  next:  {error.next_command}")
    there = "put it back, or: tidegate run '/s/a b.sql' --resnapshot u --lake /lake"
    assert error.text(HERE) == f"it is gone\n  where: SCRIPT\n  state: kept\n  next:  {there}"
    error.reword(lambda text: text.replace("u", "U"))
    assert error.next_command == "pUt it back, or: tidegate run SCRIPT --resnapshot U"
    error.reword(state="all of it", next_command=STATUS)
    assert str(error).endswith("state: all of it\n  next:  tidegate status")


@pytest.mark.parametrize("what", ["", "look at it", resnapshot("u", "reads it anew"), or_else("[put] it back", STATUS)])
def test_advice_is_stored_and_read_back(what: Advised) -> None:
    assert Advice.of_stored(advice(what).stored()) == advice(what)
    assert Advice.of_stored("") == advice("")


@pytest.mark.parametrize(
    ("what", "left"),
    [
        (resnapshot("u"), ""),
        (either("put it back", resnapshot("u")), "put it back"),
        (then("put it back", resnapshot("u", "anew") + "; or else"), "put it back"),
        ("ALTER TABLE u FORCE; then " + resnapshot("u"), "ALTER TABLE u FORCE"),
        ("run it again; if it stops at the same place: " + resnapshot("u"), "run it again"),
        (either(RUN, resnapshot("u")), "tidegate run SCRIPT"),
        (RUN, None),
    ],
)  # fmt: skip
def test_what_is_to_be_done_without_a_command_that_would_be_refused(what: Advised, left: str | None) -> None:
    found = advice(what).before(lambda command: "--resnapshot" in command.arguments)
    assert (None if found is None else str(found)) == left


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
        ("[Errno 5] Input/output error", "check the disk"),
        ("[Errno 13] Permission denied: '/data/lake'", "give the user that it runs as"),
        ("An error occurred while trying to connect to the Java server: [Errno 111] Connection refused",
         "find out why Spark's process ended"),
        ("java.net.UnknownHostException: db", "correct the host's name"),
        ("[Errno -3] Temporary failure in name resolution", "correct the host's name"),
        ("[Errno 111] Connection refused", "check that the server is up"),
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


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [(0, "row", "0 rows"), (1, "match", "1 match"), (2000, "match", "2,000 matches"), (2, "epoch", "2 epochs")],
)
def test_things_are_counted(count: int, noun: str, text: str) -> None:
    assert counted(count, noun) == text
