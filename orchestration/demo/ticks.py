"""Runs of the pipeline's Dagster job, as its schedule would start them, until the clicks are released."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from tidegate.assets.names import Names
from tidegate.assets.resources import shown_by
from tidegate.orchestration.console.bars import Bars
from tidegate.pipelines.errors import TidegateError
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.progress import Progress, Task
from tidegate.pipelines.runtime.status import LakeStatus, status
from tidegate.pipelines.sql.compile import Pipeline

_QUIET_CONSOLE = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


def materialize(
    definitions: dg.Definitions,
    pipeline: str,
    *,
    instance: dg.DagsterInstance,
    progress: Progress | None = None,
    assets: list[dg.AssetKey] | None = None,
) -> dg.ExecuteInProcessResult:
    """Run the job of `pipeline` (or only `assets` of it, with their checks) here and now.

    Runs, materialisations and check results are recorded in `instance`, as those of a run that the UI starts. The
    steps' bars go to `progress`, and the console then shows no log lines beside them; to the run's log when None.
    A failed step does not raise: see `result.success`.
    """
    job = definitions.resolve_job_def(Names(pipeline).job)
    with shown_by(progress):
        return job.execute_in_process(
            instance=instance,
            raise_on_error=False,
            asset_selection=assets,
            run_config=_QUIET_CONSOLE if progress is not None else None,
        )


_LOOK_EVERY_S = 1.0


@dataclass
class Ticker:
    """Starts one run of the job after another, in this process."""

    definitions: dg.Definitions
    pipeline: Pipeline
    lake: Path
    progress: Bars
    instance: dg.DagsterInstance

    def tick(self, tables: Sequence[str] | None = None) -> LakeStatus:
        """One run of the whole job (or of these source tables), and how things stand after it.

        Raises TidegateError when a step failed.
        """
        names = Names(self.pipeline.name)
        assets = None if tables is None else [names.source(table) for table in tables]
        with self._watched():
            result = materialize(
                self.definitions, self.pipeline.name, instance=self.instance, progress=self.progress, assets=assets
            )
        if not result.success:
            raise TidegateError(
                f"the Dagster run failed: {_why(result)}",
                where=f"run {result.run_id}",
                state="nothing is committed in half; the lake and the run's log are kept",
                next_command="make ui   (shows the run)",
            )
        return status(Lake(self.lake), self.pipeline)

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """Show, from the lake alone, how many clicks wait and how far the table is, while the block runs."""
        done = threading.Event()
        bar = self.progress.line("clicks waiting")
        thread = threading.Thread(target=self._watch, args=(bar, done), name="demo-watch", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
            bar.total(0)

    def _watch(self, bar: Task, done: threading.Event) -> None:
        while not done.wait(_LOOK_EVERY_S):
            bar.note(waiting_by_reason(status(Lake(self.lake), self.pipeline)))


def waiting_by_reason(now: LakeStatus) -> str:
    """The state of sources and waiting rows, in one line."""
    waiting = sum(insert.rows.waiting for insert in now.inserts if insert.rows)
    parts = [f"{waiting:,}"]
    for source in now.sources:
        if source.flip is not None and source.lag_ms is not None and source.chunks is not None:
            parts.append(f"{source.table} {source.lag_ms / 1000:.1f} s behind the binlog")
        elif source.chunks is not None:
            parts.append(f"{source.table} {source.chunks.done}/{source.chunks.total} chunks, {source.rows:,} rows")
    return " · ".join(parts)


def _why(result: dg.ExecuteInProcessResult) -> str:
    for event in result.all_events:
        if event.is_step_failure:
            data = event.step_failure_data
            if data.user_failure_data and data.user_failure_data.description:
                return data.user_failure_data.description
            error = data.error
            while error is not None and error.cause is not None:
                error = error.cause
            if error is not None:
                return error.message.strip().splitlines()[0]
    return "see the run's log"
