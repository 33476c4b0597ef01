from tidegate.pipelines.connectors.protocol import Json, PlanRequest, Step, StoredStep
from tidegate.pipelines.sources import phaseless
from tidegate.pipelines.sources.datagen import CONNECTOR


def request(ends: Json, first: StoredStep | None = None) -> PlanRequest:
    return PlanRequest(ends=ends, instant=0, first=first)


def test_the_first_step_keeps_the_ends_for_all_later_ones():
    ranges = phaseless.ranges(request({"at": 5}), {"at": 5}, to=3)
    assert ranges["to"] == 3
    first = StoredStep(Step(ranges), 1, 1, 0)
    assert phaseless.first_ends(request({"at": 5})) == {"at": 5}
    assert phaseless.first_ends(request({"at": 9}, first)) == {"at": 5}
    assert phaseless.ranges(request({"at": 9}, first), {"at": 9}, to=4) == {"to": 4}
    assert not CONNECTOR.spec.phases({})
