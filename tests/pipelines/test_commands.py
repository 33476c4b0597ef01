from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.pipelines.commands import AS_WRITTEN, Commands

HERE = Commands(Path("/s/a b.sql"), Path("/lake"))


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        (
            "tidegate release SCRIPT e   (joins again)   or   tidegate discard SCRIPT e   (quarantines them)",
            "tidegate release '/s/a b.sql' e --lake /lake   (joins again)   or   "
            "tidegate discard '/s/a b.sql' e --lake /lake   (quarantines them)",
        ),
        ("tidegate status", "tidegate status --lake /lake"),
        ("tidegate run … --resnapshot u   (it)", "tidegate run '/s/a b.sql' --resnapshot u --lake /lake   (it)"),
        ("put it back, or: tidegate run SCRIPT", "put it back, or: tidegate run '/s/a b.sql' --lake /lake"),
        ("tidegate run SCRIPT --lake DIR   (or so)", "tidegate run '/s/a b.sql' --lake DIR   (or so)"),
        (
            "join again: tidegate release SCRIPT e; or: tidegate discard SCRIPT e\nmore SCRIPT",
            "join again: tidegate release '/s/a b.sql' e --lake /lake; or: "
            "tidegate discard '/s/a b.sql' e --lake /lake\nmore SCRIPT",
        ),
        (
            "let it load (tidegate status), then: tidegate run SCRIPT",
            "let it load (tidegate status --lake /lake), then: tidegate run '/s/a b.sql' --lake /lake",
        ),
        ("correct it, then: tidegate explain SCRIPT", "correct it, then: tidegate explain SCRIPT"),
        ("raise @@GLOBAL.binlog_expire_logs_seconds", "raise @@GLOBAL.binlog_expire_logs_seconds"),
    ],
)
def test_commands_can_be_pasted(text: str, filled: str) -> None:
    assert HERE.filled(text) == filled


def test_what_is_not_known_stays_open() -> None:
    assert AS_WRITTEN.resolving("e") == "tidegate release SCRIPT e   or   tidegate discard SCRIPT e"
