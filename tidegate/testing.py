"""`tidegate.pipelines.testing` by its short name."""

from tidegate.names import SHORT, replace
from tidegate.pipelines.testing import *  # noqa: F403

replace(__name__, SHORT[__name__])
