"""`tidegate.pipelines.process` by its short name."""

from tidegate.names import SHORT, replace
from tidegate.pipelines.process import *  # noqa: F403

replace(__name__, SHORT[__name__])
