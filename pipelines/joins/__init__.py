"""The temporal join: released probe rows, each with the one version of every build that its plan's pins allow."""

from tidegate.pipelines.joins.outcome import Disposition, outcomes
from tidegate.pipelines.joins.release import Build, Joining, Probe
from tidegate.pipelines.joins.task import dealt, row_groups
from tidegate.pipelines.joins.writer import Release, Staged

__all__ = ["Build", "Disposition", "Joining", "Probe", "Release", "Staged", "dealt", "outcomes", "row_groups"]
