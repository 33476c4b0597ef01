"""Reads integers at many places of one buffer at once; the only module that plays with strides."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Offsets = NDArray[np.int64]
Bytes2D = NDArray[np.uint8]


def rows_at(data: bytes, at: Offsets, width: int) -> Bytes2D:
    """`width` bytes at each place of `at`, as a fresh [n, width] matrix. `width` >= 1.

    Raises IndexError when a place is not inside the buffer.
    """
    windows = np.ndarray((max(len(data) - width + 1, 0),), np.dtype((np.void, width)), data, strides=(1,))
    return windows[at].view(np.uint8).reshape(len(at), width)


def unsigned_at(data: bytes, at: Offsets, width: int) -> NDArray[np.int64]:
    """The little-endian unsigned integers of `width` bytes (1 to 8) at each place of `at`.

    An 8-byte value above 2**63-1 comes out negative.
    """
    if width in (1, 2, 4, 8):
        windows = np.ndarray((max(len(data) - width + 1, 0),), f"<u{width}", data, strides=(1,))
        return windows[at].astype(np.int64)
    padded = np.zeros((len(at), 8), np.uint8)
    padded[:, :width] = rows_at(data, at, width)
    return padded.view("<i8").ravel()


def big_endian(rows: Bytes2D) -> NDArray[np.int64]:
    """Each row of 1 to 8 bytes as one big-endian unsigned integer."""
    width = rows.shape[1]
    value = np.zeros(len(rows), np.int64)
    at = 0
    while at < width:
        size = next(size for size in (8, 4, 2, 1) if size <= width - at)
        part = rows[:, at : at + size].view(f">u{size}")[:, 0].astype(np.int64)
        value = part if at == 0 else (value << (8 * size)) | part
        at += size
    return value


def little_endian(rows: Bytes2D, *, signed: bool) -> NDArray[np.generic]:
    """Each row of 1, 2, 3, 4 or 8 bytes as one little-endian integer of the next natural width."""
    width = rows.shape[1]
    if width != 3:
        return rows.view(f"<{'i' if signed else 'u'}{width}")[:, 0]
    padded = np.zeros((len(rows), 4), np.uint8)
    padded[:, 1:] = rows
    if signed:
        return padded.view("<i4").ravel() >> 8
    return padded.view("<u4").ravel() >> np.uint32(8)
