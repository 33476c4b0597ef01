"""From the rows of a landed epoch to its row in the watermark log, by the table's strategy."""

from tidegate.pipelines.runtime.watermarking.emit import SignalEmit
from tidegate.pipelines.runtime.watermarking.epoch import EpochTime
from tidegate.pipelines.runtime.watermarking.row import splits_after, watermark_row
from tidegate.pipelines.runtime.watermarking.strategies import strategy_of

__all__ = ["EpochTime", "SignalEmit", "splits_after", "strategy_of", "watermark_row"]
