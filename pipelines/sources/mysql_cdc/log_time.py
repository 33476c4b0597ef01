"""How far the binlog's own time has come by the end of a step, whichever tables it is of.

A table that nothing is written to would say nothing of it; the transactions of the others do.
"""

from __future__ import annotations

from tidegate.pipelines.sources.mysql_cdc.binlog.model import BinlogPosition, ServerOptions
from tidegate.pipelines.sources.mysql_cdc.binlog.scan import commit_time
from tidegate.pipelines.sources.mysql_cdc.steps import BinlogStep


def log_time(server: ServerOptions, step: BinlogStep) -> int | None:
    """When the last transaction of the step committed (ms, UTC); None when it has none.

    The step's last file is scanned for it, and those before it only where no transaction begins there. Raises
    BinlogPurged and what else reading a binlog may.
    """
    for file in reversed(step.files):
        start = step.span.start if file == step.span.start.file else BinlogPosition(file)
        found = commit_time(server, start, step.span.end)
        if found is not None:
            return found // 1000
    return None
