"""Typed errors, and how they are found again behind Spark's."""

from __future__ import annotations

from tidegate.pipelines.sources.cdc.errors import find
from tidegate.pipelines.sources.mysql_cdc.binlog import BinlogPosition
from tidegate.pipelines.sources.mysql_cdc.errors import ChecksumMismatch


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
    assert vars(copy) == vars(original)
    assert find(ValueError("nothing of the kind")) is None
