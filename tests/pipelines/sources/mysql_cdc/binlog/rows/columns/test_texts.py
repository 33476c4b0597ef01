"""Text of every supported character set, held against the server's own conversion."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tidegate.pipelines.sources.mysql_cdc.binlog.rows.columns.texts import _PER_VALUE, _SINGLE_BYTE, SUPPORTED, to_utf8
from tidegate.pipelines.sources.mysql_cdc.errors import UnsupportedEvent
from tidegate.pipelines.sources.mysql_cdc.server import EmbeddedMariaDb


def convert(server: EmbeddedMariaDb, charset: str, codes: list[bytes]) -> list[str]:
    """What the server makes of each of `codes`."""
    parts = ", ".join(f"CONVERT(CONVERT(_binary x'{code.hex()}' USING {charset}) USING utf8mb4)" for code in codes)
    return list(server.execute(f"SELECT {parts}")[0])


@pytest.mark.parametrize("charset", sorted(_SINGLE_BYTE))
def test_every_byte_of_a_single_byte_set(mariadb: EmbeddedMariaDb, charset: str) -> None:
    codes = [bytes([byte]) for byte in range(256)]
    assert to_utf8(charset, pa.array(codes, pa.binary()), "c").to_pylist() == convert(mariadb, charset, codes)


@pytest.mark.parametrize("charset", sorted(_PER_VALUE))
def test_every_two_byte_code_of_an_east_asian_set(mariadb: EmbeddedMariaDb, charset: str) -> None:
    words = mariadb.execute(
        f"SELECT seq, CONVERT(CONVERT(UNHEX(HEX(seq)) USING {charset}) USING utf8mb4) FROM seq_33088_to_65279",
        database="mysql",
    )
    known = [(int(code).to_bytes(2, "big"), word) for code, word in words if word and len(word) == 1 and word != "?"]
    assert len(known) > 5_000
    raw = pa.array([code for code, _ in known], pa.binary())
    assert to_utf8(charset, raw, "c").to_pylist() == [word for _, word in known]


@pytest.mark.parametrize("charset", ["ucs2", "utf16", "utf16le", "utf32", "utf8mb4", "latin1", "gbk"])
def test_values_keep_their_borders_and_nulls(charset: str) -> None:
    texts = ["", "a", None, "über", "" if charset in ("ucs2", "latin1", "gbk") else "a😀b", "é" * 300]
    codec = {"ucs2": "utf-16-be", "utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be"}
    raw = pa.array(
        [text and text.encode(codec.get(charset, "utf-8" if charset == "utf8mb4" else charset)) for text in texts],
        pa.binary(),
    )
    assert to_utf8(charset, raw, "c").to_pylist() == texts
    assert to_utf8(charset, raw[2:5], "c").to_pylist() == texts[2:5]


def test_a_value_that_is_not_text_is_an_error() -> None:
    with pytest.raises(UnsupportedEvent, match="column c holds a value that is not text in utf8mb4"):
        to_utf8("utf8mb4", pa.array([b"\xff"]), "c", "binlog.000001:4")


def test_a_set_that_is_not_supported_is_named_with_the_fix(mariadb: EmbeddedMariaDb) -> None:
    every = {name for (name,) in mariadb.execute("SELECT CHARACTER_SET_NAME FROM information_schema.CHARACTER_SETS")}
    missing = every - SUPPORTED - {"binary"}
    assert missing == {"armscii8", "big5", "dec8", "eucjpms", "geostd8", "keybcs2", "swe7", "ujis"}
    for charset in missing:
        with pytest.raises(UnsupportedEvent) as caught:
            to_utf8(charset, pa.array([b"a"]), "c")
        assert "CONVERT TO CHARACTER SET utf8mb4" in caught.value.next_command
