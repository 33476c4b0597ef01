"""What a person chooses about a pipeline's assets, beside the script."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class Partitions:
    """The spans of time that an output can be materialised by, from `start` (with a timezone) on."""

    start: datetime
    every: Literal["hour", "day", "week", "month"] = "day"


@dataclass(frozen=True)
class Presentation:
    """How the assets of a pipeline appear and when they run.

    Attributes:
        owners: e-mail addresses or `team:name`.
        tags: put on every asset.
        group: the asset group; the pipeline's name when None.
        cron: when the schedule (stopped until it is turned on) starts a run, and when sources are due by themselves
            once the automation sensor is on.
        automation: whether assets carry AutomationConditions.
        fresh_within: the published assets are stale after so long without a run; None: no freshness policy.
        build_fresh_within, probe_fresh_within: the same of build and probe tables.
        reconcile_cron: when build tables are compared with their sources by themselves; None: never.
        partitions: event-time outputs can be materialised by time (Dagster's backfills); None: only by the stream.
        script: where the SQL lies, so that the UI can link to it.
    """

    owners: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    group: str | None = None
    cron: str = "* * * * *"
    automation: bool = True
    fresh_within: timedelta | None = timedelta(hours=24)
    partitions: Partitions | None = None
    build_fresh_within: timedelta | None = timedelta(hours=24)
    probe_fresh_within: timedelta | None = timedelta(hours=24)
    reconcile_cron: str | None = "30 4 * * 0"
    script: Path | None = None
