"""How often each item was clicked so far: a process function with a state."""

from datetime import timedelta

from tidegate.pipelines.process import EventTimeExtension, OneInputEventTimeStreamProcessFunction, StateDeclarations
from tidegate.pipelines.sql import compile_script

SEEN = StateDeclarations.value_state("seen", "BIGINT")


class Count(OneInputEventTimeStreamProcessFunction):
    """A row for each click, with its number."""

    def uses_states(self):
        return (SEEN,)

    def process_record(self, record, output, ctx):
        seen = ctx.get_state_manager().get_state(SEEN)
        n = (seen.value() or 0) + 1
        seen.update(n)
        output.collect((record.id, record.item.strip(), n))


TABLES = """
CREATE TABLE clicks (id INT, item STRING, shop STRING, at BIGINT) WITH (
    'connector' = 'filesystem', 'path' = 'clicks', 'format' = 'json');
"""

event_time = (
    EventTimeExtension.new_watermark_generator_builder(lambda click: click.at)
    .with_max_out_of_order_time(timedelta(seconds=10))
    .build_as_process_function()
)

pipeline = compile_script(TABLES).process(
    "counts",
    ("clicks", event_time),
    key="item",
    function=EventTimeExtension.wrap_process_function(Count()),
    schema="id INT, item STRING, n BIGINT",
    buckets=2,
)
