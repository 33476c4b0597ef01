"""From the rows of a landed epoch to its row in the watermark log, by the table's strategy, on Spark.

The rules of watermarks are in `tidegate.pipelines.watermarks`; here they meet tables and epochs.
"""

from tidegate.pipelines.runtime.watermark_log.epoch import EpochTime
from tidegate.pipelines.runtime.watermark_log.row import SignalEmit, splits_after, watermark_row
from tidegate.pipelines.runtime.watermark_log.strategies import strategy_of

__all__ = ["EpochTime", "SignalEmit", "splits_after", "strategy_of", "watermark_row"]
