from tests.pipelines.sources.sources_help import NoSplits, table
from tidegate.pipelines.connectors.protocol import SourceContext, Step, StoredStep
from tidegate.pipelines.sources import phaseless
from tidegate.pipelines.sources.datagen import CONNECTOR


def context(first: StoredStep | None) -> SourceContext:
    return SourceContext(table({}, "datagen"), {}, 1, NoSplits(), "", lambda: 0, first=first)


def test_the_first_step_keeps_the_ends_for_all_later_ones():
    ranges = phaseless.ranges(context(None), {"at": 5}, to=3)
    assert ranges["to"] == 3
    first = StoredStep(Step(ranges), 1, 1, 0)
    assert phaseless.first_ends(context(None), {"at": 5}) == {"at": 5}
    assert phaseless.first_ends(context(first), {"at": 9}) == {"at": 5}
    assert phaseless.ranges(context(first), {"at": 9}, to=4) == {"to": 4}
    assert not CONNECTOR.spec.phases({})
