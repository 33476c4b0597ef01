"""Pictures of an INSERT's epochs and of a source's splits: SVG, for Dagster's metadata and for `tidegate report`."""

from tidegate.pipelines.pictures.outcomes import KEY as OUTCOMES_KEY
from tidegate.pipelines.pictures.outcomes import LAST as LAST_OUTCOMES
from tidegate.pipelines.pictures.outcomes import bar_of, outcomes
from tidegate.pipelines.pictures.splits import KEY as SPLITS_KEY
from tidegate.pipelines.pictures.splits import watermarks
from tidegate.pipelines.pictures.svg import STYLE, markdown

__all__ = ["LAST_OUTCOMES", "OUTCOMES_KEY", "SPLITS_KEY", "STYLE", "bar_of", "markdown", "outcomes", "watermarks"]
