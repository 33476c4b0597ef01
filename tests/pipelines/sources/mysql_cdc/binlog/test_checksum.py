"""Checksums of many events at once, right and wrong."""

from __future__ import annotations

import random
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.pipelines.sources.mysql_cdc.binlog.checksum import all_match, first_mismatch


def chain(bodies: list[bytes], gap: int, before: bytes = b"", seed: int = 0) -> tuple[bytearray, list[int], list[int]]:
    """Events with their checksums, `gap` bytes apart: data, starts, ends."""
    data, starts, ends = bytearray(before), [], []
    noise = random.Random(seed)
    for number, body in enumerate(bodies):
        data += noise.randbytes(gap) if number else b""
        starts.append(len(data))
        data += body + crc32(body).to_bytes(4, "little")
        ends.append(len(data))
    return data, starts, ends


@given(
    st.lists(st.binary(max_size=40), min_size=1, max_size=60),
    st.integers(0, 8),
    st.binary(max_size=5),
    st.randoms(use_true_random=False),
)
def test_right_and_wrong(bodies: list[bytes], gap: int, before: bytes, noise: random.Random) -> None:
    data, starts, ends = chain(bodies, gap, before, noise.randrange(1000))
    places = np.array(starts), np.array(ends)
    assert all_match(bytes(data + before), *places) is True
    wrong = noise.randrange(len(starts))
    at = noise.randrange(starts[wrong], ends[wrong])
    data[at] ^= 1 << noise.randrange(8)
    assert all_match(bytes(data), *places) is False
    assert first_mismatch(bytes(data), *places) == wrong


@pytest.mark.parametrize("gap", [0, 5])
def test_long_events_beside_short_ones(gap: int) -> None:
    noise = random.Random(3)
    bodies = [noise.randbytes(noise.choice([19, 60, 5_000, 300_000])) for _ in range(200)]
    data, starts, ends = chain(bodies, gap)
    assert all_match(bytes(data), np.array(starts), np.array(ends)) is True
    assert first_mismatch(bytes(data), np.array(starts), np.array(ends)) is None
    data[starts[150] + 7] ^= 1
    assert first_mismatch(bytes(data), np.array(starts), np.array(ends)) == 150


def test_two_events_that_changed_places_and_two_wrongs_that_are_alike() -> None:
    data, starts, ends = chain([b"a" * 30] * 100, 0)
    for event in (10, 20):
        data[starts[event]] ^= 1
    assert first_mismatch(bytes(data), np.array(starts), np.array(ends)) == 10


@pytest.mark.parametrize("gaps", [[3, 4], [9, 9], [-1, -1]], ids=["uneven", "wide", "overlapping"])
def test_it_says_when_it_cannot_judge(gaps: list[int]) -> None:
    starts = np.array([0, 20 + gaps[0], 40 + sum(gaps)])
    assert all_match(bytes(100), starts, starts + 20) is None
