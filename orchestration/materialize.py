"""Run a pipeline's assets in this process: the same definitions, and the same history, as the UI's.

result = materialize(of_scripts([script], lake), "clicks", instance=DagsterInstance.get(), progress=bars)
"""

from __future__ import annotations

import dagster as dg

from tidegate.assets.names import Names
from tidegate.assets.resources import shown_by
from tidegate.pipelines.progress import Progress

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
