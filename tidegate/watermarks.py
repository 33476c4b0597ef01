"""`tidegate.pipelines.watermarks` by its short name."""

from tidegate.names import SHORT, replace
from tidegate.pipelines.watermarks import *  # noqa: F403

replace(__name__, SHORT[__name__])
