"""The demo from start to verdict: runs of the pipeline's Dagster job, as its schedule would start them, until the
clicks are released."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from tidegate.assets.names import Names
from tidegate.assets.resources import shown_by
from tidegate.orchestration.console.bars import Bars
from tidegate.orchestration.definitions import of_scripts
from tidegate.orchestration.demo import site as sites
from tidegate.orchestration.demo.proof import PinnedEpoch, prove
from tidegate.orchestration.demo.site import SCRIPT, Site, Sizes
from tidegate.orchestration.demo.stage import gender, opened, transaction_at
from tidegate.orchestration.demo.verdict import Loading, Verdict, ungated
from tidegate.orchestration.demo.writer import writing
from tidegate.pipelines.errors import TidegateError
from tidegate.pipelines.lake import Lake
from tidegate.pipelines.lake.stream import Stream
from tidegate.pipelines.progress import Progress, Task, step
from tidegate.pipelines.runtime.epochs.history import history_of
from tidegate.pipelines.runtime.ledger import WhereRowsAre
from tidegate.pipelines.runtime.scripts import load_script
from tidegate.pipelines.runtime.session import start_session
from tidegate.pipelines.runtime.status import LakeStatus, status
from tidegate.pipelines.sources.mysql_cdc.server import EmbeddedMariaDb
from tidegate.pipelines.sql.compile import Pipeline
from tidegate.pipelines.sql.model import Insert
from tidegate.pipelines.text import counted
from tidegate.quality_checks.steps import cuts_of

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
                next_command=sites.typed(Site(self.lake.parent), "ui", "ui --demo") + "   (shows the run)",
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
            parts.append(f"{source.table} {source.chunks}, {counted(source.rows, 'row')}")
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


Say = Callable[[str], None]
_MOST_TICKS = 20


def play(site: Site, sizes: Sizes, progress: Bars, say: Say, port: int | None = None) -> Verdict:
    """Load, join, prove. Raises TidegateError (a port that is taken, no Java, no disk, a run that failed)."""
    began = time.monotonic()
    with opened(site, sizes, progress, port) as server:
        say(f"MariaDB {server.execute('SELECT VERSION()')[0][0]} listens on {server.host}:{server.port}.")
        start_session(progress=progress, log=site.engine_log)
        pipeline = load_script(SCRIPT)
        started_at = time.time_ns() // 1_000_000
        _run(site, sizes, pipeline, server, progress, say)
        return _judge(site, sizes, pipeline, server, progress, started_at, began)


def _run(site: Site, sizes: Sizes, pipeline: Pipeline, server: EmbeddedMariaDb, progress: Bars, say: Say) -> LakeStatus:
    (insert,) = pipeline.inserts
    definitions = of_scripts([SCRIPT], site.lake)
    with dg.DagsterInstance.get() as instance:
        ticker = Ticker(definitions, pipeline, site.lake, progress, instance)
        with writing(server.socket, sizes.rows, sizes.writes_per_second, site.journal):
            say(f"A writer changes about {sizes.writes_per_second:,} rows a second, from now on.")
            now = ticker.tick([insert.probe])
            say(f"{_rows(now).landed:,} clicks are there; {', '.join(insert.builds)} is not loaded yet.")
            now = _until_released(ticker, say)
            say("Once more, with the writer still busy: the table now follows the binlog.")
            ticker.tick()
        say("The writer has stopped. A last run brings everything in.")
        return ticker.tick()


def _until_released(ticker: Ticker, say: Say) -> LakeStatus:
    for _ in range(_MOST_TICKS):
        now = ticker.tick()
        say(f"Clicks waiting: {waiting_by_reason(now)}")
        if _rows(now).published:
            return now
    raise TidegateError(
        f"no click was released in {_MOST_TICKS} runs",
        where=now.lake,
        state="the lake is kept",
        next_command=f"tidegate status {SCRIPT} --lake {now.lake}",
    )


def _rows(now: LakeStatus) -> WhereRowsAre:
    found = now.inserts[0].rows
    assert found is not None
    return found


def _judge(
    site: Site,
    sizes: Sizes,
    pipeline: Pipeline,
    server: EmbeddedMariaDb,
    progress: Bars,
    started_at: int,
    began: float,
) -> Verdict:
    lake = Lake(site.lake)
    (insert,) = pipeline.inserts
    (build,) = insert.builds
    target = pipeline.table(insert.target)
    tables = {
        build: Stream(lake, build).path,
        insert.probe: Stream(lake, insert.probe).path,
        insert.target: lake.target_path(target),
        f"{insert.target}, quarantine": lake.quarantine_path(target, insert),
    }
    changelog, clicks, published, quarantine = tables.values()
    epochs = pinned_epochs(lake, pipeline, insert)
    with step(progress, "replay the writer's log, compare every row"):
        proof = prove(
            epochs,
            start=((user, gender(user)) for user in range(1, sizes.rows + 1)),
            journal=site.journal,
            transaction_at=lambda position: transaction_at(server, position),
            clicks=clicks,
            published=published,
            quarantine=quarantine,
        )
    with step(progress, "join the same clicks without the gate"):
        log = Stream(lake, build).generation(1).log()
        landed_at = {row.epoch: row.landed_at for row in log}
        without = ungated(epochs, clicks=clicks, changelog=changelog, quarantine=quarantine, landed_at=landed_at)
    now = status(lake, pipeline)
    return Verdict(
        clicks=_rows(now),
        loading=_loading(lake, now, build, started_at),
        proof=proof,
        ungated=without,
        tables={name: path.shown() for name, path in tables.items()},
        seconds=round(time.monotonic() - began, 1),
        next_commands=sites.next_commands(site),
    )


def pinned_epochs(lake: Lake, pipeline: Pipeline, insert: Insert) -> list[PinnedEpoch]:
    """The published epochs of an INSERT with one build, each with the binlog position of its pin."""
    found = []
    for epoch in history_of(lake, pipeline, insert):
        if not epoch.published or epoch.verdict is None:
            continue
        (pin,) = epoch.plan.pins
        row = Stream(lake, pin.table).generation(pin.generation).epoch(pin.epoch)
        assert row is not None
        plan = epoch.plan
        found.append(PinnedEpoch(plan.epoch, plan.first.after, plan.first.upto, row.position, epoch.verdict.decided_at))
    return found


def _loading(lake: Lake, now: LakeStatus, build: str, started_at: int) -> Loading:
    (source,) = [source for source in now.sources if source.table == build]
    cuts = cuts_of(lake, build, source.generation)
    ordered = sorted(cuts, key=lambda cut: (cut["file"], cut["position"]))
    assert source.flip is not None
    return Loading(
        table=build,
        rows=source.rows,
        chunks=len(cuts),
        first_cut=_place(ordered[0]),
        last_cut=_place(ordered[-1]),
        flip=source.flip.position,
        flipped_at=source.flip.at or 0,
        started_at=started_at,
    )


def _place(cut) -> str:
    return f"{cut['file']}:{cut['position']}"
