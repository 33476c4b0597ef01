"""Pictures of an INSERT's epochs and of a source's splits: SVG, for Dagster's metadata and for `tidegate report`."""

from tidegate.pipelines.pictures.charts import LAST_OUTCOMES, OUTCOMES_KEY, SPLITS_KEY, bar_of, outcomes, watermarks
from tidegate.pipelines.pictures.svg import STYLE, markdown

__all__ = ["LAST_OUTCOMES", "OUTCOMES_KEY", "SPLITS_KEY", "STYLE", "bar_of", "markdown", "outcomes", "watermarks"]
