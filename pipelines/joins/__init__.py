"""The temporal join: released probe rows, each with the one version of every build that its plan's pins allow."""

from pipelines.joins.outcome import Disposition, outcomes
from pipelines.joins.release import Build, Joining, Probe
from pipelines.joins.task import dealt, row_groups
from pipelines.joins.writer import Release, Staged

__all__ = ["Build", "Disposition", "Joining", "Probe", "Release", "Staged", "dealt", "outcomes", "row_groups"]
