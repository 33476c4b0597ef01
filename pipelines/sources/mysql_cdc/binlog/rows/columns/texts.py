"""Text of the server's character sets as UTF-8, the same that the server itself would send to a utf8mb4 client.

Single-byte sets and the UTF-16 family are converted a whole column at once, the East Asian sets once per distinct
value. Every byte (and two-byte code) of each set was compared with MariaDB 11.4's; where they differ it is right.
"""

from __future__ import annotations

import socket
import zlib
from collections.abc import Mapping
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidegate.pipelines.sources.mysql_cdc.binlog.rows.columns.values import FixedValues, binary_rows, text_of
from tidegate.pipelines.sources.mysql_cdc.errors import MalformedEvent, UnsupportedEvent

BINARY_COLLATION = 63

_UTF8 = frozenset({"utf8mb4", "utf8mb3", "utf8", "ascii"})

_UNMAPPED = "?"
"""What the server sends for a byte that its character set leaves undefined."""

_SINGLE_BYTE: Mapping[str, tuple[str, Mapping[int, str]]] = {
    "latin1": ("cp1252", {byte: chr(byte) for byte in (0x81, 0x8D, 0x8F, 0x90, 0x9D)}),
    "latin2": ("iso8859_2", {}),
    "latin5": ("iso8859_9", {}),
    "latin7": ("iso8859_13", {}),
    "cp850": ("cp850", {}),
    "cp852": ("cp852", {}),
    "cp866": ("cp866", {0xFC: "ⁿ", 0xFD: "²"}),
    "cp1250": ("cp1250", {}),
    "cp1251": ("cp1251", {}),
    "cp1256": ("cp1256", dict.fromkeys((0x8A, 0x8F, 0x98, 0x9A, 0x9F, 0xAA, 0xC0, 0xFF), _UNMAPPED)),
    "cp1257": ("cp1257", {}),
    "greek": ("iso8859_7", {0xA1: "ʽ", 0xA2: "ʼ", **dict.fromkeys((0xA4, 0xA5, 0xAA), _UNMAPPED)}),
    "hebrew": ("iso8859_8", {0xAF: "‾"}),
    "hp8": ("hp_roman8", {}),
    "koi8r": ("koi8_r", {}),
    "koi8u": ("koi8_u", {0x95: "•"}),
    "macce": ("mac_latin2", {}),
    "macroman": ("mac_roman", {}),
    "tis620": ("tis_620", dict.fromkeys((0xA0, *range(0xDB, 0xDF), *range(0xFC, 0x100)), "\ufffd")),
}
"""MySQL's name -> (Python's codec, bytes that MySQL reads differently). All of them hold ASCII as it is."""

_UTF_16 = {"ucs2": ">u2", "utf16": ">u2", "utf16le": "<u2"}

_EAST_ASIAN = {"gbk": "gbk", "gb2312": "gb2312", "euckr": "cp949", "cp932": "cp932", "sjis": "shift_jis"}
"""MySQL's name -> Python's codec. In sjis the server reads the wide backslash as a plain one."""

SUPPORTED = frozenset({*_UTF8, *_SINGLE_BYTE, *_UTF_16, "utf32", *_EAST_ASIAN})
"""Character sets whose text can be read."""


def to_utf8(charset: str, raw: pa.Array, column: str, where: object = "") -> pa.Array:
    """The binary array `raw`, text in `charset`, as a string array.

    Raises UnsupportedEvent for a character set that is not SUPPORTED or a value that is not text in it.
    """
    try:
        if charset in _UTF8:
            return raw.cast(pa.string())
        if charset in _SINGLE_BYTE:
            return _from_single_byte(charset, raw)
        if charset in _UTF_16:
            return _from_utf_16(_UTF_16[charset], raw)
        if charset == "utf32":
            return _from_utf_32(raw)
        if charset in _EAST_ASIAN:
            return _from_east_asian(charset, raw)
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise UnsupportedEvent(f"column {column} holds a value that is not text in {charset}", where=where) from error
    raise UnsupportedEvent(
        f"column {column} is text in the character set {charset}, which cannot be read",
        where=where,
        next_command="ALTER TABLE … CONVERT TO CHARACTER SET utf8mb4, or leave the column out of the CREATE TABLE",
    )


def to_own_utf8(charset: str, raw: pa.Array, column: str, where: object = "") -> pa.Array:
    """As `to_utf8`, but NULL for a text that the server, asked for it in `charset` again, writes in another way: the
    text that it writes then would be the same here."""
    if charset in _EAST_ASIAN:
        encoded = raw.dictionary_encode()
        values = encoded.dictionary.to_pylist()
        words = to_utf8(charset, encoded.dictionary, column, where).to_pylist()
        found = [word if _written(charset, word) == value else None for word, value in zip(words, values, strict=True)]
        return pa.array(found, pa.string()).take(encoded.indices)
    texts = to_utf8(charset, raw, column, where)
    if charset not in _SINGLE_BYTE:
        return texts
    data, offsets = _bytes_of(raw)
    others = np.zeros(len(data) + 1, np.int64)
    np.cumsum(~_own_bytes(charset)[data], out=others[1:])
    own = others[offsets[1:]] == others[offsets[:-1]]
    return texts if own.all() else pc.if_else(pa.array(own), texts, pa.scalar(None, pa.string()))  # type: ignore[attr-defined]


def decode_text(charset: str, raw: bytes, column: str, where: object = "") -> str:
    """One value, such as the name of an ENUM's member."""
    return to_utf8(charset, pa.array([raw], pa.binary()), column, where)[0].as_py()


def _bytes_of(raw: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """The values' bytes, one after the other, and the offsets of each in them."""
    _, offsets_buffer, data_buffer = raw.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[raw.offset : raw.offset + len(raw) + 1]
    if data_buffer is None or not len(offsets):
        return np.empty(0, np.uint8), np.zeros(len(raw) + 1, np.int32)
    data = np.frombuffer(data_buffer, np.uint8)[offsets[0] : offsets[-1]]
    return data, offsets - offsets[0]


def _strings(text: bytes, ends: NDArray[np.int64], raw: pa.Array) -> pa.Array:
    """A string array of `text` cut at `ends`, with the nulls of `raw`."""
    if ends[-1] > np.iinfo(np.int32).max:
        raise pa.ArrowInvalid("the text of one chunk is longer than 2 GB as UTF-8")
    nulls = None if not raw.null_count else pa.array(raw.is_valid().to_numpy(zero_copy_only=False)).buffers()[1]
    buffers = [nulls, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(text)]
    return pa.Array.from_buffers(pa.string(), len(raw), buffers)


def _ends(units: NDArray[np.integer], offsets: NDArray[np.integer]) -> NDArray[np.int64]:
    """Where each value ends in UTF-8, from the UTF-8 length of each unit and the values' offsets in units."""
    total = np.zeros(len(units) + 1, np.int64)
    np.cumsum(units, out=total[1:])
    return total[offsets]


def _alphabet(charset: str) -> str:
    codec, overrides = _SINGLE_BYTE[charset]
    decoded = bytes(range(256)).decode(codec, "replace").replace("\ufffd", _UNMAPPED)
    return "".join(overrides.get(byte, character) for byte, character in enumerate(decoded))


_CODE_POINTS = {charset: np.array([*map(ord, _alphabet(charset))], "<u2") for charset in _SINGLE_BYTE}
_UTF8_LENGTHS = {
    charset: np.array([len(chr(point).encode()) for point in points.tolist()], np.uint8)
    for charset, points in _CODE_POINTS.items()
}


def _from_single_byte(charset: str, raw: pa.Array) -> pa.Array:
    data, offsets = _bytes_of(raw)
    if not len(data) or data.max() < 0x80:
        return raw.cast(pa.string())
    text = _CODE_POINTS[charset][data].tobytes().decode("utf-16-le").encode()
    return _strings(text, _ends(_UTF8_LENGTHS[charset][data], offsets), raw)


def _from_utf_16(dtype: str, raw: pa.Array) -> pa.Array:
    data, offsets = _bytes_of(raw)
    units = data.view(dtype)
    surrogate = (units >= 0xD800) & (units < 0xE000)  # a pair gives four bytes: two for each half
    lengths = 1 + (units >= 0x80) + ((units >= 0x800) & ~surrogate)
    text = data.tobytes().decode("utf-16-be" if dtype[0] == ">" else "utf-16-le").encode()
    return _strings(text, _ends(lengths, offsets // 2), raw)


def _from_utf_32(raw: pa.Array) -> pa.Array:
    data, offsets = _bytes_of(raw)
    units = data.view(">u4")
    lengths = 1 + (units >= 0x80).astype(np.int8) + (units >= 0x800) + (units >= 0x10000)
    return _strings(data.tobytes().decode("utf-32-be").encode(), _ends(lengths, offsets // 4), raw)


def _from_east_asian(charset: str, raw: pa.Array) -> pa.Array:
    encoded, codec = raw.dictionary_encode(), _EAST_ASIAN[charset]
    words = [value.decode(codec) for value in encoded.dictionary.to_pylist()]
    if charset == "sjis":
        words = [word.replace("＼", "\\") for word in words]
    return pa.array(words, pa.string()).take(encoded.indices)


@cache
def _own_bytes(charset: str) -> NDArray[np.bool_]:
    """Of each byte of a set whether the server writes its character as this byte: of several the first, in tis620 the
    last."""
    points = _CODE_POINTS[charset].tolist()
    bytes_of = enumerate(points) if charset == "tis620" else reversed([*enumerate(points)])
    written = {point: byte for byte, point in bytes_of}
    return np.array([written[point] == byte for byte, point in enumerate(points)])


def _written(charset: str, text: str) -> bytes:
    """`text` as the server writes it. Of IBM's characters that NEC has, too, it takes IBM's codes, and in sjis the wide
    backslash."""
    if charset == "cp932":
        return b"".join(map(_written_in_cp932, text))
    if charset == "sjis":
        text = text.replace("\\", "＼")
    return text.encode(_EAST_ASIAN[charset], "replace")


def _written_in_cp932(character: str) -> bytes:
    code = character.encode("cp932")
    if code[0] in _NEC_OF_IBM:
        return _ibm().get(character, code)
    return b"?" if code[0] in _NOT_IN_CP932 else code


_NEC_OF_IBM = b"\xed\xee"
_NOT_IN_CP932 = b"\x80\xa0\xfd\xfe\xff"
"""Bytes that Python reads as characters, and the server does not."""


@cache
def _ibm() -> dict[str, bytes]:
    codes = (code.to_bytes(2, "big") for code in range(0xFA40, 0xFC4C))
    return {code.decode("cp932", "replace"): code for code in codes}


WIDTHS = {"inet4": 4, "inet6": 16, "uuid": 16}
"""Bytes of each of these types."""

_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_DASHES_BEFORE = (4, 6, 8, 10)


def decode_uuid(values: FixedValues) -> pa.Array:
    """UUID in the usual form, lower case."""
    count = len(values.rows)
    hexadecimal = np.empty((count, 32), np.uint8)
    hexadecimal[:, 0::2] = _HEX[values.rows >> 4]
    hexadecimal[:, 1::2] = _HEX[values.rows & 15]
    characters = np.insert(hexadecimal, [2 * place for place in _DASHES_BEFORE], ord("-"), axis=1)
    return text_of(characters, np.ones(characters.shape, bool), values.nulls)


def decode_address(values: FixedValues) -> pa.Array:
    """INET4 and INET6 as the server prints them. Text is made once per distinct address."""
    family = socket.AF_INET if values.rows.shape[1] == WIDTHS["inet4"] else socket.AF_INET6
    encoded = binary_rows(values).dictionary_encode()
    texts = [socket.inet_ntop(family, raw) for raw in encoded.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(encoded.indices)


_ZLIB = 8
_RAW_DEFLATE = 0x08
_LENGTH_BYTES = 0x07


def decompress_column(raw: pa.Array) -> pa.Array:
    """The binary array of stored values as the values themselves."""
    return pa.array([None if value is None else _decompress(value) for value in raw.to_pylist()], pa.binary())


def _decompress(value: bytes) -> bytes:
    if not value or value[0] == 0:
        return value[1:]
    head = value[0]
    if head >> 4 != _ZLIB:
        raise MalformedEvent(f"a COMPRESSED column's value begins with {head:#04x}, which names no known method")
    start = 1 + (head & _LENGTH_BYTES)
    length = int.from_bytes(value[1:start], "big")
    try:
        plain = zlib.decompress(value[start:], -zlib.MAX_WBITS if head & _RAW_DEFLATE else zlib.MAX_WBITS)
    except zlib.error as error:
        raise MalformedEvent(f"a COMPRESSED column's value cannot be decompressed: {error}") from error
    if len(plain) != length:
        raise MalformedEvent(f"a COMPRESSED column's value has {len(plain)} bytes where {length} were said")
    return plain
