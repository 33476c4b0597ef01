"""Flink's settings that scripts bring along in SET and that are none here: without effect, or refused with what to do.

Source: the pages "Configuration" of Flink 2 for jobs, checkpoints, state and tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class ForeignSetting:
    """A setting; `key` may end in `.*`. It has no effect, as `why` says; or it is refused, but for the values `spares`,
    and `instead` says what to do."""

    key: str
    why: str = ""
    instead: str = ""
    spares: tuple[str, ...] = ()

    def has(self, key: str) -> bool:
        """Whether it is the setting `key`."""
        return key == self.key or (self.key.endswith(".*") and key.startswith(self.key[:-1]))

    def refuses(self, value: str) -> bool:
        """Whether a value asks for something that is not done here."""
        return bool(self.instead) and value.casefold() not in self.spares

    @property
    def note(self) -> str:
        """Why a value that is taken has no effect."""
        return self.why or "It asks for what is done anyway"


_NO_JOB = "There is no job of Flink: a run lands and releases what is there, in commits of the lake"
_NO_STATE = "No state of operators is kept"
_PLANNER = "Statements are planned here by other rules, with the same result"

FOREIGN: Sequence[ForeignSetting] = (
    ForeignSetting(
        "execution.runtime-mode", instead="Leave it out: every run is bounded, and goes on where the last one ended",
        spares=("streaming",),
    ),
    *(ForeignSetting(key, _NO_JOB) for key in (
        "execution.checkpointing.*", "execution.savepoint.*", "execution.state-recovery.*", "execution.attached",
        "execution.buffer-timeout.*", "execution.batch.*", "execution.shutdown-on-attached-exit", "execution.target",
        "pipeline.name", "pipeline.max-parallelism", "pipeline.object-reuse", "pipeline.operator-chaining.*",
        "pipeline.jars", "pipeline.classpaths", "pipeline.serialization-config", "pipeline.force-avro",
        "parallelism.default", "restart-strategy", "restart-strategy.*", "taskmanager.*", "jobmanager.*", "rest.*",
        "cluster.*", "metrics.*", "sql-client.*", "s3.*", "fs.*", "yarn.*", "kubernetes.*", "high-availability.*",
        "table.dml-sync", "table.exec.resource.*",
    )),
    *(ForeignSetting(key, _NO_STATE) for key in ("state.*", "checkpointing.*")),
    ForeignSetting(
        "table.exec.state.ttl", spares=("0", "0 ms", "0 s", "0ms", "0s"),
        instead="Leave it out: nothing is forgotten; 'changelog.retention' and 'landed.retention' of a table remove "
        "rows",
    ),
    ForeignSetting(
        "table.exec.source.idle-timeout", spares=("0", "0 ms", "0 s", "0ms", "0s"),
        instead="Write 'scan.watermark.idle-timeout' into WITH of the tables that may be idle",
    ),
    ForeignSetting(
        "table.exec.source.cdc-events-duplicate", spares=("false",),
        instead="Leave it out: a build side takes a change that comes again for the same one",
    ),
    ForeignSetting(
        "table.local-time-zone", spares=("utc", "etc/utc"),
        instead="Leave it out: texts and local times are in UTC",
    ),
    ForeignSetting(
        "table.exec.legacy-cast-behaviour", spares=("disabled",), instead="Leave it out: TRY_CAST gives NULL",
    ),
    ForeignSetting("table.sql-dialect", spares=("default",), instead="Leave it out: the script is in Flink's SQL"),
    ForeignSetting(
        "table.exec.sink.type-length-enforcer", spares=("ignore",),
        instead="Leave it out, and cut the text in the SELECT: LEFT(a, 10)",
    ),
    *(ForeignSetting(key, _PLANNER) for key in (
        "table.optimizer.*", "table.exec.mini-batch.*", "table.exec.async-lookup.*", "table.exec.async-state.*",
        "table.exec.sort.*", "table.exec.spill-compression.*", "table.plan.*", "table.generated-code.*",
        "table.display.*", "table.exec.sink.upsert-materialize", "table.exec.sink.keyed-shuffle",
        "table.exec.disabled-operators",
    )),
)  # fmt: skip


def foreign_setting(key: str) -> ForeignSetting | None:
    """The setting called `key`; None where Flink has none that is known."""
    return next((found for found in FOREIGN if found.has(key)), None)
