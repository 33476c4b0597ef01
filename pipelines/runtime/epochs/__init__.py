"""What an epoch is, as it is stored before it runs: a record for each kind of plan, with what it reads and counts.

StreamPlan      in processing time: what has landed
EventTimePlan   what the combined watermark has reached
BackfillPlan    spans of time anew, in the place of epochs
RequeuePlan     rows out of quarantine
ProcessPlan     what has landed of all inputs of a process
"""

from tidegate.pipelines.runtime.epochs.backfill import Backfill, BackfillPlan, union
from tidegate.pipelines.runtime.epochs.event_time import NOTHING_RELEASED, EventTimePlan, TimeSpan
from tidegate.pipelines.runtime.epochs.plan import (
    InputRange,
    Landed,
    Lot,
    Pin,
    ReleaseKind,
    ReleasePlan,
    Span,
    StreamPlan,
    digest,
    insert_owner,
)
from tidegate.pipelines.runtime.epochs.process import InputSpan, ProcessPlan, ProcessSpan
from tidegate.pipelines.runtime.epochs.requeue import (
    EventTimeRequeue,
    FromQuarantine,
    RequeuePlan,
    StreamRequeue,
    requeued,
)
from tidegate.pipelines.runtime.epochs.stored import source_row, stored_plan, stored_step

__all__ = [
    "NOTHING_RELEASED",
    "Backfill",
    "BackfillPlan",
    "EventTimePlan",
    "EventTimeRequeue",
    "FromQuarantine",
    "InputRange",
    "InputSpan",
    "Landed",
    "Lot",
    "Pin",
    "ProcessPlan",
    "ProcessSpan",
    "ReleaseKind",
    "ReleasePlan",
    "RequeuePlan",
    "Span",
    "StreamPlan",
    "StreamRequeue",
    "TimeSpan",
    "digest",
    "insert_owner",
    "requeued",
    "source_row",
    "stored_plan",
    "stored_step",
    "union",
]
