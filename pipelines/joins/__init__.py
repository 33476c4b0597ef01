"""The temporal join: released probe rows, each with the one version of every build that its plan's pins allow."""

from pipelines.joins.outcome import Disposition, outcomes
from pipelines.joins.release import TICK_PROBE, Build, Probe, Release, joined

__all__ = ["TICK_PROBE", "Build", "Disposition", "Probe", "Release", "joined", "outcomes"]
