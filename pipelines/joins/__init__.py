"""The temporal join: released probe rows, each with the one version of every build that its plan's pins allow."""

from pipelines.joins.heavy import FEW_PAIRS, HeavyKeysByTable
from pipelines.joins.matching import SMALL_PROBE, TICK_PROBE, Build, Lookup
from pipelines.joins.outcome import Disposition, outcomes
from pipelines.joins.release import Probe, Release, joined

__all__ = [
    "FEW_PAIRS",
    "SMALL_PROBE",
    "TICK_PROBE",
    "Build",
    "Disposition",
    "HeavyKeysByTable",
    "Lookup",
    "Probe",
    "Release",
    "joined",
    "outcomes",
]
