"""What an error says of a failed read: each kind of error with a next command that can mend it.

And how they are found again behind Spark's.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.pipelines.commands import Commands, then
from tidegate.pipelines.errors import SourceError
from tidegate.pipelines.sources.cdc import errors as snapshot
from tidegate.pipelines.sources.cdc.errors import AGAIN, FRESH, RETRY, STATE, ReadError, explain, find, resnapshot
from tidegate.pipelines.sources.mysql_cdc import errors as binlog
from tidegate.pipelines.sources.mysql_cdc.binlog.events import MAX_FILE_NUMBER, offsets
from tidegate.pipelines.sources.mysql_cdc.binlog.model import BinlogPosition, BinlogRange
from tidegate.pipelines.sources.mysql_cdc.errors import ChecksumMismatch, unreadable_key
from tidegate.pipelines.sources.mysql_cdc.log import Birth, check_server
from tidegate.pipelines.sources.mysql_cdc.plan import BinlogStep, step_of
from tidegate.pipelines.sources.mysql_cdc.types import SourceColumn

NEW = str(resnapshot("users"))
MEND = unreadable_key(SourceColumn("day", "date", "date"))[1]
OR_NEW = f"{AGAIN}; if it stops at the same place: {NEW}"
KINDS: list[tuple[ReadError, str]] = [
    (binlog.MalformedEvent("too short"), OR_NEW),
    (binlog.ChecksumMismatch("bytes"), OR_NEW),
    (binlog.UnsupportedEvent("no text in utf8mb4"), OR_NEW),
    (binlog.UnknownEvent("type 250", next_command=FRESH), NEW),
    (binlog.BinlogPurged("gone", next_command=FRESH), NEW),
    (binlog.UnsupportedEvent("an old format", next_command="ALTER TABLE t FORCE"), f"ALTER TABLE t FORCE; then {NEW}"),
    (binlog.UnreadableKey("no date", next_command=then(MEND, FRESH)), f"{MEND}, then: {NEW}"),
    (snapshot.UnreadableKey("no date", next_command=then(MEND, RETRY)), f"{MEND}, then: {AGAIN}"),
    (binlog.ConnectionLost("reset"), AGAIN),
    (binlog.SpoolDamaged("a copy"), AGAIN),
    (binlog.BinlogRefused("denied"), f"give the grant back, then {AGAIN}"),
    (snapshot.ReaderRefused("denied"), f"give the grant back, then {AGAIN}"),
    (snapshot.ReaderLost("reset"), AGAIN),
    (binlog.ViewTooOld("altered"), AGAIN),
    (binlog.TableLocked("locked"), f"{binlog.UNLOCK}, then {AGAIN}"),
    (snapshot.NotWritten("full"), f"make room on the lake's disk, or mend it, then {AGAIN}"),
    (snapshot.TableChanged("altered", next_command=FRESH), NEW),
]


@pytest.mark.parametrize("in_a_task", [False, True], ids=["raised here", "raised in a Spark task"])
@pytest.mark.parametrize(("error", "mends"), KINDS, ids=lambda part: type(part).__name__)
def test_table_place_state_and_a_command_that_mends_it(error: ReadError, mends: str, in_a_task: bool) -> None:
    error = error.at("binlog.000007:1234")
    came: BaseException = error
    if in_a_task:  # Spark hands over a text
        name = f"{type(error).__module__}.{type(error).__name__}"
        came = RuntimeError(f"Job aborted\nTraceback:\n  File …\n{name}: {error}\n\tat org.apache.spark")
    explained = explain(came, "users", "binlog.000007:4 to 9000", "127.0.0.1:3306")
    assert type(explained) is type(error)
    assert explained.what == f"users: {error.what}"
    assert explained.where == "binlog.000007:1234; binlog.000007:4 to 9000; 127.0.0.1:3306"
    assert explained.state == STATE
    assert explained.next_command == mends
    there = Commands(Path("/s.sql"), Path("/lake")).shown(explained.advice)
    assert "SCRIPT" not in there, "a command that came as text is a record again"
    assert "TABLE " not in there.replace("ALTER TABLE", "")


def test_what_has_nothing_to_do_with_the_server_is_not_explained() -> None:
    assert explain(RuntimeError("out of memory"), "users", "step", "server") is None


def test_a_file_number_too_great_to_order_rows_by() -> None:
    with pytest.raises(binlog.BinlogError, match="is above") as raised:
        offsets(MAX_FILE_NUMBER + 1, None, None)  # type: ignore[arg-type]
    explained = explain(raised.value, "users", "step", "server")
    assert explained.next_command.endswith(f"; then {NEW}")


def test_a_plan_names_the_server_that_it_is_of() -> None:
    """A copy of a server that has the same log, under a server_uuid of its own, is another server."""
    at = BinlogPosition("binlog.000007", 120)
    step = BinlogStep(BinlogRange(at, at), (), Birth(1, 1), (), None, at, 0, Birth(1, 1), server="3e11fa47")
    again = step_of(step.to_json())
    assert again == step
    check_server(again.server, "3e11fa47", "users", "shop.users on db1:3306")
    check_server("", "b1", "users", "of a plan that has none")
    check_server(again.server, "", "users", "a MariaDB")
    with pytest.raises(SourceError, match="users: the server is another one than was read") as raised:
        check_server(again.server, "b1c2", "users", "shop.users on db2:3306")
    assert "server_uuid b1c2, it was 3e11fa47" in raised.value.where
    assert raised.value.next_command == NEW


def test_a_typed_error_is_found_in_causes_and_texts() -> None:
    original = ChecksumMismatch("it does not match", where=BinlogPosition("binlog.000003", 77))
    assert find(original) is original
    outer = RuntimeError("outer")
    outer.__cause__ = original
    assert find(outer) is original
    text = (
        f"Traceback\n  File x\n{type(original).__module__}.{type(original).__name__}: {original}\nat java.lang.Thread"
    )
    copy = find(ValueError(text))
    assert isinstance(copy, ChecksumMismatch)
    # A text has the next command as text, no longer as a record.
    assert all(getattr(copy, of) == getattr(original, of) for of in ("what", "where", "state", "next_command"))
    assert find(ValueError("nothing of the kind")) is None
