"""What the disk throws while an epoch of a process is published, as a typed error."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.pipelines.runtime.handmade import mark, store, verdict_of
from tests.pipelines.runtime.processes.test_planning import Log
from tidegate.pipelines.runtime.failures import StepFailed
from tidegate.pipelines.runtime.processes.process_runner import ProcessRunner
from tidegate.pipelines.sinks.protocol import TableSink

NOTHING: Any = None


def full(*arguments: Any, **more: Any) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_is_a_failed_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(tmp_path)
    log.landed("events", 1)
    plan = log.plan()
    log.planned(plan)
    staged = log.staged(plan)
    store(log.lake, verdict_of(plan))
    free: Any = SimpleNamespace(holds=lambda owner: True, acquire=lambda owner: None)
    own = log.on_lake
    releasing = ProcessRunner(own.lake, own.pipeline, own.insert, free, NOTHING, lambda: 2, NOTHING)
    monkeypatch.setattr(TableSink, "adopt", full)
    with pytest.raises(StepFailed, match="No space left on device") as failed:
        releasing.publish()
    assert failed.value.state == "the epoch passed the gate; where it was added it stands, and is added once"
    assert "epoch 1" in failed.value.where
    monkeypatch.setattr(type(log.lake.watermarks), "append", full)
    with pytest.raises(StepFailed, match="No space left on device") as failed:
        releasing._made(plan, releasing.commits(plan, staged)[-1])
    assert failed.value.state == "the epoch is published; its watermark is logged with the next run"


def test_a_log_row_that_is_lost_is_written_before_the_next_epoch_s(tmp_path: Path) -> None:
    """Of a published epoch whose next one is planned already, as a power cut may leave the lake."""
    log = Log(tmp_path)
    log.landed("events", 1)
    first = log.plan()
    log.planned(first)
    log.staged(first, watermark=5)
    store(log.lake, verdict_of(first))
    mark(Path(log.on_lake.target_path), {log.lake.application(log.on_lake.owner, "publish", 1): 1})
    log.planned(replace(first, epoch=2))
    assert log.lake.watermarks.last("paired") is None
    log.releasing()._log_again()
    row = log.lake.watermarks.last("paired")
    assert (row.epoch, row.timestamp) == (1, 5)
    log.releasing()._log_again()
    assert len(log.lake.watermarks.rows("paired")) == 1
