"""`tidegate.pipelines.sql` by its short name."""

from tidegate.names import SHORT, replace
from tidegate.pipelines.sql import *  # noqa: F403

replace(__name__, SHORT[__name__])
