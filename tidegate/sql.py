"""`tidegate.pipelines.sql` by its short name."""

from typing import TYPE_CHECKING

from tidegate.names import SHORT, replace

if TYPE_CHECKING:
    from tidegate.pipelines.sql import *  # noqa: F403

replace(__name__, SHORT[__name__])
