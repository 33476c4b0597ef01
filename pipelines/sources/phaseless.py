"""The flip of a source without phases: it has flipped when it is past its ends as of its first plan, never at once.

Those ends are kept in the first step, so that every later run measures against the same ones.
"""

from __future__ import annotations

from tidegate.pipelines.connectors.protocol import Json, PlanRequest

_FIRST_ENDS = "first_ends"


def first_ends(request: PlanRequest) -> Json:
    """The ends as of the first plan of this generation; those of `request` if this is that plan."""
    return request.ends if request.first is None else request.first.step.ranges[_FIRST_ENDS]


def is_first(ranges: Json) -> bool:
    """Whether these are the ranges of a generation's first step."""
    return _FIRST_ENDS in ranges


def ranges(request: PlanRequest, ends: Json, **own: object) -> Json:
    """The ranges of a step: the connector's `own`, and with the first plan its `ends`."""
    return {**own, _FIRST_ENDS: ends} if request.first is None else own
