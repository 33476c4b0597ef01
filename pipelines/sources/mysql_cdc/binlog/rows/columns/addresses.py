"""INET4, INET6 and UUID of MariaDB: they travel as BINARY(4) and BINARY(16); information_schema tells them apart."""

from __future__ import annotations

import socket

import numpy as np
import pyarrow as pa

from tidegate.pipelines.sources.mysql_cdc.binlog.rows.columns.values import FixedValues, binary_rows, text_of

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
