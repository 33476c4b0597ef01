"""What looks for secrets finds them."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from urllib.parse import quote, quote_plus

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import SECRET
from tests.secret_traces import traces


@pytest.mark.parametrize(
    "written",
    [
        SECRET,
        json.dumps({"password": SECRET}),
        json.dumps({"password": SECRET}, ensure_ascii=False),
        quote(SECRET, safe=""),
        f"mysql://u:{quote(SECRET)}@h",
        f"password={quote_plus(SECRET)}&x=1",
        SECRET.encode().hex(),
        *(base64.b64encode(f"{before}{SECRET} and more".encode()).decode() for before in ("", "u:", "us:", "usr:")),
        base64.urlsafe_b64encode(f"u:{SECRET}".encode()).decode(),
    ],
)
def test_a_secret_is_found_however_it_is_written(tmp_path: Path, written: str) -> None:
    (tmp_path / "clean").write_text("nothing")
    assert traces(SECRET, tmp_path) == []
    (tmp_path / "log").write_text(f"so {written} it is")
    assert traces(SECRET, tmp_path) == [tmp_path / "log"]


def test_a_secret_is_found_in_compressed_parquet(tmp_path: Path) -> None:
    place = tmp_path / "t" / "rows.parquet"
    place.parent.mkdir()
    # Snappy, as Spark writes it, refers back to what stood there before.
    near = [f"{SECRET[:cut]}|{SECRET[cut:]}" for cut in range(1, len(SECRET))]
    pq.write_table(pa.table({"s": [{"a": text} for text in [*near, SECRET]]}), place, use_dictionary=False)
    assert SECRET.encode() not in place.read_bytes()
    assert traces(SECRET, tmp_path) == [place]
