"""From the rows of a landed epoch to its row in the watermark log, by the table's strategy, on Spark.

The rules of watermarks are in `tidegate.pipelines.watermarks`; here they meet tables and epochs.
"""

from tidegate.pipelines.runtime.watermark_log.epoch import EpochTime, strategy_of
from tidegate.pipelines.runtime.watermark_log.row import SignalEmit, splits_after, watermark_row

__all__ = ["EpochTime", "SignalEmit", "splits_after", "strategy_of", "watermark_row"]
