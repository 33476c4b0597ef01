"""Looks for a secret in what a run leaves behind: as it is, and as a program would write it down."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, quote_plus

import pyarrow as pa
import pyarrow.parquet as pq


def spellings(secret: str) -> set[bytes]:
    """The secret raw, escaped, and encoded, at whatever place of a longer text that is encoded as one."""
    plain = secret.encode()
    found = {plain, secret.encode("utf-16-le"), plain.hex().encode(), json.dumps(secret)[1:-1].encode()}
    found |= {quote(secret, safe="").encode(), quote(secret).encode(), quote_plus(secret).encode()}
    for shift in range(3):
        # Of a text that it stands in, what is the same whatever stands before and after it.
        whole = base64.b64encode(b"\0" * shift + plain)
        first, last = -(-shift * 8 // 6), (shift + len(plain)) * 8 // 6
        found |= {whole[first:last], whole[first:last].translate(bytes.maketrans(b"+/", b"-_"))}
    return found


def traces(secret: str, *places: Path) -> list[Path]:
    """The files under `places` that hold the secret; Parquet is looked at unpacked."""
    wanted = spellings(secret)
    return [file for file in _files(places) if any(spelling in _content(file) for spelling in wanted)]


def _files(places: tuple[Path, ...]) -> Iterator[Path]:
    for place in places:
        yield from [place] if place.is_file() else (file for file in place.rglob("*") if file.is_file())


def _content(file: Path) -> bytes:
    raw = file.read_bytes()
    if not raw.startswith(b"PAR1"):
        return raw
    table, sink = pq.ParquetFile(file), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema_arrow) as stream:
        stream.write_table(table.read())
    return raw + sink.getvalue().to_pybytes()
